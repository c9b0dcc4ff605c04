// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>
#include <asio/redirect_error.hpp>
#include <asio/steady_timer.hpp>
#include <asio/use_awaitable.hpp>

namespace darlcore::http {

/// Holds replies back until the journal is durable up to what they depend on. On the thread of the loop.
class durable_gate {
public:
    explicit durable_gate(asio::io_context& loop, std::uint64_t durable) : loop_(loop), durable_(durable) {}

    [[nodiscard]] std::uint64_t durable() const { return durable_; }
    [[nodiscard]] bool failed() const { return failed_; }
    [[nodiscard]] std::size_t waiting() const { return waiting_.size(); }

    void release(std::uint64_t sequence) {
        durable_ = std::max(durable_, sequence);
        while (!waiting_.empty() && waiting_.front().sequence <= durable_) {
            waiting_.front().timer->cancel();
            waiting_.pop_front();
        }
    }
    /// Nothing becomes durable any more: everybody waiting is told.
    void fail() {
        failed_ = true;
        for (const entry& e : waiting_) e.timer->cancel();
        waiting_.clear();
    }

    /// True once `sequence` is durable, false when the journal failed before.
    /// Preconditions: sequences do not decrease from call to call.
    asio::awaitable<bool> wait(std::uint64_t sequence) {
        if (sequence <= durable_) co_return true;
        if (failed_) co_return false;
        asio::steady_timer timer(loop_, asio::steady_timer::time_point::max());
        waiting_.push_back({sequence, &timer});
        asio::error_code ignored;
        co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
        co_return sequence <= durable_;
    }

private:
    struct entry {
        std::uint64_t sequence;
        asio::steady_timer* timer;
    };
    asio::io_context& loop_;
    std::uint64_t durable_;
    bool failed_ = false;
    std::deque<entry> waiting_;
};

}  // namespace darlcore::http
