// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>

#include "darlcore/lease/table.hpp"

// The steps that events are made of: leases, losses, answers, busy rates, indexes.
namespace darlcore::lease {

template <class M>
void basic_table<M>::note_seen(std::uint32_t site, ledger_time at) {
    b_.sites.write(site).last_seen = at;
    site_live_[site].last_seen = std::max(site_live_[site].last_seen, at);
}

template <class M>
void basic_table<M>::set_last_answer(std::uint32_t site, acquire_reason reason) {
    acquire_reason& last = site_live_[site].last_answer;
    if (last != acquire_reason::none) --draining_sites_;
    if (reason != acquire_reason::none) ++draining_sites_;
    last = reason;
}

// --- leases -----------------------------------------------------------------------------------------------------

template <class M>
void basic_table<M>::open_lease(const lease_record& record) {
    std::uint32_t slot = b_.num_slots;
    if (free_slots_.empty()) {
        ++b_.num_slots;
        b_.leases.grow(b_.num_slots);
        live_.push_back({});
    } else {
        slot = free_slots_.back();
        free_slots_.pop_back();
    }
    b_.leases.write(slot) = record;
    ++b_.open_leases;
    b_.next_seq = std::max(b_.next_seq, record.seq.count + 1);
    const std::uint64_t blocks = record.at_risk().size();
    b_.leased += blocks;
    site_book& s = b_.sites.write(record.site.count);
    s.held += blocks;
    s.reserved += record.maybe_read().size();
    s.counters.granted += blocks;
    if (record.stolen) s.counters.stolen_by += blocks;
    live_site& owner = site_live_[record.site.count];
    live_lease& live = live_[slot];
    live = {record.deadline, record.ttl_ms, record.done_end, owner.first_lease, nil, false, live.listed};
    if (live.next != nil) live_[live.next].previous = slot;
    owner.first_lease = slot;
    ++owner.open_leases;
    open_index_.insert(record.seq.count, slot);
    refresh_due(slot);
    refresh_steal(slot);
}

// A slot stands in the list once, however many leases it has had since the last tick.
template <class M>
void basic_table<M>::note_renewal(std::uint32_t slot) {
    live_lease& live = live_[slot];
    live.dirty = true;
    if (live.listed) return;
    live.listed = true;
    dirty_leases_.push_back(slot);
}

template <class M>
void basic_table<M>::forget_renewals() {
    for (std::size_t i = 0; i < dirty_leases_.size(); ++i) live_[dirty_leases_[i]].listed = false;
    dirty_leases_.clear();
    dirty_sites_.clear();
}

template <class M>
void basic_table<M>::close_lease(std::uint32_t slot, close_reason reason, bool keep) {
    const lease_record record = b_.leases[slot];
    if (keep)
        remember({record.seq, record.start, record.done_end, record.reserved_end, record.end, record.site, record.term,
                  reason, record.mode});
    live_site& owner = site_live_[record.site.count];
    const live_lease& live = live_[slot];
    (live.previous == nil ? owner.first_lease : live_[live.previous].next) = live.next;
    if (live.next != nil) live_[live.next].previous = live.previous;
    --owner.open_leases;
    --b_.open_leases;
    due_.erase(slot);
    steal_measured_.erase(slot);
    steal_unmeasured_.erase(slot);
    open_index_.erase(record.seq.count);
    b_.leases.write(slot) = {};
    live_[slot].dirty = false;
    free_slots_.push_back(slot);
}

template <class M>
void basic_table<M>::remember(const closed_lease& c) {
    const std::uint64_t place = b_.closed_written % b_.settings.closed_leases;
    closed_lease& cell = b_.closed.write(place);
    if (b_.closed_written >= b_.settings.closed_leases) {
        closed_index_.erase(cell.seq.count);
        b_.closed_print -= print_of(cell);
    }
    cell = c;
    b_.closed_print += print_of(c);
    closed_index_.insert(c.seq.count, static_cast<std::uint32_t>(place));
    ++b_.closed_written;
}

template <class M>
void basic_table<M>::move_done_end(std::uint32_t slot, position through, ledger_time hold_deadline) {
    lease_record& lease = b_.leases.write(slot);
    const std::uint64_t blocks = through.count - lease.done_end.count;
    site_book& s = b_.sites.write(lease.site.count);
    s.held -= blocks;
    s.reserved -= std::min(through, lease.reserved_end).count - std::min(lease.done_end, lease.reserved_end).count;
    b_.leased -= blocks;
    lease.done_end = through;
    lease.reserved_end = std::max(lease.reserved_end, through);
    lease.hold_deadline = hold_deadline;
    lease.seen_in_term = true;
    refresh_due(slot);
    refresh_steal(slot);
}

template <class M>
void basic_table<M>::forget_closed() {
    b_.closed_written = 0;
    b_.closed_print = 0;
    closed_index_.clear();
}

template <class M>
void basic_table<M>::move_closed_done_end(lease_seq seq, position through) {
    closed_lease& c = b_.closed.write(closed_index_.find(seq.count));
    b_.closed_print -= print_of(c);
    c.done_end = through;
    b_.closed_print += print_of(c);
}

// --- losses -----------------------------------------------------------------------------------------------------

template <class M>
void basic_table<M>::lose(const std::vector<events::lost_lease>& lost, close_reason reason) {
    for (const events::lost_lease& l : lost) {
        const std::uint32_t slot = open_index_.find(l.lease.count);
        const std::uint32_t n = l.site.count;
        const lease_record record = b_.leases[slot];
        const std::uint64_t blocks = record.at_risk().size();
        b_.blocks.give_back(record.at_risk(), planted(mutant::double_free_merges));
        record_loss(planted(mutant::expiry_counts_unreserved) ? record.at_risk() : record.maybe_read(), l.site);
        b_.leased -= blocks;
        site_book& s = b_.sites.write(n);
        const std::uint64_t before = s.reserved;
        s.held -= blocks;
        s.reserved -= record.maybe_read().size();
        s.counters.lost += blocks;
        if (reason == close_reason::expired) ++s.counters.expiries;
        count_fruitless(n, record.grant);
        close_lease(slot, reason, true);
        reserved_changed(n, before, {});
    }
}

template <class M>
void basic_table<M>::record_loss(span lost, site_number site) {
    if (lost.empty()) return;
    const bool per_loss = planted(mutant::attempts_per_loss);
    b_.losses.change(lost, [&](suspect_run& r) { add_loss(r, site, lost.size(), per_loss); });
}

template <class M>
void basic_table<M>::set_aside(const std::vector<events::quarantined_run>& runs) {
    for (const events::quarantined_run& q : runs) {
        b_.blocks.take(q.span);
        b_.losses.change(q.span, [](suspect_run& r) { r.quarantined = true; });
    }
}

template <class M>
void basic_table<M>::count_fruitless(std::uint32_t site, lease_seq grant) {
    site_book& s = b_.sites.write(site);
    if (grant.count != 0 && (grant == s.useful_grant || grant == s.fruitless_grant)) return;
    s.fruitless_grant = grant;
    ++s.fruitless;
}

// --- answers ----------------------------------------------------------------------------------------------------

template <class M>
void basic_table<M>::add_answer(std::uint32_t site, contribution_answer answer) {
    auto& list = b_.answers.write(site).write();
    const auto is_old = [&](const contribution_answer& a) {
        return a.base.count + b_.settings.answer_generations < b_.generation.count;
    };
    list.erase(std::remove_if(list.begin(), list.end(), is_old), list.end());
    list.push_back(std::move(answer));
}

template <class M>
void basic_table<M>::set_answer(std::uint32_t site, const contribution_id& id, contribution_status status,
                                errc reason) {
    for (contribution_answer& a : b_.answers.write(site).write()) {
        if (a.id != id) continue;
        a.status = status;
        a.reason = reason;
    }
}

template <class M>
void basic_table<M>::remember_request(std::uint32_t site, std::string_view id, lease_seq first, std::size_t count) {
    site_book& s = b_.sites.write(site);
    const std::uint32_t place = s.ring_next;
    s.ring_next = (place + 1) % b_.settings.request_ring;
    const std::uint64_t index = std::uint64_t{site} * b_.settings.request_ring + place;
    request_entry& r = b_.requests.write(index);
    b_.requests_print -= print_of(r, index);
    std::copy(id.begin(), id.end(), r.text.begin());
    r.length = static_cast<std::uint8_t>(id.size());
    r.count = static_cast<std::uint8_t>(count);
    r.first = first;
    b_.requests_print += print_of(r, index);
    site_live_[site].request_tags[place] = request_tag(id);
}

// --- busy rate --------------------------------------------------------------------------------------------------
// A sample runs from the moment a site goes from nothing reserved to something reserved, collects what is pledged or
// committed, and ends at the next reserve or grant behind a contribution, or when nothing reserved is left.

template <class M>
void basic_table<M>::end_sample_for_new_work(std::uint32_t site, ledger_time at) {
    const site_book& now = b_.sites[site];
    if (!now.sample_open || now.sample_blocks == 0) return;
    site_book& s = b_.sites.write(site);
    close_sample(s, site);
    if (s.reserved == 0) return;
    s.sample_open = true;  // still busy: with what it had reserved before
    s.sample_opened = at;
    s.sample_last = at;
}

template <class M>
void basic_table<M>::add_to_sample(std::uint32_t site, std::uint64_t blocks, ledger_time at) {
    site_book& s = b_.sites.write(site);
    if (!s.sample_open || blocks == 0) return;
    s.sample_blocks += blocks;
    const ledger_time previous = s.sample_last;
    s.sample_last = at;
    if (planted(mutant::rate_over_commit_gaps)) {
        s.sample_opened = previous;
        close_sample(s, site);
        s.sample_open = true;
        s.sample_opened = at;
    }
}

template <class M>
void basic_table<M>::close_sample(site_book& s, std::uint32_t site) {
    s.sample_open = false;
    const std::uint64_t blocks = std::min<std::uint64_t>(s.sample_blocks, 1000000000);
    s.sample_blocks = 0;
    if (blocks == 0) return;
    const auto busy_ms = static_cast<std::uint64_t>(std::max<std::int64_t>(s.sample_last - s.sample_opened, 1000));
    const std::uint64_t sample = std::max<std::uint64_t>(blocks * 1000000000 / busy_ms, 1);
    set_rate(site, s.rate_micro == 0 ? sample : std::max<std::uint64_t>((7 * s.rate_micro + 3 * sample) / 10, 1));
}

template <class M>
void basic_table<M>::reserved_changed(std::uint32_t site, std::uint64_t before, ledger_time at) {
    const site_book& now = b_.sites[site];
    if (before == 0 && now.reserved > 0) {
        site_book& s = b_.sites.write(site);
        s.sample_open = true;
        s.sample_opened = at;
        s.sample_last = at;
        s.sample_blocks = 0;
    } else if (now.reserved == 0 && now.sample_open) {
        close_sample(b_.sites.write(site), site);
    }
}

template <class M>
void basic_table<M>::set_rate(std::uint32_t site, std::uint64_t rate_micro) {
    site_book& s = b_.sites.write(site);
    if (s.rate_micro == 0) ++b_.rates_measured;
    b_.rate_sum_micro += rate_micro - s.rate_micro;
    s.rate_micro = rate_micro;
    for (std::uint32_t slot = site_live_[site].first_lease; slot != nil; slot = live_[slot].next) refresh_steal(slot);
}

// --- indexes ----------------------------------------------------------------------------------------------------

template <class M>
void basic_table<M>::refresh_due(std::uint32_t slot) {
    const due_key key{due_at(slot)};
    // A later key is left where it is: it moves when it comes up, so renewing costs nothing here.
    if (!due_.contains(slot) || key.before(due_.key_of(slot))) due_.set(slot, key);
}

template <class M>
void basic_table<M>::refresh_steal(std::uint32_t slot) {
    if (!b_.settings.allow_stealing) return;
    const lease_record& lease = b_.leases[slot];
    const span tail = planted(mutant::steal_from_done_end) ? lease.at_risk() : lease.unread();
    if (lease.mode == site_mode::legacy || tail.size() < 2 * b_.settings.steal_min_blocks) {
        steal_measured_.erase(slot);
        steal_unmeasured_.erase(slot);
        return;
    }
    const std::uint64_t rate = b_.sites[lease.site.count].rate_micro;
    const auto remaining = static_cast<double>(lease.at_risk().size());
    if (rate == 0) {
        steal_unmeasured_.set(slot, {remaining, tail.size(), lease.seq.count});
        return;
    }
    steal_unmeasured_.erase(slot);
    steal_measured_.set(slot, {remaining * 1e6 / static_cast<double>(rate), tail.size(), lease.seq.count});
}

template <class M>
void basic_table<M>::rebuild_indexes() {
    live_.clear();
    live_.resize(b_.num_slots);
    site_live_.assign(b_.num_sites, {});
    draining_sites_ = 0;
    for (std::uint32_t n = 0; n < b_.num_sites; ++n) {
        const site_book& s = b_.sites[n];
        live_site& live = site_live_[n];
        live.last_seen = s.last_seen;
        live.macro_step_ms = s.macro_step_ms;
        live.rtt_ms = s.rtt_ms;
        names_.emplace(b_.identities[n].get()->id.name, n);
        for (std::uint32_t i = 0; i < b_.settings.request_ring; ++i) {
            const request_entry& r = b_.requests[std::uint64_t{n} * b_.settings.request_ring + i];
            if (r.count != 0) live.request_tags[i] = request_tag(r.id());
        }
    }
    for (std::uint32_t slot = 0; slot < b_.num_slots; ++slot) {
        const lease_record& lease = b_.leases[slot];
        live_site& owner = site_live_[lease.site.count];
        live_[slot] = {lease.deadline, lease.ttl_ms, lease.done_end, owner.first_lease, nil, false};
        if (live_[slot].next != nil) live_[live_[slot].next].previous = slot;
        owner.first_lease = slot;
        ++owner.open_leases;
        open_index_.insert(lease.seq.count, slot);
        refresh_due(slot);
        refresh_steal(slot);
    }
    for (std::uint64_t i = 0; i < b_.closed_kept(); ++i)
        closed_index_.insert(b_.closed[i].seq.count, static_cast<std::uint32_t>(i));
}

}  // namespace darlcore::lease
