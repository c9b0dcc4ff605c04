// SPDX-License-Identifier: Apache-2.0
#include "backends/asio/http_reader.hpp"

#include <algorithm>
#include <cstring>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>

#include "darlcore/assert.hpp"

namespace darlcore::http {

namespace beast = boost::beast;

namespace {

std::string lower(std::string_view text) {
    std::string out(text);
    for (char& c : out)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return out;
}

bool equals_ignoring_case(std::string_view a, std::string_view lower_case) {
    return a.size() == lower_case.size() && lower(a) == lower_case;
}

/// host [":" port] with the characters that names, addresses and ports have; no user, no path.
bool is_host(std::string_view text) {
    if (text.empty() || text.size() > 255) return false;
    for (const char c : text) {
        const bool alnum = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!alnum && std::string_view("-._~:[]%").find(c) == std::string_view::npos) return false;
    }
    return true;
}

}  // namespace

/// Beast's tokenizer for heads, filling our structs; it owns no buffer.
class http_reader::parser : public beast::http::basic_parser<true> {
public:
    parser(request_head& head, std::size_t fields_max) : head_(head), fields_max_(fields_max) {
        header_limit(UINT32_MAX);  // ours are kept while reading
        body_limit(boost::none);   // bodies are not read here
        eager(false);
    }

    std::string target;
    bool too_many_fields = false;

private:
    using string_view = beast::string_view;
    using error_code = beast::error_code;

    void on_request_impl(beast::http::verb, string_view method, string_view request_target, int version,
                         error_code&) override {
        head_.method.assign(method.data(), method.size());
        target.assign(request_target.data(), request_target.size());
        head_.minor_version = version - 10;
    }
    void on_response_impl(int, string_view, int, error_code&) override {}
    void on_field_impl(beast::http::field, string_view name, string_view value, error_code&) override {
        if (head_.fields.size() == fields_max_) {
            too_many_fields = true;
            return;
        }
        head_.fields.push_back({lower({name.data(), name.size()}), std::string(value.data(), value.size())});
    }
    void on_header_impl(error_code&) override {}
    void on_body_init_impl(const boost::optional<std::uint64_t>&, error_code&) override {}
    std::size_t on_body_impl(string_view body, error_code&) override { return body.size(); }
    void on_chunk_header_impl(std::uint64_t, string_view, error_code&) override {}
    std::size_t on_chunk_body_impl(std::uint64_t, string_view body, error_code&) override { return body.size(); }
    void on_finish_impl(error_code&) override {}

    request_head& head_;
    std::size_t fields_max_;
};

http_reader::http_reader(const reader_limits& bounds) : bounds_(bounds), chunks_(bounds.chunk_head_bytes_max) {}

std::span<char> http_reader::prepare(std::size_t bytes) {
    if (begin_ == end_) begin_ = end_ = 0;
    if (buffer_.size() - end_ < bytes && begin_ > 0) {
        std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
        end_ -= begin_;
        begin_ = 0;
    }
    if (buffer_.size() - end_ < bytes) buffer_.resize(end_ + bytes);
    return {buffer_.data() + end_, buffer_.size() - end_};
}

void http_reader::commit(std::size_t bytes) {
    DARLCORE_ASSERT(bytes <= buffer_.size() - end_);
    end_ += bytes;
}

void http_reader::push(std::string_view bytes) {
    if (bytes.empty()) return;
    std::memcpy(prepare(bytes.size()).data(), bytes.data(), bytes.size());
    commit(bytes.size());
}

bool http_reader::between_requests() const { return phase_ == phase::head && begin_ == end_ && scan_ == 0; }

http_reader::event http_reader::next() {
    piece_ = {};
    switch (phase_) {
        case phase::head:
            return next_head();
        case phase::body:
            return next_body();
        case phase::failed:
            break;
    }
    return event::refused;
}

http_reader::event http_reader::refuse(int status, std::string_view code, std::string_view sentence) {
    why_ = {status, std::string(code), std::string(sentence)};
    phase_ = phase::failed;
    return event::refused;
}

