// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "backends/asio/exchange.hpp"

namespace darlcore::http {

/// The head of a reply as bytes, blank line included. `keep_alive` decides the Connection field; `date` is its Date
/// field. Content-Length follows from body or file; streamed replies are chunked for HTTP/1.1 and end with the
/// connection for 1.0. Preconditions (asserted): no CR, LF or NUL in names and values.
std::string reply_head_text(const reply& r, int minor_version, bool keep_alive, std::string_view date);

/// `{"error":...,"code":...}` with the status of the refusal; closes.
reply refusal_reply(const refusal& r);

}  // namespace darlcore::http
