// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "darlcore/error.hpp"

namespace darlcore::client {

/// Which proxy a site uses. Environment variables count only when asked for: on loopback and NAT sites they do harm.
struct proxy_choice {
    enum class kind : std::uint8_t { none, environment, url };
    kind use = kind::none;
    std::string url;            ///< http://[user:password@]host:port, for kind::url
    std::string user_password;  ///< "user:password" from a 0600 file; wins over the URL's
};

/// Reads `env`, `none` or a URL.
/// Errors: errc::invalid_argument.
result<proxy_choice> parse_proxy(std::string_view text);

/// The proxy for a server, empty = none. Never one for loopback. `environment` looks up a variable (empty = unset):
/// https_proxy for https, http_proxy (lower case only) for http.
std::string proxy_for(std::string_view server_url, const proxy_choice& choice,
                      const std::function<std::string(const char*)>& environment);

struct client_options {
    std::string base_url;  ///< http(s)://host:port[/prefix]
    std::string token;     ///< sent as X-DARL-Token
    proxy_choice proxy;
    std::string ca_file;  ///< empty = the system's authorities
    std::string client_certificate_file;
    std::string client_key_file;
    bool insecure = false;  ///< allow a token over plain HTTP to a peer that is not loopback
    std::int64_t connect_ms = 10'000;
    std::int64_t call_ms = 30'000;
    std::uint64_t answer_bytes_max = std::uint64_t{64} << 20U;  ///< for answers kept in memory
};

/// One request.
struct call {
    std::string method = "GET";
    std::string path;  ///< from '/', appended to base_url; may have a query
    std::vector<std::pair<std::string, std::string>> headers;
    std::string_view body;  ///< must outlive the call
    std::string content_type = "application/json";
    std::int64_t call_ms = 0;  ///< 0 = the client's
    /// Takes the body of a 2xx answer in pieces instead of `answer::body`; false ends the call with errc::cancelled.
    std::function<bool(std::string_view)> sink;
};

/// One answer, whatever its status.
struct answer {
    int status = 0;
    std::vector<std::pair<std::string, std::string>> headers;  ///< names in lower case
    std::string body;
    std::optional<double> retry_after_s;
    double seconds = 0;
    bool from_darl = false;  ///< false: a proxy or some other server answered

    [[nodiscard]] const std::string* header(std::string_view lower_case_name) const;
};

/// Blocking HTTP client with one kept-alive connection.
/// Errors of `perform`: errc::unreachable (no connection, cut off; context says whether the proxy was at fault),
/// errc::timeout, errc::cancelled (by `cancel` or the sink), errc::token (a token would go over plain HTTP),
/// errc::too_large. Thread-safety: `perform` from one thread at a time; `cancel` from any.
class http_client {
public:
    /// Errors: errc::invalid_argument (URL, files), errc::token (see `insecure`).
    static result<http_client> make(client_options options);
    http_client(http_client&&) noexcept;
    http_client& operator=(http_client&&) noexcept;
    ~http_client();

    result<answer> perform(const call& c);

    /// Ends a running `perform` and every later one with errc::cancelled.
    void cancel();
    [[nodiscard]] bool cancelled() const;
    [[nodiscard]] const client_options& options() const;

private:
    class implementation;
    explicit http_client(std::unique_ptr<implementation> impl);
    std::unique_ptr<implementation> impl_;
};

}  // namespace darlcore::client
