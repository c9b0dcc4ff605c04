// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "darlcore/plan/estimate.hpp"

namespace darlcore::plan {

/// One ended job that held nodes, with a finite limit.
struct used_job {
    std::uint64_t nodes = 1;
    double elapsed_s = 0;
    double limit_s = 0;
};

/// How much of the requested node-time the jobs of a partition really used.
struct usage_ratio {
    std::size_t jobs = 0;
    double node_s_used = 0;
    double node_s_limit = 0;
    std::optional<double> gamma;  // none below the minimum sample
    std::optional<double> p10, p50, p90;
};

/// Weighted by requested node-time, because a scheduler's estimate sums requested node-time of the jobs ahead.
/// Each job is capped at its own limit before summing: a runaway job counts as 1 and does not lift the others.
/// Units: seconds, node-seconds. Preconditions (asserted): limit_s > 0, elapsed_s >= 0, nodes >= 1.
/// Complexity: O(n log n).
inline usage_ratio usage_of(std::span<const used_job> jobs, std::size_t jobs_min = 30) {
    usage_ratio u;
    u.jobs = jobs.size();
    std::vector<double> ratios;
    ratios.reserve(jobs.size());
    for (const used_job& j : jobs) {
        DARLCORE_ASSERT(j.limit_s > 0 && j.elapsed_s >= 0 && j.nodes >= 1);
        const double used_s = std::min(j.elapsed_s, j.limit_s);
        const auto nodes = static_cast<double>(j.nodes);
        u.node_s_used += nodes * used_s;
        u.node_s_limit += nodes * j.limit_s;
        ratios.push_back(used_s / j.limit_s);
    }
    if (jobs.empty() || jobs.size() < jobs_min) return u;
    u.gamma = u.node_s_used / u.node_s_limit;
    u.p10 = percentile(ratios, 0.1);
    u.p50 = percentile(ratios, 0.5);
    u.p90 = percentile(std::move(ratios), 0.9);
    return u;
}

}  // namespace darlcore::plan
