// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "adapters/cli/token_input.hpp"
#include "darlcore/error.hpp"

namespace darl {

struct generation_request {
    server_access server;
    std::int64_t generation = -1;  ///< the one that is expected; -1: whatever is current
    std::string path;              ///< file to make
};

/// Fetches the current weights of a server, as its sites get them (bf16), and gives their generation. The digest is
/// checked; a failure leaves no file.
/// Errors: errc::not_found (no weights yet, or another generation is current), and those of the transfer.
darlcore::result<std::int64_t> fetch_generation(const generation_request& request);

}  // namespace darl
