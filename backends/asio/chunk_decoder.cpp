// SPDX-License-Identifier: Apache-2.0
#include "backends/asio/chunk_decoder.hpp"

#include <algorithm>

namespace darlcore::http {

namespace {

bool is_token_char(char c) {
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) return true;
    return c != '\0' && std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

bool is_text_char(char c) { return c == '\t' || static_cast<unsigned char>(c) >= 32; }

bool take_token(std::string_view& text) {
    std::size_t n = 0;
    while (n < text.size() && is_token_char(text[n])) ++n;
    text.remove_prefix(n);
    return n > 0;
}

bool take_quoted(std::string_view& text) {
    text.remove_prefix(1);
    while (!text.empty() && text.front() != '"') {
        if (text.front() == '\\') text.remove_prefix(1);
        if (text.empty() || !is_text_char(text.front())) return false;
        text.remove_prefix(1);
    }
    if (text.empty()) return false;
    text.remove_prefix(1);
    return true;
}

// *( ";" token [ "=" ( token / quoted-string ) ] )
bool are_extensions(std::string_view text) {
    while (!text.empty()) {
        if (text.front() != ';') return false;
        text.remove_prefix(1);
        if (!take_token(text)) return false;
        if (text.empty() || text.front() != '=') continue;
        text.remove_prefix(1);
        if (!text.empty() && text.front() == '"' ? !take_quoted(text) : !take_token(text)) return false;
    }
    return true;
}

bool is_trailer(std::string_view line) {
    if (!take_token(line) || line.empty() || line.front() != ':') return false;
    return std::all_of(line.begin(), line.end(), [](char c) { return is_text_char(c) && c != 127; });
}

}  // namespace

bool chunk_decoder::collect_line(std::string_view& bytes, bool& malformed) {
    while (!bytes.empty()) {
        const char c = bytes.front();
        bytes.remove_prefix(1);
        if (c == '\r') return true;
        if (!is_text_char(c) || line_.size() == line_bytes_max_) {
            malformed = true;
            return false;
        }
        line_.push_back(c);
    }
    return false;
}

bool chunk_decoder::take_size_line() {
    std::string_view text = line_;
    std::size_t digits = 0;
    left_ = 0;
    for (; digits < text.size(); ++digits) {
        const char c = text[digits];
        std::uint64_t digit = 0;
        if (c >= '0' && c <= '9')
            digit = static_cast<std::uint64_t>(c - '0');
        else if (c >= 'a' && c <= 'f')
            digit = static_cast<std::uint64_t>(c - 'a') + 10;
        else if (c >= 'A' && c <= 'F')
            digit = static_cast<std::uint64_t>(c - 'A') + 10;
        else
            break;
        left_ = left_ << 4U | digit;
    }
    const bool good = digits >= 1 && digits <= 15 && are_extensions(text.substr(digits));
    line_.clear();
    return good;
}

chunk_decoder::outcome chunk_decoder::next(std::string_view& bytes) {
    piece_ = {};
    while (state_ != state::done && state_ != state::malformed) {
        if (bytes.empty()) return outcome::need_more;
        bool malformed = false;
        switch (state_) {
            case state::size_line:
                if (collect_line(bytes, malformed)) {
                    if (!take_size_line()) return fail();
                    state_ = state::size_lf;
                }
                break;
            case state::data: {
                const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(left_, bytes.size()));
                piece_ = bytes.substr(0, n);
                bytes.remove_prefix(n);
                left_ -= n;
                if (left_ == 0) state_ = state::data_cr;
                return outcome::piece;
            }
            case state::trailer_line:
                if (collect_line(bytes, malformed)) {
                    trailer_bytes_ += line_.size();
                    if (trailer_bytes_ > line_bytes_max_ || (!line_.empty() && !is_trailer(line_))) return fail();
                    state_ = state::trailer_lf;
                }
                break;
            case state::data_cr:
                malformed = bytes.front() != '\r';
                bytes.remove_prefix(1);
                state_ = state::data_lf;
                break;
            default:  // an LF
                malformed = bytes.front() != '\n';
                bytes.remove_prefix(1);
                if (state_ == state::size_lf)
                    state_ = left_ > 0 ? state::data : state::trailer_line;
                else if (state_ == state::data_lf)
                    state_ = state::size_line;
                else
                    state_ = line_.empty() ? state::done : state::trailer_line;
                line_.clear();
        }
        if (malformed) return fail();
    }
    return state_ == state::done ? outcome::done : outcome::malformed;
}

}  // namespace darlcore::http
