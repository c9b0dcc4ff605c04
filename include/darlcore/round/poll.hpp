// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "darlcore/round/close.hpp"
#include "darlcore/round/estimate.hpp"
#include "darlcore/round/state.hpp"

namespace darlcore::round {

struct poll_input {
    site_id site;
    darlcore::incarnation incarnation;
    darlcore::generation have;
    site_activity activity = site_activity::idle;
    std::uint64_t steps_done = 0;
    std::int64_t eta_ms = 0;
};

enum class poll_action : std::uint8_t { init, train, wait, stop };

enum class wait_reason : std::uint8_t {
    none,
    initialising,  // another site was chosen for the first weights
    contributed,   // pledged, waits for the merge
    paused,
    stopping,
    merging,
    in_phase,  // the site says that it trains or uploads
    no_data,
    failed_phase,  // declined for a failed phase; tried again a little later
    next_round,    // a joiner that would come too late for this one
};

constexpr std::string_view word(poll_action a) noexcept {
    constexpr std::string_view words[] = {"init", "train", "wait", "stop"};
    return words[static_cast<std::size_t>(a)];
}
constexpr std::string_view word(wait_reason r) noexcept {
    constexpr std::string_view words[] = {"",        "initialising", "contributed", "paused",       "stopping",
                                          "merging", "in_phase",     "no_data",     "failed_phase", "next_round"};
    return words[static_cast<std::size_t>(r)];
}

/// Answer to a poll. Which fields count depends on `action`.
struct poll_answer {
    poll_action action = poll_action::wait;
    wait_reason reason = wait_reason::none;
    std::optional<stop_reason> stopped_by;
    darlcore::generation current;
    blob_ref wire;                          // train
    std::uint64_t global_step = 0;          // train
    std::uint64_t inner_steps = 0;          // train
    std::optional<std::int64_t> budget_ms;  // train
    std::int64_t due_in_ms = 0;             // train
    bool evaluate = false;                  // train: before the phase; wait: now
    std::int64_t retry_after_ms = 0;        // wait
    last_contribution last;
    friend bool operator==(const poll_answer&, const poll_answer&) = default;
};

namespace detail {

inline std::vector<std::int64_t> known_estimates(const durable_state& s, const volatile_state& v, const settings& set,
                                                 round_time now) {
    std::vector<std::int64_t> known;
    for (const auto& [site, m] : s.members)
        if (m.estimate_ms && !is_lagging(set, m) && is_live(s, v, set, site, now)) known.push_back(*m.estimate_ms);
    return known;
}

/// How long the participants that are waited for still need by their plans; nothing while one of them has no plan or
/// nobody trains.
inline std::optional<std::int64_t> others_remaining_ms(const durable_state& s, const volatile_state& v,
                                                       const settings& set, const rule_switches& rules,
                                                       const site_id& asker, round_time now) {
    std::optional<std::int64_t> longest;
    for (const auto& wait : waits_of(s, v, set, rules, now)) {
        if (wait.site == asker || wait.kind != wait_kind::training) continue;
        const auto& p = s.participants.at(wait.site);
        const auto planned = planned_phase_ms(s.members.at(wait.site).estimate_ms, p.budget_ms);
        if (!planned) return std::nullopt;
        longest = std::max(longest.value_or(0), p.start + *planned - now);
    }
    return longest;
}

/// The fastest live member is the one that scores when nobody waited for a while; without estimates, whoever asks.
inline bool is_fastest(const durable_state& s, const volatile_state& v, const settings& set, const site_id& asker,
                       round_time now) {
    const auto& own = s.members.at(asker).estimate_ms;
    for (const auto& [site, m] : s.members)
        if (site != asker && m.estimate_ms && is_live(s, v, set, site, now) && (!own || *m.estimate_ms < *own))
            return false;
    return true;
}

inline bool evaluation_is_due(const durable_state& s, const settings& set) {
    if (set.eval_every == 0 || !s.has_model) return false;
    const std::uint64_t last = s.last_evaluated ? s.last_evaluated->count : 0;
    return s.current.count >= last + set.eval_every;
}

/// A waiting site scores the generation that it still has, once.
inline bool may_score_while_waiting(const durable_state& s, const settings& set, const poll_input& in) {
    if (set.eval_every == 0 || in.have != s.current) return false;
    const auto found = s.evaluations.find(s.current);
    return found == s.evaluations.end() || !found->second.contains(in.site);
}

}  // namespace detail

/// What the poll decided, and the new duty if there is one.
struct poll_decision {
    poll_answer answer;
    std::optional<obliged> duty;
    bool chosen_for_init = false;
};

namespace detail {

inline poll_decision wait_for(poll_answer base, wait_reason reason, std::int64_t retry_ms, bool evaluate = false) {
    base.action = poll_action::wait;
    base.reason = reason;
    base.retry_after_ms = retry_ms;
    base.evaluate = evaluate;
    return {std::move(base), std::nullopt, false};
}

inline poll_decision train(const durable_state& s, const settings& set, poll_answer base, const obliged& terms,
                           bool is_new, round_time now) {
    base.action = poll_action::train;
    base.wire = s.files.wire;
    base.global_step = s.global_step;
    base.inner_steps = set.inner_steps;
    base.budget_ms = terms.budget_ms;
    base.due_in_ms = std::max<std::int64_t>(0, terms.due - now);
    base.evaluate = terms.evaluate;
    poll_decision decision{std::move(base), std::nullopt, false};
    if (is_new) decision.duty = terms;
    return decision;
}

/// May a member whose duty ended in this round be asked again? The answer's retry says when to look.
inline std::optional<poll_decision> wait_after_duty(const participant& p, const settings& set, const lease_facts& facts,
                                                    const poll_answer& base, bool evaluate, round_time now) {
    if (p.status == duty::contributed) return wait_for(base, wait_reason::contributed, 1'000, evaluate);
    if (p.status != duty::declined) return std::nullopt;
    const bool no_data = p.reason == decline_reason::no_data;
    const std::int64_t retry_ms = no_data ? set.no_data_retry_ms : set.failed_retry_ms;
    const std::int64_t left_ms = p.ended + retry_ms - now;
    const auto reason = no_data ? wait_reason::no_data : wait_reason::failed_phase;
    if (left_ms > 0) return wait_for(base, reason, left_ms, evaluate);
    if (no_data && facts.unassigned == 0) return wait_for(base, reason, retry_ms, evaluate);
    return std::nullopt;
}

}  // namespace detail

/// Answers the poll of a present member in an open round (nothing pledged by it, not paused, not stopping).
inline poll_decision decide_training(const durable_state& s, const volatile_state& v, const settings& set,
                                     const rule_switches& rules, const lease_facts& facts, const poll_input& in,
                                     poll_answer base, round_time now) {
    const auto& m = s.members.at(in.site);
    const bool evaluate = detail::may_score_while_waiting(s, set, in);
    const auto found = s.participants.find(in.site);
    bool waited = true;
    if (found != s.participants.end()) {
        const auto& p = found->second;
        if (p.status == duty::open) {
            const obliged terms{in.site, s.current, p.start, p.due, p.budget_ms, p.waited, p.evaluate};
            return detail::train(s, set, std::move(base), terms, false, now);
        }
        if (auto waiting = detail::wait_after_duty(p, set, facts, base, evaluate, now)) return *std::move(waiting);
        waited = p.status == duty::left || (p.status == duty::declined && p.reason == decline_reason::no_data);
    }
    const bool data = facts.unassigned > 0 || facts.stealable || facts.asker_holds;
    if (!data) return detail::wait_for(std::move(base), wait_reason::no_data, set.no_data_retry_ms, evaluate);

    auto budget = budget_ms(set, detail::known_estimates(s, v, set, now));
    const bool joiner = !m.estimate_ms || m.joined_at > s.published_at;
    if (joiner && set.budget) {
        const auto remaining = detail::others_remaining_ms(s, v, set, rules, in.site, now);
        if (remaining && budget) {
            const std::int64_t typical = *budget * 1'000 / set.budget_permille;
            if (*remaining * 1'000 < typical * set.joiner_min_permille)
                return detail::wait_for(std::move(base), wait_reason::next_round,
                                        std::max<std::int64_t>(*remaining, 1'000), evaluate);
            budget = std::min(*budget, *remaining);
        }
    }
    const bool score = detail::evaluation_is_due(s, set) && detail::is_fastest(s, v, set, in.site, now);
    const std::uint64_t bytes = 2 * s.files.wire.bytes;
    const round_time due = due_at(set, now, planned_phase_ms(m.estimate_ms, budget),
                                  transfer_ms(set, bytes, m.bytes_per_s), score ? set.evaluate_ms : 0);
    return detail::train(s, set, std::move(base), {in.site, s.current, now, due, budget, waited, score}, true, now);
}

/// Answers a poll by the table of the design: init, train, wait or stop.
/// Preconditions: the site is a present member with its current incarnation.
inline poll_decision decide_poll(const durable_state& s, const volatile_state& v, const settings& set,
                                 const rule_switches& rules, const lease_facts& facts, const poll_input& in,
                                 round_time now) {
    poll_answer base;
    base.current = s.current;
    base.last = s.members.at(in.site).last;
    if (is_finished(s)) {
        base.action = poll_action::stop;
        base.stopped_by = s.stop;
        return {std::move(base), std::nullopt, false};
    }
    if (!s.has_model) {
        const bool chosen_lives =
            v.init_site && is_live(s, v, set, *v.init_site, now) && now - v.init_chosen <= set.init_rechoose_ms;
        const bool is_me = v.init_site == in.site;
        if (s.paused_since) return detail::wait_for(std::move(base), wait_reason::paused, 5'000);
        if (v.initialising || (chosen_lives && !is_me))
            return detail::wait_for(std::move(base), wait_reason::initialising, 2'000);
        base.action = poll_action::init;
        return {std::move(base), std::nullopt, !is_me || !chosen_lives};
    }
    const bool evaluate = detail::may_score_while_waiting(s, set, in);
    if (s.pledges.contains(in.site))
        return detail::wait_for(std::move(base), wait_reason::contributed, 1'000, evaluate);
    if (in.activity == site_activity::training || in.activity == site_activity::uploading)
        return detail::wait_for(std::move(base), wait_reason::in_phase, set.keepalive_ms);
    if (s.paused_since) return detail::wait_for(std::move(base), wait_reason::paused, 5'000, evaluate);
    if (s.stop) return detail::wait_for(std::move(base), wait_reason::stopping, 1'000);
    if (v.merging) return detail::wait_for(std::move(base), wait_reason::merging, 1'000, evaluate);
    return decide_training(s, v, set, rules, facts, in, std::move(base), now);
}

}  // namespace darlcore::round
