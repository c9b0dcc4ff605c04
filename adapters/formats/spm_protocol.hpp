// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include <sys/socket.h>
#include <unistd.h>

// What passes between a process and its `darl-spm` helper, both on one machine: a letter, a length of 4 bytes (host
// order) and that many bytes. The helper answers each frame with one frame. Plain enough for a helper without the
// project's libraries.
namespace darlcore::formats::spm {

/// What is asked: the model file's bytes (first, answered by `model_facts`), ids of a text, text of ids, the id of a
/// piece. Answers: `done` with the result, `failed` with a sentence.
enum verb : char { load = 'm', encode = 'e', decode = 'd', piece = 'p', done = 'y', failed = 'n' };

struct frame {
    char what = failed;
    std::string body;
};

struct model_facts {
    std::int32_t pieces = 0;
    std::int32_t bos = -1;
    std::int32_t eos = -1;
};

inline constexpr std::uint32_t body_bytes_max = 0x7fffffff;

namespace detail {
inline bool read_all(int fd, char* out, std::size_t bytes) {
    while (bytes > 0) {
        const ssize_t got = ::read(fd, out, bytes);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        out += got;
        bytes -= static_cast<std::size_t>(got);
    }
    return true;
}
inline bool write_all(int fd, const char* data, std::size_t bytes) {
    while (bytes > 0) {
        const ssize_t put = ::send(fd, data, bytes, MSG_NOSIGNAL);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return false;
        data += put;
        bytes -= static_cast<std::size_t>(put);
    }
    return true;
}
}  // namespace detail

/// False when the other side is gone or the frame is too long.
inline bool send_frame(int socket, char what, std::string_view body) {
    if (body.size() > body_bytes_max) return false;
    std::string head(1, what);
    const auto bytes = static_cast<std::uint32_t>(body.size());
    head.resize(1 + sizeof bytes);
    std::memcpy(head.data() + 1, &bytes, sizeof bytes);
    return detail::write_all(socket, head.data(), head.size()) && detail::write_all(socket, body.data(), body.size());
}

/// False at the end of the stream, when it is cut, or for a frame that is too long.
inline bool receive_frame(int socket, frame& out) {
    char head[5];
    if (!detail::read_all(socket, head, sizeof head)) return false;
    std::uint32_t bytes = 0;
    std::memcpy(&bytes, head + 1, sizeof bytes);
    if (bytes > body_bytes_max) return false;
    out.what = head[0];
    out.body.resize(bytes);
    return detail::read_all(socket, out.body.data(), bytes);
}

}  // namespace darlcore::formats::spm
