// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "darlcore/assert.hpp"
#include "darlcore/round/close.hpp"
#include "darlcore/round/poll.hpp"
#include "darlcore/round/replay.hpp"

namespace darlcore::round {

/// The close rule holds: merge these contributions into `next`. The list is frozen until the merge is answered.
struct start_merge {
    darlcore::generation next;
    std::vector<pledge> inputs;  // ascending by site
    friend bool operator==(const start_merge&, const start_merge&) = default;
};
/// Answer waiting polls: of one site, or of all.
struct wake {
    std::optional<site_id> site;
    friend bool operator==(const wake&, const wake&) = default;
};
using effect = std::variant<start_merge, wake>;

/// What a step asks for: facts to make durable, then things to do.
struct step {
    std::vector<record> records;
    std::vector<effect> effects;
};

/// Standing of a contribution before anybody looks at its content.
struct standing {
    std::optional<errc> refused;
    std::optional<stored_answer> answered_before;
};

/// The rounds as a value: members, obligations, pledges and the close rule.
/// Promises: every decision is a record; replaying the records rebuilds the durable state. A round with a pledge ends
/// by `settings::round_limit_ms`, whatever any site does. Units: times are ledger time; it never goes back.
/// Thread-safety: none.
class machine {
public:
    explicit machine(settings s) : set_(std::move(s)) { DARLCORE_ASSERT(check(set_).has_value()); }
    machine(settings s, durable_state d, ledger_time now) : machine(std::move(s)) {
        state_ = std::move(d);
        restart(now);
    }

    [[nodiscard]] const settings& limits() const { return set_; }
    [[nodiscard]] const durable_state& durable() const { return state_; }
    [[nodiscard]] const volatile_state& passing() const { return live_; }
    [[nodiscard]] generation current() const { return state_.current; }
    [[nodiscard]] const rule_switches& rules() const { return rules_; }
    void set_rules_for_testing(rule_switches rules) { rules_ = rules; }

    [[nodiscard]] phase state() const {
        if (is_finished(state_)) return phase::finished;
        if (state_.paused_since) return phase::paused;
        if (!state_.has_model) return phase::uninitialised;
        return live_.merging ? phase::merging : phase::open;
    }
    [[nodiscard]] round_time time(ledger_time now) const { return to_round_time(state_, now); }
    [[nodiscard]] bool has_member(const site_id& site) const {
        const auto found = state_.members.find(site);
        return found != state_.members.end() && found->second.present;
    }
    [[nodiscard]] bool has_pledged(const site_id& site) const { return state_.pledges.contains(site); }

    /// Any call of a site shows that it lives: heartbeats, parts of uploads, polls.
    void touch(const site_id& site, ledger_time now) {
        if (has_member(site)) live_.contacts[site].last_seen = time(now);
    }
    void note_upload(const site_id& site, std::uint32_t percent) {
        if (has_member(site)) live_.contacts[site].upload_percent = percent;
    }
    void note_refusal(const site_id& site, errc why) {
        if (!has_member(site)) return;
        auto& c = live_.contacts[site];
        ++c.refused;
        c.last_refusal = why;
    }

    /// Joins a member, or refreshes it. Fenced incarnations are the caller's check.
    /// Errors: layout_mismatch, schedule_mismatch, codec_unsupported, bad_request (seq_len), overloaded.
    result<step> join(const site_id& site, const incarnation& who, const pins& told, const std::string& software,
                      ledger_time now) {
        if (auto mismatch = compare_pins(told)) return *std::move(mismatch);
        const auto found = state_.members.find(site);
        const bool known = found != state_.members.end();
        if (!known && state_.members.size() >= set_.members_max)
            return fail(errc::overloaded, "the run has its highest number of members; raise round.members_max");
        step out;
        const bool refresh = known && found->second.present && found->second.incarnation == who;
        if (!refresh) {
            record_fact(out, joined{site, who, told, software}, now);
            live_.contacts[site] = contact{};
        }
        touch(site, now);
        return out;
    }

    step leave(const site_id& site, const std::string& reason, ledger_time now) {
        step out;
        if (has_member(site)) record_fact(out, left{site, reason}, now);
        return out;
    }

