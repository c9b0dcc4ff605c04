// SPDX-License-Identifier: Apache-2.0
#include "backends/asio/http_message.hpp"

#include <algorithm>

namespace darlcore::http {

namespace {

constexpr std::size_t query_fields_max = 32;

int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

}  // namespace

const std::string* request_head::find(std::string_view name) const {
    for (const field& f : fields)
        if (f.name == name) return &f.value;
    return nullptr;
}

std::string_view reason_phrase(int status) {
    switch (status) {
        case 100:
            return "Continue";
        case 200:
            return "OK";
        case 201:
            return "Created";
        case 204:
            return "No Content";
        case 206:
            return "Partial Content";
        case 400:
            return "Bad Request";
        case 401:
            return "Unauthorized";
        case 403:
            return "Forbidden";
        case 404:
            return "Not Found";
        case 405:
            return "Method Not Allowed";
        case 408:
            return "Request Timeout";
        case 409:
            return "Conflict";
        case 410:
            return "Gone";
        case 413:
            return "Content Too Large";
        case 414:
            return "URI Too Long";
        case 416:
            return "Range Not Satisfiable";
        case 417:
            return "Expectation Failed";
        case 422:
            return "Unprocessable Content";
        case 429:
            return "Too Many Requests";
        case 431:
            return "Request Header Fields Too Large";
        case 460:
            return "Checksum Mismatch";
        case 500:
            return "Internal Server Error";
        case 503:
            return "Service Unavailable";
        case 507:
            return "Insufficient Storage";
        default:
            return "Status";
    }
}

std::optional<std::string> percent_decode(std::string_view text, bool plus_is_space) {
    std::string out;
    out.reserve(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) {
        char c = text[i];
        if (c == '%') {
            if (i + 2 >= text.size()) return std::nullopt;
            const int high = hex_digit(text[i + 1]);
            const int low = hex_digit(text[i + 2]);
            if (high < 0 || low < 0) return std::nullopt;
            c = static_cast<char>(high * 16 + low);
            if (c == '\0') return std::nullopt;
            i += 2;
        } else if (c == '+' && plus_is_space) {
            c = ' ';
        }
        out.push_back(c);
    }
    return out;
}

std::optional<std::vector<std::pair<std::string, std::string>>> parse_query(std::string_view query) {
    std::vector<std::pair<std::string, std::string>> out;
    while (!query.empty()) {
        const std::size_t stop = std::min(query.find('&'), query.size());
        const std::string_view item = query.substr(0, stop);
        query.remove_prefix(std::min(stop + 1, query.size()));
        if (item.empty()) continue;
        if (out.size() == query_fields_max) return std::nullopt;
        const std::size_t equals = std::min(item.find('='), item.size());
        auto key = percent_decode(item.substr(0, equals), true);
        auto value = percent_decode(equals < item.size() ? item.substr(equals + 1) : std::string_view{}, true);
        if (!key || !value) return std::nullopt;
        out.emplace_back(std::move(*key), std::move(*value));
    }
    return out;
}

std::optional<std::uint64_t> parse_decimal(std::string_view text) {
    if (text.empty() || text.size() > 19) return std::nullopt;  // 19 digits always fit in 64 bits
    std::uint64_t value = 0;
    for (const char c : text) {
        if (c < '0' || c > '9') return std::nullopt;
        value = value * 10 + static_cast<std::uint64_t>(c - '0');
    }
    return value;
}

range_answer parse_range(std::string_view value, std::uint64_t size, byte_range& out) {
    constexpr std::string_view unit = "bytes=";
    if (!value.starts_with(unit)) return range_answer::whole;
    value.remove_prefix(unit.size());
    const std::size_t dash = value.find('-');
    if (dash == std::string_view::npos) return range_answer::unsatisfiable;
    const std::string_view left = value.substr(0, dash);
    const std::string_view right = value.substr(dash + 1);
    const auto last = parse_decimal(right);
    if (!right.empty() && !last) return range_answer::unsatisfiable;
    if (left.empty()) {
        if (!last || *last == 0 || size == 0) return range_answer::unsatisfiable;
        out = {size - std::min(size, *last), size};
        return range_answer::part;
    }
    const auto first = parse_decimal(left);
    if (!first || *first >= size || (last && *last < *first)) return range_answer::unsatisfiable;
    out = {*first, last ? std::min(size, *last + 1) : size};
    return range_answer::part;
}

}  // namespace darlcore::http
