// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/asio/exchange.hpp"
#include "backends/asio/token_file.hpp"

namespace darlcore::http {

struct access_options {
    bool open = false;               ///< no tokens at all: only for a loopback listener
    std::vector<std::string> hosts;  ///< names (without port) this server is known by, beside loopback and addresses
    std::size_t in_flight_max = 32;  ///< per token
};

/// Who may do what: tokens, scopes, site names, hosts, requests in flight per token.
class access_control {
public:
    access_control(access_options options, token_table tokens)
        : options_(std::move(options)), tokens_(std::move(tokens)) {}

    /// A reload (SIGHUP); requests under way keep what they were given.
    void replace(token_table tokens) { tokens_ = std::move(tokens); }

    /// The caller's identity, or why not (401 token, 403 wrong_scope for a foreign Host or Origin).
    /// No token at all is an identity without scopes when `anonymous_ok`; a wrong one never is.
    std::optional<refusal> identify(const request_head& head, std::int64_t now_s, bool anonymous_ok,
                                    identity& who) const;
    [[nodiscard]] bool speaks_for(const identity& who, std::string_view cluster) const {
        return options_.open || tokens_.speaks_for(who, cluster);
    }

    /// One more request of this token, while the returned handle lives; null pointer over the cap.
    std::shared_ptr<void> admit(const identity& who);

private:
    access_options options_;
    token_table tokens_;
    std::map<std::uint64_t, std::size_t> in_flight_;
};

/// Which token a request carries: X-DARL-Token, Authorization: Bearer, or the password of Authorization: Basic
/// (browsers). Nothing when there is none; two that differ are nothing too.
std::optional<std::string> token_of(const request_head& head);

/// Host without its port; brackets of an IPv6 address removed.
std::string_view host_name_of(std::string_view host);

}  // namespace darlcore::http
