// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <asio/awaitable.hpp>

#include "backends/asio/http_message.hpp"

namespace darlcore::http {

/// An open file that is closed when the last reply over it has ended: deleting the name meanwhile does no harm.
class open_file {
public:
    explicit open_file(int fd) : fd_(fd) {}
    ~open_file();
    open_file(const open_file&) = delete;
    open_file& operator=(const open_file&) = delete;
    [[nodiscard]] int fd() const { return fd_; }

private:
    int fd_;
};

/// Bytes [offset, offset + length) of a file, read while they are sent.
struct file_region {
    std::shared_ptr<const open_file> file;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
};

/// Gives the next piece of a streamed body; an empty piece ends it.
using piece_source = std::function<std::string()>;

/// An answer. Exactly one of body, file and pieces is used (in the order pieces, file, body).
struct reply {
    int status = 200;
    std::string content_type = "application/json";
    std::vector<field> headers;
    std::string body;
    std::optional<file_region> file;
    piece_source pieces;
    bool close = false;
};

/// Where a request came from.
struct peer {
    std::string address;
    bool loopback = false;
    bool tls = false;
};

/// What a handler sees of a request: its head, its peer, its body in pieces.
class exchange {
public:
    virtual ~exchange() = default;

    [[nodiscard]] virtual const request_head& head() const = 0;
    [[nodiscard]] virtual const http::peer& peer() const = 0;

    /// The next piece of the body, valid until the next call; empty at its end. `wrong()` says whether the body was
    /// cut, too slow or larger than `bytes_max`; then the handler should return (any reply is replaced by the refusal).
    virtual asio::awaitable<std::string_view> next_piece(std::uint64_t bytes_max) = 0;
    [[nodiscard]] virtual bool wrong() const = 0;
    /// Body bytes that had been received beside the head are not counted as read until `next_piece` gives them.
    [[nodiscard]] virtual bool body_finished() const = 0;
};

/// The whole body; empty text when `x.wrong()`.
asio::awaitable<std::string> read_body(exchange& x, std::uint64_t bytes_max);

using handler = std::function<asio::awaitable<reply>(exchange&)>;

}  // namespace darlcore::http
