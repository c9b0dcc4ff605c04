// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "darlcore/error.hpp"
#include "darlcore/plan/queue_sim.hpp"

namespace darlcore::plan {

/// A job of a queue whose nodes may be shared by GPU. gpus_per_node 0: whole nodes.
struct shared_job {
    queued_job job;
    std::uint32_t gpus_per_node = 0;
    std::uint32_t user = 0;
};

/// conservative: every waiting job has a reservation, not only the head of the queue.
enum class shared_policy : std::uint8_t { none, easy, conservative };

struct shared_queue_config {
    std::uint32_t nodes = 1;
    std::uint32_t gpus_per_node = 1;
    shared_policy policy = shared_policy::easy;
    std::optional<double> share_half_life_s;  // given: who used least of late comes first; else first come
    std::optional<maintenance> reserved;
};

struct shared_queue_outcome {
    std::vector<double> start_s;
    std::vector<std::vector<std::uint32_t>> nodes;         // of each job
    std::vector<std::pair<std::size_t, double>> promises;  // job, the start it was first promised
};

namespace detail {

/// A node for node, GPU for GPU account of who is or will be where, by limits.
class node_book {
public:
    node_book(std::uint32_t nodes, std::uint32_t gpus, std::optional<maintenance> m)
        : gpus_(gpus), per_node_(nodes), maintenance_(m) {}

    struct slot {
        double start_s = 0;
        std::vector<std::uint32_t> nodes;
    };

    void add(std::size_t job, const slot& s, double end_s, std::uint32_t gpus) {
        for (const std::uint32_t n : s.nodes) per_node_[n].push_back({s.start_s, end_s, gpus, job});
    }
    void remove(std::size_t job) {
        for (auto& node : per_node_) std::erase_if(node, [&](const stay& a) { return a.job == job; });
    }

    /// The earliest start from `from` on at which `count` nodes have `gpus` free for `length_s`.
    [[nodiscard]] slot earliest(double from, std::uint32_t count, std::uint32_t gpus, double length_s) const {
        std::vector<double> when{from};
        for (const auto& node : per_node_)
            for (const stay& a : node)
                if (a.end_s > from) when.push_back(a.end_s);
        if (maintenance_ && maintenance_->end_s > from) when.push_back(maintenance_->end_s);
        std::sort(when.begin(), when.end());
        for (const double t : when) {
            if (maintenance_ && t < maintenance_->end_s && t + length_s > maintenance_->start_s) continue;
            if (auto nodes = fitting(t, count, gpus, length_s); nodes.size() == count) return {t, std::move(nodes)};
        }
        return {std::numeric_limits<double>::infinity(), {}};
    }

private:
    struct stay {
        double start_s, end_s;
        std::uint32_t gpus;
        std::size_t job;
    };

    [[nodiscard]] bool free(const std::vector<stay>& node, double start, double end, std::uint32_t gpus) const {
        const auto used_at = [&](double t) {
            std::uint32_t used = 0;
            for (const stay& a : node) used += a.start_s <= t && t < a.end_s ? a.gpus : 0;
            return used;
        };
        if (used_at(start) + gpus > gpus_) return false;
        for (const stay& a : node)
            if (a.start_s > start && a.start_s < end && used_at(a.start_s) + gpus > gpus_) return false;
        return true;
    }

    // Nodes with room, those first that would stand idle shortest after it and before it: others stay open for longer.
    [[nodiscard]] std::vector<std::uint32_t> fitting(double t, std::uint32_t count, std::uint32_t gpus,
                                                     double length_s) const {
        struct candidate {
            double after_s, before_s;
            std::uint32_t node;
        };
        std::vector<candidate> found;
        for (std::uint32_t n = 0; n < per_node_.size(); ++n) {
            if (!free(per_node_[n], t, t + length_s, gpus)) continue;
            candidate c{std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity(), n};
            for (const stay& a : per_node_[n]) {
                if (a.start_s >= t + length_s) c.after_s = std::min(c.after_s, a.start_s - t - length_s);
                if (a.start_s < t) c.before_s = std::min(c.before_s, std::max(0.0, t - a.end_s));
            }
            found.push_back(c);
        }
        std::stable_sort(found.begin(), found.end(), [](const candidate& a, const candidate& b) {
            return a.after_s != b.after_s ? a.after_s < b.after_s : a.before_s < b.before_s;
        });
        std::vector<std::uint32_t> nodes;
        for (std::size_t i = 0; i < std::min<std::size_t>(count, found.size()); ++i) nodes.push_back(found[i].node);
        return nodes;
    }

    std::uint32_t gpus_;
    std::vector<std::vector<stay>> per_node_;
    std::optional<maintenance> maintenance_;
};

class shared_engine {
public:
    shared_engine(std::span<const shared_job> jobs, const shared_queue_config& c)
        : jobs_(jobs),
          c_(c),
          book_(c.nodes, c.gpus_per_node, c.reserved),
          held_(jobs.size()),
          arrived_(jobs.size()),
          promised_(jobs.size()) {
        out_.start_s.assign(jobs.size(), std::numeric_limits<double>::infinity());
        out_.nodes.resize(jobs.size());
        for (std::size_t i = 0; i < jobs.size(); ++i) moments_[jobs[i].job.submit_s];
        if (c.reserved) moments_[c.reserved->end_s];
    }