    /// Answers a poll and notes what the site said of itself.
    /// Preconditions (asserted): the site is a present member.
    poll_answer poll(const poll_input& in, const lease_facts& facts, ledger_time now, step& out) {
        DARLCORE_ASSERT(has_member(in.site));
        touch(in.site, now);
        auto& c = live_.contacts[in.site];
        c.polled = state_.current;
        c.have = in.have;
        c.activity = in.activity;
        c.steps_done = in.steps_done;
        c.eta_ms = in.eta_ms;
        auto decision = decide_poll(state_, live_, set_, rules_, facts, in, time(now));
        if (decision.chosen_for_init) {
            live_.init_site = in.site;
            live_.init_chosen = time(now);
        }
        if (decision.duty) record_fact(out, *decision.duty, now);
        return std::move(decision.answer);
    }

    /// Who the contributor is and when it comes; nothing about content.
    [[nodiscard]] standing check_standing(const site_id& site, const contribution_id& id, generation base) const {
        const auto answers = state_.answers.find(site);
        if (answers != state_.answers.end()) {
            const auto found = answers->second.find(id);
            if (found != answers->second.end()) return {std::nullopt, found->second};
        }
        if (!has_member(site)) return {errc::unknown_site, std::nullopt};
        if (!state_.has_model || base > state_.current) return {errc::stale_generation, std::nullopt};
        if (rules_.stale && base != state_.current) return {errc::stale_generation, std::nullopt};
        if (live_.merging || is_finished(state_)) return {errc::round_closed, std::nullopt};
        if (state_.pledges.contains(site)) return {errc::already_contributed, std::nullopt};
        return {};
    }

    /// The record of an accepted contribution; the caller joins it with the pledge of its blocks and applies both.
    /// Preconditions (asserted): standing was checked just now.
    [[nodiscard]] accepted accept(pledge p, ledger_time now) const {
        DARLCORE_ASSERT(!check_standing(p.site, p.id, p.base).refused);
        p.at = time(now);
        return {std::move(p)};
    }
    [[nodiscard]] rejected reject(const site_id& site, const contribution_id& id, generation base, errc why) const {
        return {site, id, base, why};
    }

    step decline(const site_id& site, generation base, decline_reason why, const std::string& detail, ledger_time now) {
        step out;
        const auto found = state_.participants.find(site);
        if (base != state_.current || found == state_.participants.end() || found->second.status != duty::open)
            return out;
        record_fact(out, declined{site, base, why, detail}, now);
        return out;
    }

    /// Stores a held-out score while its generation is still kept. False = too old, ignored. Never changes the round.
    bool evaluate(const evaluated& report, ledger_time now, step& out) {
        if (!state_.has_model || report.scored > state_.current || report.scored < state_.since) return false;
        const bool kept = report.scored.count + set_.keep_generations >= state_.current.count + 1;
        if (!kept && report.scored != state_.best) return false;
        record_fact(out, report, now);
        const auto loss = pooled_loss(state_, report.scored);
        if (set_.stop_loss > 0 && loss && *loss <= set_.stop_loss) request_stop(stop_reason::target, now, out);
        return true;
    }

    /// The first verified init upload counts; later ones are dropped (false).
    bool start_initialising() {
        if (state_.has_model || live_.initialising) return false;
        live_.initialising = true;
        return true;
    }
    void initialising_failed() {
        live_.initialising = false;
        live_.init_site.reset();
    }
    step model_initialised(initialised fact, ledger_time now) {
        step out;
        if (state_.has_model) return out;
        live_.initialising = false;
        record_fact(out, std::move(fact), now);
        out.effects.emplace_back(wake{std::nullopt});
        return out;
    }

    step pause(const std::string& reason, ledger_time now) {
        step out;
        if (!state_.paused_since && !is_finished(state_)) record_fact(out, paused{reason}, now);
        return out;
    }
    step resume(ledger_time now) {
        step out;
        if (!state_.paused_since) return out;
        record_fact(out, resumed{}, now);
        live_.merge_failures = 0;
        live_.retry_at = time(now);
        out.effects.emplace_back(wake{std::nullopt});
        return out;
    }
    step stop(stop_reason why, ledger_time now) {
        step out;
        request_stop(why, now, out);
        return out;
    }

