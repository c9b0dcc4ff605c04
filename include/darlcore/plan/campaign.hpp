// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "darlcore/error.hpp"
#include "darlcore/plan/chain.hpp"
#include "darlcore/plan/round_cost.hpp"
#include "darlcore/plan/schedule.hpp"

namespace darlcore::plan {

/// What is submitted at one site: `lanes` streams of `links` jobs each.
struct plan_option {
    std::string site;
    std::string shape;
    std::uint32_t nodes = 1;
    std::uint32_t gpus = 1;  // of one job; with the site it names the geometry
    double wait_s = 0;
    double walltime_s = 0;
    double startup_s = 0;
    std::uint32_t lanes = 1;
    std::uint32_t links = 1;
    chain_policy chain = chain_policy::none;
    double lead_s = 0;
    double begin_s = 0;
    bool has_checkpoint = false;
    std::vector<double> link_waits_s;  // of each link, where they are known one by one (drawn or realised)

    friend bool operator==(const plan_option&, const plan_option&) = default;
};

/// strict: what our trainer and ledger do. reference: what the paper's simulator computes.
enum class rule_set : std::uint8_t { strict, reference };

struct campaign_config {
    double horizon_s = 0;
    std::uint64_t num_rounds = UINT64_MAX;  // attempts, solo rounds too
    h_schedule inner_steps = std::uint32_t{100};
    rule_set rules = rule_set::strict;
    bool balance = false;
    double leave_margin_s = 60;  // strict: a job stops this long before its end
    double blocks_unassigned = 0;
    double blocks_reserve = 0;
    std::optional<std::uint64_t> target_tokens;
    bool collect_intervals = true;
    bool collect_rounds = false;
};

enum class end_reason : std::uint8_t { corpus_exhausted, attempts_exhausted, horizon, walltime };
inline constexpr std::array<std::string_view, 4> end_words{"corpus_exhausted", "attempts_exhausted", "horizon",
                                                           "walltime"};
constexpr std::string_view word(end_reason r) { return end_words[static_cast<std::size_t>(r)]; }

/// Why an interval of constant membership ended. joined: somebody came and nobody left.
enum class interval_stop : std::uint8_t { joined, membership, walltime, corpus_exhausted, attempts_exhausted, horizon };

/// The word of a stop; the reference calls a join "horizon".
constexpr std::string_view word(interval_stop s, rule_set rules) {
    switch (s) {
        case interval_stop::joined:
            return rules == rule_set::reference ? "horizon" : "joined";
        case interval_stop::membership:
            return "membership";
        case interval_stop::walltime:
            return "walltime";
        case interval_stop::corpus_exhausted:
            return "corpus_exhausted";
        case interval_stop::attempts_exhausted:
            return "attempts_exhausted";
        case interval_stop::horizon:
            break;
    }
    return "horizon";
}

/// A time in which a lane can train: [start, end).
struct lane_window {
    double start_s = 0;
    double end_s = 0;
    bool cold = false;
};

/// One stream of training with a lasting identity of its own.
struct campaign_lane {
    std::string label;       // "site-l0"
    std::uint32_t site = 0;  // index into campaign_model::sites
    std::uint32_t option = 0;
    member_cost cost;
    std::vector<link> links;
    std::vector<lane_window> windows;
};

/// More lanes than this are refused: sets of lanes are bit masks.
inline constexpr std::size_t lanes_max = 64;

/// Everything about the options that does not change during a simulation.
struct campaign_model {
    std::vector<std::string> sites;  // byte order
    std::vector<campaign_lane> lanes;
    double merge_s = 0;
    double join_stall_s = 0;
    std::uint32_t seq_len = 1;
    std::uint32_t block_windows = 1;
    overhead_rule overhead = overhead_rule::sum;
    std::vector<std::string> warnings;
};

namespace detail {

inline chain_spec spec_of(const plan_option& o) {
    return {o.begin_s, o.wait_s, o.walltime_s,     o.startup_s,   o.lead_s,
            o.links,   o.chain,  o.has_checkpoint, o.link_waits_s};
}

inline result<void> check(const plan_option& o, std::size_t row) {
    const std::string where = "option " + std::to_string(row + 1) + " (site " + o.site + "): ";
    const auto duration = [](double v) { return std::isfinite(v) && v >= 0; };
    if (!duration(o.wait_s))
        return fail(errc::invalid_argument,
                    where + "wait_s must be a finite number, 0 or more; no wait known is not a wait of 0");
    if (!(std::isfinite(o.walltime_s) && o.walltime_s > 0))
        return fail(errc::invalid_argument, where + "walltime_s must be a positive finite number");
    if (!duration(o.startup_s) || !duration(o.lead_s) || !duration(o.begin_s))
        return fail(errc::invalid_argument, where + "startup_s, lead_s and begin_s must be finite numbers, 0 or more");
    if (o.startup_s >= o.walltime_s)
        return fail(errc::invalid_argument, where + "walltime_s must be longer than startup_s");
    if (o.lanes == 0 || o.links == 0) return fail(errc::invalid_argument, where + "lanes and links must be 1 or more");
    return {};
}

inline result<void> check(const campaign_config& c) {
    if (!(std::isfinite(c.horizon_s) && c.horizon_s > 0))
        return fail(errc::invalid_argument, "horizon_s must be a positive finite number");
    if (!(std::isfinite(c.blocks_unassigned) && c.blocks_unassigned >= 0 && std::isfinite(c.blocks_reserve) &&
          c.blocks_reserve >= 0))
        return fail(errc::invalid_argument, "blocks_unassigned and blocks_reserve must be finite numbers, 0 or more");
    if (!(std::isfinite(c.leave_margin_s) && c.leave_margin_s >= 0))
        return fail(errc::invalid_argument, "leave_margin_s must be a finite number, 0 or more");
    const auto* fixed = std::get_if<std::uint32_t>(&c.inner_steps);
    if (fixed != nullptr && *fixed == 0) return fail(errc::invalid_argument, "inner_steps must be 1 or more");
    const auto* trace = std::get_if<h_trace>(&c.inner_steps);
    if (trace != nullptr && (trace->steps.empty() || std::count(trace->steps.begin(), trace->steps.end(), 0U) != 0))
        return fail(errc::invalid_argument,
                    "the trace of inner steps must name at least one round, each with 1 step or more");
    return {};
}

inline std::vector<lane_window> windows_of(std::span<const link> links, double horizon_s) {
    std::vector<lane_window> made;
    for (const link& l : links) {
        const double end = std::min(l.end_s, horizon_s);
        if (l.productive_s < end) made.push_back({l.productive_s, end, l.cold});
    }
    return made;
}

inline void balance_lanes(std::vector<campaign_lane>& lanes) {
    std::vector<double> steps;
    for (const campaign_lane& l : lanes) steps.push_back(l.cost.step_s);
    const auto accumulation = balanced_accumulation(steps);
    for (std::size_t i = 0; i < lanes.size(); ++i) lanes[i].cost.accumulation = accumulation[i];
}

}  // namespace detail

/// Lays out lanes and links of the options. Accumulation comes from the whole planned lane set and stays fixed for a
/// job's life. Errors: errc::invalid_argument naming the option, errc::not_found naming what the calibration lacks,
/// errc::too_large for more than 64 lanes. Complexity: O(lanes * links).
inline result<campaign_model> make_campaign(const calibration& c, std::span<const plan_option> options,
                                            const campaign_config& config) {
    if (auto ok = detail::check(config); !ok) return ok.error();
    campaign_model m{{}, {}, c.merge_s, c.join_stall_s, c.seq_len, c.block_windows, c.overhead, {}};
    if (c.seq_len == 0 || c.block_windows == 0)
        return fail(errc::invalid_argument, "seq_len and block_windows of the calibration must be 1 or more");
    for (const plan_option& o : options) m.sites.push_back(o.site);
    std::sort(m.sites.begin(), m.sites.end());
    m.sites.erase(std::unique(m.sites.begin(), m.sites.end()), m.sites.end());
    std::vector<std::uint32_t> lanes_of_site(m.sites.size(), 0);
    for (std::size_t i = 0; i < options.size(); ++i) {
        const plan_option& o = options[i];
        if (auto ok = detail::check(o, i); !ok) return ok.error();
        const auto cost = cost_of(c, o.site, o.gpus);
        if (!cost) return cost.error();
        const auto links = chain_links(detail::spec_of(o), config.horizon_s);
        const auto refused = std::count_if(links.begin(), links.end(), [](const link& l) { return l.refused; });
        if (refused > 0)
            m.warnings.push_back(
                "site " + o.site + ": " + std::to_string(refused) +
                " links would arrive before their predecessor ends and find the ledger busy; use a smaller lead");
        const auto site = std::lower_bound(m.sites.begin(), m.sites.end(), o.site) - m.sites.begin();
        if (m.lanes.size() + o.lanes > lanes_max)
            return fail(errc::too_large, "more than 64 lanes in one plan; use fewer lanes");
        for (std::uint32_t k = 0; k < o.lanes; ++k) {
            const std::uint32_t number = lanes_of_site[static_cast<std::size_t>(site)]++;
            m.lanes.push_back({o.site + "-l" + std::to_string(number), static_cast<std::uint32_t>(site),
                               static_cast<std::uint32_t>(i), *cost, links,
                               detail::windows_of(links, config.horizon_s)});
        }
    }
    if (config.balance) detail::balance_lanes(m.lanes);
    return m;
}

/// What one lane did. Units: seconds; windows are samples.
struct lane_outcome {
    std::uint64_t merges = 0;
    std::uint64_t federated = 0;
    std::uint64_t windows = 0;
    double compute_s = 0;
};

struct campaign_interval {
    double start_s = 0;
    double end_s = 0;
    std::uint64_t members = 0;  // lanes that train, as a mask
    std::uint64_t rounds = 0;
    std::uint64_t federated = 0;
    std::uint64_t windows_left = 0;
    interval_stop stop = interval_stop::horizon;
};

struct campaign_round {
    double start_s = 0;
    double period_s = 0;
    std::uint64_t members = 0;
    std::uint64_t eval_only = 0;
    std::uint32_t inner_steps = 0;
    std::uint64_t windows = 0;
};

/// What a campaign came to.
struct campaign_outcome {
    std::uint64_t federated_rounds = 0;  // two or more sites; two lanes of one site are solo
    std::uint64_t solo_rounds = 0;
    std::uint64_t short_rounds = 0;  // strict: rounds with a member that leaves in them
    std::uint64_t windows = 0;
    std::uint64_t windows_left = 0;
    double run_end_s = 0;
    end_reason ended_by = end_reason::horizon;
    std::optional<double> corpus_exhausted_s;
    std::optional<double> attempts_exhausted_s;
    std::optional<double> first_federated_start_s;
    std::optional<double> last_federated_start_s;
    std::optional<double> target_s;  // when the target's tokens were merged
    std::vector<lane_outcome> lanes;
    std::vector<campaign_interval> intervals;
    std::vector<campaign_round> rounds;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> rounds_by_members;  // mask, rounds
};

}  // namespace darlcore::plan
