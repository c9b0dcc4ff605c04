// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "darlcore/lease/table.hpp"

// How events change the state. Nothing here decides: what an event says is done.
namespace darlcore::lease {

// --- events -----------------------------------------------------------------------------------------------------

template <class M>
void basic_table<M>::install(const events::registered& e, ledger_time at) {
    const std::uint32_t n = e.site.count;
    if (n == b_.num_sites) {
        ++b_.num_sites;
        site_identity who;
        who.id = e.name;
        b_.identities.write(n).write(who);
        b_.sites.write(n).first_seen = at;
        site_live_.emplace_back();
        names_.emplace(e.name.name, n);
    }
    site_book& s = b_.sites.write(n);
    s.incarnation = e.incarnation;
    s.mode = e.mode;
    s.ranks = e.ranks;
    note_seen(n, at);
}

template <class M>
void basic_table<M>::install(const events::superseded& e, ledger_time at) {
    const std::uint32_t n = e.site.count;
    lose(e.lost, close_reason::taken_over);
    set_aside(e.quarantined);
    site_identity& who = b_.identities.write(n).write();
    if (!e.before.is_none()) who.superseded.push_back(e.before);
    if (who.superseded.size() > 64) who.superseded.erase(who.superseded.begin());
    site_book& s = b_.sites.write(n);
    s.incarnation = e.after;
    s.mode = e.mode;
    s.ranks = e.ranks;
    ++s.incarnations;
    s.sample_open = false;
    site_live_[n].draining_since = never_seen;
    set_last_answer(n, acquire_reason::none);
    note_seen(n, at);
}

template <class M>
void basic_table<M>::install(const events::corpus_pinned& e, ledger_time) {
    b_.corpus = e.corpus;
}

template <class M>
void basic_table<M>::install(const events::granted& e, ledger_time at) {
    const std::uint32_t n = e.site.count;
    note_seen(n, at);
    end_sample_for_new_work(n, at);
    const std::uint64_t reserved_before = b_.sites[n].reserved;
    for (const auto& piece : e.steals) {
        const std::uint32_t slot = open_index_.find(piece.victim.count);
        lease_record& victim = b_.leases.write(slot);
        victim.end = piece.new_end;
        site_book& loser = b_.sites.write(victim.site.count);
        const std::uint64_t blocks = piece.old_end.count - piece.new_end.count;
        loser.held -= blocks;
        loser.counters.stolen_from += blocks;
        b_.leased -= blocks;
        refresh_steal(slot);
    }
    for (const lease_record& record : e.leases) {
        if (!record.stolen) b_.blocks.take(record.at_risk());
        open_lease(record);
    }
    site_book& s = b_.sites.write(n);
    ++s.counters.grants;
    s.cursor = e.cursor;
    site_live_[n].draining_since = never_seen;
    set_last_answer(n, acquire_reason::none);
    if (!e.request_id.empty()) remember_request(n, e.request_id, e.leases.front().seq, e.leases.size());
    reserved_changed(n, reserved_before, at);
}

template <class M>
void basic_table<M>::install(const events::reserved& e, ledger_time at) {
    const std::uint32_t n = e.site.count;
    note_seen(n, at);
    end_sample_for_new_work(n, at);
    const std::uint64_t before = b_.sites[n].reserved;
    const std::uint32_t slot = open_index_.find(e.lease.count);
    lease_record& lease = b_.leases.write(slot);
    b_.sites.write(n).reserved += e.reserved_end.count - lease.reserved_end.count;
    lease.reserved_end = e.reserved_end;
    lease.hold_deadline = e.hold_deadline;
    lease.seen_in_term = true;
    reserved_changed(n, before, at);
    refresh_due(slot);
    refresh_steal(slot);
}

template <class M>
void basic_table<M>::install(const events::committed& e, ledger_time at) {
    const std::uint32_t n = e.site.count;
    const span done{e.from, e.through};
    note_seen(n, at);
    site_book& s = b_.sites.write(n);
    s.counters.committed += done.size();
    s.committed_now += done.size();
    s.fruitless = 0;
    if (e.late) {
        b_.blocks.take(done);
        move_closed_done_end(e.lease, e.through);
    } else {
        add_to_sample(n, done.size(), at);
        const std::uint64_t before = s.reserved;
        const std::uint32_t slot = open_index_.find(e.lease.count);
        s.useful_grant = std::max(s.useful_grant, b_.leases[slot].grant);
        move_done_end(slot, e.through, e.hold_deadline);
        if (b_.leases[slot].done_end == b_.leases[slot].end) close_lease(slot, close_reason::committed, true);
        reserved_changed(n, before, at);
    }
    b_.blocks.commit(done);
    if (!b_.losses.empty()) b_.losses.erase(done);
}

template <class M>
void basic_table<M>::install(const events::pledged& e, ledger_time at) {
    const std::uint32_t n = e.site.count;
    note_seen(n, at);
    contribution pledge{e.id, e.site, e.base, e.spans, at};
    const std::uint64_t blocks = pledge.blocks();
    site_book& s = b_.sites.write(n);
    const std::uint64_t before = s.reserved;
    std::uint64_t busy = 0;
    for (const pledged_span& p : e.spans) busy += p.late ? 0 : p.span.size();
    add_to_sample(n, busy, at);
    for (const pledged_span& p : e.spans) {
        if (p.late) {
            b_.blocks.take(p.span);
            b_.losses.erase(p.span);
            move_closed_done_end(p.lease, p.span.end);
            continue;
        }
        const std::uint32_t slot = open_index_.find(p.lease.count);
        s.useful_grant = std::max(s.useful_grant, b_.leases[slot].grant);
        move_done_end(slot, p.span.end, e.hold_deadline);
        if (b_.leases[slot].done_end == b_.leases[slot].end) close_lease(slot, close_reason::pledged, true);
    }
    s.counters.pledged += blocks;
    s.pledged += blocks;
    b_.pledged += blocks;
    b_.pledges.write(n).write(pledge);
    b_.pledging.insert(std::lower_bound(b_.pledging.begin(), b_.pledging.end(), e.site), e.site);
    add_answer(n, {e.id, e.base, blocks, contribution_status::pledged, errc::not_finite});
    reserved_changed(n, before, at);
}

template <class M>
void basic_table<M>::install(const events::contribution_rejected& e, ledger_time at) {
    const std::uint32_t n = e.site.count;
    note_seen(n, at);
    site_book& s = b_.sites.write(n);
    const std::uint64_t before = s.reserved;
    std::uint64_t blocks = 0;
    lease_seq grant;
    for (const pledged_span& p : e.spans) {
        blocks += p.span.size();
        if (p.late) {
            move_closed_done_end(p.lease, p.span.end);
        } else {
            const std::uint32_t slot = open_index_.find(p.lease.count);
            grant = std::max(grant, b_.leases[slot].grant);
            move_done_end(slot, p.span.end, e.hold_deadline);
            if (b_.leases[slot].done_end == b_.leases[slot].end) close_lease(slot, close_reason::rejected, true);
            b_.blocks.give_back(p.span, planted(mutant::double_free_merges));
        }
        record_loss(p.span, e.site);
    }
    set_aside(e.quarantined);
    ++s.counters.rejected;
    count_fruitless(n, grant);
    add_answer(n, {e.id, e.base, blocks, contribution_status::rejected, e.reason});
    reserved_changed(n, before, at);
}

template <class M>
void basic_table<M>::install(const events::resolved& e, ledger_time) {
    const auto take_pledge = [&](const contribution_id& id) {
        const auto it = std::find_if(b_.pledging.begin(), b_.pledging.end(),
                                     [&](site_number n) { return b_.pledges[n.count].get()->id == id; });
        const std::uint32_t n = it->count;
        contribution pledge = *b_.pledges[n].get();
        b_.pledging.erase(it);
        b_.pledges.write(n).reset();
        const std::uint64_t blocks = pledge.blocks();
        b_.pledged -= blocks;
        b_.sites.write(n).pledged -= blocks;
        return pledge;
    };
    for (const contribution_id& id : e.merged) {
        const contribution pledge = take_pledge(id);
        const std::uint32_t n = pledge.site.count;
        for (const pledged_span& p : pledge.spans) {
            b_.blocks.commit(p.span);
            if (!b_.losses.empty()) b_.losses.erase(p.span);
        }
        site_book& s = b_.sites.write(n);
        s.counters.committed += pledge.blocks();
        s.committed_now += pledge.blocks();
        s.fruitless = 0;
        set_answer(n, id, contribution_status::merged, errc::not_finite);
    }
    for (const events::turned_down& r : e.rejected) {
        if (planted(mutant::rejected_stays_pledged)) continue;
        const contribution pledge = take_pledge(r.id);
        const std::uint32_t n = pledge.site.count;
        for (const pledged_span& p : pledge.spans) {
            b_.blocks.give_back(p.span, planted(mutant::double_free_merges));
            if (counts_as_attempt(r.reason)) record_loss(p.span, pledge.site);
        }
        ++b_.sites.write(n).counters.rejected;
        ++b_.sites.write(n).fruitless;
        set_answer(n, r.id, contribution_status::rejected, r.reason);
    }
    set_aside(e.quarantined);
    if (!e.merged.empty()) ++b_.generation.count;
}

template <class M>
void basic_table<M>::install(const events::released& e, ledger_time at) {
    const std::uint32_t n = e.site.count;
    note_seen(n, at);
    const std::uint64_t before = b_.sites[n].reserved;
    for (const events::released_lease& r : e.leases) {
        const std::uint32_t slot = open_index_.find(r.lease.count);
        const span back{r.from, r.old_end};
        b_.blocks.give_back(back, planted(mutant::double_free_merges));
        b_.leased -= back.size();
        site_book& s = b_.sites.write(n);
        s.held -= back.size();
        s.counters.released += back.size();
        if (planted(mutant::release_counts_attempt)) record_loss(b_.leases[slot].maybe_read(), e.site);
        lease_record& lease = b_.leases.write(slot);
        lease.end = r.from;
        if (lease.reserved_end > lease.end) {
            s.reserved -= lease.reserved_end.count - lease.end.count;
            lease.reserved_end = lease.end;
        }
        if (lease.done_end == lease.end) {
            count_fruitless(n, lease.grant);
            close_lease(slot, close_reason::released, false);
        } else {
            refresh_steal(slot);
        }
    }
    reserved_changed(n, before, at);
    if (e.all) {
        b_.sites.write(n).last_seen = never_seen;
        site_live_[n].last_seen = never_seen;
    }
}

template <class M>
void basic_table<M>::install(const events::expired& e, ledger_time) {
    lose(e.lost, close_reason::expired);
    set_aside(e.quarantined);
}

template <class M>
void basic_table<M>::install(const events::requeued& e, ledger_time) {
    for (const span s : e.spans) {
        b_.losses.change(s, [](suspect_run& r) {
            r.quarantined = false;
            r.last_chance = true;
        });
        b_.blocks.give_back(s, planted(mutant::double_free_merges));
    }
    if (!planted(mutant::second_chance_for_ever)) b_.second_chance_used = true;
}

template <class M>
void basic_table<M>::install(const events::epoch_advanced& e, ledger_time at) {
    b_.verdicts.push_back({b_.epoch, b_.blocks.committed_count(), b_.losses.quarantined_blocks(), e.forced});
    if (b_.verdicts.size() > 64) b_.verdicts.erase(b_.verdicts.begin());
    for (const lease_seq seq : e.dropped) close_lease(open_index_.find(seq.count), close_reason::dropped, false);
    b_.epoch = e.to;
    b_.blocks.reset(old_pages_);
    b_.losses.clear();
    b_.second_chance_used = false;
    b_.leased = 0;
    forget_closed();
    for (std::uint32_t n = 0; n < b_.num_sites; ++n) {
        site_book& s = b_.sites.write(n);
        const std::uint64_t before = s.reserved;
        s.held = 0;
        s.reserved = 0;
        s.committed_now = 0;
        if (!planted(mutant::cursor_kept_over_epochs)) s.cursor = {};
        reserved_changed(n, before, at);
        site_live_[n].draining_since = never_seen;
        set_last_answer(n, acquire_reason::none);
    }
}

template <class M>
void basic_table<M>::install(const events::tick& e, ledger_time) {
    for (const events::renewed_lease& r : e.leases) {
        const std::uint32_t slot = open_index_.find(r.lease.count);
        lease_record& lease = b_.leases.write(slot);
        lease.deadline = r.deadline;
        lease.ttl_ms = r.ttl_ms;
        lease.seen_in_term = true;
        live_lease& live = live_[slot];
        live.deadline = std::max(live.deadline, r.deadline);
        live.ttl_ms = r.ttl_ms;
        live.dirty = false;
        refresh_due(slot);
    }
    for (const events::sighting& seen : e.sites) {
        const std::uint32_t n = seen.site.count;
        site_book& s = b_.sites.write(n);
        s.last_seen = seen.last_seen;
        s.macro_step_ms = seen.macro_step_ms;
        s.rtt_ms = seen.rtt_ms;
        live_site& live = site_live_[n];
        live.last_seen = std::max(live.last_seen, seen.last_seen);
        live.macro_step_ms = seen.macro_step_ms;
        live.rtt_ms = seen.rtt_ms;
        live.dirty = false;
    }
    forget_renewals();
}

template <class M>
void basic_table<M>::install(const events::term_started& e, ledger_time) {
    b_.term = e.term;
    if (planted(mutant::seq_restarts)) b_.next_seq = 1;
    for (const events::renewed_lease& r : e.extended) {
        const std::uint32_t slot = open_index_.find(r.lease.count);
        b_.leases.write(slot).deadline = r.deadline;
    }
    for (std::uint32_t slot = 0; slot < b_.num_slots; ++slot) {
        if (b_.leases[slot].seq.count == 0) continue;
        lease_record& lease = b_.leases.write(slot);
        lease.seen_in_term = false;
        // What heartbeats told and no tick wrote down is gone, as it is for a process that reads the journal.
        live_[slot].deadline = lease.deadline;
        live_[slot].ttl_ms = lease.ttl_ms;
        live_[slot].trained = lease.done_end;
        live_[slot].dirty = false;
        due_.set(slot, {due_at(slot)});
    }
    for (std::uint32_t n = 0; n < b_.num_sites; ++n) {
        live_site& live = site_live_[n];
        const site_book& s = b_.sites[n];
        live.last_seen = s.last_seen;
        live.macro_step_ms = s.macro_step_ms;
        live.rtt_ms = s.rtt_ms;
        live.draining_since = never_seen;
        set_last_answer(n, acquire_reason::none);
        live.dirty = false;
    }
    forget_renewals();
}

}  // namespace darlcore::lease

#include "darlcore/lease/table_update.hpp"
