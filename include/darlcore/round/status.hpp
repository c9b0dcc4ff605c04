// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "darlcore/round/machine.hpp"

namespace darlcore::round {

struct participant_status {
    site_id site;
    std::string_view status;  // training, contributed, declined, rejected, left, silent, overdue
    std::int64_t started_ago_ms = 0;
    std::int64_t eta_ms = 0;
    std::int64_t due_in_ms = 0;
    std::optional<std::int64_t> budget_ms;
    std::uint32_t upload_percent = 0;
};

struct member_status {
    site_id site;
    bool live = false;
    std::int64_t last_seen_ms = 0;  // ago
    darlcore::generation have;
    bool lagging = false;
    std::uint64_t contributed = 0;
    std::uint64_t rejected = 0;
    std::uint64_t refused = 0;
    std::optional<errc> last_refusal;
    std::uint64_t tokens_total = 0;
};

struct status_report {
    phase state = phase::uninitialised;
    darlcore::generation current;
    std::uint64_t global_step = 0;
    std::int64_t open_ms = 0;
    std::vector<participant_status> participants;
    std::vector<member_status> members;
    std::uint32_t pledged = 0;
    std::uint32_t quorum = 0;
    std::string waiting_for;
    std::optional<history_entry> last_merge;
    std::optional<darlcore::generation> evaluated;
    std::optional<double> evaluated_loss;
    std::optional<stop_reason> stop;
};

namespace detail {

inline std::string seconds_text(std::int64_t ms) { return std::to_string((ms + 999) / 1'000) + " s"; }

inline std::string waits_text(const close_verdict& verdict, round_time now) {
    std::string text;
    for (const auto& w : verdict.waits) {
        text.append(text.empty() ? "waiting for " : ", ").append(w.site.name);
        text.append(w.kind == wait_kind::training ? " (training, " : " (has not polled, ");
        const std::int64_t left_ms = w.until - now;
        if (left_ms >= 0)
            text.append("until ").append(seconds_text(left_ms)).append(" from now)");
        else
            text.append("no deadline)");
    }
    return text;
}

inline std::string open_text(const machine& m, const close_verdict& verdict, round_time now) {
    const auto& s = m.durable();
    std::string text = waits_text(verdict, now);
    std::uint32_t live = 0;
    for (const auto& [site, known] : s.members) live += is_live(s, m.passing(), m.limits(), site, now) ? 1U : 0U;
    if (live == 0 && text.empty()) text = "waiting for a site: none is live";
    if (text.empty() && verdict.missing_pledges > 0)
        text = "waiting for " + std::to_string(verdict.missing_pledges) + " more contribution" +
               (verdict.missing_pledges == 1 ? "" : "s") + "; nobody is training";
    else if (verdict.missing_pledges > 0 && !s.pledges.empty())
        text += "; quorum needs " + std::to_string(verdict.missing_pledges) + " more";
    if (s.first_pledge_at)
        text += "; closes in " +
                seconds_text(std::max<std::int64_t>(0, *s.first_pledge_at + m.limits().round_limit_ms - now)) +
                " at the latest";
    return text;
}

}  // namespace detail

/// One sentence: who is waited for, and until when.
inline std::string waiting_for(const machine& m, const lease_facts& facts, ledger_time now) {
    const auto& s = m.durable();
    const auto& v = m.passing();
    switch (m.state()) {
        case phase::finished:
            return "nothing: the run is finished (" + std::string(word(*s.stop)) + ")";
        case phase::paused:
            return "the operator: paused (" + s.pause_reason + ")";
        case phase::uninitialised:
            if (v.initialising) return "the first weights are being stored";
            if (v.init_site) return "waiting for " + v.init_site->name + " to upload the first weights";
            return "waiting for a site to join and upload the first weights";
        case phase::merging:
            return "the merge of generation " + std::to_string(s.current.count + 1);
        case phase::open:
            break;
    }
    const round_time at = m.time(now);
    if (at < v.retry_at && !s.pledges.empty())
        return "the next try of a failed merge in " + detail::seconds_text(v.retry_at - at);
    return detail::open_text(m, close_rule(s, v, m.limits(), m.rules(), facts, at), at);
}

/// Everything GET /round shows of the rounds.
inline status_report report(const machine& m, const lease_facts& facts, ledger_time now) {
    const auto& s = m.durable();
    const auto& v = m.passing();
    const round_time at = m.time(now);
    status_report out;
    out.state = m.state();
    out.current = s.current;
    out.global_step = s.global_step;
    out.open_ms = at - s.published_at;
    out.pledged = static_cast<std::uint32_t>(s.pledges.size());
    out.quorum = m.limits().quorum;
    out.waiting_for = waiting_for(m, facts, now);
    out.stop = s.stop;
    if (!s.history.empty()) out.last_merge = s.history.back();
    if (s.last_evaluated) {
        out.evaluated = s.last_evaluated;
        out.evaluated_loss = pooled_loss(s, *s.last_evaluated);
    }
    for (const auto& [site, known] : s.members) {
        member_status line;
        line.site = site;
        line.live = is_live(s, v, m.limits(), site, at);
        line.lagging = is_lagging(m.limits(), known);
        line.contributed = known.contributed;
        line.rejected = known.rejected;
        line.tokens_total = known.tokens_total;
        if (const auto seen = v.contacts.find(site); seen != v.contacts.end()) {
            line.last_seen_ms = at - seen->second.last_seen;
            line.have = seen->second.have;
            line.refused = seen->second.refused;
            line.last_refusal = seen->second.last_refusal;
        }
        out.members.push_back(std::move(line));
    }
    for (const auto& [site, p] : s.participants) {
        participant_status line;
        line.site = site;
        line.status = word(p.status);
        if (p.status == duty::open && !is_live(s, v, m.limits(), site, at))
            line.status = "silent";
        else if (p.status == duty::open && p.late)
            line.status = "overdue";
        line.started_ago_ms = at - p.start;
        line.due_in_ms = p.due - at;
        line.budget_ms = p.budget_ms;
        if (const auto seen = v.contacts.find(site); seen != v.contacts.end()) {
            line.eta_ms = seen->second.eta_ms;
            line.upload_percent = seen->second.upload_percent;
        }
        out.participants.push_back(std::move(line));
    }
    return out;
}

/// At most `count` (<= 100) past rounds whose new generation is at or above `from`, oldest first.
inline std::vector<history_entry> history(const machine& m, darlcore::generation from, std::uint32_t count) {
    std::vector<history_entry> out;
    for (const auto& entry : m.durable().history)
        if (entry.next >= from && out.size() < std::min(count, 100U)) out.push_back(entry);
    return out;
}

}  // namespace darlcore::round
