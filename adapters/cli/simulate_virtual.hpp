// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "adapters/cli/cli_support.hpp"

namespace darl {

struct virtual_options {
    std::uint64_t first_seed = 1;
    std::uint64_t seeds = 100;
    bool liveness = false;
    std::string plant = "none";  ///< of sim::planted; for tests
};

/// `darl simulate --virtual`: one simulated run per seed; stops at the first seed that fails, prints it with the
/// fewest faults that make it fail, and sets exit code 1.
void run_virtual(session& s, const virtual_options& o);

}  // namespace darl
