// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include "darlcore/assert.hpp"
#include "darlcore/error.hpp"

namespace darlcore::plan {

/// A job of a simulated queue. It runs min(run_s, limit_s); one of no length still takes its nodes until the next
/// event.
struct queued_job {
    double submit_s = 0;
    double run_s = 0;
    double limit_s = 0;
    std::uint32_t nodes = 1;
    [[nodiscard]] double lasts_s() const { return std::min(run_s, limit_s); }
};

enum class backfill : std::uint8_t { none, easy };

/// No job may run into it; everything that starts before must end (by its limit) before it begins.
struct maintenance {
    double start_s = 0;
    double end_s = 0;
};

struct queue_config {
    std::uint32_t nodes = 1;
    backfill policy = backfill::easy;
    std::optional<maintenance> reserved;
};

/// When each job started, and what the head of the queue was promised the first time it had to wait.
struct queue_outcome {
    std::vector<double> start_s;
    std::vector<std::pair<std::size_t, double>> promises;  // job, latest start that backfill must not delay
};

namespace detail {

class queue_engine {
public:
    queue_engine(std::span<const queued_job> jobs, const queue_config& config)
        : jobs_(jobs), c_(config), free_(config.nodes) {
        out_.start_s.assign(jobs.size(), std::numeric_limits<double>::infinity());
        order_.resize(jobs.size());
        for (std::size_t i = 0; i < jobs.size(); ++i) order_[i] = i;
        std::stable_sort(order_.begin(), order_.end(),
                         [&](auto a, auto b) { return jobs[a].submit_s < jobs[b].submit_s; });
    }

    queue_outcome run() {
        std::size_t next = 0;
        while (next < order_.size() || !ends_.empty() || !waiting_.empty()) {
            double at = std::numeric_limits<double>::infinity();
            if (next < order_.size()) at = jobs_[order_[next]].submit_s;
            if (!ends_.empty()) at = std::min(at, ends_.top().first);
            if (c_.reserved && !waiting_.empty() && now_ < c_.reserved->end_s) at = std::min(at, c_.reserved->end_s);
            if (std::isinf(at)) break;
            now_ = std::max(now_, at);
            while (!ends_.empty() && ends_.top().first <= now_) finish();
            while (next < order_.size() && jobs_[order_[next]].submit_s <= now_) waiting_.push_back(order_[next++]);
            schedule();
        }
        return std::move(out_);
    }

private:
    // Whether a job that starts at t would run into the maintenance, by its limit.
    [[nodiscard]] bool blocked(std::size_t j, double t) const {
        return c_.reserved && t < c_.reserved->end_s && t + jobs_[j].limit_s > c_.reserved->start_s;
    }

    void start(std::size_t j) {
        out_.start_s[j] = now_;
        free_ -= jobs_[j].nodes;
        ends_.emplace(now_ + jobs_[j].lasts_s(), j);
        limits_[now_ + jobs_[j].limit_s] += jobs_[j].nodes;
        limit_of_.resize(jobs_.size());
        limit_of_[j] = now_ + jobs_[j].limit_s;
    }

    void finish() {
        const std::size_t j = ends_.top().second;
        ends_.pop();
        free_ += jobs_[j].nodes;
        const auto at = limits_.find(limit_of_[j]);
        at->second -= jobs_[j].nodes;
        if (at->second == 0) limits_.erase(at);
    }

    // Earliest start of the head when all running jobs use their limits, and the nodes that are left over then.
    [[nodiscard]] std::pair<double, std::uint32_t> reservation(std::size_t head) const {
        std::uint64_t free = free_;
        double at = now_;
        auto next = limits_.begin();
        while (true) {
            while (next != limits_.end() && next->first <= at) free += (next++)->second;
            if (free >= jobs_[head].nodes && !blocked(head, at)) break;
            if (free >= jobs_[head].nodes)
                at = std::max(at, c_.reserved->end_s);
            else if (next != limits_.end())
                at = next->first;
            else
                at = c_.reserved->end_s;
        }
        while (next != limits_.end() && next->first <= at) free += (next++)->second;
        return {at, static_cast<std::uint32_t>(free - jobs_[head].nodes)};
    }

