// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

namespace darlcore::http::testing {

/// A blocking socket that says exactly the bytes it is told and reads whatever comes, for at most 20 s.
class raw_client {
public:
    explicit raw_client(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in where{};
        where.sin_family = AF_INET;
        where.sin_port = htons(port);
        where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        const timeval limit{20, 0};
        ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        const int on = 1;
        ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        connected_ = ::connect(fd_, reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0;
    }
    ~raw_client() { ::close(fd_); }
    raw_client(const raw_client&) = delete;
    raw_client& operator=(const raw_client&) = delete;

    [[nodiscard]] bool connected() const { return connected_; }
    bool say(std::string_view bytes) {
        while (!bytes.empty()) {
            const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (n <= 0) return false;
            bytes.remove_prefix(static_cast<std::size_t>(n));
        }
        return true;
    }
    void end_sending() { ::shutdown(fd_, SHUT_WR); }

    /// One reply with a Content-Length (head and body); what came so far when the connection ends.
    std::string hear_reply() {
        for (;;) {
            const std::size_t end = pending_.find("\r\n\r\n");
            if (end != std::string::npos) {
                const std::size_t at = pending_.find("Content-Length: ");
                const std::size_t length = at < end ? std::stoul(pending_.substr(at + 16)) : 0;
                if (pending_.size() >= end + 4 + length) {
                    std::string reply = pending_.substr(0, end + 4 + length);
                    pending_.erase(0, end + 4 + length);
                    return reply;
                }
            }
            if (!more()) return std::exchange(pending_, {});
        }
    }
    /// Everything until the connection ends.
    std::string hear_all() {
        while (more()) {
        }
        return std::exchange(pending_, {});
    }

private:
    bool more() {
        char piece[65536];
        const ssize_t n = ::recv(fd_, piece, sizeof piece, 0);
        if (n <= 0) return false;
        pending_.append(piece, static_cast<std::size_t>(n));
        return true;
    }
    int fd_;
    bool connected_ = false;
    std::string pending_;
};

/// The status of a reply's first line; 0 when there is none.
inline int status_of(std::string_view reply) {
    if (!reply.starts_with("HTTP/1.1 ") || reply.size() < 12) return 0;
    return std::stoi(std::string(reply.substr(9, 3)));
}

inline std::string_view body_of(std::string_view reply) {
    const std::size_t end = reply.find("\r\n\r\n");
    return end == std::string_view::npos ? std::string_view{} : reply.substr(end + 4);
}

}  // namespace darlcore::http::testing
