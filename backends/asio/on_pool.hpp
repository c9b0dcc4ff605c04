// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <type_traits>
#include <utility>

#include <asio/awaitable.hpp>
#include <asio/co_spawn.hpp>
#include <asio/thread_pool.hpp>
#include <asio/use_awaitable.hpp>

namespace darlcore::http {

/// Runs `work` on a thread of the pool and comes back with what it returned.
template <class Work>
asio::awaitable<std::invoke_result_t<Work&>> on_pool(asio::thread_pool& pool, Work work) {
    using answer = std::invoke_result_t<Work&>;
    std::optional<answer> out;
    const auto body = [&work, &out]() -> asio::awaitable<void> {
        out.emplace(work());
        co_return;
    };
    co_await asio::co_spawn(pool, body, asio::use_awaitable);
    co_return std::move(*out);
}

}  // namespace darlcore::http
