// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <asio/thread_pool.hpp>

#include "backends/asio/ledger_service.hpp"
#include "backends/slurm/probe_store.hpp"

namespace darlcore::http {

/// A plan document as a page; an error when it is none.
using plan_renderer = std::function<result<std::string>(const json::value& document)>;

/// What collectors tell of the queues, and the plan made of it: POST and GET /probes, GET /usage, GET /estimates,
/// PUT and GET /plan. Reading and syncing files happens on the pool, one call at a time, so that a slow file system
/// holds up nobody's lease; the folder itself is read there first (until then: 503 restarting).
/// Thread-safety: the routes on the loop's thread; the store behind a mutex.
class probe_routes : public extra_routes {
public:
    probe_routes(asio::thread_pool& pool, ledger_service& service, std::string folder, plan_renderer render);

    [[nodiscard]] std::optional<found> find(const request_head& head) const override;
    asio::awaitable<reply> run(api_call& call) override;
    void add_status(json::value& status) const override;
    void add_metrics(std::string& text) const override;

private:
    template <class Work>
    asio::awaitable<reply> with_store(Work work);
    result<void> open(double now_s);
    asio::awaitable<reply> post_probes(api_call& call);
    asio::awaitable<reply> get_records(api_call& call, std::string_view type);
    asio::awaitable<reply> get_estimates(api_call& call);
    asio::awaitable<reply> put_plan(api_call& call);
    asio::awaitable<reply> get_plan(api_call& call);

    asio::thread_pool& pool_;
    ledger_service& service_;
    std::string folder_;
    plan_renderer render_;
    mutable std::mutex mutex_;
    std::optional<slurm::probe_store> store_;
    mutable json::value shown_;  // for /status
    mutable double shown_s_ = 0;
    std::atomic<std::uint64_t> accepted_{0}, duplicate_{0}, rejected_{0};
};

}  // namespace darlcore::http
