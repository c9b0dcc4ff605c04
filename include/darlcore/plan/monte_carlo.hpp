// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "darlcore/plan/search.hpp"
#include "darlcore/plan/trace.hpp"
#include "darlcore/random.hpp"

namespace darlcore::plan {

struct monte_carlo_settings {
    std::uint64_t seed = 1;
    std::size_t draws = 200;
    std::optional<double> deadline_s;
    bool oracle = true;                 // also search with the drawn waits known
    std::function<bool()> out_of_time;  // asked in those searches; empty: no limit
};

/// What a plan came to over the draws. Times of draws in which the target was not reached are infinite.
struct plan_distribution {
    double p10_s = 0, p50_s = 0, p90_s = 0, mean_s = 0;
    double by_deadline = 0;  // share of the draws
    double trapped = 0;
    double node_hours = 0;
    double regret_mean_s = 0;  // over the draws in which both the plan and the oracle reach the target
    double regret_p90_s = 0;
};

/// The waits of an option, by site and shape.
using wait_model = std::function<const wait_distribution&(const plan_option&)>;

namespace detail {

/// The same share for the same link of the same site and shape in the same draw, whatever plan it stands in.
inline double common_share(std::uint64_t seed, std::size_t draw, const plan_option& o, std::uint32_t link) {
    std::uint64_t h = seed ^ (static_cast<std::uint64_t>(draw) * 0x9e3779b97f4a7c15ULL);
    const auto mix = [&h](std::uint64_t v) { h = splitmix64(h ^ v)(); };
    for (const char c : o.site) mix(static_cast<unsigned char>(c));
    mix(0x100);
    for (const char c : o.shape) mix(static_cast<unsigned char>(c));
    mix(0x200 + link);
    return static_cast<double>(h >> 11U) * 0x1.0p-53;
}

inline plan_option drawn(plan_option o, const wait_model& waits, std::uint64_t seed, std::size_t draw) {
    const wait_distribution& d = waits(o);
    const std::uint32_t links = o.chain == chain_policy::none ? 1 : o.links;
    o.link_waits_s.clear();
    for (std::uint32_t k = 0; k < links; ++k) o.link_waits_s.push_back(d.at(common_share(seed, draw, o, k)));
    return o;
}

inline double quantile_of(std::vector<double> sorted, double q) {
    const auto place = static_cast<std::size_t>(q * static_cast<double>(sorted.size() - 1) + 0.5);
    return sorted[place];
}

}  // namespace detail

/// Scores plans under drawn waits: one wait per link, the same draws for every plan (common random numbers). With
/// `oracle`, each draw is also searched over `choices` with its waits known; regret is what a plan loses against it.
/// Promises: regret >= 0; a model without spread gives the plain plan; same seed, same answer.
/// Errors: those of search_plans. Preconditions (asserted): at least one draw; no distribution is empty.
inline result<std::vector<plan_distribution>> monte_carlo(const calibration& c,
                                                          std::span<const std::vector<plan_option>> plans,
                                                          std::span<const site_choices> choices,
                                                          const campaign_config& config, const wait_model& waits,
                                                          const monte_carlo_settings& s) {
    DARLCORE_ASSERT(s.draws >= 1);
    campaign_config quiet = config;
    quiet.collect_intervals = false;
    std::vector<std::vector<double>> times(plans.size()), regrets(plans.size());
    std::vector<plan_distribution> made(plans.size());
    search_settings by_time;
    by_time.objectives.order = {objective::time};
    by_time.objectives.time_grain_s = 1;
    by_time.out_of_time = s.out_of_time;
    for (std::size_t draw = 0; draw < s.draws; ++draw) {
        double oracle = std::numeric_limits<double>::infinity();
        for (std::size_t p = 0; p < plans.size(); ++p) {
            std::vector<plan_option> options;
            for (const plan_option& o : plans[p]) options.push_back(detail::drawn(o, waits, s.seed, draw));
            const auto scored = score_plan(c, options, quiet);
            if (!scored) return scored.error();
            times[p].push_back(scored->time_s);
            oracle = std::min(oracle, scored->time_s);
            made[p].trapped += scored->trapped() ? 1.0 : 0.0;
            made[p].node_hours += scored->node_hours;
            if (s.deadline_s && scored->time_s <= *s.deadline_s) made[p].by_deadline += 1;
        }
        if (s.oracle) {
            std::vector<site_choices> known;
            for (const site_choices& site : choices) {
                known.push_back({site.site, {}});
                for (const plan_option& o : site.options)
                    known.back().options.push_back(detail::drawn(o, waits, s.seed, draw));
            }
            const auto found = search_plans(c, known, quiet, by_time);
            if (!found) return found.error();
            if (found->best) oracle = std::min(oracle, found->best->time_s);
        }
        for (std::size_t p = 0; p < plans.size(); ++p)
            if (!std::isinf(times[p].back()) && !std::isinf(oracle)) regrets[p].push_back(times[p].back() - oracle);
    }
    const auto draws = static_cast<double>(s.draws);
    for (std::size_t p = 0; p < plans.size(); ++p) {
        plan_distribution& d = made[p];
        for (const double t : times[p]) d.mean_s += t / draws;
        std::sort(times[p].begin(), times[p].end());
        d.p10_s = detail::quantile_of(times[p], 0.1);
        d.p50_s = detail::quantile_of(times[p], 0.5);
        d.p90_s = detail::quantile_of(times[p], 0.9);
        d.by_deadline /= draws;
        d.trapped /= draws;
        d.node_hours /= draws;
        std::sort(regrets[p].begin(), regrets[p].end());
        for (const double r : regrets[p]) d.regret_mean_s += r / static_cast<double>(regrets[p].size());
        if (!regrets[p].empty()) d.regret_p90_s = detail::quantile_of(regrets[p], 0.9);
    }
    return made;
}

/// What people do without a planner, from the first option of each site.
struct baseline {
    std::string name;
    std::vector<plan_option> options;
};

/// wait_for_all: everybody begins so that all arrive with the last; fastest and soonest: that site alone.
inline std::vector<baseline> baselines(const calibration& c, std::span<const site_choices> choices) {
    std::vector<plan_option> first;
    for (const site_choices& s : choices)
        if (!s.options.empty()) first.push_back(s.options.front());
    if (first.empty()) return {};
    double latest = 0;
    for (const plan_option& o : first) latest = std::max(latest, o.begin_s + o.wait_s);
    baseline all{"wait_for_all", first};
    for (plan_option& o : all.options) o.begin_s = latest - o.wait_s;
    const auto rate = [&](const plan_option& o) {
        const auto cost = cost_of(c, o.site, o.gpus);
        return cost ? o.lanes * static_cast<double>(cost->batch) / cost->step_s : 0.0;
    };
    const auto fastest =
        std::max_element(first.begin(), first.end(), [&](const auto& a, const auto& b) { return rate(a) < rate(b); });
    const auto soonest = std::min_element(first.begin(), first.end(), [](const auto& a, const auto& b) {
        return a.begin_s + a.wait_s + a.startup_s < b.begin_s + b.wait_s + b.startup_s;
    });
    return {std::move(all), {"fastest_site", {*fastest}}, {"soonest_site", {*soonest}}};
}

}  // namespace darlcore::plan