// A line of the head ends at `at` (its LF), relative to begin_. False: refused.
bool http_reader::end_of_line(std::size_t at) {
    const char* const text = buffer_.data() + begin_;
    const std::size_t length = at - 1 - line_;
    if (length > 0 && line_ > 0 && (text[line_] == ' ' || text[line_] == '\t')) {
        refuse(400, "bad_request", "a header line begins with a blank; folded headers are not accepted");
        return false;
    }
    if (lines_ == 0 && length > bounds_.request_line_bytes_max) {
        refuse(414, "too_large", "the request line is too long; at most 8 KiB are accepted");
        return false;
    }
    if (length > 0 && lines_ > bounds_.fields_max) {
        refuse(431, "too_large", "too many header fields; at most 100 are accepted");
        return false;
    }
    ++lines_;
    return true;
}

int http_reader::scan() {
    const char* const text = buffer_.data() + begin_;
    const std::size_t size = end_ - begin_;
    while (scan_ < size) {
        const char c = text[scan_];
        if (scan_ == bounds_.head_bytes_max)
            return refuse(431, "too_large", "the request head is too long; at most 16 KiB are accepted"), -1;
        if (c == '\0') return refuse(400, "bad_request", "a NUL byte in the request head"), -1;
        if (scan_ > 0 && text[scan_ - 1] == '\r' && c != '\n')
            return refuse(400, "bad_request", "a bare CR in the request head; lines end with CR LF"), -1;
        if (c == '\n') {
            if (scan_ == 0 || text[scan_ - 1] != '\r')
                return refuse(400, "bad_request", "a bare LF in the request head; lines end with CR LF"), -1;
            const bool blank = scan_ - 1 == line_;
            if (!end_of_line(scan_)) return -1;
            line_ = ++scan_;
            if (blank) return 1;
            continue;
        }
        ++scan_;
        if (lines_ == 0 && scan_ > bounds_.request_line_bytes_max + 1)
            return refuse(414, "too_large", "the request line is too long; at most 8 KiB are accepted"), -1;
    }
    return 0;
}

http_reader::event http_reader::next_head() {
    if (scan_ == 0 && !blank_skipped_ && begin_ != end_ && buffer_[begin_] == '\r') {
        if (end_ - begin_ == 1) return event::need_more;
        if (buffer_[begin_ + 1] == '\n') {  // RFC 9112 2.2: one empty line before a request is ignored
            begin_ += 2;
            blank_skipped_ = true;
        }
    }
    const int found = scan();
    if (found < 0) return event::refused;
    if (found == 0) return event::need_more;

    head_ = {};
    parser tokens(head_, bounds_.fields_max);
    beast::error_code ec;
    tokens.put(boost::asio::const_buffer(buffer_.data() + begin_, scan_), ec);
    if (tokens.too_many_fields) return refuse(431, "too_large", "too many header fields; at most 100 are accepted");
    if (ec == beast::http::error::bad_version)
        return refuse(400, "bad_request", "unknown protocol version; speak HTTP/1.1");
    if (ec || !tokens.is_header_done()) {
        return refuse(400, "bad_request",
                      "the request head does not follow RFC 9112 (method, target, version or a field)");
    }
    if (!accept_head(tokens.target)) return event::refused;
    begin_ += scan_;
    chunks_ = chunk_decoder(bounds_.chunk_head_bytes_max);
    scan_ = line_ = lines_ = 0;
    blank_skipped_ = false;
    body_bytes_ = 0;
    phase_ = phase::body;
    return event::head;
}

http_reader::event http_reader::next_body() {
    std::string_view bytes(buffer_.data() + begin_, end_ - begin_);
    if (head_.chunked) {
        const auto outcome = chunks_.next(bytes);
        begin_ = end_ - bytes.size();
        if (outcome == chunk_decoder::outcome::malformed)
            return refuse(400, "bad_request",
                          "the chunked body does not follow RFC 9112, or a chunk header is over 4 KiB");
        if (outcome == chunk_decoder::outcome::need_more) return event::need_more;
        piece_ = chunks_.piece();
        if (outcome == chunk_decoder::outcome::done) phase_ = phase::head;
    } else {
        const std::uint64_t left = head_.content_length.value_or(0) - body_bytes_;
        if (left == 0)
            phase_ = phase::head;
        else if (bytes.empty())
            return event::need_more;
        piece_ = bytes.substr(0, static_cast<std::size_t>(std::min<std::uint64_t>(left, bytes.size())));
        begin_ += piece_.size();
    }
    if (phase_ == phase::head) return event::end;
    body_bytes_ += piece_.size();
    return event::body;
}

