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

#include "darlcore/plan/capacity.hpp"
#include "darlcore/plan/greedy.hpp"
#include "darlcore/plan/objective.hpp"

namespace darlcore::plan {

/// A plan that lost, and the first key in which it is worse than the best.
struct losing_plan {
    scored_plan plan;
    std::string lost_by;
};

/// Beyond the exact search, so many of the sets that were tried are told.
inline constexpr std::size_t sets_shown_max = 20;

struct search_result {
    std::optional<scored_plan> best;
    std::vector<losing_plan> per_set;     // best of every other set of sites
    std::vector<losing_plan> runners_up;  // best of those that were simulated
    std::vector<std::pair<std::string, double>>
        marginal_s;      // site, time lost without it (infinite: target out of reach)
    bool exact = true;   // the whole tree was closed
    double bound_s = 0;  // no plan is sooner
    double gap_s = 0;    // time of the best - bound
    std::uint64_t nodes = 0;
    std::uint64_t pruned = 0;
};

namespace detail {

/// Windows (samples) one option can deliver by a time, if it never waits: no barrier, no overhead.
class option_supply {
public:
    option_supply(const calibration& c, const plan_option& o, const campaign_config& config) {
        const double horizon_s = config.horizon_s;
        const auto cost = cost_of(c, o.site, o.gpus);
        rate_ = cost ? o.lanes * static_cast<double>(cost->batch) / cost->step_s : 0;
        // a run may end before all is trained: strict, the last step of a drained corpus may be short; reference, a
        // whole round
        const auto* fixed = std::get_if<std::uint32_t>(&config.inner_steps);
        const double steps = config.rules == rule_set::strict ? 1.0 : fixed != nullptr ? *fixed : 1e12;
        free_ = cost ? 8.0 * steps * o.lanes * static_cast<double>(cost->batch) : 0;
        const auto links = chain_links(spec_of(o), horizon_s);
        double sum = 0;
        for (const lane_window& w : windows_of(links, horizon_s)) {
            starts_.push_back(w.start_s);
            ends_.push_back(w.end_s);
            before_.push_back(sum);
            sum += w.end_s - w.start_s;
        }
    }
    [[nodiscard]] double by(double t) const {
        const auto next = std::upper_bound(starts_.begin(), starts_.end(), t);
        if (next == starts_.begin()) return 0;
        const auto i = static_cast<std::size_t>(next - starts_.begin()) - 1;
        return rate_ * (before_[i] + std::min(t, ends_[i]) - starts_[i]) + free_;
    }

private:
    double rate_ = 0;
    double free_ = 0;
    std::vector<double> starts_, ends_, before_;
};

/// Depth-first over the sites of one set; every site of the set takes one of its options.
class set_search {
public:
    set_search(const calibration& c, const campaign_config& config, const search_settings& s, search_result& out)
        : c_(c), config_(config), s_(s), out_(out) {
        const double blocks = std::max(0.0, config.blocks_unassigned - config.blocks_reserve);
        target_ = std::floor(blocks * c.block_windows);
        if (config.target_tokens)
            target_ = std::min(target_, static_cast<double>((*config.target_tokens + c.seq_len - 1) / c.seq_len));
    }

    /// Smallest time at which the given sites could have done the work.
    [[nodiscard]] double bound_s(std::span<const std::vector<option_supply>> supply) const {
        const auto reached = [&](double t) {
            double sum = 0;
            for (const auto& site : supply) {
                double best = 0;
                for (const option_supply& o : site) best = std::max(best, o.by(t));
                sum += best;
            }
            return sum >= target_;
        };
        if (!reached(config_.horizon_s)) return std::numeric_limits<double>::infinity();
        return smallest_time(0.0, config_.horizon_s, reached);
    }