    /// The record of a finished merge. The caller joins it with the commit of the blocks and applies both.
    /// Preconditions (asserted): a merge is running and at least one contribution was used.
    [[nodiscard]] merged merge_done(const model_files& files, const std::vector<rejected_at_merge>& bad,
                                    const merge_figures& figures) const {
        DARLCORE_ASSERT(live_.merging);
        merged fact{generation{state_.current.count + 1}, files, {}, bad, state_.global_step, figures};
        std::sort(fact.rejected_ids.begin(), fact.rejected_ids.end(),
                  [](const auto& a, const auto& b) { return a.site < b.site; });
        std::uint64_t steps = 0;
        for (const auto& [site, p] : state_.pledges) {
            const site_id& who = p.site;
            const bool is_bad = std::any_of(bad.begin(), bad.end(), [&](const auto& b) { return b.site == who; });
            if (is_bad) continue;
            fact.used.push_back({p.id, site});
            steps = std::max(steps, p.steps);
        }
        DARLCORE_ASSERT(!fact.used.empty());
        const std::uint64_t room = std::numeric_limits<std::uint64_t>::max() - fact.global_step;
        fact.global_step += std::min(steps, room);
        return fact;
    }
    /// A failed merge keeps its pledges: retry later, after `merge_failures_max` failures pause for the operator.
    step merge_failed(const std::string& reason, ledger_time now) {
        step out;
        if (!live_.merging) return out;
        live_.merging = false;
        const std::int64_t doubled = set_.merge_retry_ms << std::min<std::uint32_t>(live_.merge_failures, 20);
        live_.retry_at = time(now) + std::min(doubled, set_.merge_retry_max_ms);
        if (++live_.merge_failures >= set_.merge_failures_max && !state_.paused_since)
            record_fact(out, paused{"merge failed " + std::to_string(live_.merge_failures) + " times: " + reason}, now);
        out.effects.emplace_back(wake{std::nullopt});
        return out;
    }

    /// A merge that only found damaged contributions: they are rejected, the rest is merged again at once.
    void merge_abandoned() {
        live_.merging = false;
        live_.merge_started.reset();
    }

    /// Applies a recorded fact: of this step, or of a journal.
    void apply(const record& r, ledger_time now) {
        replay(state_, set_, r, now);
        if (std::holds_alternative<merged>(r)) {
            live_.merging = false;
            live_.merge_failures = 0;
            live_.merge_started.reset();
        }
        if (std::holds_alternative<joined>(r)) live_.contacts[std::get<joined>(r).site].last_seen = time(now);
    }

    /// After every event and at every tick: overdue marks, close rule, stop conditions.
    /// Promises: calling it again at the same time with the same facts does nothing.
    step settle(const lease_facts& facts, ledger_time now) {
        step out;
        if (state_.paused_since || is_finished(state_)) return out;
        mark_overdue(now, out);
        check_stop_conditions(facts, now, out);
        if (!state_.has_model || live_.merging || time(now) < live_.retry_at) return out;
        const auto verdict = close_rule(state_, live_, set_, rules_, facts, time(now));
        const bool stopping = state_.stop && !state_.pledges.empty();
        if (verdict.close || stopping) close_round(now, out);
        return out;
    }

    /// Everybody counts as just seen, a running merge is done again. Called after replay and at every start.
    void restart(ledger_time now) {
        live_ = volatile_state{};
        live_.grace_from = time(now);
        for (const auto& [site, m] : state_.members)
            if (m.present) live_.contacts[site].last_seen = time(now);
    }