namespace {

struct framing {
    std::size_t hosts = 0;
    std::size_t lengths = 0;
    std::size_t encodings = 0;
    std::string_view host;
    std::string_view length;
    std::string_view encoding;
    bool close = false;
    bool keep = false;
    const std::string* expect = nullptr;
};

void note_connection(std::string_view list, framing& f) {
    while (!list.empty()) {
        const std::size_t stop = std::min(list.find(','), list.size());
        std::string_view token = list.substr(0, stop);
        list.remove_prefix(std::min(stop + 1, list.size()));
        while (!token.empty() && (token.front() == ' ' || token.front() == '\t')) token.remove_prefix(1);
        while (!token.empty() && (token.back() == ' ' || token.back() == '\t')) token.remove_suffix(1);
        f.close = f.close || equals_ignoring_case(token, "close");
        f.keep = f.keep || equals_ignoring_case(token, "keep-alive");
    }
}

framing framing_of(const request_head& head) {
    framing f;
    for (const field& item : head.fields) {
        if (item.name == "host") {
            ++f.hosts;
            f.host = item.value;
        } else if (item.name == "content-length") {
            ++f.lengths;
            f.length = item.value;
        } else if (item.name == "transfer-encoding") {
            ++f.encodings;
            f.encoding = item.value;
        } else if (item.name == "connection") {
            note_connection(item.value, f);
        } else if (item.name == "expect") {
            f.expect = &item.value;
        }
    }
    return f;
}

/// Sets the body's length or kind; empty text when it is unambiguous, else why not.
std::string_view set_framing(const framing& f, request_head& head) {
    if (f.hosts != 1) return f.hosts == 0 ? "the Host header is missing" : "more than one Host header";
    if (!is_host(f.host)) return "the Host header is not a host name or address";
    if (f.lengths > 1) return "more than one Content-Length header";
    if (f.encodings > 1) return "more than one Transfer-Encoding header";
    if (f.lengths > 0 && f.encodings > 0) return "Content-Length and Transfer-Encoding exclude each other";
    if (f.encodings == 1) {
        if (!equals_ignoring_case(f.encoding, "chunked")) return "the only Transfer-Encoding accepted is chunked";
        if (head.minor_version == 0) return "HTTP/1.0 has no Transfer-Encoding";
        head.chunked = true;
    }
    if (f.lengths == 1) {
        head.content_length = parse_decimal(f.length);
        if (!head.content_length) return "Content-Length must be digits";
    }
    return {};
}

/// Splits the target into path and query; empty text when it is well formed, else why not.
std::string_view set_target(std::string_view target, request_head& head) {
    if (target.starts_with("http://") || target.starts_with("https://")) {  // absolute form, as proxies send it
        target.remove_prefix(target.find("//") + 2);
        const std::size_t slash = target.find_first_of("/?");
        if (!is_host(target.substr(0, slash))) return "the request target is not a path";
        target = slash == std::string_view::npos ? std::string_view("/") : target.substr(slash);
    }
    if (!target.starts_with('/')) return "the request target must begin with a slash";
    for (const char c : target)
        if (c <= ' ' || c == 127 || static_cast<signed char>(c) < 0 || c == '#' || c == '\\' || c == '"' || c == '<' ||
            c == '>')
            return "the request target has a character that must be percent-encoded";
    const std::size_t mark = target.find('?');
    auto path = percent_decode(target.substr(0, mark));
    if (!path) return "the request target has a broken percent escape";
    head.path = std::move(*path);
    if (mark != std::string_view::npos) head.query = std::string(target.substr(mark + 1));
    return {};
}

}  // namespace

bool http_reader::accept_head(std::string_view target) {
    if (head_.minor_version != 0 && head_.minor_version != 1) {
        refuse(400, "bad_request", "unknown protocol version; speak HTTP/1.1");
        return false;
    }
    const framing f = framing_of(head_);
    std::string_view wrong = set_framing(f, head_);
    if (wrong.empty()) wrong = set_target(target, head_);
    if (!wrong.empty()) {
        refuse(400, "bad_request", wrong);
        return false;
    }
    head_.host = std::string(f.host);
    head_.keep_alive = !f.close && (head_.minor_version == 1 || f.keep);
    if (f.expect != nullptr) {
        if (!equals_ignoring_case(*f.expect, "100-continue")) {
            refuse(417, "bad_request", "the only expectation accepted is 100-continue");
            return false;
        }
        head_.expect_continue = head_.minor_version == 1;
    }
    return true;
}

}  // namespace darlcore::http
