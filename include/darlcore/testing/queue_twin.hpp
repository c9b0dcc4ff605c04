// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <limits>
#include <set>
#include <vector>

#include "darlcore/plan/queue_sim.hpp"

namespace darlcore::testing {

/// Twin of simulate_queue: at every moment when something could change, everything is computed anew from the list of
/// starts.
inline std::vector<double> plain_queue(const std::vector<plan::queued_job>& jobs, const plan::queue_config& c) {
    constexpr double never = std::numeric_limits<double>::infinity();
    std::vector<double> start(jobs.size(), never);
    std::set<double> moments;
    for (const auto& j : jobs) moments.insert(j.submit_s);
    if (c.reserved) moments.insert(c.reserved->end_s);
    const auto free_at = [&](double t, double now) {  // running jobs at their limits, unless they have ended by now
        std::int64_t free = c.nodes;
        for (std::size_t i = 0; i < jobs.size(); ++i)
            if (start[i] <= now && start[i] + jobs[i].lasts_s() > now && start[i] + jobs[i].limit_s > t)
                free -= jobs[i].nodes;
        return free;
    };
    const auto blocked = [&](std::size_t i, double t) {
        return c.reserved && t < c.reserved->end_s && t + jobs[i].limit_s > c.reserved->start_s;
    };
    while (!moments.empty()) {
        const double now = *moments.begin();
        moments.erase(moments.begin());
        std::vector<std::size_t> queue;
        for (std::size_t i = 0; i < jobs.size(); ++i)
            if (jobs[i].submit_s <= now && start[i] == never) queue.push_back(i);
        std::stable_sort(queue.begin(), queue.end(),
                         [&](auto a, auto b) { return jobs[a].submit_s < jobs[b].submit_s; });
        double shadow = never;
        std::int64_t extra = 0;
        for (const std::size_t i : queue) {
            const bool fits = static_cast<std::int64_t>(jobs[i].nodes) <= free_at(now, now) && !blocked(i, now);
            if (shadow == never) {
                if (!fits) {
                    std::set<double> when{now};
                    if (c.reserved) when.insert(std::max(now, c.reserved->end_s));
                    for (std::size_t k = 0; k < jobs.size(); ++k)
                        if (start[k] <= now && start[k] + jobs[k].limit_s > now)
                            when.insert(start[k] + jobs[k].limit_s);
                    for (const double t : when) {
                        if (free_at(t, now) < static_cast<std::int64_t>(jobs[i].nodes) || blocked(i, t)) continue;
                        shadow = t;
                        extra = free_at(t, now) - jobs[i].nodes;
                        break;
                    }
                    continue;
                }
            } else {
                const bool before = now + jobs[i].limit_s <= shadow;
                if (!fits || c.policy == plan::backfill::none ||
                    (!before && static_cast<std::int64_t>(jobs[i].nodes) > extra))
                    continue;
                if (!before) extra -= jobs[i].nodes;
            }
            start[i] = now;
            moments.insert(now + jobs[i].lasts_s());
        }
    }
    return start;
}

}  // namespace darlcore::testing
