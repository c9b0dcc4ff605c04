// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "darlcore/plan/estimate.hpp"
#include "darlcore/plan/search.hpp"

namespace darlcore::plan {

/// A shape of a site from which options are made: its raw wait and what the planner may vary.
struct candidate_shape {
    plan_option base;  // wait_s is ignored; begin_s is the user's earliest begin
    double wait_raw_s = 0;
    std::optional<double> wait_p50_s;
    std::optional<double> wait_p90_s;
    std::optional<double> gamma;
};

/// One way to look at the candidates; sensitivity varies it and makes the options anew.
struct planning_view {
    double strength = 0.5;
    double startup_factor = 1;
    wait_choice wait = wait_choice::now;
    std::optional<std::uint32_t> inner_steps;
    bool delayed_begins = true;  // also begins at the others' first productive times
    double begin_grid_s = 300;
};

namespace detail {

inline result<plan_option> option_of(const candidate_shape& s, const planning_view& v) {
    plan_option o = s.base;
    double raw = s.wait_raw_s;
    if (v.wait == wait_choice::p50) raw = s.wait_p50_s.value_or(raw);
    if (v.wait == wait_choice::p90) raw = s.wait_p90_s.value_or(raw);
    const auto wait = discounted_wait_s(raw, s.gamma, v.strength);
    if (!wait) return wait.error();
    o.wait_s = *wait;
    o.startup_s = s.base.startup_s * v.startup_factor;
    return o;
}

/// Equal productive spans with equal geometry are one option: the one with the fewest jobs.
inline void collapse(std::vector<plan_option>& options, double horizon_s) {
    std::vector<plan_option> kept;
    std::vector<std::vector<std::pair<double, double>>> seen;
    std::stable_sort(options.begin(), options.end(),
                     [](const auto& a, const auto& b) { return a.lanes * a.links < b.lanes * b.links; });
    for (const plan_option& o : options) {
        std::vector<std::pair<double, double>> productive{{o.gpus, o.lanes}};
        const auto links = chain_links(spec_of(o), horizon_s);
        for (const lane_window& w : windows_of(links, horizon_s)) productive.emplace_back(w.start_s, w.end_s);
        if (std::find(seen.begin(), seen.end(), productive) != seen.end()) continue;
        seen.push_back(std::move(productive));
        kept.push_back(o);
    }
    options = std::move(kept);
}

}  // namespace detail

/// The options of every site under a view: each shape at begin 0, at the user's begin, and at the first productive time
/// of every other site's shapes less its own wait, on a grid. A shape whose walltime does not exceed its startup is
/// left out. No dominance is assumed: earlier is not weakly better when the corpus is finite. Errors:
/// errc::invalid_argument for a wait or gamma that is not valid.
inline result<std::vector<site_choices>> make_options(std::span<const candidate_shape> shapes,
                                                      const planning_view& view, double horizon_s) {
    std::vector<plan_option> first;
    for (const candidate_shape& s : shapes) {
        auto o = detail::option_of(s, view);
        if (!o) return o.error();
        first.push_back(std::move(*o));
    }
    std::map<std::string, std::vector<plan_option>> by_site;
    for (const plan_option& o : first) {
        auto& into = by_site[o.site];
        if (o.startup_s >= o.walltime_s) continue;
        std::vector<double> begins{0.0, o.begin_s};
        for (const plan_option& other : first) {
            if (!view.delayed_begins || other.site == o.site) continue;
            const double begin = other.begin_s + other.wait_s + other.startup_s - o.wait_s;
            if (begin > 0) begins.push_back(std::ceil(begin / view.begin_grid_s) * view.begin_grid_s);
        }
        std::sort(begins.begin(), begins.end());
        begins.erase(std::unique(begins.begin(), begins.end()), begins.end());
        for (const double begin : begins) {
            if (begin < o.begin_s || begin >= horizon_s) continue;
            into.push_back(o);
            into.back().begin_s = begin;
        }
    }
    std::vector<site_choices> made;
    for (auto& [site, options] : by_site) {
        detail::collapse(options, horizon_s);
        made.push_back({site, std::move(options)});
    }
    return made;
}

/// One row of a sensitivity table: a setting, and the best plan when everything is planned anew under it.
struct sensitivity_row {
    std::string setting;
    planning_view view;
    std::optional<scored_plan> best;
    bool same_choice = false;  // the same shapes and sites as the base plan
};

/// The settings that a sensitivity table varies, one at a time.
inline std::vector<std::pair<std::string, planning_view>> sensitivity_views(const planning_view& base,
                                                                            std::uint32_t inner_steps) {
    std::vector<std::pair<std::string, planning_view>> made;
    const auto add = [&](std::string name, auto change) {
        planning_view v = base;
        change(v);
        made.emplace_back(std::move(name), v);
    };
    add("strength 0", [](planning_view& v) { v.strength = 0; });
    add("strength 0.5", [](planning_view& v) { v.strength = 0.5; });
    add("strength 1", [](planning_view& v) { v.strength = 1; });
    add("startup x0.5", [](planning_view& v) { v.startup_factor = 0.5; });
    add("startup x2", [](planning_view& v) { v.startup_factor = 2; });
    add("wait p50", [](planning_view& v) { v.wait = wait_choice::p50; });
    add("wait p90", [](planning_view& v) { v.wait = wait_choice::p90; });
    add("H x0.5", [&](planning_view& v) { v.inner_steps = std::max(1U, inner_steps / 2); });
    add("H x2", [&](planning_view& v) { v.inner_steps = inner_steps * 2; });
    return made;
}

/// True when a candidate knows the wait that a view asks for.
inline bool tells(std::span<const candidate_shape> shapes, wait_choice wait) {
    return std::any_of(shapes.begin(), shapes.end(), [wait](const candidate_shape& s) {
        return wait == wait_choice::p50 ? s.wait_p50_s.has_value() : wait != wait_choice::p90 || s.wait_p90_s;
    });
}

/// Plans from candidates under one view.
inline result<search_result> plan_from(const calibration& c, std::span<const candidate_shape> shapes,
                                       const campaign_config& config, const planning_view& view,
                                       const search_settings& settings) {
    const auto choices = make_options(shapes, view, config.horizon_s);
    if (!choices) return choices.error();
    campaign_config k = config;
    if (view.inner_steps) k.inner_steps = *view.inner_steps;
    return search_plans(c, *choices, k, settings);
}

/// Each row makes its options anew and searches again: re-ranking the old ones would claim fragility that is not there.
/// Errors: those of plan_from.
inline result<std::vector<sensitivity_row>> sensitivity(const calibration& c, std::span<const candidate_shape> shapes,
                                                        const campaign_config& config, const planning_view& base,
                                                        const search_settings& settings, const scored_plan& base_plan) {
    const auto* fixed = std::get_if<std::uint32_t>(&config.inner_steps);
    std::vector<sensitivity_row> rows;
    for (auto& [name, view] : sensitivity_views(base, fixed != nullptr ? *fixed : 100)) {
        if (fixed == nullptr && view.inner_steps) continue;
        if (!tells(shapes, view.wait)) continue;  // nothing is known of that quantile: the row would say nothing
        auto found = plan_from(c, shapes, config, view, settings);
        if (!found) return found.error();
        sensitivity_row row{name, view, found->best, false};
        if (row.best && row.best->options.size() == base_plan.options.size()) {
            row.same_choice = true;
            for (std::size_t i = 0; i < base_plan.options.size(); ++i) {
                const plan_option& a = row.best->options[i];
                const plan_option& b = base_plan.options[i];
                row.same_choice = row.same_choice && a.site == b.site && a.shape == b.shape && a.lanes == b.lanes;
            }
        }
        rows.push_back(std::move(row));
    }
    return rows;
}

}  // namespace darlcore::plan
