// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "adapters/formats/json.hpp"
#include "backends/curl/http_client.hpp"
#include "backends/curl/retry.hpp"

namespace darlcore::client {

/// An answer with its JSON body. `code` and `sentence` are those of an error answer, else empty.
struct json_answer {
    int status = 0;
    json::value body;
    std::string code;
    std::string sentence;
    std::optional<double> retry_after_s;
    double seconds = 0;

    [[nodiscard]] bool ok() const { return status >= 200 && status < 300; }
    /// As an error: the wire code where it is known, with the server's sentence.
    [[nodiscard]] error as_error() const;
};

/// One POST (or GET when `body` is null) without retries. An answer that is not the server's own (a proxy's page) is
/// errc::unreachable with "proxy" in its context; 401 and 403 of the server are answers, not errors.
result<json_answer> json_call(http_client& client, std::string_view path, const json::value& body,
                              std::int64_t call_ms = 0);

/// What `retrying_json_call` needs of the world.
struct retry_world {
    std::function<double()> uniform;            ///< uniform in [0, 1)
    std::function<bool(double seconds)> sleep;  ///< false: give up (a stop was asked for)
};

/// The same with the retry rules: transport failures and the statuses of `is_retried`, with the same body (and so the
/// same request id). Gives the last answer or failure when the tries are used up.
result<json_answer> retrying_json_call(http_client& client, std::string_view path, const json::value& body,
                                       const retry_world& world, const retry_policy& policy = {},
                                       std::int64_t call_ms = 0);

}  // namespace darlcore::client
