// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>

#include "darlcore/lease/table.hpp"

// Acquire: how many blocks, which ones, from whom, and what to say when there are none.
namespace darlcore::lease {

template <class M>
outcome<acquire_reply> basic_table<M>::apply(const acquire& in, ledger_time now) {
    outcome<acquire_reply> out;
    std::uint32_t site = 0;
    if (in.max_spans < 1 || in.max_spans > 64)
        return refuse(std::move(out), errc::bad_request, "max_spans must be in 1..64");
    if (in.request_id.size() > request_entry::text_max)
        return refuse(std::move(out), errc::bad_request, "request_id has at most 64 bytes");
    if (auto no = check_caller(in.who, site)) return answer(std::move(out), *std::move(no));
    const bool repeated = !in.request_id.empty() && find_request(site, in.request_id).has_value();
    expire_due(out, now);
    if (repeated) {
        touch(site, &in.report, now);
        return answer(std::move(out), answer_again(in, site, now));
    }
    if (site_live_[site].open_leases >= b_.settings.max_leases_per_site)
        return refuse(std::move(out), errc::overloaded,
                      "this site holds as many leases as it may: contribute or release some", 60000);
    touch(site, &in.report, now);
    if (b_.blocks.free_count() == 0 && b_.leased == 0 && b_.pledged == 0 && b_.second_chance_open()) {
        events::requeued e;
        e.spans = quarantined();
        happen(out, std::move(e), now);
    }
    if (is_complete() && !finish_epoch(out, now))
        return answer(std::move(out), complete_reply(site, acquire_reason::complete));
    if (must_stand_back(site, now)) return answer(std::move(out), drain_reply(site, now, acquire_reason::after_others));

    const grant_size size = size_of_grant(in, site, now);
    std::vector<span> spans = take(site, size);
    std::vector<events::stolen_tail> steals;
    if (spans.empty() && b_.settings.allow_stealing) {
        steals = steal(site, size);
        for (const auto& piece : steals) spans.push_back({piece.new_end, piece.old_end});
    }
    if (spans.empty()) return answer(std::move(out), nothing_left(site, now));
    acquire_reply reply;
    reply.status = acquire_status::granted;
    reply.epoch = b_.epoch;
    if (b_.sites[site].fruitless >= 3) reply.retry_after_ms = 30000;
    events::granted e = make_grant(in, site, now, spans, std::move(steals));
    reply.leases = e.leases;
    happen(out, std::move(e), now);
    out.answer = std::move(reply);
    return out;
}

/// True where the epoch ended and the next one began; false where this was the last.
template <class M>
template <class Reply>
bool basic_table<M>::finish_epoch(outcome<Reply>& out, ledger_time now) {
    if (b_.open_leases > 0 || (b_.pledged > 0 && !planted(mutant::advance_with_open_pledge))) return false;
    if (b_.epoch.count + 1 >= b_.settings.max_epochs) return false;
    happen(out, events::epoch_advanced{b_.epoch, epoch_index{b_.epoch.count + 1}, false, {}}, now);
    return true;
}

// --- repeated requests ------------------------------------------------------------------------------------------

template <class M>
std::optional<std::uint32_t> basic_table<M>::find_request(std::uint32_t site, std::string_view id) const {
    const std::uint32_t tag = request_tag(id);
    const std::uint32_t first = planted(mutant::request_id_per_server) ? 0 : site;
    const std::uint32_t last = planted(mutant::request_id_per_server) ? b_.num_sites : site + 1;
    for (std::uint32_t n = first; n < last; ++n) {
        const auto& tags = site_live_[n].request_tags;
        for (std::uint32_t i = 0; i < b_.settings.request_ring; ++i) {
            if (tags[i] != tag) continue;
            const std::uint32_t index = n * b_.settings.request_ring + i;
            const request_entry& r = b_.requests[index];
            if (r.count != 0 && r.id() == id) return index;
        }
    }
    return std::nullopt;
}

/// The leases of the first answer that are still open, as they are now.
template <class M>
acquire_reply basic_table<M>::answer_again(const acquire& in, std::uint32_t site, ledger_time now) {
    const request_entry& r = b_.requests[*find_request(site, in.request_id)];
    acquire_reply reply;
    reply.epoch = b_.epoch;
    for (std::uint64_t i = 0; i < r.count; ++i) {
        const lease_seq seq{r.first.count + i};
        if (const auto lease = find_lease(seq); lease && lease->epoch == b_.epoch) reply.leases.push_back(*lease);
        const std::uint32_t place = closed_index_.find(seq.count);
        if (planted(mutant::stale_grant_repeated) && place != seq_table::none) {
            const closed_lease& c = b_.closed[place];
            lease_record old;
            old.seq = c.seq;
            old.start = c.start;
            old.end = c.end;
            reply.leases.push_back(old);
        }
    }
    if (reply.leases.empty()) {
        reply = drain_reply(site, now, acquire_reason::answered_before);
        reply.retry_after_ms = 0;
        return reply;
    }
    reply.status = acquire_status::granted;
    return reply;
}

// --- size -------------------------------------------------------------------------------------------------------

/// Mean busy rate of the sites that have one; one block per second where none has.
template <class M>
std::uint64_t basic_table<M>::mean_rate_micro() const {
    return b_.rates_measured == 0 ? 1000000 : std::max<std::uint64_t>(b_.rate_sum_micro / b_.rates_measured, 1);
}

template <class M>
std::uint64_t basic_table<M>::live_sites(ledger_time now, std::uint64_t& rate_sum) {
    std::uint64_t live = 0;
    const std::uint64_t mean = mean_rate_micro();
    for (std::uint32_t n = 0; n < b_.num_sites; ++n) {
        meter::touch();
        if (!is_live(site_number{n}, now)) continue;
        ++live;
        const std::uint64_t rate = b_.sites[n].rate_micro;
        rate_sum += rate == 0 ? mean : rate;
    }
    return live;
}

template <class M>
typename basic_table<M>::grant_size basic_table<M>::size_of_grant(const acquire& in, std::uint32_t site,
                                                                  ledger_time now) {
    const settings& rules = b_.settings;
    const site_book& s = b_.sites[site];
    std::uint64_t r = std::max(rules.min_blocks, std::min(in.want, b_.blocks.size()));
    if (s.counters.committed + s.counters.pledged == 0) {
        const double part = std::floor(static_cast<double>(r) * rules.first_grant_fraction);
        r = std::max(rules.min_blocks, static_cast<std::uint64_t>(part));
    }
    if (rules.max_blocks != 0) r = std::min(r, rules.max_blocks);
    if (s.fruitless >= 3) r = rules.min_blocks;
    const std::uint64_t free = b_.blocks.free_count();
    // All sites ever seen are an upper bound of the live ones: mostly that settles it without looking at each.
    if (free > 0 && r > free / b_.num_sites) {
        std::uint64_t rate_sum = 0;
        const std::uint64_t live = live_sites(now, rate_sum);
        if (r > free / live) {
            const std::uint64_t mine = s.rate_micro == 0 ? mean_rate_micro() : s.rate_micro;
            const double part =
                std::floor(static_cast<double>(free) * static_cast<double>(mine) / static_cast<double>(rate_sum));
            const std::uint64_t fair = std::max(rules.min_blocks, free / (4 * live));
            r = std::max(rules.min_blocks, std::min(r, std::max(static_cast<std::uint64_t>(part), fair)));
        }
    }
    const std::uint32_t room = rules.max_leases_per_site - site_live_[site].open_leases;
    return {r, std::min(in.max_spans, room)};
}

// --- take -------------------------------------------------------------------------------------------------------

/// Walks the pool forward from the site's cursor, once around.
template <class M>
std::vector<span> basic_table<M>::take(std::uint32_t site, grant_size size) const {
    std::vector<span> spans;
    std::optional<bool> suspect;
    if (b_.blocks.free_count() == 0) return spans;
    if (planted(mutant::take_stops_one_interval_early) && size.spans > 1) --size.spans;
    const std::uint64_t cursor = b_.sites[site].cursor.count;
    take_from(cursor, b_.blocks.size(), size, suspect, spans);
    take_from(0, cursor, size, suspect, spans);
    return spans;
}

template <class M>
void basic_table<M>::take_from(std::uint64_t from, std::uint64_t to, grant_size& size, std::optional<bool>& suspect,
                               std::vector<span>& spans) const {
    if (from == to || size.blocks == 0 || spans.size() == size.spans) return;
    std::uint64_t p = b_.blocks.next_free(from);
    while (p < to) {
        meter::touch();
        std::uint64_t border = to;  // where the history of the blocks changes
        const suspect_run* const run = b_.losses.empty() ? nullptr : b_.losses.at_or_after(position{p});
        const bool lost_before = run != nullptr && run->span.start.count <= p;
        if (run != nullptr) border = std::min(border, lost_before ? run->span.end.count : run->span.start.count);
        if (!suspect) suspect = lost_before;
        if (lost_before != *suspect) {
            p = b_.blocks.next_free(border);
            continue;
        }
        std::uint64_t most = size.blocks;
        if (lost_before) most = std::min(most, run->last_chance ? 1 : std::max<std::uint64_t>(run->lost_run / 2, 1));
        const std::uint64_t end = b_.blocks.free_run_end(p, std::min(border, p + most));
        spans.push_back(make_span(p, end));
        size.blocks = lost_before && run->last_chance ? 0 : size.blocks - (end - p);
        if (size.blocks == 0 || spans.size() == size.spans) return;
        p = b_.blocks.next_free(end);
    }
}

// --- steal ------------------------------------------------------------------------------------------------------

/// Unreserved tails of other sites' leases, the one that would finish last first.
/// Complexity: O(k log n) for k pieces taken or passed over: the two heaps are walked from the top.
template <class M>
std::vector<events::stolen_tail> basic_table<M>::steal(std::uint32_t site, grant_size size) const {
    struct candidate {
        steal_key key;
        const steal_heap* heap;
        std::size_t index;
    };
    std::vector<candidate> front;
    const auto later = [](const candidate& a, const candidate& b) { return b.key.before(a.key); };
    const double mean = static_cast<double>(mean_rate_micro());
    const auto offer = [&](const steal_heap& heap, std::size_t index) {
        if (index >= heap.size()) return;
        steal_key key = heap.at(index).key;
        if (&heap == &steal_unmeasured_) key.order = key.order * 1e6 / mean;
        front.push_back({key, &heap, index});
        std::push_heap(front.begin(), front.end(), later);
    };
    offer(steal_measured_, 0);
    offer(steal_unmeasured_, 0);
    std::vector<events::stolen_tail> pieces;
    std::optional<bool> suspect;
    while (!front.empty() && size.blocks > 0 && pieces.size() < size.spans) {
        meter::touch();
        std::pop_heap(front.begin(), front.end(), later);
        const candidate c = front.back();
        front.pop_back();
        offer(*c.heap, 2 * c.index + 1);
        offer(*c.heap, 2 * c.index + 2);
        const lease_record& victim = b_.leases[c.heap->at(c.index).slot];
        if (victim.site.count == site) continue;
        const bool lost_before = b_.losses.touches(victim.unread());
        if (!suspect) suspect = lost_before;
        if (lost_before != *suspect) continue;
        const std::uint64_t blocks = std::min(size.blocks, std::max(b_.settings.steal_min_blocks, c.key.tail / 2));
        pieces.push_back({victim.seq, victim.end, position{victim.end.count - blocks}});
        size.blocks -= blocks;
    }
    return pieces;
}

template <class M>
events::granted basic_table<M>::make_grant(const acquire& in, std::uint32_t site, ledger_time now,
                                           const std::vector<span>& spans,
                                           std::vector<events::stolen_tail> steals) const {
    const site_book& s = b_.sites[site];
    const live_site& live = site_live_[site];
    events::granted e;
    e.site = site_number{site};
    e.request_id = in.request_id;
    e.cursor = s.cursor;
    e.leases.reserve(spans.size());
    lease_record lease;
    lease.term = b_.term;
    lease.site = e.site;
    lease.epoch = b_.epoch;
    lease.granted_at = now;
    lease.ttl_ms =
        ttl_ms(b_.settings, claimed_ms(in.report.ttl_s, b_.settings.max_ttl_s), live.macro_step_ms, live.rtt_ms);
    lease.deadline = now + lease.ttl_ms;
    lease.hold_deadline = now + hold_limit_ms(b_.settings, live.macro_step_ms);
    lease.grant = lease_seq{b_.next_seq};
    lease.mode = s.mode;
    lease.stolen = !steals.empty();
    lease.seen_in_term = true;
    for (const span piece : spans) {
        lease.seq = lease_seq{b_.next_seq + e.leases.size()};
        lease.start = piece.start;
        lease.done_end = piece.start;
        lease.reserved_end = s.mode == site_mode::legacy ? piece.end : piece.start;
        lease.end = piece.end;
        e.leases.push_back(lease);
    }
    if (steals.empty()) e.cursor = position{spans.back().end.count % b_.blocks.size()};
    e.steals = std::move(steals);
    return e;
}

// --- nothing to give --------------------------------------------------------------------------------------------

/// A site that keeps giving back waits while another one is told to drain.
template <class M>
bool basic_table<M>::must_stand_back(std::uint32_t site, ledger_time now) const {
    if (b_.sites[site].fruitless < 3 || draining_sites_ == 0) return false;
    for (std::uint32_t n = 0; n < b_.num_sites; ++n)
        if (n != site && b_.sites[n].fruitless < 3 && site_live_[n].last_answer != acquire_reason::none &&
            is_live(site_number{n}, now))
            return true;
    return false;
}

template <class M>
acquire_reply basic_table<M>::nothing_left(std::uint32_t site, ledger_time now) {
    const bool only_pledges = b_.leased == 0 && b_.pledged > 0;
    acquire_reply reply =
        drain_reply(site, now, only_pledges ? acquire_reason::pledges_outstanding : acquire_reason::pool_empty);
    live_site& live = site_live_[site];
    set_last_answer(site, reply.reason);
    if (reply.outstanding_mine == 0) {
        live.draining_since = never_seen;
    } else if (live.draining_since == never_seen) {
        live.draining_since = now;
    } else if (b_.sites[site].mode == site_mode::legacy &&
               now - live.draining_since >= drain_breaker_ms(live.macro_step_ms)) {
        return complete_reply(site, acquire_reason::finish_phase);  // the only word that makes it commit
    }
    return reply;
}

template <class M>
acquire_reply basic_table<M>::drain_reply(std::uint32_t site, ledger_time now, acquire_reason reason) {
    // Renewals leave the heap's keys early; here the next deadline is told, so it must be exact.
    while (!due_.empty() && due_.top().key.at < due_at(due_.top().slot))
        due_.set(due_.top().slot, {due_at(due_.top().slot)});
    const site_book& s = b_.sites[site];
    acquire_reply reply;
    reply.status = acquire_status::drain;
    reply.reason = reason;
    reply.epoch = b_.epoch;
    reply.outstanding_mine = s.held;
    reply.outstanding_others = b_.leased - s.held;
    reply.pledged_mine = s.pledged;
    reply.pledged_others = b_.pledged - s.pledged;
    reply.retry_after_ms = 5000;
    if (const auto wait = next_deadline_in_ms(now))
        reply.retry_after_ms = std::clamp<std::int64_t>(*wait / 3, 1000, 60000);
    if (s.fruitless >= 3) reply.retry_after_ms = std::max<std::int64_t>(reply.retry_after_ms, 30000);
    return reply;
}

template <class M>
acquire_reply basic_table<M>::complete_reply(std::uint32_t site, acquire_reason reason) const {
    acquire_reply reply;
    reply.status = acquire_status::epoch_complete;
    reply.reason = reason;
    reply.epoch = b_.epoch;
    reply.outstanding_mine = b_.sites[site].held;
    reply.outstanding_others = b_.leased - b_.sites[site].held;
    reply.pledged_mine = b_.sites[site].pledged;
    reply.pledged_others = b_.pledged - b_.sites[site].pledged;
    reply.counts = b_.counts();
    reply.quarantined = quarantined();
    return reply;
}

}  // namespace darlcore::lease
