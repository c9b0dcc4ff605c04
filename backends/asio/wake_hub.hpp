// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <map>
#include <string>

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>
#include <asio/redirect_error.hpp>
#include <asio/steady_timer.hpp>
#include <asio/use_awaitable.hpp>

namespace darlcore::http {

/// Long polls that wait for a change of their site (or of anything).
class wake_hub {
public:
    explicit wake_hub(asio::io_context& loop) : loop_(loop) {}

    void wake_all() {
        for (const auto& [site, timer] : waiting_) timer->cancel();
    }
    void wake(const std::string& site) {
        const auto [begin, end] = waiting_.equal_range(site);
        for (auto it = begin; it != end; ++it) it->second->cancel();
    }
    /// Ends every wait, now and later.
    void stop() {
        stopped_ = true;
        wake_all();
    }
    [[nodiscard]] bool stopped() const { return stopped_; }
    [[nodiscard]] std::size_t waiting() const { return waiting_.size(); }

    /// Until woken or `limit` has passed.
    asio::awaitable<void> wait(std::string site, std::chrono::milliseconds limit) {
        if (stopped_) co_return;
        asio::steady_timer timer(loop_, limit);
        const auto place = waiting_.emplace(std::move(site), &timer);
        asio::error_code ignored;
        co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
        waiting_.erase(place);
    }

private:
    asio::io_context& loop_;
    std::multimap<std::string, asio::steady_timer*> waiting_;
    bool stopped_ = false;
};

}  // namespace darlcore::http
