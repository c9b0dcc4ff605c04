// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "darlcore/plan/capacity.hpp"

namespace darlcore::plan {

/// One site's part of a water level: hours since its start, productive hours, units, jobs of all its streams.
struct fluid_share {
    std::string site;
    double active_h = 0;
    double productive_h = 0;
    double units = 0;
    double rate = 0;
    std::uint64_t jobs = 0;
};

/// Work as a fluid over sites that never wait for each other: an optimistic bound, not a promise.
struct fluid_plan {
    double level_h = 0;
    double wait_for_all_h = 0;  // everybody starts when the last site has started
    double saving_pct = 0;
    bool feasible = true;
    std::vector<fluid_share> sites;
};

/// Smallest T with sum over sites of the best shape's capacity at T >= min(goal, sum of caps).
/// `curves[i]`: the shapes of site i. Units: hours. Complexity: O(shapes) per step, at most 64 steps.
/// Preconditions (asserted): goal >= 0 and finite.
inline double water_level_h(double goal, std::span<const std::vector<capacity_curve>> curves) {
    DARLCORE_ASSERT(std::isfinite(goal) && goal >= 0);
    const auto covered = [&](double t) {
        double sum = 0;
        for (const auto& shapes : curves) {
            double best = 0;
            for (const capacity_curve& c : shapes) best = std::max(best, c.units_by(t));
            sum += best;
        }
        return sum;
    };
    double most = 0;
    for (const auto& shapes : curves) {
        double cap = 0;
        for (const capacity_curve& c : shapes) cap = std::max(cap, c.cap_units());
        most += cap;
    }
    // the sum of caps is reached only up to rounding
    const double target = std::min(goal, most * (1 - 1e-12));
    double high = 1;
    while (covered(high) < target) high *= 2;
    return smallest_time(0.0, high, [&](double t) { return covered(t) >= target; });
}

/// The water level of single-shape sites with each site's share, and the same work when all wait for the slowest.
/// Jobs: streams * ceil(active / link length); streams when the shape has no links.
/// Source: paper Table 4; waits paid once, no barrier, no overhead.
inline fluid_plan fluid_shares(double goal, std::span<const std::string> names,
                               std::span<const waterfill_shape> shapes) {
    DARLCORE_ASSERT(names.size() == shapes.size());
    fluid_plan plan;
    std::vector<std::vector<capacity_curve>> curves;
    double latest = 0;
    double total_rate = 0;
    for (const waterfill_shape& s : shapes) {
        curves.push_back({capacity_curve(s, 0, 1)});
        latest = std::max(latest, s.wait_h);
        total_rate += curves.back().front().rate();
    }
    plan.level_h = water_level_h(goal, curves);
    plan.wait_for_all_h = latest + (total_rate > 0 ? goal / total_rate : 0);
    plan.saving_pct = 100.0 * (1.0 - plan.level_h / plan.wait_for_all_h);
    double sum = 0;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
        const capacity_curve& c = curves[i].front();
        fluid_share share;
        share.site = names[i];
        share.rate = c.rate();
        share.active_h = std::max(0.0, plan.level_h - c.arrival_h());
        share.productive_h = c.productive_h(share.active_h);
        share.units = c.units_by(plan.level_h);
        const double link_h = shapes[i].link_h > 0 ? shapes[i].link_h : shapes[i].walltime_h;
        const double links = std::isinf(link_h) ? (share.active_h > 0 ? 1.0 : 0.0) : std::ceil(share.active_h / link_h);
        share.jobs = static_cast<std::uint64_t>(links) * shapes[i].jobs;
        sum += share.units;
        plan.sites.push_back(std::move(share));
    }
    plan.feasible = sum >= goal * (1 - 1e-12);
    return plan;
}

}  // namespace darlcore::plan