    void schedule() {
        std::size_t head = 0;
        while (head < waiting_.size() && jobs_[waiting_[head]].nodes <= free_ && !blocked(waiting_[head], now_))
            start(waiting_[head++]);
        waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(head));
        if (waiting_.empty()) return;
        auto [shadow_s, extra] = reservation(waiting_.front());
        if (promised_ != waiting_.front()) {
            promised_ = waiting_.front();
            out_.promises.emplace_back(promised_, shadow_s);
        }
        if (c_.policy == backfill::none || free_ == 0) return;
        std::size_t kept = 1;
        for (std::size_t i = 1; i < waiting_.size(); ++i) {
            const std::size_t j = waiting_[i];
            const bool before = now_ + jobs_[j].limit_s <= shadow_s;
            const bool fits = jobs_[j].nodes <= free_ && (before || jobs_[j].nodes <= extra) && !blocked(j, now_);
            if (!fits) {
                waiting_[kept++] = j;
                continue;
            }
            if (!before) extra -= jobs_[j].nodes;
            start(j);
            if (free_ == 0) {
                for (++i; i < waiting_.size(); ++i) waiting_[kept++] = waiting_[i];
            }
        }
        waiting_.resize(kept);
    }

    using ending = std::pair<double, std::size_t>;
    std::span<const queued_job> jobs_;
    const queue_config& c_;
    queue_outcome out_;
    std::vector<std::size_t> order_;
    std::vector<std::size_t> waiting_;
    std::priority_queue<ending, std::vector<ending>, std::greater<>> ends_;
    std::map<double, std::uint64_t> limits_;
    std::vector<double> limit_of_;
    double now_ = 0;
    std::uint32_t free_;
    std::size_t promised_ = static_cast<std::size_t>(-1);
};

}  // namespace detail

/// Errors: errc::invalid_argument naming the job that could never start or has a time that is not finite and 0 or more.
inline result<void> check(std::span<const queued_job> jobs, const queue_config& c) {
    if (c.reserved && !(c.reserved->start_s <= c.reserved->end_s && std::isfinite(c.reserved->end_s)))
        return fail(errc::invalid_argument, "the maintenance must end after it starts");
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        const queued_job& j = jobs[i];
        const bool times = std::isfinite(j.submit_s) && j.submit_s >= 0 && std::isfinite(j.run_s) && j.run_s >= 0 &&
                           std::isfinite(j.limit_s) && j.limit_s > 0;
        if (!times || j.nodes == 0 || j.nodes > c.nodes)
            return fail(errc::invalid_argument, "job " + std::to_string(i) +
                                                    ": times must be finite, the limit positive, nodes between 1 and " +
                                                    std::to_string(c.nodes));
    }
    return {};
}

/// First come, first served, with EASY backfill on requested limits: the head of the queue gets a reservation at the
/// earliest fit; later jobs may start if they end before it, or use nodes that it does not need. Promises: nodes are
/// never oversubscribed; the head's reservation is never delayed by backfill; a job runs at most its limit. Units:
/// seconds. Complexity: O(n log n + events * queue length). Errors: those of `check`.
inline result<queue_outcome> simulate_queue(std::span<const queued_job> jobs, const queue_config& config) {
    if (auto ok = check(jobs, config); !ok) return ok.error();
    return detail::queue_engine(jobs, config).run();
}

/// What a scheduler would answer at time t to "when would this start?": the earliest fit with running jobs at their
/// full limits, plus requested node-time of the pending jobs ahead divided by the nodes. `outcome` is that of the same
/// jobs.
inline double estimate_start_s(std::span<const queued_job> jobs, const queue_config& config,
                               const queue_outcome& outcome, const queued_job& shape, double t) {
    std::vector<std::pair<double, std::uint32_t>> ends;
    std::uint32_t free = config.nodes;
    double ahead_s = 0;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        if (jobs[i].submit_s > t) continue;
        if (outcome.start_s[i] > t) {
            ahead_s += jobs[i].limit_s * jobs[i].nodes / config.nodes;
        } else if (outcome.start_s[i] + jobs[i].lasts_s() > t) {
            free -= jobs[i].nodes;
            ends.emplace_back(outcome.start_s[i] + jobs[i].limit_s, jobs[i].nodes);
        }
    }
    std::sort(ends.begin(), ends.end());
    double at = t;
    for (std::size_t i = 0; free < shape.nodes && i < ends.size(); ++i) {
        free += ends[i].second;
        at = ends[i].first;
    }
    return at + ahead_s;
}

/// When it really would start: the job is inserted and the queue runs on.
/// Errors: those of `check`.
inline result<double> true_start_s(std::span<const queued_job> jobs, const queue_config& config, queued_job shape,
                                   double t) {
    std::vector<queued_job> all(jobs.begin(), jobs.end());
    shape.submit_s = t;
    all.push_back(shape);
    auto out = simulate_queue(all, config);
    if (!out) return out.error();
    return out->start_s.back();
}

}  // namespace darlcore::plan
