// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "darlcore/lease/table.hpp"

// Who calls, which lease is meant, and the frame that every operation runs in.
namespace darlcore::lease {

template <class M>
template <class Reply>
outcome<Reply> basic_table<M>::refuse(outcome<Reply>&& out, errc code, std::string_view context,
                                      std::int64_t retry_after_ms) {
    out.answer = refusal{code, std::string(context.empty() ? explain(code) : context), retry_after_ms, std::nullopt};
    return std::move(out);
}

template <class M>
template <class Reply, class Answer>
outcome<Reply> basic_table<M>::answer(outcome<Reply>&& out, Answer&& value) {
    out.answer = std::forward<Answer>(value);
    return std::move(out);
}

/// The sentence of a refusal that depends on the code alone.
template <class M>
std::string_view basic_table<M>::explain(errc code) {
    switch (code) {
        case errc::unknown_site:
            return "this site is not registered here: register first, then ask again";
        case errc::fenced:
            return "another process of this site, or a newer lease, has taken over: stop and discard";
        case errc::lease_gone:
            return "the lease is not open any more: discard it and acquire again";
        case errc::not_owner:
            return "the lease belongs to another site: name one of your own";
        case errc::beyond_reserved:
            return "the watermark lies above what was reserved: reserve before reading";
        case errc::blocks_lost:
            return "some of these blocks are not held any more, or the start is not the ledger's: take committed_end "
                   "of "
                   "the next heartbeat as the new start, or release";
        case errc::policy:
            return "this operation does not exist under the run's commit policy";
        case errc::stale_generation:
            return "the contribution is based on another generation: fetch the current one";
        case errc::already_contributed:
            return "this site has already contributed to this generation: wait for the next";
        case errc::overloaded:
            return "a limit of this server is reached: release something or ask again later";
        case errc::epoch_incomplete:
            return "blocks of this epoch are still open: wait until all are committed";
        default:
            return "the request is malformed";
    }
}

/// Steps 1 and 2 of every operation: the site is known and the caller is its current process.
template <class M>
std::optional<refusal> basic_table<M>::check_caller(const caller& who, std::uint32_t& site, bool fence) const {
    const auto refused = [](errc code) { return refusal{code, std::string(explain(code)), 0, std::nullopt}; };
    const auto it = names_.find(std::string_view(who.site.name));
    if (it == names_.end()) {
        if (!is_valid_name(who.site.name))
            return refusal{errc::bad_request,
                           "site names are 1 to 64 of A-Z a-z 0-9 . _ -, and start with a letter or digit", 0,
                           std::nullopt};
        return refused(errc::unknown_site);
    }
    site = it->second;
    const site_book& s = b_.sites[site];
    if (s.is_vacant()) return refused(errc::unknown_site);
    const bool unchecked = who.incarnation.is_none() && s.mode == site_mode::legacy;
    if (fence && !unchecked && who.incarnation != s.incarnation) return refused(errc::fenced);
    return std::nullopt;
}

/// Step 5: the lease, open or remembered, and whether this site may speak for it.
template <class M>
typename basic_table<M>::found basic_table<M>::find_named(const lease_ref& ref, std::uint32_t site) const {
    found f;
    f.slot = ref.epoch == b_.epoch ? open_index_.find(ref.seq.count) : nil;
    if (f.slot == nil) f.place = ref.epoch == b_.epoch ? closed_index_.find(ref.seq.count) : nil;
    const auto judge = [&](position start, site_number owner, fencing_token token) -> std::optional<errc> {
        if (start != ref.start) return errc::lease_gone;
        if (owner.count != site) return errc::not_owner;
        if (ref.token && *ref.token != token && !planted(mutant::token_not_compared)) return errc::fenced;
        return std::nullopt;
    };
    if (f.slot != nil) {
        const lease_record& lease = b_.leases[f.slot];
        f.refused = judge(lease.start, lease.site, lease.token());
    } else if (f.place != nil) {
        const closed_lease& c = b_.closed[f.place];
        f.refused = judge(c.start, c.site, {c.term, c.seq.count});
    } else {
        f.refused = errc::lease_gone;
    }
    return f;
}

/// What an accepted call tells of its site. Not journaled until the next tick.
template <class M>
void basic_table<M>::touch(std::uint32_t site, const site_report* report, ledger_time now) {
    live_site& live = site_live_[site];
    live.last_seen = now;
    if (report != nullptr) {
        const std::int64_t macro = claimed_ms(report->macro_step_s, macro_step_max_s);
        const std::int64_t rtt = claimed_ms(report->rtt_s, rtt_max_s);
        if (macro > 0) live.macro_step_ms = macro;
        if (rtt > 0) live.rtt_ms = rtt;
    }
    if (live.dirty) return;
    live.dirty = true;
    dirty_sites_.push_back(site);
}

/// Frees a little of what earlier epochs left behind, so that no single call has to free it all.
template <class M>
void basic_table<M>::begin(ledger_time) {
    if (!old_pages_.empty()) old_pages_.pop_back();
}

template <class M>
template <class Reply, class Event>
void basic_table<M>::happen(outcome<Reply>& out, Event&& e, ledger_time now) {
    install(e, now);
    DARLCORE_ASSERT_CMP(
        b_.blocks.free_count() + b_.leased + b_.pledged + b_.blocks.committed_count() + b_.losses.quarantined_blocks(),
        ==, b_.blocks.size());
    out.events.emplace_back(std::forward<Event>(e));
}

/// Step 4: closes every lease whose deadline or hold limit has passed.
template <class M>
template <class Reply>
void basic_table<M>::expire_due(outcome<Reply>& out, ledger_time now) {
    begin(now);
    events::expired e;
    const auto is_due = [&](ledger_time at) {
        return planted(mutant::deadline_reached_expires) ? at <= now : at < now;
    };
    while (!due_.empty() && is_due(due_.top().key.at)) {
        const std::uint32_t slot = due_.top().slot;
        if (const ledger_time at = due_at(slot); !is_due(at)) {
            due_.set(slot, {at});
            continue;
        }
        const lease_record& l = b_.leases[slot];
        e.lost.push_back({l.seq, l.site, l.done_end, l.reserved_end, l.end});
        due_.erase(slot);
    }
    if (e.lost.empty()) return;
    std::sort(e.lost.begin(), e.lost.end(), [](const auto& a, const auto& b) { return a.lease < b.lease; });
    std::vector<std::pair<span, site_number>> lost;
    for (const auto& l : e.lost) lost.emplace_back(span{l.done_end, l.reserved_end}, l.site);
    e.quarantined = preview_losses(lost);
    happen(out, std::move(e), now);
    if (!planted(mutant::pledged_blocks_expire) || b_.pledging.empty()) return;
    for (const contribution* c = b_.pledges[b_.pledging.front().count].get(); const pledged_span& p : c->spans) {
        b_.blocks.give_back(p.span);
        b_.pledged -= p.span.size();
    }
}

}  // namespace darlcore::lease