    /// When `settle` must be called next even if nothing happens; nothing = only an event can change anything.
    [[nodiscard]] std::optional<ledger_time> next_tick(const lease_facts& facts, ledger_time now) const {
        if (state_.paused_since || is_finished(state_)) return std::nullopt;
        std::optional<round_time> next;
        const auto consider = [&](round_time t) {
            if (t >= time(now) && (!next || t < *next)) next = t;
        };
        for (const auto& wait : close_rule(state_, live_, set_, rules_, facts, time(now)).waits)
            consider(wait.until + 1);
        for (const auto& [site, c] : live_.contacts) consider(c.last_seen + set_.live_window_ms + 1);
        if (state_.first_pledge_at) consider(*state_.first_pledge_at + set_.round_limit_ms);
        if (!state_.pledges.empty()) consider(live_.retry_at);
        if (!next) return std::nullopt;
        return ledger_time{next->ms + state_.paused_ms};
    }

private:
    template <class Fact>
    void record_fact(step& out, Fact fact, ledger_time now) {
        out.records.emplace_back(std::move(fact));
        apply(out.records.back(), now);
    }
    void request_stop(stop_reason why, ledger_time now, step& out) {
        if (state_.stop) return;
        record_fact(out, stopped{why}, now);
        out.effects.emplace_back(wake{std::nullopt});
    }
    void close_round(ledger_time now, step& out) {
        start_merge merge{generation{state_.current.count + 1}, {}};
        for (const auto& [site, p] : state_.pledges) merge.inputs.push_back(p);
        live_.merging = true;
        live_.merge_started = time(now);
        out.effects.emplace_back(std::move(merge));
    }
    void mark_overdue(ledger_time now, step& out) {
        if (!rules_.overdue) return;
        std::vector<site_id> late;
        for (const auto& [site, p] : state_.participants) {
            if (p.status != duty::open || p.late || !is_live(state_, live_, set_, site, time(now))) continue;
            if (time(now) > overdue_after(state_, set_, site, p)) late.push_back(site);
        }
        for (const auto& site : late) record_fact(out, overdue{site, state_.current}, now);
    }
    void check_stop_conditions(const lease_facts& facts, ledger_time now, step& out) {
        if (state_.stop || !state_.has_model) return;
        if (set_.stop_steps > 0 && state_.global_step >= set_.stop_steps)
            return request_stop(stop_reason::steps, now, out);
        if (set_.stop_rounds > 0 && rounds_done(state_) >= set_.stop_rounds)
            return request_stop(stop_reason::rounds, now, out);
        // where blocks commit at a checkpoint, the last contributions come after the last block
        if (facts.epoch_complete && state_.pledges.empty() && !live_.merging && !is_anybody_training(now))
            request_stop(stop_reason::exhausted, now, out);
    }
    [[nodiscard]] bool is_anybody_training(ledger_time now) const {
        const auto waits = waits_of(state_, live_, set_, rules_, time(now));
        return std::any_of(waits.begin(), waits.end(), [](const auto& w) { return w.kind == wait_kind::training; });
    }
    [[nodiscard]] std::optional<error> compare_pins(const pins& told) const;

    settings set_;
    durable_state state_;
    volatile_state live_;
    rule_switches rules_;
};

namespace detail {
inline std::string join_words(const std::vector<std::string>& words) {
    std::string text;
    for (const auto& w : words) text.append(text.empty() ? "" : ",").append(w);
    return text;
}
inline error mismatch(errc code, std::string_view what, const std::string& run, const std::string& site) {
    std::string text("the run has ");
    text.append(what).append(" ").append(run).append(", this site has ").append(site);
    return fail(code, std::move(text).append("; start the site with the run's configuration"));
}
}  // namespace detail

inline std::optional<error> machine::compare_pins(const pins& told) const {
    if (!state_.pinned) return std::nullopt;
    const auto& run = *state_.pinned;
    if (!run.layout_digest.empty() && run.layout_digest != told.layout_digest)
        return detail::mismatch(errc::layout_mismatch, "layout", run.layout_digest, told.layout_digest);
    if (!run.schedule_digest.empty() && run.schedule_digest != told.schedule_digest)
        return detail::mismatch(errc::schedule_mismatch, "schedule", run.schedule_digest, told.schedule_digest);
    if (run.seq_len != 0 && run.seq_len != told.seq_len)
        return detail::mismatch(errc::layout_mismatch, "seq_len", std::to_string(run.seq_len),
                                std::to_string(told.seq_len));
    if (!run.codecs.empty() && run.codecs != told.codecs)
        return detail::mismatch(errc::codec_unsupported, "codecs", detail::join_words(run.codecs),
                                detail::join_words(told.codecs));
    return std::nullopt;
}

}  // namespace darlcore::round