    result<void> run(std::span<const site_choices* const> sites,
                     std::span<const std::vector<option_supply>* const> supply) {
        sites_ = sites;
        supply_ = supply;
        best_.reset();
        chosen_.assign(sites.size(), 0);
        return descend(0);
    }
    [[nodiscard]] const std::optional<scored_plan>& best() const { return best_; }
    [[nodiscard]] const std::vector<scored_plan>& kept() const { return kept_; }

private:
    [[nodiscard]] bool hopeless(std::size_t depth) const {
        if (!best_ || s_.objectives.order.empty() || s_.objectives.order.front() != objective::time) return false;
        if (rank_of(*best_) != 0 || std::isinf(best_->time_s)) return false;
        // strictly worse in the first key: the work is not even possible by the end of the best plan's bucket
        const double grain = s_.objectives.time_grain_s;
        const double last = (std::floor(best_->time_s / grain) + 1) * grain;
        double sum = 0;
        for (std::size_t i = 0; i < sites_.size(); ++i) {
            const auto& options = *supply_[i];
            if (i < depth) {
                sum += options[chosen_[i]].by(last);
                continue;
            }
            double most = 0;
            for (const option_supply& o : options) most = std::max(most, o.by(last));
            sum += most;
        }
        return sum < target_;
    }

    result<void> descend(std::size_t depth) {
        ++out_.nodes;
        if (out_.nodes > s_.nodes_max || (s_.out_of_time && out_.nodes % 256 == 0 && s_.out_of_time()))
            out_.exact = false;
        if (!out_.exact && best_) return {};
        if (hopeless(depth)) {
            ++out_.pruned;
            return {};
        }
        if (depth == sites_.size()) return leaf();
        for (std::size_t k = 0; k < sites_[depth]->options.size(); ++k) {
            chosen_[depth] = k;
            if (auto ok = descend(depth + 1); !ok) return ok;
        }
        return {};
    }

    result<void> leaf() {
        std::vector<plan_option> options;
        for (std::size_t i = 0; i < sites_.size(); ++i) options.push_back(sites_[i]->options[chosen_[i]]);
        std::sort(options.begin(), options.end(), [](const auto& a, const auto& b) { return a.site < b.site; });
        auto scored = score_plan(c_, options, config_);
        if (!scored) return scored.error();
        keep(*scored);
        if (!best_ || better(*scored, *best_, s_.objectives)) best_ = std::move(*scored);
        return {};
    }

    // The best few of all that were simulated, best first.
    void keep(const scored_plan& p) {
        const auto at = std::upper_bound(kept_.begin(), kept_.end(), p,
                                         [&](const auto& a, const auto& b) { return better(a, b, s_.objectives); });
        kept_.insert(at, p);
        if (kept_.size() > s_.runners_up + 1) kept_.pop_back();
    }

