// SPDX-License-Identifier: Apache-2.0
#include "adapters/cli/plan/chance.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "darlcore/plan/waterfill.hpp"

namespace darl::plan_io {

using namespace darlcore::plan;
using darlcore::result;

namespace {

constexpr std::size_t ratios_min = 20;
constexpr std::size_t plans_max = 16;

wait_distribution equal_weights(const std::vector<double>& waits) {
    std::vector<std::pair<double, double>> points;
    for (const double w : waits) points.emplace_back(w, 1.0);
    return wait_distribution(std::move(points));
}

// The sites and shapes that fill the work soonest if nobody waits, submitted now.
std::vector<plan_option> waterfill_choice(const campaign_input& input, std::span<const site_choices> choices) {
    const double goal =
        std::max(0.0, input.config.blocks_unassigned - input.config.blocks_reserve) * input.calibration.block_windows;
    const double unit = std::max(1.0, goal / 100000);  // windows; more parts would say no more
    waterfill_request request;
    request.units = static_cast<std::uint64_t>(goal / unit);
    for (const site_choices& site : choices) {
        waterfill_site s;
        s.site = site.site;
        for (std::size_t i = 0; i < site.options.size(); ++i) {
            const plan_option& o = site.options[i];
            const auto cost = cost_of(input.calibration, o.site, o.gpus);
            if (!cost || o.begin_s > 0) continue;
            waterfill_shape shape;
            shape.name = std::to_string(i);
            shape.gpus = o.gpus;
            shape.units_per_h = 3600 * static_cast<double>(cost->batch) / cost->step_s / unit;
            shape.jobs = o.lanes;
            shape.wait_h = o.wait_s / 3600;
            shape.walltime_h = o.walltime_s / 3600;
            shape.startup_h = o.startup_s / 3600;
            s.shapes.push_back(std::move(shape));
        }
        request.sites.push_back(std::move(s));
    }
    std::vector<plan_option> made;
    const auto plan = waterfill(request);
    if (!plan) return made;
    for (const waterfill_share& share : plan->sites)
        for (const site_choices& site : choices)
            if (share.units > 0 && site.site == share.site)
                made.push_back(site.options[static_cast<std::size_t>(std::stoul(share.shape))]);
    return made;
}

double rank_value(const plan_distribution& d, const std::string& rank) {
    return rank == "p90" ? d.p90_s : rank == "mean" ? d.mean_s : d.p50_s;
}

json::value finite_or_null(double v) { return std::isfinite(v) ? json::value(v) : json::value(); }

json::value row_of(const chance_row& r) {
    json::array sites;
    for (const plan_option& o : r.options) sites.emplace_back(o.site + " " + o.shape);
    const plan_distribution& d = r.outcome;
    return json::make_object({{"name", r.name},
                              {"sites", sites},
                              {"p10_s", finite_or_null(d.p10_s)},
                              {"p50_s", finite_or_null(d.p50_s)},
                              {"p90_s", finite_or_null(d.p90_s)},
                              {"mean_s", finite_or_null(d.mean_s)},
                              {"by_deadline", d.by_deadline},
                              {"trapped", d.trapped},
                              {"node_hours", d.node_hours},
                              {"regret_mean_s", d.regret_mean_s},
                              {"regret_p90_s", d.regret_p90_s}});
}

}  // namespace

wait_book::wait_book(const campaign_input& input, const histories& past, const chance_settings& s) {
    for (std::size_t i = 0; i < input.options.size(); ++i) {
        const plan_option& o = input.options[i];
        const option_waits& w = input.waits[i];
        wait_distribution& made = by_shape_[{o.site, o.shape}];
        if (!made.empty()) continue;
        std::string source = "the one wait given: no spread is known";
        if (w.ratios.size() >= ratios_min) {
            std::vector<std::pair<double, double>> pairs;
            for (const double r : w.ratios) pairs.emplace_back(1.0, r);
            made = waits_from_ratios(o.wait_s, pairs);
            source = "realised over predicted waits of own jobs, times the estimate";
        } else if (!w.waits_s.empty()) {
            made = equal_weights(w.waits_s);
            source = "readings of the queue (not discounted)";
        } else if (const auto jobs = past.find(o.site); jobs != past.end()) {
            trace_settings t;
            t.now_s = s.history_now_s > 0 ? s.history_now_s : jobs->second.back().start_s;
            made = waits_from_trace(jobs->second, w.partition, o.nodes, o.walltime_s, t);
            source =
                made.pooled() ? "history of all partitions (too few like jobs in this one)" : "history of like jobs";
        }
        if (made.empty()) {
            made = wait_distribution::constant(o.wait_s);
            source = "the one wait given: no spread is known";
        }
        sources_.push_back({o.site, o.shape, source, made.size()});
    }
}

const wait_distribution& wait_book::of(const plan_option& o) const {
    const auto found = by_shape_.find({o.site, o.shape});
    DARLCORE_ASSERT(found != by_shape_.end());  // options are made from the input's
    return found->second;
}

result<chances> draw_chances(const campaign_input& input, const planned_campaign& plan,
                             std::span<const site_choices> choices, const wait_book& waits, const chance_settings& s) {
    chances made;
    made.sources = waits.sources();
    made.rows.push_back({"recommended", plan.options, {}});
    for (std::size_t i = 0; i < plan.alternatives.size() && made.rows.size() < plans_max; ++i)
        made.rows.push_back({fmt::format("alternative {}", i + 1), plan.alternatives[i].plan.options, {}});
    for (baseline& b : baselines(input.calibration, choices)) made.rows.push_back({b.name, std::move(b.options), {}});
    if (auto filled = waterfill_choice(input, choices); !filled.empty())
        made.rows.push_back({"waterfill", std::move(filled), {}});
    std::vector<std::vector<plan_option>> plans;
    for (const chance_row& r : made.rows) plans.push_back(r.options);
    const auto model = [&](const plan_option& o) -> const wait_distribution& { return waits.of(o); };
    auto drawn = monte_carlo(input.calibration, plans, choices, plan.config, model, s.draws);
    if (!drawn) return drawn.error();
    for (std::size_t i = 0; i < made.rows.size(); ++i) made.rows[i].outcome = (*drawn)[i];
    return made;
}

std::size_t best_by(const chances& c, const std::string& rank) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < c.rows.size() && c.rows[i].name.rfind("alternative", 0) == 0; ++i) {
        const plan_distribution &a = c.rows[i].outcome, &b = c.rows[best].outcome;
        const bool safer = a.trapped < b.trapped;
        if (safer || (a.trapped == b.trapped && rank_value(a, rank) < rank_value(b, rank))) best = i;
    }
    return best;
}

void add_chances(json::value& document, const chances& c, const chance_settings& s) {
    json::array rows, sources;
    for (const chance_row& r : c.rows) rows.push_back(row_of(r));
    for (const wait_source& w : c.sources)
        sources.push_back(
            json::make_object({{"site", w.site}, {"shape", w.shape}, {"source", w.source}, {"samples", w.samples}}));
    const plan_distribution& d = c.rows.front().outcome;
    document.set(
        "distribution",
        json::make_object({{"draws", s.draws.draws},
                           {"seed", s.draws.seed},
                           {"deadline_s", s.draws.deadline_s ? json::value(*s.draws.deadline_s) : json::value()},
                           {"p10", finite_or_null(d.p10_s)},
                           {"p50", finite_or_null(d.p50_s)},
                           {"p90", finite_or_null(d.p90_s)},
                           {"regret", json::make_object({{"mean", d.regret_mean_s}, {"p90", d.regret_p90_s}})}}));
    document.set("distributions", rows);
    document.set("waits_from", sources);
}

}  // namespace darl::plan_io
