// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <utility>

#include "darlcore/lease/table.hpp"

// Register, reserve, heartbeat, release, and what the clock and the operator do.
namespace darlcore::lease {

template <class M>
result<basic_table<M>> basic_table<M>::create(const lease::geometry& g, const lease::settings& s, M mutation) {
    if (auto ok = check(s); !ok) return ok.error();
    if (auto ok = check(g); !ok) return ok.error();
    basic_table t(mutation);
    t.b_ = empty_book(g, s);
    return t;
}

// --- register ---------------------------------------------------------------------------------------------------

template <class M>
std::optional<std::string_view> basic_table<M>::shape_fault(const register_site& in) {
    if (!is_valid_name(in.who.site.name))
        return "site names are 1 to 64 of A-Z a-z 0-9 . _ -, and start with a letter or digit";
    if (in.mode == site_mode::full && in.who.incarnation.is_none())
        return "an incarnation of 32 hex digits is required";
    if (in.corpus.size() > 256 || in.space_digest.size() > 256) return "digests have at most 256 bytes";
    return std::nullopt;
}

template <class M>
std::optional<errc> basic_table<M>::pinned_fault(const register_site& in) const {
    if (in.mode == site_mode::legacy && b_.settings.commit_policy != commit_policy::on_checkpoint) return errc::policy;
    if (!in.space_digest.empty() && !b_.geometry.space_digest.empty() && in.space_digest != b_.geometry.space_digest)
        return errc::digest_mismatch;
    if (!in.corpus.empty() && !b_.corpus.empty() && in.corpus != b_.corpus) return errc::corpus_mismatch;
    return std::nullopt;
}

/// Whether another process of the same site keeps this one out.
template <class M>
std::optional<refusal> basic_table<M>::stands_in_the_way(const register_site& in, std::uint32_t site,
                                                         ledger_time now) const {
    const site_book& s = b_.sites[site];
    const auto& gone = b_.identities[site].get()->superseded;
    if (std::find(gone.begin(), gone.end(), in.who.incarnation) != gone.end())
        return refusal{errc::fenced,
                       "this process was replaced by a newer one and cannot come back: start a new process", 0,
                       std::nullopt};
    if (s.is_vacant()) return std::nullopt;
    const bool named = in.take_over && *in.take_over == s.incarnation;
    if (named || (!in.take_over && !is_live(site_number{site}, now))) return std::nullopt;
    const auto wait = next_deadline_in_ms(now);
    return refusal{errc::cluster_busy,
                   "another process of this site is live: wait until it ends, or take over by naming its incarnation",
                   std::clamp<std::int64_t>(wait.value_or(30000), 1000, 60000), s.incarnation};
}

template <class M>
events::superseded basic_table<M>::decide_takeover(const register_site& in, std::uint32_t site) const {
    events::superseded e;
    e.site = site_number{site};
    e.before = b_.sites[site].incarnation;
    e.after = in.who.incarnation;
    e.mode = in.mode;
    e.ranks = in.ranks;
    std::vector<std::pair<span, site_number>> lost;
    for (const lease_record& l : leases_of(e.site)) {
        e.lost.push_back({l.seq, l.site, l.done_end, l.reserved_end, l.end});
        lost.emplace_back(l.maybe_read(), l.site);
    }
    e.quarantined = preview_losses(lost);
    return e;
}

template <class M>
registered_reply basic_table<M>::make_registered_reply(std::uint32_t site, bool superseded) const {
    const site_book& s = b_.sites[site];
    return {site_number{site}, s.incarnation, s.incarnations, b_.blocks.committed_count(), b_.epoch, superseded};
}

template <class M>
outcome<registered_reply> basic_table<M>::apply(const register_site& in, ledger_time now) {
    outcome<registered_reply> out;
    if (const auto fault = shape_fault(in)) return refuse(std::move(out), errc::bad_request, *fault);
    if (const auto code = pinned_fault(in)) {
        return refuse(
            std::move(out), *code,
            *code == errc::policy
                ? "legacy clients commit before any merge: start the server with commit_policy on_checkpoint"
                : "the digest differs from the one this run is pinned to: use the same data, order and block size");
    }
    const auto known = find_site(in.who.site.name);
    expire_due(out, now);
    const bool same =
        known && !b_.sites[known->count].is_vacant() && b_.sites[known->count].incarnation == in.who.incarnation;
    if (same && b_.sites[known->count].mode != in.mode)
        return refuse(std::move(out), errc::bad_request, "a process keeps its protocol: register as before");
    if (known && !same)
        if (auto no = stands_in_the_way(in, known->count, now)) return answer(std::move(out), *std::move(no));
    if (!known && b_.num_sites >= b_.settings.max_sites)
        return refuse(std::move(out), errc::overloaded, "this run knows as many sites as it may: reuse a name", 60000);
    if (!in.corpus.empty() && b_.corpus.empty()) happen(out, events::corpus_pinned{in.corpus}, now);
    const std::uint32_t site = known ? known->count : b_.num_sites;
    if (known && !same)
        happen(out, decide_takeover(in, site), now);
    else if (!known || b_.sites[site].ranks != in.ranks)
        happen(out, events::registered{site_number{site}, in.who.site, in.who.incarnation, in.mode, in.ranks}, now);
    touch(site, nullptr, now);
    return answer(std::move(out), make_registered_reply(site, known && !same));
}

// --- reserve and heartbeat --------------------------------------------------------------------------------------

template <class M>
outcome<reserve_reply> basic_table<M>::apply(const reserve& in, ledger_time now) {
    outcome<reserve_reply> out;
    std::uint32_t site = 0;
    if (auto no = check_caller(in.who, site)) return answer(std::move(out), *std::move(no));
    expire_due(out, now);
    const found f = find_named(in.lease, site);
    if (f.refused || f.slot == nil) return refuse(std::move(out), f.refused.value_or(errc::lease_gone));
    touch(site, nullptr, now);
    out.answer = reserve_now(f.slot, in.through, now, out);
    return out;
}

template <class M>
template <class Reply>
reserve_reply basic_table<M>::reserve_now(std::uint32_t slot, position through, ledger_time now, outcome<Reply>& out) {
    const lease_record lease = b_.leases[slot];
    const position end = std::max(lease.reserved_end, std::min(through, lease.end));
    if (end > lease.reserved_end && !planted(mutant::reserve_replies_before_its_event)) {
        const std::int64_t hold = hold_limit_ms(b_.settings, site_live_[lease.site.count].macro_step_ms);
        happen(out, events::reserved{lease.site, lease.seq, lease.reserved_end, end, now + hold}, now);
    }
    return {end, lease.end};
}

template <class M>
beat_reply basic_table<M>::renew(const beat& b, std::uint32_t site, std::int64_t ttl, ledger_time now,
                                 outcome<heartbeat_reply>& out) {
    beat_reply reply;
    reply.lease = b.lease;
    const found f = find_named(b.lease, site);
    if (f.refused || f.slot == nil) {
        reply.reason = f.refused.value_or(errc::lease_gone);
        return reply;
    }
    live_lease& live = live_[f.slot];
    const ledger_time wanted = now + ttl;
    if (wanted > live.deadline || planted(mutant::renewal_shortens)) {
        live.deadline = wanted;
        live.ttl_ms = ttl;
        refresh_due(f.slot);
    }
    note_renewal(f.slot);
    if (planted(mutant::hold_renewed_by_heartbeats))
        b_.leases.write(f.slot).hold_deadline = now + hold_limit_ms(b_.settings, site_live_[site].macro_step_ms);
    if (b.trained) live.trained = std::max(live.trained, std::min(*b.trained, b_.leases[f.slot].end));
    reply.reserved_end = b_.leases[f.slot].reserved_end;
    if (b.reserve_through) reply.reserved_end = reserve_now(f.slot, *b.reserve_through, now, out).reserved_end;
    const lease_record& lease = b_.leases[f.slot];
    reply.valid = true;
    reply.end = lease.end;
    reply.committed_end = lease.done_end;
    return reply;
}

template <class M>
outcome<heartbeat_reply> basic_table<M>::apply(const heartbeat& in, ledger_time now) {
    outcome<heartbeat_reply> out;
    std::uint32_t site = 0;
    if (in.leases.size() > 256)
        return refuse(std::move(out), errc::bad_request, "a heartbeat names at most 256 leases");
    if (auto no = check_caller(in.who, site, !planted(mutant::superseded_may_heartbeat)))
        return answer(std::move(out), *std::move(no));
    expire_due(out, now);
    touch(site, &in.report, now);
    const live_site& live = site_live_[site];
    heartbeat_reply reply;
    reply.ttl_ms =
        ttl_ms(b_.settings, claimed_ms(in.report.ttl_s, b_.settings.max_ttl_s), live.macro_step_ms, live.rtt_ms);
    reply.leases.reserve(in.leases.size());
    for (const beat& b : in.leases) reply.leases.push_back(renew(b, site, reply.ttl_ms, now, out));
    reply.epoch_complete = is_complete();
    out.answer = std::move(reply);
    return out;
}

// --- release ----------------------------------------------------------------------------------------------------

template <class M>
outcome<release_reply> basic_table<M>::apply(const release& in, ledger_time now) {
    outcome<release_reply> out;
    std::uint32_t site = 0;
    if (auto no = check_caller(in.who, site)) {
        const bool nothing_to_do = no->code == errc::unknown_site || (no->code == errc::fenced && !in.lease);
        if (nothing_to_do) return answer(std::move(out), release_reply{});
        return answer(std::move(out), *std::move(no));
    }
    expire_due(out, now);
    std::vector<lease_record> leases;
    if (in.lease) {
        const found f = find_named(*in.lease, site);
        if (f.refused && *f.refused != errc::lease_gone) return refuse(std::move(out), *f.refused);
        touch(site, nullptr, now);
        if (f.refused || f.slot == nil) return answer(std::move(out), release_reply{});
        leases.push_back(b_.leases[f.slot]);
    } else {
        leases = leases_of(site_number{site});
    }
    events::released e;
    e.site = site_number{site};
    e.all = !in.lease;
    release_reply reply;
    for (const lease_record& l : leases) {
        const position from = in.keep_reserved ? l.reserved_end : l.done_end;
        if (from == l.end) continue;
        reply.released += l.end.count - from.count;
        e.leases.push_back({l.seq, from, l.end});
    }
    const bool leaves = e.all && (site_live_[site].last_seen != never_seen || b_.sites[site].last_seen != never_seen);
    if (!e.leases.empty() || leaves) happen(out, std::move(e), now);
    return answer(std::move(out), reply);
}

// --- the clock and the operator ---------------------------------------------------------------------------------

template <class M>
outcome<expire_reply> basic_table<M>::apply(const expire&, ledger_time now) {
    outcome<expire_reply> out;
    expire_due(out, now);
    expire_reply reply;
    if (!out.events.empty()) reply.leases = std::get<events::expired>(out.events.front()).lost.size();
    return answer(std::move(out), reply);
}

template <class M>
outcome<advance_reply> basic_table<M>::apply(const advance_epoch& in, ledger_time now) {
    outcome<advance_reply> out;
    if (in.from && *in.from < b_.epoch) return answer(std::move(out), advance_reply{false, b_.epoch});
    if (in.from && *in.from > b_.epoch)
        return refuse(std::move(out), errc::epoch_incomplete, "this epoch has not been reached yet");
    expire_due(out, now);
    if (b_.epoch.count + 1 >= b_.settings.max_epochs)
        return refuse(std::move(out), errc::epoch_incomplete,
                      "this is the last epoch of the run: raise max_epochs for a new run");
    if (b_.pledged > 0 && !planted(mutant::advance_with_open_pledge))
        return refuse(std::move(out), errc::epoch_incomplete,
                      "contributions wait for their merge: advance when it is done");
    if (!in.force && (!is_complete() || b_.open_leases > 0)) return refuse(std::move(out), errc::epoch_incomplete);
    events::epoch_advanced e{b_.epoch, epoch_index{b_.epoch.count + 1}, in.force, {}};
    for (const lease_record& l : all_leases()) e.dropped.push_back(l.seq);
    happen(out, std::move(e), now);
    return answer(std::move(out), advance_reply{true, b_.epoch});
}

template <class M>
outcome<tick_reply> basic_table<M>::apply(const tick&, ledger_time now) {
    outcome<tick_reply> out;
    expire_due(out, now);
    events::tick e;
    e.leases.reserve(std::min<std::size_t>(dirty_leases_.size(), b_.open_leases));
    e.sites.reserve(dirty_sites_.size());
    for (std::size_t i = 0; i < dirty_leases_.size(); ++i) {
        const std::uint32_t slot = dirty_leases_[i];
        if (!live_[slot].dirty) continue;  // closed since
        e.leases.push_back({b_.leases[slot].seq, live_[slot].deadline, live_[slot].ttl_ms});
        live_[slot].dirty = false;
    }
    for (const std::uint32_t n : dirty_sites_) {
        live_site& live = site_live_[n];
        if (live.dirty && live.last_seen != never_seen)
            e.sites.push_back({site_number{n}, live.last_seen, live.macro_step_ms, live.rtt_ms});
        live.dirty = false;
    }
    std::sort(e.leases.begin(), e.leases.end(), [](const auto& a, const auto& b) { return a.lease < b.lease; });
    std::sort(e.sites.begin(), e.sites.end(), [](const auto& a, const auto& b) { return a.site < b.site; });
    forget_renewals();
    if (!e.leases.empty() || !e.sites.empty() || b_.open_leases > 0) happen(out, std::move(e), now);
    return answer(std::move(out), tick_reply{});
}

template <class M>
outcome<restart_reply> basic_table<M>::apply(const restart& in, ledger_time now) {
    outcome<restart_reply> out;
    if (in.term <= b_.term) return refuse(std::move(out), errc::bad_request, "a term must be above the last one");
    events::term_started e;
    e.term = in.term;
    for (const lease_record& l : all_leases()) {
        const std::uint32_t slot = open_index_.find(l.seq.count);
        const ledger_time written = b_.leases[slot].deadline;
        const ledger_time extended = std::max(written, now + setting_ms(b_.settings.grace_s));
        if (l.seen_in_term && extended > written) e.extended.push_back({l.seq, extended, b_.leases[slot].ttl_ms});
    }
    const std::uint64_t count = e.extended.size();
    happen(out, std::move(e), now);
    return answer(std::move(out), restart_reply{count});
}

}  // namespace darlcore::lease
