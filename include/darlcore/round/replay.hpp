// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <utility>
#include <variant>

#include "darlcore/round/estimate.hpp"
#include "darlcore/round/records.hpp"
#include "darlcore/round/state.hpp"

namespace darlcore::round {
namespace detail {

inline void end_duty(durable_state& s, const site_id& site, duty how, round_time at) {
    const auto found = s.participants.find(site);
    if (found == s.participants.end() || found->second.status == duty::contributed) return;
    found->second.status = how;
    found->second.ended = at;
}

/// Pins what nobody pinned before; the first to name a value decides it.
inline void fill_pins(durable_state& s, const pins& told) {
    if (!s.pinned) s.pinned.emplace();
    if (s.pinned->layout_digest.empty()) s.pinned->layout_digest = told.layout_digest;
    if (s.pinned->schedule_digest.empty()) s.pinned->schedule_digest = told.schedule_digest;
    if (s.pinned->seq_len == 0) s.pinned->seq_len = told.seq_len;
    if (s.pinned->codecs.empty()) s.pinned->codecs = told.codecs;
}

/// A new process gets a new chance: its predecessor's lateness is not its own.
inline void forgive(durable_state& s, const site_id& site) {
    s.members[site].late_rounds = 0;
    const auto found = s.participants.find(site);
    if (found != s.participants.end()) found->second.late = false;
}

inline void forget_old_answers(durable_state& s, const settings& set) {
    const std::uint64_t kept = std::uint64_t{set.keep_generations} + set.answers_generations;
    for (auto& [site, by_id] : s.answers)
        std::erase_if(by_id, [&](const auto& entry) { return entry.second.base.count + kept < s.current.count; });
    std::erase_if(s.answers, [](const auto& entry) { return entry.second.empty(); });
}

inline void forget_old_evaluations(durable_state& s, const settings& set) {
    std::erase_if(s.evaluations, [&](const auto& entry) {
        return entry.first.count + set.keep_generations < s.current.count + 1 && entry.first != s.best;
    });
}

inline void set_outcome(durable_state& s, const site_id& site, const contribution_id& id, contribution_status status,
                        std::optional<errc> reason) {
    const auto member_found = s.members.find(site);
    if (member_found != s.members.end() && member_found->second.last.id == id) {
        member_found->second.last.status = status;
        member_found->second.last.reason = reason;
    }
    const auto answers = s.answers.find(site);
    if (answers == s.answers.end()) return;
    const auto found = answers->second.find(id);
    if (found == answers->second.end()) return;
    found->second.status = status;
    found->second.reason = reason;
}

/// Two rounds in a row overdue make a site lagging; one that was late and did not even ask again counts as late.
inline void count_late_rounds(durable_state& s) {
    for (auto& [site, m] : s.members) {
        const auto found = s.participants.find(site);
        const bool asked = found != s.participants.end();
        if (asked && found->second.late)
            ++m.late_rounds;
        else if (asked && found->second.status == duty::contributed)
            m.late_rounds = 0;
        else if (!asked && m.late_rounds > 0 && !s.pledges.contains(site))
            ++m.late_rounds;
        else if (!asked && s.pledges.contains(site))
            m.late_rounds = 0;
    }
}

inline void note_accepted(durable_state& s, const settings& set, const pledge& p) {
    s.pledges[p.site] = p;
    if (!s.first_pledge_at) s.first_pledge_at = p.at;
    s.last_pledge_at = p.at;
    s.answers[p.site][p.id] = {contribution_status::pledged, std::nullopt, p.base, p.weight_tokens, p.pledged_blocks};
    auto& m = s.members[p.site];
    m.last = {p.id, contribution_status::pledged, std::nullopt, p.base};
    ++m.contributed;
    const auto found = s.participants.find(p.site);
    const bool told = p.phase_ms > 0;
    std::int64_t phase_ms = p.phase_ms;
    if (found != s.participants.end()) {
        if (!told) phase_ms = p.at - found->second.start;
        found->second.status = duty::contributed;
        found->second.ended = p.at;
    }
    if (const auto sample = full_phase_ms(phase_ms, p.steps, set.inner_steps))
        m.estimate_ms = smoothed_ms(m.estimate_ms, *sample);
    if (p.transfer_ms > 0)
        m.bytes_per_s = std::max<std::uint64_t>(
            1, (p.bytes + s.files.wire.bytes) * 1'000 / static_cast<std::uint64_t>(p.transfer_ms));
}

inline void note_rejected(durable_state& s, const rejected& r, round_time at) {
    s.pledges.erase(r.site);
    if (s.pledges.empty()) s.first_pledge_at.reset();
    auto& m = s.members[r.site];
    m.last = {r.id, contribution_status::rejected, r.reason, r.base};
    ++m.rejected;
    s.answers[r.site][r.id] = {contribution_status::rejected, r.reason, r.base, 0, 0};
    const auto found = s.participants.find(r.site);
    if (found != s.participants.end() && found->second.status != duty::left) {
        found->second.status = duty::rejected;
        found->second.ended = at;
    }
}

inline void note_merged(durable_state& s, const settings& set, const merged& r, round_time at) {
    history_entry entry{r.next, at, r.global_step, 0, r.used, r.rejected_ids, r.figures};
    for (const auto& used : r.used) {
        const auto found = s.pledges.find(used.site);
        if (found != s.pledges.end()) {
            entry.tokens += found->second.weight_tokens;
            s.members[used.site].tokens_total += found->second.weight_tokens;
        }
        set_outcome(s, used.site, used.id, contribution_status::merged, std::nullopt);
    }
    for (const auto& bad : r.rejected_ids) {
        ++s.members[bad.site].rejected;
        set_outcome(s, bad.site, bad.id, contribution_status::rejected, bad.reason);
    }
    count_late_rounds(s);
    s.tokens_total += entry.tokens;
    s.history.push_back(std::move(entry));
    if (s.history.size() > history_max) s.history.erase(s.history.begin());
    s.current = r.next;
    s.files = r.files;
    s.global_step = r.global_step;
    s.published_at = at;
    s.first_pledge_at.reset();
    s.last_pledge_at.reset();
    s.participants.clear();
    s.pledges.clear();
    forget_old_answers(s, set);
    forget_old_evaluations(s, set);
}

inline void note_evaluated(durable_state& s, const evaluated& r) {
    s.evaluations[r.scored][r.site] = {r.loss_sum, r.tokens, r.windows};
    if (!s.last_evaluated || *s.last_evaluated < r.scored) s.last_evaluated = r.scored;
    const auto loss = pooled_loss(s, r.scored);
    if (loss && (!s.best || *loss < s.best_loss || s.best == r.scored)) {
        s.best = r.scored;
        s.best_loss = *loss;
    }
}

/// Everybody must join again, and what was pledged counts as stale: the model has a new number.
inline void note_rolled_back(durable_state& s, const settings& set, const rolled_back& r, round_time at) {
    for (const auto& [site, p] : s.pledges)
        set_outcome(s, site, p.id, contribution_status::rejected, errc::stale_generation);
    for (auto& [site, m] : s.members) {
        m.present = false;
        m.late_rounds = 0;
    }
    s.first_pledge_at.reset();
    s.last_pledge_at.reset();
    s.participants.clear();
    s.pledges.clear();
    s.skipped += r.next.count - r.target.count;
    s.since = r.next;
    s.current = r.next;
    s.files = r.files;
    s.published_at = at;
    s.stop.reset();
    forget_old_answers(s, set);
    forget_old_evaluations(s, set);
}

}  // namespace detail

/// Applies one recorded fact. Decides nothing: the same records give the same state.
/// Preconditions: the records of one run, in order, with the ledger time that each was made at.
inline void replay(durable_state& s, const settings& set, const record& r, ledger_time now) {
    const round_time at = to_round_time(s, now);
    const auto visitor = [&](const auto& fact) {
        using fact_type = std::decay_t<decltype(fact)>;
        if constexpr (std::is_same_v<fact_type, joined>) {
            auto& m = s.members[fact.site];
            if (m.incarnation != fact.incarnation || !m.present) {
                detail::end_duty(s, fact.site, duty::left, at);
                detail::forgive(s, fact.site);
            }
            m.incarnation = fact.incarnation;
            m.present = true;
            m.software = fact.software;
            m.joined_at = at;
            detail::fill_pins(s, fact.site_pins);
        } else if constexpr (std::is_same_v<fact_type, left>) {
            s.members[fact.site].present = false;
            detail::end_duty(s, fact.site, duty::left, at);
        } else if constexpr (std::is_same_v<fact_type, obliged>) {
            s.participants[fact.site] = {duty::open,  fact.start,    fact.due, fact.budget_ms,
                                         fact.waited, fact.evaluate, false,    decline_reason::no_data,
                                         round_time{}};
        } else if constexpr (std::is_same_v<fact_type, declined>) {
            detail::end_duty(s, fact.site, duty::declined, at);
            const auto found = s.participants.find(fact.site);
            if (found != s.participants.end()) found->second.reason = fact.reason;
        } else if constexpr (std::is_same_v<fact_type, overdue>) {
            const auto found = s.participants.find(fact.site);
            if (found != s.participants.end()) found->second.late = true;
        } else if constexpr (std::is_same_v<fact_type, replaced>) {
            detail::end_duty(s, fact.site, duty::left, at);
        } else if constexpr (std::is_same_v<fact_type, accepted>) {
            detail::note_accepted(s, set, fact.contribution);
        } else if constexpr (std::is_same_v<fact_type, rejected>) {
            detail::note_rejected(s, fact, at);
        } else if constexpr (std::is_same_v<fact_type, initialised>) {
            s.has_model = true;
            s.files = fact.files;
            s.published_at = at;
            detail::fill_pins(s, {fact.layout_digest, {}, 0, {}});
            s.pinned->layout_digest = fact.layout_digest;
        } else if constexpr (std::is_same_v<fact_type, merged>) {
            detail::note_merged(s, set, fact, at);
        } else if constexpr (std::is_same_v<fact_type, evaluated>) {
            detail::note_evaluated(s, fact);
        } else if constexpr (std::is_same_v<fact_type, paused>) {
            s.paused_since = now;
            s.pause_reason = fact.reason;
        } else if constexpr (std::is_same_v<fact_type, resumed>) {
            if (s.paused_since) s.paused_ms += now - *s.paused_since;
            s.paused_since.reset();
            s.pause_reason.clear();
        } else if constexpr (std::is_same_v<fact_type, stopped>) {
            if (!s.stop) s.stop = fact.reason;
        } else {
            static_assert(std::is_same_v<fact_type, rolled_back>);
            detail::note_rolled_back(s, set, fact, at);
        }
    };
    std::visit(visitor, r);
}

}  // namespace darlcore::round
