// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "darlcore/plan/monte_carlo.hpp"
#include "darlcore/plan/queue_sim.hpp"

// Plans tried in simulated clusters: what they expect against what the queues do.
namespace darlcore::plan {

/// A cluster as it will really be: its nodes, its rules, and the jobs of other people.
struct trial_cluster {
    std::string site;
    queue_config queue;
    std::vector<queued_job> others;
};

/// The option with the wait that each of its links meets in the cluster. Lanes are submitted together and share their
/// waits, so a link waits for its last lane; a `self` link may not start before its begin time, a `singleton` one is
/// submitted when its predecessor ends. Links that would be submitted after the horizon are left as they are.
/// Errors: errc::invalid_argument naming site and shape when the cluster could never start a job of it.
inline result<plan_option> meet_queue(plan_option o, const trial_cluster& cluster, double horizon_s) {
    std::vector<queued_job> jobs = cluster.others;
    o.link_waits_s.clear();
    const std::uint32_t links = o.chain == chain_policy::none ? 1 : o.links;
    for (std::uint32_t k = 0; k < links; ++k) {
        const double submit_s = chain_links(detail::spec_of(o), std::numeric_limits<double>::infinity())[k].submit_s;
        if (submit_s >= horizon_s) break;
        const bool held = k > 0 && o.chain == chain_policy::self;
        const double eligible_s = submit_s + (held ? std::max(0.0, o.walltime_s - o.lead_s) : 0.0);
        for (std::uint32_t lane = 0; lane < o.lanes; ++lane)
            jobs.push_back({eligible_s, o.walltime_s, o.walltime_s, o.nodes});
        const auto out = simulate_queue(jobs, cluster.queue);
        if (!out) return fail(errc::invalid_argument, o.site + ", shape " + o.shape + ": " + out.error().context);
        const auto ours = out->start_s.end() - static_cast<std::ptrdiff_t>(o.lanes);
        o.link_waits_s.push_back(*std::max_element(ours, out->start_s.end()) - submit_s);
    }
    return o;
}

/// A plan by name: what it expected, what came, and what knowing the queues would have saved. Times of plans that do
/// not reach the target are infinite.
struct plan_trial {
    std::string name;
    scored_plan expected;
    scored_plan realised;
    double regret_s = 0;  ///< against the best plan with all waits known; 0 when nobody reaches the target
};

namespace detail {

inline result<const trial_cluster*> cluster_of(std::span<const trial_cluster> clusters, const std::string& site) {
    for (const trial_cluster& one : clusters)
        if (one.site == site) return &one;
    return fail(errc::not_found, "site " + site + " has no simulated cluster; give one, with its nodes");
}

inline result<std::vector<plan_option>> meet_queues(std::span<const plan_option> options,
                                                    std::span<const trial_cluster> clusters, double horizon_s) {
    std::vector<plan_option> met;
    for (const plan_option& o : options) {
        const auto where = cluster_of(clusters, o.site);
        if (!where) return where.error();
        auto one = meet_queue(o, **where, horizon_s);
        if (!one) return one.error();
        met.push_back(*std::move(one));
    }
    return met;
}

/// Time of the best plan among `choices` with all waits known.
inline result<double> hindsight_s(const calibration& c, std::span<const site_choices> choices,
                                  std::span<const trial_cluster> clusters, const campaign_config& config) {
    std::vector<site_choices> known;
    for (const site_choices& site : choices) {
        auto met = meet_queues(site.options, clusters, config.horizon_s);
        if (!met) return met.error();
        known.push_back({site.site, *std::move(met)});
    }
    search_settings by_time;
    by_time.objectives.order = {objective::time};
    by_time.objectives.time_grain_s = 1;
    const auto found = search_plans(c, known, config, by_time);
    if (!found) return found.error();
    return found->best ? found->best->time_s : std::numeric_limits<double>::infinity();
}

}  // namespace detail

/// Tries plans: their jobs are submitted in the clusters, the campaign runs on the starts that come of it.
/// Promises: regret >= 0, and 0 for the best plan of `choices` with the waits known.
/// Errors: errc::not_found for a site without a cluster; those of meet_queue, score_plan and search_plans.
inline result<std::vector<plan_trial>> try_plans(const calibration& c, std::span<const baseline> plans,
                                                 std::span<const site_choices> choices,
                                                 std::span<const trial_cluster> clusters, campaign_config config) {
    config.collect_intervals = false;
    const auto hindsight = detail::hindsight_s(c, choices, clusters, config);
    if (!hindsight) return hindsight.error();
    double best_s = *hindsight;
    std::vector<plan_trial> made;
    for (const baseline& plan : plans) {
        const auto expected = score_plan(c, plan.options, config);
        if (!expected) return expected.error();
        const auto met = detail::meet_queues(plan.options, clusters, config.horizon_s);
        if (!met) return met.error();
        const auto realised = score_plan(c, *met, config);
        if (!realised) return realised.error();
        best_s = std::min(best_s, realised->time_s);
        made.push_back({plan.name, *expected, *realised, 0});
    }
    for (plan_trial& trial : made)
        if (std::isfinite(best_s)) trial.regret_s = trial.realised.time_s - best_s;
    return made;
}

/// How a plan that is made anew every so often ended.
struct replan_trial {
    scored_plan realised;
    std::uint64_t plans = 0;      ///< how often it was planned
    std::uint64_t submitted = 0;  ///< first links
    std::uint64_t withdrawn = 0;  ///< of these, before they started
};

/// More plans than this at one time are refused: all are tried.
inline constexpr std::uint64_t replan_choices_max = 4096;

namespace detail {

/// Plans at 0, every_s, 2 every_s, ... with what the schedulers say then. What runs stays; what waits may be withdrawn.
class replanner {
public:
    replanner(const calibration& c, std::span<const site_choices> choices, std::span<const trial_cluster> clusters,
              const campaign_config& config)
        : c_(c), choices_(choices), config_(config), places_(choices.size()) {
        for (const site_choices& site : choices) {
            const auto where = cluster_of(clusters, site.site);
            if (!where) {
                fault_ = where.error();
                return;
            }
            auto alone = simulate_queue((*where)->others, (*where)->queue);
            if (!alone) {
                fault_ = alone.error();
                return;
            }
            queues_.push_back({*where, *std::move(alone)});
        }
    }

