// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "darlcore/error.hpp"
#include "darlcore/ledger/requests.hpp"

namespace darlcore::http {

/// Findings about a blob as JSON: kept beside it in the catalogue and shown to its uploader.
std::string scan_text(const ledger::blob_facts& facts);
/// Errors: errc::corrupt.
result<ledger::blob_facts> parse_scan_text(std::string_view text);

}  // namespace darlcore::http
