// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "darlcore/testing/lease_twin_world.hpp"

namespace darlcore::testing::detail {

/// The twin's answers to register and acquire.
struct lease_twin_grants : lease_twin_world {
    using lease_twin_world::lease_twin_world;

    lease::registered_reply run(const lease::register_site& in) {
        if (!is_valid_name(in.who.site.name)) throw errc::bad_request;
        const bool legacy = in.mode == lease::site_mode::legacy;
        if (!legacy && in.who.incarnation.is_none()) throw errc::bad_request;
        if (legacy && rules_.commit_policy == lease::commit_policy::on_merge) throw errc::policy;
        if (!in.corpus.empty() && !corpus_.empty() && in.corpus != corpus_) throw errc::corpus_mismatch;
        expire();
        std::uint32_t n = 0;
        while (n < sites_.size() && sites_[n].name != in.who.site.name) ++n;
        const bool known = n < sites_.size();
        const bool same = known && sites_[n].process == in.who.incarnation;
        if (same && sites_[n].mode != in.mode) throw errc::bad_request;
        if (known && !same) {
            if (sites_[n].gone.count(in.who.incarnation) != 0) throw errc::fenced;
            if (in.take_over ? *in.take_over != sites_[n].process : is_live(n)) throw errc::cluster_busy;
        }
        if (!known && n >= rules_.max_sites) throw errc::overloaded;
        if (corpus_.empty()) corpus_ = in.corpus;
        if (!known) sites_.emplace_back().name = in.who.site.name;
        site& s = sites_[n];
        if (known && !same) {
            for (auto& [seq, l] : leases_)
                if (!l.closed && l.r.site.count == n) drop(l, close_reason::taken_over);
            if (!s.process.is_none()) s.gone.insert(s.process);
            ++s.processes;
            s.draining = never;
            s.answer = lease::acquire_reason::none;
        }
        if (!same || s.ranks != in.ranks) seen(n);
        s.process = in.who.incarnation;
        s.mode = in.mode;
        s.ranks = in.ranks;
        touch(n);
        return {lease::site_number{n}, s.process, s.processes, count(block_state::committed), epoch_, known && !same};
    }

