// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace darl::testing {

inline sockaddr_in loopback_at(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
}

/// A listening socket on a port that the system picks.
class listener {
public:
    listener() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
        auto address = loopback_at(0);
        socklen_t size = sizeof address;
        auto* raw = reinterpret_cast<sockaddr*>(&address);
        if (::bind(fd_, raw, size) == 0 && ::listen(fd_, 64) == 0 && ::getsockname(fd_, raw, &size) == 0)
            port_ = ntohs(address.sin_port);
    }
    ~listener() { ::close(fd_); }
    listener(const listener&) = delete;
    listener& operator=(const listener&) = delete;
    [[nodiscard]] int fd() const { return fd_; }
    [[nodiscard]] std::uint16_t port() const { return port_; }

private:
    int fd_;
    std::uint16_t port_ = 0;
};

/// A port that was free a moment ago, for programs that cannot pick one themselves.
inline std::uint16_t free_port() { return listener().port(); }

/// True when somebody listens there.
inline bool answers(std::uint16_t port) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const auto address = loopback_at(port);
    const bool there = ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    ::close(fd);
    return there;
}

/// A link: passes connections on to a port of this machine, counts the bytes of both directions, and when it is slow
/// lets only so many through per second and direction, all connections together, each its turn.
class relay {
public:
    explicit relay(std::uint16_t target, double bytes_per_second = 0)
        : target_(target), rate_(bytes_per_second), thread_([this] { serve(); }) {}
    ~relay() {
        stopped_ = true;
        thread_.join();
    }
    relay(const relay&) = delete;
    relay& operator=(const relay&) = delete;
    [[nodiscard]] std::uint16_t port() const { return door_.port(); }
    [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
    [[nodiscard]] std::uint64_t connections() const { return connections_; }

private:
    static constexpr std::size_t piece_bytes = 4096;  // a few packets: nobody waits long for its turn
    using steady = std::chrono::steady_clock;

    struct direction {
        int from = -1;
        int to = -1;
        std::array<char, piece_bytes> held{};
        std::size_t begin = 0;
        std::size_t end = 0;
        bool ended = false;
        bool told = false;
    };
    struct connection {
        int near = -1;
        int far = -1;
        direction up, down;
        connection(int n, int f) : near(n), far(f) {
            up.from = down.to = near;
            up.to = down.from = far;
        }
        ~connection() {
            ::close(near);
            ::close(far);
        }
        connection(const connection&) = delete;
        connection& operator=(const connection&) = delete;
        [[nodiscard]] bool over() const { return (up.told && down.told) || broken; }
        bool broken = false;
    };

    void accept_one() {
        const int near = ::accept4(door_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (near < 0) return;
        const int far = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const auto address = loopback_at(target_);
        if (::connect(far, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
            ::close(near);
            ::close(far);
            return;
        }
        ::fcntl(far, F_SETFL, O_NONBLOCK);
        ++connections_;
        all_.push_back(std::make_unique<connection>(near, far));
    }

    /// Moves at most one piece; false when nothing moved.
    bool move(connection& c, direction& d, double& credit) {
        bool moved = false;
        if (d.begin == d.end && !d.ended) {
            const ssize_t got = ::recv(d.from, d.held.data(), d.held.size(), 0);
            if (got == 0) d.ended = true;
            if (got < 0 && errno != EAGAIN && errno != EINTR) c.broken = true;
            if (got > 0) {
                d.begin = 0;
                d.end = static_cast<std::size_t>(got);
            }
            moved = got >= 0;
        }
        if (d.begin < d.end && (rate_ == 0 || credit > 0)) {
            const ssize_t put = ::send(d.to, d.held.data() + d.begin, d.end - d.begin, MSG_NOSIGNAL);
            if (put < 0 && errno != EAGAIN && errno != EINTR) c.broken = true;
            if (put > 0) {
                d.begin += static_cast<std::size_t>(put);
                credit -= static_cast<double>(put);
                bytes_ += static_cast<std::uint64_t>(put);
                moved = true;
            }
        }
        if (d.ended && d.begin == d.end && !d.told) {
            ::shutdown(d.to, SHUT_WR);
            d.told = true;
            moved = true;
        }
        return moved;
    }

    void serve() {
        auto before = steady::now();
        double up = 0, down = 0;
        while (!stopped_) {
            const auto now = steady::now();
            const double more = rate_ * std::chrono::duration<double>(now - before).count();
            before = now;
            up = std::min(up + more, 16384.0);
            down = std::min(down + more, 16384.0);
            accept_one();
            bool moved = false;
            for (const auto& c : all_) {
                moved = move(*c, c->up, up) || moved;
                moved = move(*c, c->down, down) || moved;
            }
            std::erase_if(all_, [](const auto& c) { return c->over(); });
            if (!moved) ::poll(nullptr, 0, 1);
        }
    }

    listener door_;
    std::uint16_t target_;
    double rate_;
    std::vector<std::unique_ptr<connection>> all_;
    std::atomic<std::uint64_t> bytes_{0};
    std::atomic<std::uint64_t> connections_{0};
    std::atomic<bool> stopped_{false};
    std::thread thread_;  // last: it uses the others
};

}  // namespace darl::testing
