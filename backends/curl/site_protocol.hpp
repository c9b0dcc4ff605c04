// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "adapters/formats/json.hpp"
#include "darlcore/error.hpp"
#include "darlcore/site/messages.hpp"

/// The site's requests and the server's answers as JSON. Nothing here decides anything.
namespace darlcore::client {

/// Where a request goes and what its body is.
struct wire_request {
    std::string path;
    json::value body;
};

wire_request encode(const site::request& what, std::string_view request_id);
wire_request encode(const ledger::heartbeat_request& beat, std::string_view request_id);

/// Reads the answer to `asked`. Unknown fields are ignored.
/// Errors: errc::parse_error naming the field that is missing or of the wrong kind.
result<site::reply> decode(const site::request& asked, const json::value& body);
result<ledger::heartbeat_reply> decode_heartbeat(const ledger::heartbeat_request& asked, const json::value& body);

}  // namespace darlcore::client
