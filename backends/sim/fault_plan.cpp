// SPDX-License-Identifier: Apache-2.0
#include "backends/sim/fault_plan.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "backends/sim/rng.hpp"

namespace darlcore::sim {

std::string_view word(harm kind) {
    constexpr std::array<std::string_view, harm_kinds + forever_kinds> words{
        "site kill -9",
        "server kill -9",
        "site paused",
        "server paused",
        "power cut",
        "power cut inside a batch",
        "bit flip at rest",
        "short reads and writes",
        "I/O error, once",
        "I/O error, lasting",
        "disk full",
        "failed sync",
        "restart loop",
        "power cuts during a start",
        "partition of one direction",
        "partition",
        "clock step",
        "clock skew",
        "slow peer",
        "two processes of one site",
        "dead for ever",
        "paused for ever",
        "cut off for ever",
        "hears nothing for ever",
        "is not heard for ever",
        "hung for ever, but beating",
        "slow for ever",
        "crashing for ever",
    };
    return words[static_cast<std::size_t>(kind)];
}

std::vector<planned_fault> random_plan(std::uint64_t seed, std::uint64_t count, std::uint64_t sites,
                                       std::int64_t window_ms) {
    rng random(seed);
    std::vector<planned_fault> plan;
    for (std::uint64_t i = 0; i < count; ++i) {
        planned_fault f;
        f.at_ms = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(window_ms)));
        f.kind = static_cast<harm>(random.below(harm_kinds));
        f.site = random.below(sites);
        f.seed = random.next();
        plan.push_back(f);
    }
    std::stable_sort(plan.begin(), plan.end(), [](const auto& a, const auto& b) { return a.at_ms < b.at_ms; });
    return plan;
}

std::vector<planned_fault> forever_plan(std::uint64_t seed, std::uint64_t sites, std::uint64_t healthy,
                                        std::int64_t window_ms) {
    rng random(seed);
    std::vector<planned_fault> plan;
    for (std::uint64_t site = 0; site < sites; ++site) {
        const auto kind = static_cast<harm>(harm_kinds + random.below(forever_kinds));
        const std::uint64_t own_seed = random.next();
        if (site != healthy) plan.push_back({window_ms, kind, site, own_seed});
    }
    return plan;
}

std::string clock_text(std::int64_t ms) {
    char text[40];
    std::snprintf(text, sizeof text, "%02lld:%02d:%02d.%03d", static_cast<long long>(ms / 3'600'000),
                  static_cast<int>(ms / 60'000 % 60), static_cast<int>(ms / 1'000 % 60), static_cast<int>(ms % 1'000));
    return text;
}

}  // namespace darlcore::sim
