// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "darlcore/round/state.hpp"

namespace darlcore::round {

/// Rules that a test may take away, to see that their tests notice. All on in every real run.
struct rule_switches {
    bool silent = true;         // silent participants are not waited for
    bool quorum_waiver = true;  // no quorum when no other contribution can come
    bool stale = true;          // contributions from an older generation are refused
    bool overdue = true;        // overdue participants are not waited for
};

/// Why a member holds the round open.
enum class wait_kind : std::uint8_t { training, has_not_polled };

struct waited_for {
    site_id site;
    wait_kind kind = wait_kind::training;
    round_time until;  // when it will not be waited for any more, if nothing changes
    friend bool operator==(const waited_for&, const waited_for&) = default;
};

/// What the close rule says, and what is missing.
struct close_verdict {
    bool close = false;
    bool limit_passed = false;   // rule (c)
    bool quorum_waived = false;  // nobody else can contribute
    std::uint32_t missing_pledges = 0;
    std::vector<waited_for> waits;  // ascending by site
    friend bool operator==(const close_verdict&, const close_verdict&) = default;
};

inline bool is_live(const durable_state& s, const volatile_state& v, const settings& set, const site_id& site,
                    round_time now) {
    const auto found = s.members.find(site);
    if (found == s.members.end() || !found->second.present) return false;
    const auto seen = v.contacts.find(site);
    return seen != v.contacts.end() && now - seen->second.last_seen <= set.live_window_ms;
}

inline bool is_lagging(const settings& set, const member& m) { return m.late_rounds >= set.lagging_rounds; }

/// Moment after which a participant counts as overdue: its due, and a gap after the last other contribution.
inline round_time overdue_after(const durable_state& s, const settings& set, const site_id& site,
                                const participant& p) {
    round_time limit = p.due;
    for (const auto& [other, contribution] : s.pledges)
        if (other != site) limit = std::max(limit, contribution.at + set.overdue_gap_ms);
    return limit;
}

/// Participants and members whom the round waits for now: rule (b).
inline std::vector<waited_for> waits_of(const durable_state& s, const volatile_state& v, const settings& set,
                                        const rule_switches& rules, round_time now) {
    std::vector<waited_for> waits;
    const round_time polled_by = std::max(s.published_at, v.grace_from) + set.keepalive_ms;
    for (const auto& [site, m] : s.members) {
        if (!m.present || is_lagging(set, m)) continue;
        const bool live = is_live(s, v, set, site, now);
        const auto found = s.participants.find(site);
        if (found != s.participants.end() && found->second.status != duty::left) {
            const auto& p = found->second;
            if (p.status != duty::open || !p.waited) continue;
            if (rules.silent && !live) continue;
            if (rules.overdue && p.late) continue;
            const auto seen = v.contacts.find(site);
            round_time until = overdue_after(s, set, site, p);
            if (!live && seen != v.contacts.end()) until = seen->second.last_seen + set.live_window_ms;
            waits.push_back({site, wait_kind::training, until});
            continue;
        }
        if (!live || now > polled_by || s.pledges.contains(site)) continue;
        const auto seen = v.contacts.find(site);
        if (seen->second.polled == s.current) continue;
        waits.push_back({site, wait_kind::has_not_polled, polled_by});
    }
    return waits;
}

/// The close rule of the rounds.
/// Promises: closes only with at least one pledge; with one pledge it closes at the latest `round_limit_ms` after it,
/// whatever any site does.
inline close_verdict close_rule(const durable_state& s, const volatile_state& v, const settings& set,
                                const rule_switches& rules, const lease_facts& facts, round_time now) {
    close_verdict verdict;
    verdict.waits = waits_of(s, v, set, rules, now);
    const auto pledged = static_cast<std::uint32_t>(s.pledges.size());
    verdict.quorum_waived = rules.quorum_waiver && facts.unassigned == 0 && !facts.held_unpledged;
    const std::uint32_t needed = verdict.quorum_waived ? 1U : std::max(1U, set.quorum);
    verdict.missing_pledges = pledged < needed ? needed - pledged : 0;
    if (pledged == 0) return verdict;
    verdict.limit_passed = s.first_pledge_at && now - *s.first_pledge_at >= set.round_limit_ms;
    verdict.close = verdict.limit_passed || (verdict.missing_pledges == 0 && verdict.waits.empty());
    return verdict;
}

}  // namespace darlcore::round
