// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "darlcore/plan/waterfill.hpp"

namespace darlcore::testing {

/// Twin of capacity_curve::finish_h: walks the links one by one. Infinity when the shape can never do so much.
inline double plain_finish_h(const plan::waterfill_shape& s, double reserve_units, double units) {
    if (units <= 0) return s.wait_h;
    const double rate = s.units_per_h * s.jobs;
    const double length = s.link_h > 0 ? std::min(s.link_h, s.walltime_h) : s.walltime_h;
    const double productive = length - s.startup_h - reserve_units / rate;
    double left_h = units / rate;
    double at_h = s.wait_h;
    for (std::uint32_t link = 0; s.link_h > 0 ? (s.links_max == 0 || link < s.links_max) : link < 1; ++link) {
        if (productive <= 0) break;
        if (left_h <= productive * (1 + 1e-9) + 1e-12) return at_h + s.startup_h + left_h;
        left_h -= productive;
        at_h += length + s.gap_h;
    }
    return std::numeric_limits<double>::infinity();
}

struct exhaustive_waterfill {
    std::uint64_t units = 0;  // delivered, whole quanta
    double makespan_h = 0;
};

/// Twin of `waterfill`: tries every count of quanta of every site with every shape, for at most three sites and few
/// units. More of the wanted work first, then the smallest makespan, then the fewest units. Complexity: O((units /
/// quantum) ^ sites).
inline exhaustive_waterfill exhaustive_best(const plan::waterfill_request& r) {
    std::vector<std::vector<double>> finish;  // [site][quanta]: the earliest over the shapes
    for (const plan::waterfill_site& s : r.sites) {
        std::vector<double> by_count{0.0};
        for (std::uint64_t m = 1; (m - 1) * s.quantum < std::max(r.units, s.min_units); ++m) {
            double best = std::numeric_limits<double>::infinity();
            for (const plan::waterfill_shape& shape : s.shapes) {
                if (r.gpus_max && shape.gpus > *r.gpus_max) continue;
                best = std::min(best, plain_finish_h(shape, r.reserve_units, static_cast<double>(m * s.quantum)));
            }
            by_count.push_back(best);
        }
        finish.push_back(std::move(by_count));
    }
    while (finish.size() < 3) finish.push_back({0.0});
    exhaustive_waterfill best;
    const auto consider = [&](std::uint64_t units, double makespan) {
        if (std::isinf(makespan)) return;
        const auto done = [&](std::uint64_t u) { return std::min(u, r.units); };
        const bool more = done(units) > done(best.units);
        const bool same = done(units) == done(best.units);
        if (more || (same && (makespan < best.makespan_h || (makespan == best.makespan_h && units < best.units))))
            best = {units, makespan};
    };
    const auto allowed = [&](std::size_t i, std::uint64_t m) {
        return m == 0 || i >= r.sites.size() || m * r.sites[i].quantum >= r.sites[i].min_units;
    };
    const auto units_of = [&](std::size_t i, std::uint64_t m) {
        return i < r.sites.size() ? m * r.sites[i].quantum : 0;
    };
    for (std::uint64_t a = 0; a < finish[0].size(); ++a) {
        if (!allowed(0, a)) continue;
        for (std::uint64_t b = 0; b < finish[1].size(); ++b) {
            if (!allowed(1, b)) continue;
            const double two = std::max(finish[0][a], finish[1][b]);
            for (std::uint64_t c = 0; c < finish[2].size(); ++c)
                if (allowed(2, c))
                    consider(units_of(0, a) + units_of(1, b) + units_of(2, c), std::max(two, finish[2][c]));
        }
    }
    return best;
}

}  // namespace darlcore::testing
