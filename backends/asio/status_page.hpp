// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "adapters/formats/json.hpp"

namespace darlcore::http {

/// The status of a server as one HTML page: readable without script, no external resources, relative links only
/// (portals mount it under a sub-path), everything escaped. `status` as GET /status gives it.
std::string status_page(const json::value& status);

/// The same for a terminal.
std::string status_text(const json::value& status);

}  // namespace darlcore::http