    // --- acquire -------------------------------------------------------------------------------------------------
    lease::acquire_reply nothing(std::uint32_t n, lease::acquire_status status, lease::acquire_reason reason) {
        lease::acquire_reply r;
        r.status = status;
        r.reason = reason;
        r.epoch = epoch_;
        r.outstanding_mine = held(n);
        r.outstanding_others = count(block_state::leased) - held(n);
        r.pledged_mine = pledged(n);
        r.pledged_others = count(block_state::pledged) - pledged(n);
        if (status == lease::acquire_status::epoch_complete) {
            r.counts = {count(block_state::unassigned), count(block_state::leased), count(block_state::pledged),
                        count(block_state::committed), count(block_state::quarantined)};
            for (std::uint64_t p = 0; p < blocks_.size(); ++p) {
                if (blocks_[p].state != block_state::quarantined) continue;
                if (!r.quarantined.empty() && r.quarantined.back().end.count == p)
                    ++r.quarantined.back().end.count;
                else
                    r.quarantined.push_back(make_span(p, p + 1));
            }
            return r;
        }
        r.retry_after_ms = 5000;
        std::optional<std::int64_t> wait;
        for (const auto& [seq, l] : leases_)
            if (!l.closed) wait = std::min(wait.value_or(INT64_MAX), std::min(l.r.deadline, l.r.hold_deadline) - now_);
        if (wait) r.retry_after_ms = std::clamp<std::int64_t>(*wait / 3, 1000, 60000);
        if (sites_[n].fruitless >= 3) r.retry_after_ms = std::max<std::int64_t>(r.retry_after_ms, 30000);
        if (reason == lease::acquire_reason::answered_before) r.retry_after_ms = 0;
        return r;
    }
    lease::acquire_reply again(std::uint32_t n, const std::vector<lease_seq>& seqs) {
        lease::acquire_reply r;
        for (const lease_seq seq : seqs)
            if (const auto it = leases_.find(seq.count); it != leases_.end() && !it->second.closed)
                r.leases.push_back(it->second.r);
        if (r.leases.empty()) return nothing(n, lease::acquire_status::drain, lease::acquire_reason::answered_before);
        r.status = lease::acquire_status::granted;
        r.epoch = epoch_;
        return r;
    }
    std::uint64_t wanted(const lease::acquire& in, std::uint32_t n) {
        const site& s = sites_[n];
        const std::uint64_t free = count(block_state::unassigned);
        std::uint64_t r = std::max(rules_.min_blocks, std::min<std::uint64_t>(in.want, blocks_.size()));
        if (!s.ever_counted)
            r = std::max(rules_.min_blocks,
                         static_cast<std::uint64_t>(static_cast<double>(r) * rules_.first_grant_fraction));
        if (rules_.max_blocks != 0) r = std::min(r, rules_.max_blocks);
        if (s.fruitless >= 3) r = rules_.min_blocks;
        std::uint64_t live = 0, rates = 0;
        for (std::uint32_t i = 0; i < sites_.size(); ++i) {
            if (!is_live(i)) continue;
            ++live;
            rates += rate_of(i);
        }
        if (free == 0 || r <= free / live) return r;
        const auto share = static_cast<std::uint64_t>(static_cast<double>(free) * static_cast<double>(rate_of(n)) /
                                                      static_cast<double>(rates));
        return std::max(rules_.min_blocks,
                        std::min(r, std::max(share, std::max(rules_.min_blocks, free / (4 * live)))));
    }
    std::vector<span> take(std::uint32_t n, std::uint64_t r, std::uint64_t spans_max) {
        std::vector<span> spans;
        std::optional<bool> kind;
        const auto walk = [&](std::uint64_t p, std::uint64_t end) {
            while (p < end && r > 0 && spans.size() < spans_max) {
                const block& first = blocks_[p];
                const bool suspect = first.past.losses > 0;
                if (first.state != block_state::unassigned || (kind && *kind != suspect)) {
                    ++p;
                    continue;
                }
                kind = suspect;
                std::uint64_t most = r;
                if (suspect) most = std::min(r, std::max<std::uint64_t>(first.past.lost_run / 2, 1));
                if (first.past.last_chance) most = 1;
                std::uint64_t q = p;
                while (q < end && q - p < most && blocks_[q].state == block_state::unassigned &&
                       blocks_[q].past == first.past)
                    ++q;
                spans.push_back(make_span(p, q));
                r = first.past.last_chance ? 0 : r - (q - p);
                p = q;
            }
        };
        walk(sites_[n].cursor, blocks_.size());
        walk(0, sites_[n].cursor);
        return spans;
    }
    std::vector<std::pair<std::uint64_t, span>> steal(std::uint32_t n, std::uint64_t r, std::uint64_t spans_max) {
        std::vector<const held_lease*> all_of_them;
        for (const auto& [seq, l] : leases_)
            if (!l.closed && l.r.site.count != n && l.r.mode == lease::site_mode::full &&
                l.r.unread().size() >= 2 * rules_.steal_min_blocks)
                all_of_them.push_back(&l);
        const auto finish = [&](const held_lease* l) {
            return static_cast<double>(l->r.at_risk().size()) * 1e6 / static_cast<double>(rate_of(l->r.site.count));
        };
        std::stable_sort(all_of_them.begin(), all_of_them.end(), [&](const held_lease* a, const held_lease* b) {
            if (finish(a) != finish(b)) return finish(a) > finish(b);
            return a->r.unread().size() > b->r.unread().size();
        });
        std::vector<std::pair<std::uint64_t, span>> pieces;
        std::optional<bool> kind;
        for (const held_lease* l : all_of_them) {
            if (r == 0 || pieces.size() >= spans_max) break;
            const bool suspect = blocks_[l->r.reserved_end.count].past.losses > 0;
            if (kind.value_or(suspect) != suspect) continue;
            kind = suspect;
            const std::uint64_t k = std::min(r, std::max(rules_.steal_min_blocks, l->r.unread().size() / 2));
            pieces.emplace_back(l->r.seq.count, make_span(l->r.end.count - k, l->r.end.count));
            r -= k;
        }
        return pieces;
    }
    lease::acquire_reply run(const lease::acquire& in) {
        if (in.max_spans < 1 || in.max_spans > 64 || in.request_id.size() > 64) throw errc::bad_request;
        const std::uint32_t n = check_caller(in.who);
        expire();
        for (const auto& [id, seqs] : sites_[n].requests) {
            if (id != in.request_id || id.empty()) continue;
            touch(n, in.report);
            return again(n, seqs);
        }
        if (open_leases(n) >= rules_.max_leases_per_site) throw errc::overloaded;
        touch(n, in.report);
        if (second_chance_open() && count(block_state::committed) + count(block_state::quarantined) == blocks_.size()) {
            for (block& b : blocks_) {
                if (b.state != block_state::quarantined) continue;
                b.state = block_state::unassigned;
                b.past.last_chance = true;
            }
            chance_used_ = true;
        }
        if (complete()) {
            if (epoch_.count + 1 >= rules_.max_epochs)
                return nothing(n, lease::acquire_status::epoch_complete, lease::acquire_reason::complete);
            next_epoch();
        }
        site& s = sites_[n];
        for (std::uint32_t i = 0; i < sites_.size() && s.fruitless >= 3; ++i)
            if (i != n && sites_[i].fruitless < 3 && sites_[i].answer != lease::acquire_reason::none && is_live(i))
                return nothing(n, lease::acquire_status::drain, lease::acquire_reason::after_others);
        const std::uint64_t spans_max =
            std::min<std::uint64_t>(in.max_spans, rules_.max_leases_per_site - open_leases(n));
        std::vector<span> spans = take(n, wanted(in, n), spans_max);
        const bool stolen = spans.empty() && rules_.allow_stealing;
        std::vector<std::pair<std::uint64_t, span>> pieces;
        if (stolen) pieces = steal(n, wanted(in, n), spans_max);
        for (const auto& piece : pieces) spans.push_back(piece.second);
        if (spans.empty()) return drained(n);
        seen(n);
        before_work(n);
        const std::uint64_t before = reserved(n);
        for (const auto& [victim, piece] : pieces) leases_.at(victim).r.end = piece.start;
        lease::acquire_reply reply;
        for (const span piece : spans) reply.leases.push_back(open_lease(in, n, piece, stolen, reply.leases.size()));
        if (!stolen) s.cursor = spans.back().end.count % blocks_.size();
        if (!in.request_id.empty()) {
            s.requests.emplace_back(in.request_id, std::vector<lease_seq>());
            for (const auto& l : reply.leases) s.requests.back().second.push_back(l.seq);
            if (s.requests.size() > rules_.request_ring) s.requests.erase(s.requests.begin());
        }
        s.draining = never;
        s.answer = lease::acquire_reason::none;
        after_change(n, before);
        reply.status = lease::acquire_status::granted;
        reply.epoch = epoch_;
        if (s.fruitless >= 3) reply.retry_after_ms = 30000;
        return reply;
    }
    lease_record open_lease(const lease::acquire& in, std::uint32_t n, span piece, bool stolen, std::size_t index) {
        const site& s = sites_[n];
        held_lease l;
        lease_record& r = l.r;
        r.seq = lease_seq{next_seq_++};
        r.grant = lease_seq{r.seq.count - index};
        r.term = term_;
        r.site = lease::site_number{n};
        r.epoch = epoch_;
        r.start = r.done_end = r.reserved_end = piece.start;
        r.end = piece.end;
        r.mode = s.mode;
        if (s.mode == lease::site_mode::legacy) r.reserved_end = r.end;
        r.granted_at = now_;
        r.ttl_ms =
            lease::ttl_ms(rules_, lease::claimed_ms(in.report.ttl_s, rules_.max_ttl_s), s.live.macro, s.live.rtt);
        r.deadline = now_ + r.ttl_ms;
        r.hold_deadline = hold(n);
        r.stolen = stolen;
        r.seen_in_term = true;
        l.written = r.deadline;
        l.written_ttl = r.ttl_ms;
        set(piece, block_state::leased);
        leases_[r.seq.count] = l;
        return r;
    }
    lease::acquire_reply drained(std::uint32_t n) {
        site& s = sites_[n];
        const bool only_pledges = open_leases() == 0 && count(block_state::pledged) > 0;
        s.answer = only_pledges ? lease::acquire_reason::pledges_outstanding : lease::acquire_reason::pool_empty;
        if (held(n) == 0) {
            s.draining = never;
        } else if (s.draining == never) {
            s.draining = now_;
        } else if (s.mode == lease::site_mode::legacy && now_ - s.draining >= lease::drain_breaker_ms(s.live.macro)) {
            return nothing(n, lease::acquire_status::epoch_complete, lease::acquire_reason::finish_phase);
        }
        return nothing(n, lease::acquire_status::drain, s.answer);
    }
};

}  // namespace darlcore::testing::detail