    result<replan_trial> run(double every_s) {
        if (fault_) return *fault_;
        for (double t = 0; t < config_.horizon_s && t < made_.realised.time_s; t += every_s) {
            if (auto ok = plan_at(t); !ok) return ok.error();
            ++made_.plans;
            std::vector<plan_option> met;
            for (const auto& p : places_)
                if (p) met.push_back(p->met);
            if (met.empty()) continue;
            const auto scored = score_plan(c_, met, config_);
            if (!scored) return scored.error();
            made_.realised = *scored;
        }
        return std::move(made_);
    }

private:
    struct queue_view {
        const trial_cluster* cluster;
        queue_outcome alone;  // without us
    };
    struct place {
        plan_option told;  // with the wait that was estimated
        plan_option met;   // with those that come
        [[nodiscard]] double start_s() const { return met.begin_s + met.link_waits_s.front(); }
    };

    // What a planner may do at a site at time t. The first entry is what is there already; nothing = leave it out.
    [[nodiscard]] std::vector<std::optional<plan_option>> ways(std::size_t i, double t) const {
        std::vector<std::optional<plan_option>> made;
        if (const auto& p = places_[i]) {
            plan_option seen = p->told;
            if (p->start_s() <= t) {  // later links are still guesses
                seen.link_waits_s = {p->met.link_waits_s.front()};
                return {seen};
            }
            seen.wait_s = std::max(seen.wait_s, t - seen.begin_s);
            made.emplace_back(std::move(seen));
        }
        made.emplace_back();
        const queue_view& q = queues_[i];
        for (plan_option o : choices_[i].options) {
            o.begin_s = std::max(o.begin_s, t);
            const queued_job shape{t, o.walltime_s, o.walltime_s, o.nodes * o.lanes};
            o.wait_s = estimate_start_s(q.cluster->others, q.cluster->queue, q.alone, shape, t) - t;
            made.emplace_back(std::move(o));
        }
        return made;
    }

    result<void> plan_at(double t) {
        std::vector<std::vector<std::optional<plan_option>>> all;
        std::uint64_t plans = 1;
        for (std::size_t i = 0; i < choices_.size(); ++i) {
            all.push_back(ways(i, t));
            plans *= all.back().size();
            if (plans > replan_choices_max)
                return fail(errc::too_large, "more than 4096 plans to try at one time; give fewer shapes");
        }
        std::vector<std::size_t> best(all.size(), 0);
        scored_plan so_far;
        for (std::uint64_t n = 0; n < plans; ++n) {
            std::vector<std::size_t> pick;
            std::vector<plan_option> options;
            std::uint64_t rest = n;
            for (const auto& ways_there : all) {
                pick.push_back(rest % ways_there.size());
                rest /= ways_there.size();
                if (const auto& way = ways_there[pick.back()]) options.push_back(*way);
            }
            if (options.empty()) continue;
            const auto scored = score_plan(c_, options, config_);
            if (!scored) return scored.error();
            if (!better(*scored, so_far)) continue;
            so_far = *scored;
            best = pick;
        }
        for (std::size_t i = 0; i < all.size(); ++i)
            if (auto ok = take(i, best[i], all[i][best[i]]); !ok) return ok.error();
        return {};
    }

    // Sooner by a second at least; out of reach of the target: more tokens.
    static bool better(const scored_plan& a, const scored_plan& b) {
        if (std::isinf(a.time_s) && std::isinf(b.time_s)) return a.tokens > b.tokens;
        return a.time_s < b.time_s - 1;
    }

    result<void> take(std::size_t i, std::size_t way, const std::optional<plan_option>& option) {
        if (places_[i] && way == 0) return {};
        if (places_[i]) ++made_.withdrawn;
        places_[i].reset();
        if (!option) return {};
        auto met = meet_queue(*option, *queues_[i].cluster, config_.horizon_s);
        if (!met) return met.error();
        if (met->link_waits_s.empty()) return {};  // its begin lies behind the horizon
        places_[i] = place{*option, *std::move(met)};
        ++made_.submitted;
        return {};
    }

    const calibration& c_;
    std::span<const site_choices> choices_;
    campaign_config config_;
    std::vector<queue_view> queues_;
    std::vector<std::optional<place>> places_;
    replan_trial made_;
    std::optional<error> fault_;
};

}  // namespace detail

/// Plans again every `every_s` with what the schedulers say then: jobs that run stay, jobs that wait may be withdrawn,
/// sites may be added; all plans of `choices` are tried, by their time.
/// Errors: errc::invalid_argument unless every_s > 0; errc::too_large beyond replan_choices_max; errc::not_found for a
/// site without a cluster; those of meet_queue and score_plan.
/// Complexity: O(horizon / every * plans) campaigns.
inline result<replan_trial> try_replanning(const calibration& c, std::span<const site_choices> choices,
                                           std::span<const trial_cluster> clusters, campaign_config config,
                                           double every_s) {
    if (!(std::isfinite(every_s) && every_s > 0))
        return fail(errc::invalid_argument, "the time between two plans must be a positive number of seconds");
    config.collect_intervals = false;
    return detail::replanner(c, choices, clusters, config).run(every_s);
}

}  // namespace darlcore::plan