    const calibration& c_;
    const campaign_config& config_;
    const search_settings& s_;
    search_result& out_;
    double target_ = 0;
    std::span<const site_choices* const> sites_;
    std::span<const std::vector<option_supply>* const> supply_;
    std::vector<std::size_t> chosen_;
    std::optional<scored_plan> best_;
    std::vector<scored_plan> kept_;
};

inline void summarize(search_result& out, std::vector<std::optional<scored_plan>>& by_set,
                      const std::vector<scored_plan>& kept, std::span<const site_choices* const> sites,
                      const search_settings& s) {
    std::size_t best = by_set.size();
    for (std::size_t mask = 0; mask < by_set.size(); ++mask) {
        if (!by_set[mask]) continue;
        if (best == by_set.size() || better(*by_set[mask], *by_set[best], s.objectives)) best = mask;
    }
    if (best == by_set.size()) return;
    out.best = by_set[best];
    for (std::size_t mask = 0; mask < by_set.size(); ++mask)
        if (by_set[mask] && mask != best)
            out.per_set.push_back({*by_set[mask], compare(*by_set[mask], *out.best, s.objectives).key});
    std::stable_sort(out.per_set.begin(), out.per_set.end(),
                     [&](const auto& a, const auto& b) { return better(a.plan, b.plan, s.objectives); });
    for (const scored_plan& p : kept)
        if (p.options != out.best->options && out.runners_up.size() < s.runners_up)
            out.runners_up.push_back({p, compare(p, *out.best, s.objectives).key});
    for (std::size_t i = 0; i < sites.size(); ++i) {
        if ((best >> i & 1U) == 0) continue;
        std::optional<scored_plan> without;
        for (std::size_t mask = 1; mask < by_set.size(); ++mask)
            if ((mask >> i & 1U) == 0 && by_set[mask] && (!without || better(*by_set[mask], *without, s.objectives)))
                without = by_set[mask];
        const double other = without ? without->time_s : std::numeric_limits<double>::infinity();
        out.marginal_s.emplace_back(sites[i]->site, other - out.best->time_s);
    }
}

}  // namespace detail

namespace detail {

/// The greedy plan in place of the exact one, or beside what an unfinished search has seen.
inline result<void> add_greedy(search_result& out, const calibration& c, const campaign_config& config,
                               const search_settings& s, std::span<const site_choices* const> sites) {
    out.exact = false;
    greedy_search greedy(c, config, s, sites);
    auto found = greedy.run();
    if (!found) return found.error();
    if (!*found) return {};
    const std::optional<scored_plan> former = out.best;
    if (former && !better(**found, *former, s.objectives)) return {};
    out.best = std::move(*found);
    const auto lost = [&](const scored_plan& p) { return losing_plan{p, compare(p, *out.best, s.objectives).key}; };
    if (former) {  // the rest stands as it was, against the new best
        out.per_set.push_back({*former, {}});
        for (auto* list : {&out.per_set, &out.runners_up})
            for (losing_plan& l : *list) l = lost(l.plan);
        return {};
    }
    for (const auto& [set, plan] : greedy.by_set())
        if (plan.options != out.best->options) out.per_set.push_back(lost(plan));
    std::stable_sort(out.per_set.begin(), out.per_set.end(),
                     [&](const auto& a, const auto& b) { return better(a.plan, b.plan, s.objectives); });
    if (out.per_set.size() > sets_shown_max) out.per_set.resize(sets_shown_max);
    return {};
}

}  // namespace detail

/// Up to this many sites every set of them is searched.
inline constexpr std::size_t search_sites_max = 8;

/// The best plan over all sets of sites and all of their options: branch and bound per set of sites, so that the best
/// of every set is known too. The bound of a partial plan is the water level without barrier, overhead or restriction
/// of the undecided sites; it prunes only when time is the first objective and strictly worse than the best plan's.
/// Beyond 8 sites, and where the tree was not closed within `nodes_max` and the time given, the answer is at least as
/// good as the greedy plan (marginal gain, then exchanges).
/// Promises: `exact` is true only if every tree was closed; else the best plan seen and its gap to the bound. Same
/// input, same answer (but for the time limit). Errors: those of make_campaign.
inline result<search_result> search_plans(const calibration& c, std::span<const site_choices> all,
                                          const campaign_config& config, const search_settings& settings) {
    search_result out;
    std::vector<const site_choices*> sites;
    if (auto ok = detail::check(config); !ok) return ok.error();
    for (const site_choices& s : all) {
        for (std::size_t i = 0; i < s.options.size(); ++i)
            if (auto ok = detail::check(s.options[i], i); !ok) return ok.error();
        if (!s.options.empty()) sites.push_back(&s);
    }
    campaign_config quiet = config;
    quiet.collect_intervals = false;
    quiet.collect_rounds = false;
    std::vector<std::vector<detail::option_supply>> supply(sites.size());
    for (std::size_t i = 0; i < sites.size(); ++i)
        for (const plan_option& o : sites[i]->options) supply[i].emplace_back(c, o, config);
    detail::set_search search(c, quiet, settings, out);
    out.bound_s = search.bound_s(supply);
    const bool all_sets = sites.size() <= search_sites_max;
    std::vector<std::optional<scored_plan>> by_set(all_sets ? std::size_t{1} << sites.size() : 1);
    for (std::size_t mask = by_set.size() - 1; mask > 0; --mask) {
        std::vector<const site_choices*> members;
        std::vector<const std::vector<detail::option_supply>*> member_supply;
        for (std::size_t i = 0; i < sites.size(); ++i) {
            if ((mask >> i & 1U) == 0) continue;
            members.push_back(sites[i]);
            member_supply.push_back(&supply[i]);
        }
        if (auto ok = search.run(members, member_supply); !ok) return ok.error();
        by_set[mask] = search.best();
    }
    detail::summarize(out, by_set, search.kept(), sites, settings);
    if (!all_sets || !out.exact)
        if (auto ok = detail::add_greedy(out, c, quiet, settings, sites); !ok) return ok.error();
    if (out.best && !std::isinf(out.best->time_s))
        out.gap_s = out.exact ? 0 : std::max(0.0, out.best->time_s - out.bound_s);
    return out;
}

}  // namespace darlcore::plan
