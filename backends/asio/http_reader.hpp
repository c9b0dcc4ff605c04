// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "backends/asio/chunk_decoder.hpp"
#include "backends/asio/http_message.hpp"

namespace darlcore::http {

/// Bounds of one request (design table "network surface").
struct reader_limits {
    std::size_t request_line_bytes_max = std::size_t{8} << 10U;
    std::size_t head_bytes_max = std::size_t{16} << 10U;
    std::size_t fields_max = 100;
    /// Chunk headers and trailers between two pieces of a chunked body.
    std::size_t chunk_head_bytes_max = std::size_t{4} << 10U;
};

/// Reads HTTP/1.1 requests from bytes, in any cut; no sockets, no clock.
/// Promises: a request is either complete and unambiguous or refused with the status to answer; nothing behind a
/// refused request is ever read as another request. Strict: CRLF only, no obs-fold, no NUL, one Host, one
/// Content-Length of digits, Transfer-Encoding only `chunked` and never beside Content-Length, HTTP/1.0 and 1.1 only.
/// Determinism: the sequence of events depends on the bytes alone, not on how they were cut (body pieces may be cut
/// differently). Thread-safety: one thread at a time. Source: RFC 9112; the request line and the fields by
/// Boost.Beast's basic_parser; chunks and the stricter checks are ours.
class http_reader {
public:
    enum class event : std::uint8_t {
        need_more,  ///< give bytes with prepare/commit
        head,       ///< `head()` is ready; the body follows
        body,       ///< `body()` is the next piece, valid until the next call of anything else
        end,        ///< the request is complete; `next` goes on with the following one
        refused,    ///< `why()`; answer it and close. Repeats for ever
    };

    explicit http_reader(const reader_limits& bounds = {});
    http_reader(const http_reader&) = delete;
    http_reader& operator=(const http_reader&) = delete;

    /// Room for at least `bytes` bytes from the peer; `commit` says how many came.
    std::span<char> prepare(std::size_t bytes);
    void commit(std::size_t bytes);
    /// Both in one, for callers that hold the bytes already.
    void push(std::string_view bytes);

    /// The next fact about what was pushed.
    event next();

    [[nodiscard]] const request_head& head() const { return head_; }
    [[nodiscard]] request_head take_head() { return std::move(head_); }
    [[nodiscard]] std::string_view body() const { return piece_; }
    [[nodiscard]] const refusal& why() const { return why_; }

    /// True before the first byte of a request (an idle connection may be closed without an answer).
    [[nodiscard]] bool between_requests() const;
    /// Bytes received and not yet consumed.
    [[nodiscard]] std::size_t buffered() const { return end_ - begin_; }
    /// Body bytes of the current request given out so far.
    [[nodiscard]] std::uint64_t body_bytes() const { return body_bytes_; }

private:
    class parser;
    enum class phase : std::uint8_t { head, body, failed };

    event next_head();
    event next_body();
    event refuse(int status, std::string_view code, std::string_view sentence);
    /// Looks at new bytes of a head. 1 = complete (scan_ = its end), 0 = more needed, -1 = refused.
    int scan();
    bool end_of_line(std::size_t at);
    bool accept_head(std::string_view target);

    reader_limits bounds_;
    chunk_decoder chunks_;
    request_head head_;
    std::string_view piece_;
    refusal why_;
    phase phase_ = phase::head;

    std::string buffer_;
    std::size_t begin_ = 0;  // first byte not consumed
    std::size_t end_ = 0;    // one behind the last byte received
    std::size_t scan_ = 0;   // bytes of the current head looked at
    std::size_t line_ = 0;   // start of the current line, relative to begin_
    std::size_t lines_ = 0;
    bool blank_skipped_ = false;
    std::uint64_t body_bytes_ = 0;
};

}  // namespace darlcore::http
