// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backends/asio/http_reader.hpp"

namespace darlcore::http::testing {

/// What a reader made of some bytes: the complete requests as text, then how it stopped (0 = wants more, else the
/// status).
struct reading {
    std::vector<std::string> requests;
    int status = 0;
    std::string why;
    friend bool operator==(const reading&, const reading&) = default;
};

inline std::string head_text(const request_head& h) {
    std::string text = h.method + ' ' + h.path + '?' + h.query + " 1." + std::to_string(h.minor_version);
    for (const field& f : h.fields) text += '|' + f.name + '=' + f.value;
    text += h.keep_alive ? " keep" : " close";
    if (h.expect_continue) text += " expect";
    return text;
}

/// Feeds `bytes` in the cuts of `cut` (bytes per push; a repeating pattern; empty = all at once).
inline reading read_all(std::string_view bytes, const std::vector<std::size_t>& cut = {},
                        const reader_limits& limits = {}) {
    http_reader reader(limits);
    reading out;
    std::string current;
    std::size_t turn = 0;
    for (;;) {
        switch (reader.next()) {
            case http_reader::event::head:
                current = head_text(reader.head()) + " body=";
                break;
            case http_reader::event::body:
                current += reader.body();
                break;
            case http_reader::event::end:
                out.requests.push_back(current);
                break;
            case http_reader::event::refused:
                out.status = reader.why().status;
                out.why = reader.why().sentence;
                return out;
            case http_reader::event::need_more: {
                if (bytes.empty()) return out;
                std::size_t n = cut.empty() ? bytes.size() : cut[turn++ % cut.size()];
                n = std::min(std::max<std::size_t>(n, 1), bytes.size());
                reader.push(bytes.substr(0, n));
                bytes.remove_prefix(n);
            }
        }
    }
}

}  // namespace darlcore::http::testing
