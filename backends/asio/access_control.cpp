// SPDX-License-Identifier: Apache-2.0
#include "backends/asio/access_control.hpp"

#include <algorithm>

namespace darlcore::http {

namespace {

int base64_digit(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    if (c == '+') return 62;
    if (c == '/') return 63;
    return -1;
}

std::optional<std::string> base64_decode(std::string_view text) {
    while (text.ends_with('=')) text.remove_suffix(1);
    std::string out;
    unsigned bits = 0;
    unsigned held = 0;
    for (const char c : text) {
        const int digit = base64_digit(c);
        if (digit < 0) return std::nullopt;
        held = (held << 6U) | static_cast<unsigned>(digit);
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            out.push_back(static_cast<char>((held >> bits) & 255U));
        }
    }
    return out;
}

bool starts_with_word(std::string_view text, std::string_view lower_word) {
    if (text.size() <= lower_word.size() || text[lower_word.size()] != ' ') return false;
    return std::equal(lower_word.begin(), lower_word.end(), text.begin(), [](char a, char b) {
        return a == (b >= 'A' && b <= 'Z' ? static_cast<char>(b - 'A' + 'a') : b);
    });
}

bool is_address(std::string_view host) {
    if (host.find(':') != std::string_view::npos) return true;  // IPv6
    return !host.empty() && host.find_first_not_of("0123456789.") == std::string_view::npos;
}

// A page of another site must not be able to use a browser on this network: it can only send its own name.
bool is_foreign_origin(const request_head& head) {
    const std::string* origin = head.find("origin");
    if (origin == nullptr || *origin == "null") return origin != nullptr;
    const std::size_t slashes = origin->find("//");
    return slashes == std::string::npos || std::string_view(*origin).substr(slashes + 2) != head.host;
}

}  // namespace

std::string_view host_name_of(std::string_view host) {
    if (host.starts_with('[')) return host.substr(1, host.find(']') - 1);
    return host.substr(0, host.find(':'));
}

std::optional<std::string> token_of(const request_head& head) {
    std::optional<std::string> found;
    if (const std::string* own = head.find("x-darl-token")) found = *own;
    if (const std::string* usual = head.find("authorization")) {
        std::optional<std::string> other;
        if (starts_with_word(*usual, "bearer")) {
            other = usual->substr(7);
        } else if (starts_with_word(*usual, "basic")) {
            const auto pair = base64_decode(std::string_view(*usual).substr(6));
            if (pair && pair->find(':') != std::string::npos) other = pair->substr(pair->find(':') + 1);
        }
        if (other && found && *other != *found) return std::string();
        if (other) found = other;
    }
    return found;
}

std::optional<refusal> access_control::identify(const request_head& head, std::int64_t now_s, bool anonymous_ok,
                                                identity& who) const {
    if (is_foreign_origin(head))
        return refusal{403, "wrong_scope", "requests from pages of other sites are not accepted"};
    if (options_.open) {
        const std::string_view host = host_name_of(head.host);
        const bool known = host == "localhost" || is_address(host) ||
                           std::find(options_.hosts.begin(), options_.hosts.end(), host) != options_.hosts.end();
        if (!known)
            return refusal{403, "wrong_scope",
                           "this server has no tokens and answers to loopback names only; see --host-name"};
        who = {"", *parse_scopes({"admin"}), 0};
        return std::nullopt;
    }
    const auto token = token_of(head);
    if (!token && anonymous_ok) return std::nullopt;
    if (!token) return refusal{401, "token", "a token is needed: send it as X-DARL-Token"};
    const auto found = tokens_.find(*token, now_s);
    if (!found)
        return refusal{401, "token", "the token is unknown, not valid yet or expired; ask the server's operator"};
    who = *found;
    return std::nullopt;
}

std::shared_ptr<void> access_control::admit(const identity& who) {
    std::size_t& count = in_flight_[who.key];
    if (!options_.open && count >= options_.in_flight_max) return nullptr;  // without tokens everybody is one
    ++count;
    return {this, [key = who.key](void* self) {
                auto& map = static_cast<access_control*>(self)->in_flight_;
                const auto it = map.find(key);
                if (it != map.end() && --it->second == 0) map.erase(it);
            }};
}

}  // namespace darlcore::http
