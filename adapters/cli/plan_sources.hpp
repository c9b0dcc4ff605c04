// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "adapters/cli/plan/chance.hpp"
#include "adapters/cli/token_input.hpp"

namespace darl {

/// GET path of the server. Errors: transport; the server's own refusal with its sentence; errc::not_found.
darlcore::result<darlcore::json::value> ask_server(const server_access& server, const std::string& path);

/// PUT /plan: the document becomes the plan page of the server. Errors: as ask_server.
darlcore::result<void> publish_plan(const server_access& server, const darlcore::json::value& document);

/// Reads `SITE=FILE` histories (SWF or sacct). Errors: errc::not_found, errc::parse_error, errc::bad_request naming the
/// file and the fix.
darlcore::result<plan_io::histories> read_histories(const std::vector<std::string>& arguments);

}  // namespace darl