    shared_queue_outcome run() {
        while (!moments_.empty()) {
            now_ = moments_.begin()->first;
            for (const std::size_t j : moments_.begin()->second) finish(j);
            moments_.erase(moments_.begin());
            for (std::size_t i = 0; i < jobs_.size(); ++i) {
                if (arrived_[i] || jobs_[i].job.submit_s > now_) continue;
                arrived_[i] = true;
                waiting_.push_back(i);
            }
            schedule();
        }
        return std::move(out_);
    }

private:
    [[nodiscard]] std::uint32_t gpus_of(std::size_t j) const {
        return jobs_[j].gpus_per_node == 0 ? c_.gpus_per_node : jobs_[j].gpus_per_node;
    }

    // What a user has used, halved every half-life; running jobs count as they go.
    [[nodiscard]] double used_by(std::uint32_t user) const {
        double sum = 0;
        for (std::size_t i = 0; i < jobs_.size(); ++i) {
            if (jobs_[i].user != user || out_.start_s[i] >= now_) continue;
            const double end = std::min(now_, out_.start_s[i] + jobs_[i].job.lasts_s());
            sum += (end - out_.start_s[i]) * jobs_[i].job.nodes * gpus_of(i) *
                   std::exp2(-(now_ - end) / *c_.share_half_life_s);
        }
        return sum;
    }

    void order() {
        std::map<std::uint32_t, double> used;
        if (c_.share_half_life_s)
            for (const std::size_t j : waiting_) used.try_emplace(jobs_[j].user, used_by(jobs_[j].user));
        std::stable_sort(waiting_.begin(), waiting_.end(), [&](std::size_t a, std::size_t b) {
            const double x = c_.share_half_life_s ? used[jobs_[a].user] : 0;
            const double y = c_.share_half_life_s ? used[jobs_[b].user] : 0;
            return x != y ? x < y : jobs_[a].job.submit_s < jobs_[b].job.submit_s;
        });
    }

    void finish(std::size_t j) { book_.remove(j); }

    void start(std::size_t j, node_book::slot s) {
        out_.start_s[j] = now_;
        out_.nodes[j] = s.nodes;
        book_.add(j, s, now_ + jobs_[j].job.limit_s, gpus_of(j));
        moments_[now_ + jobs_[j].job.lasts_s()].push_back(j);
    }

    void promise(std::size_t j, double at) {
        if (!promised_[j]) out_.promises.emplace_back(j, at);
        promised_[j] = true;
    }

    // Conservative reservations stay and only move forward when something has become free; the others are made anew.
    void schedule() {
        order();
        if (c_.policy != shared_policy::conservative)
            for (const std::size_t j : waiting_) release(j);
        std::vector<std::size_t> still;
        bool head_waits = false;
        for (const std::size_t j : waiting_) {
            if (head_waits && c_.policy == shared_policy::none) {
                still.push_back(j);
                continue;
            }
            release(j);
            auto s = book_.earliest(now_, jobs_[j].job.nodes, gpus_of(j), jobs_[j].job.limit_s);
            if (s.start_s == now_) {
                start(j, std::move(s));
                continue;
            }
            still.push_back(j);
            if (head_waits && c_.policy != shared_policy::conservative) continue;
            head_waits = true;
            promise(j, s.start_s);
            book_.add(j, s, s.start_s + jobs_[j].job.limit_s, gpus_of(j));
            held_[j] = true;
        }
        waiting_ = std::move(still);
    }

    void release(std::size_t j) {
        if (held_[j]) book_.remove(j);
        held_[j] = false;
    }

    std::span<const shared_job> jobs_;
    const shared_queue_config& c_;
    node_book book_;
    std::vector<char> held_, arrived_, promised_;
    shared_queue_outcome out_;
    std::vector<std::size_t> waiting_;
    std::map<double, std::vector<std::size_t>> moments_;  // when something may change, and who ends then
    double now_ = 0;
};

}  // namespace detail

/// The queue of queue_sim.hpp with three switches more: conservative backfill, nodes shared by GPU, and decayed shares
/// instead of first come. Node for node, so slower: for hundreds of jobs, where the choice of policy is the question.
/// Promises: no GPU is used twice; under first come the head's reservation (conservative: everybody's) is never missed;
/// whole nodes, first come, none or EASY: the starts of simulate_queue. Units: seconds.
/// Complexity: O(events * waiting * stays^2). Errors: errc::invalid_argument naming the job that could never start.
inline result<shared_queue_outcome> simulate_shared_queue(std::span<const shared_job> jobs,
                                                          const shared_queue_config& config) {
    std::vector<queued_job> plain;
    for (const shared_job& j : jobs) plain.push_back(j.job);
    if (auto ok = check(plain, {config.nodes, backfill::easy, config.reserved}); !ok) return ok.error();
    if (config.share_half_life_s && !(std::isfinite(*config.share_half_life_s) && *config.share_half_life_s > 0))
        return fail(errc::invalid_argument, "share_half_life_s must be a positive finite number");
    for (std::size_t i = 0; i < jobs.size(); ++i)
        if (jobs[i].gpus_per_node > config.gpus_per_node)
            return fail(errc::invalid_argument, "job " + std::to_string(i) + ": asks for " +
                                                    std::to_string(jobs[i].gpus_per_node) + " GPUs of a node with " +
                                                    std::to_string(config.gpus_per_node));
    return detail::shared_engine(jobs, config).run();
}

}  // namespace darlcore::plan
