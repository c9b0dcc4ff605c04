// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "darlcore/testing/lease_twin_grants.hpp"

namespace darlcore::testing {

/// The lease table once more, plain and slow: one state per block, everything else found by looking at everything.
/// The oracle of the property tests: same requests, same replies, refusals equal by code.
/// Complexity: O(M + leases) per request.
class lease_twin : private detail::lease_twin_grants {
public:
    lease_twin(std::uint64_t num_blocks, lease::settings rules) : lease_twin_grants(num_blocks, rules) {}

    template <class Request>
    std::variant<lease::reply_t<Request>, lease::refusal> apply(const Request& in, ledger_time now) {
        now_ = now;
        try {
            return run(in);
        } catch (const errc code) {
            lease::refusal no;
            no.code = code;
            return no;
        }
    }
    [[nodiscard]] lease::block_state state_of(std::uint64_t p) const { return blocks_[p].state; }
    [[nodiscard]] std::uint64_t rate_micro(std::size_t index) const { return sites_[index].rate; }
    [[nodiscard]] darlcore::generation generation() const { return generation_; }

private:
    using detail::lease_twin_grants::run;

    // --- reserve, heartbeat, commit ------------------------------------------------------------------------------
    void raise(held_lease& l, position through) {
        const position end = std::max(l.r.reserved_end, std::min(through, l.r.end));
        if (end == l.r.reserved_end) return;
        const std::uint32_t n = l.r.site.count;
        seen(n);
        before_work(n);
        const std::uint64_t before = reserved(n);
        l.r.reserved_end = end;
        l.r.hold_deadline = hold(n);
        l.r.seen_in_term = true;
        after_change(n, before);
    }
    lease::reserve_reply run(const lease::reserve& in) {
        const std::uint32_t n = check_caller(in.who);
        expire();
        held_lease& l = open(in.lease, n);
        touch(n);
        raise(l, in.through);
        return {l.r.reserved_end, l.r.end};
    }
    lease::heartbeat_reply run(const lease::heartbeat& in) {
        if (in.leases.size() > 256) throw errc::bad_request;
        const std::uint32_t n = check_caller(in.who);
        expire();
        touch(n, in.report);
        const said& live = sites_[n].live;
        lease::heartbeat_reply reply;
        reply.ttl_ms =
            lease::ttl_ms(rules_, lease::claimed_ms(in.report.ttl_s, rules_.max_ttl_s), live.macro, live.rtt);
        for (const lease::beat& b : in.leases) {
            lease::beat_reply r;
            r.lease = b.lease;
            try {
                held_lease& l = open(b.lease, n);
                if (now_ + reply.ttl_ms > l.r.deadline) {
                    l.r.deadline = now_ + reply.ttl_ms;
                    l.r.ttl_ms = reply.ttl_ms;
                }
                l.beaten = true;
                if (b.reserve_through) raise(l, *b.reserve_through);
                r = {b.lease, true, errc::lease_gone, l.r.end, l.r.done_end, l.r.reserved_end};
            } catch (const errc code) {
                r.reason = code;
            }
            reply.leases.push_back(r);
        }
        reply.epoch_complete = complete();
        return reply;
    }
    lease::commit_reply run(const lease::commit& in) {
        const std::uint32_t n = check_caller(in.who);
        if (rules_.commit_policy != lease::commit_policy::on_checkpoint) throw errc::policy;
        expire();
        held_lease& l = named(in.lease, n);
        const position through = l.r.mode == lease::site_mode::legacy ? std::min(in.through, l.r.end) : in.through;
        const bool late = l.closed && *l.closed != close_reason::committed;
        if (l.closed == close_reason::pledged || l.closed == close_reason::rejected) throw errc::lease_gone;
        if (through > l.r.reserved_end) throw errc::beyond_reserved;
        position end = l.r.done_end;
        while (end < through && (!late || blocks_[end.count].state == block_state::unassigned)) ++end.count;
        if (late && end == l.r.done_end && through > end) throw errc::lease_gone;
        touch(n);
        const span done{l.r.done_end, end};
        if (!done.empty()) {
            seen(n);
            sites_[n].fruitless = 0;
            sites_[n].ever_counted = true;
            const std::uint64_t before = reserved(n);
            set(done, block_state::committed);
            forget(done);
            if (late) {
                l.r.done_end = end;
            } else {
                contributed(n, done.size());
                advance_done_end(l, end, hold(n));
                if (end == l.r.end) l.closed = close_reason::committed;
                after_change(n, before);
            }
        }
        return {l.r.done_end, l.closed.has_value(), late, count(block_state::committed), complete()};
    }

    // --- pledge and merge ----------------------------------------------------------------------------------------
    lease::pledge_reply run(const lease::pledge& in) {
        std::set<lease_seq> seqs;
        for (const lease::claim& c : in.claims) seqs.insert(c.lease.seq);
        if (in.id.text.empty() || in.id.text.size() > 128 || in.claims.empty() || in.claims.size() > 256 ||
            seqs.size() != in.claims.size() || (in.fault && !lease::counts_as_attempt(*in.fault)))
            throw errc::bad_request;
        const std::uint32_t n = check_caller(in.who);
        if (rules_.commit_policy != lease::commit_policy::on_merge) throw errc::policy;
        site& s = sites_[n];
        if (const auto it = s.answers.find(in.id.text); it != s.answers.end()) {
            touch(n);
            lease::pledge_reply r = it->second;
            r.repeated = true;
            return r;
        }
        for (const site& other : sites_)
            if (other.pledged && other.pledged->id == in.id) throw errc::bad_request;
        expire();
        if (in.base != generation_) throw errc::stale_generation;
        for (const auto& [id, a] : s.answers)
            if (a.base == in.base) throw errc::already_contributed;
        std::vector<span> spans;
        std::set<std::uint64_t> late;
        for (const lease::claim& c : in.claims) {
            const held_lease& l = named(c.lease, n);
            if (l.closed && l.closed != close_reason::expired && l.closed != close_reason::taken_over)
                throw errc::lease_gone;
            if (c.from != l.r.done_end || c.through <= c.from) throw errc::blocks_lost;
            if (c.through > l.r.reserved_end) throw errc::beyond_reserved;
            spans.push_back({c.from, c.through});
            if (l.closed && !all(spans.back(), block_state::unassigned)) throw errc::blocks_lost;
        }
        for (std::size_t i = 0; i < spans.size(); ++i)
            if (leases_.at(in.claims[i].lease.seq.count).closed)
                for (position p = spans[i].start; p < spans[i].end; ++p.count)
                    if (!late.insert(p.count).second) throw errc::blocks_lost;
        return accept(in, n, spans);
    }
    lease::pledge_reply accept(const lease::pledge& in, std::uint32_t n, const std::vector<span>& spans) {
        site& s = sites_[n];
        touch(n);
        seen(n);
        const std::uint64_t before = reserved(n);
        lease::pledge_reply reply;
        reply.base = in.base;
        std::uint64_t busy = 0, grant = 0;
        for (std::size_t i = 0; i < spans.size(); ++i) {
            held_lease& l = leases_.at(in.claims[i].lease.seq.count);
            reply.blocks += spans[i].size();
            busy += l.closed ? 0 : spans[i].size();
            const std::uint64_t useful = s.useful;
            if (l.closed)
                l.r.done_end = spans[i].end;
            else
                advance_done_end(l, spans[i].end, hold(n));
            if (in.fault) s.useful = useful;
            if (!l.closed) grant = std::max(grant, l.r.grant.count);
            if (!in.fault && l.closed) forget(spans[i]);
            if (!l.closed && l.r.done_end == l.r.end)
                l.closed = in.fault ? close_reason::rejected : close_reason::pledged;
            set(spans[i], in.fault ? block_state::unassigned : block_state::pledged);
            if (in.fault) lose(spans[i], n);
        }
        if (in.fault) {
            reply.status = lease::contribution_status::rejected;
            reply.reason = *in.fault;
            fruitless(n, grant);
        } else {
            contributed(n, busy);
            s.pledged = in;
            s.pledged_spans = spans;
        }
        for (auto it = s.answers.begin(); it != s.answers.end();)
            it = it->second.base.count + rules_.answer_generations < generation_.count ? s.answers.erase(it) : ++it;
        s.answers[in.id.text] = reply;
        after_change(n, before);
        return reply;
    }
    lease::resolve_reply run(const lease::resolve& in) {
        expire();
        if (rules_.commit_policy != lease::commit_policy::on_merge) throw errc::policy;
        lease::resolve_reply reply;
        reply.generation = generation_;
        reply.repeated = true;
        if (in.base < generation_) return reply;
        if (in.base > generation_) throw errc::stale_generation;
        std::map<std::string, std::optional<errc>> named;
        for (const auto& id : in.merged) named[id.text] = std::nullopt;
        for (const auto& r : in.rejected) named[r.id.text] = r.reason;
        if (named.size() != in.merged.size() + in.rejected.size()) throw errc::bad_request;
        std::size_t waiting = 0, known = 0;
        for (const site& s : sites_) {
            waiting += s.pledged ? 1U : 0U;
            known += s.pledged && named.count(s.pledged->id.text) != 0 ? 1U : 0U;
        }
        if (known == 0 && in.merged.empty()) return reply;
        if (known != named.size() || (!in.merged.empty() && known != waiting)) throw errc::bad_request;
        reply.repeated = false;
        for (std::uint32_t n = 0; n < sites_.size(); ++n) {
            site& s = sites_[n];
            if (!s.pledged || named.count(s.pledged->id.text) == 0) continue;
            const auto reason = named.at(s.pledged->id.text);
            lease::pledge_reply& a = s.answers[s.pledged->id.text];
            for (const span p : s.pledged_spans) {
                set(p, reason ? block_state::unassigned : block_state::committed);
                if (!reason)
                    forget(p);
                else if (lease::counts_as_attempt(*reason))
                    lose(p, n);
                (reason ? reply.returned : reply.committed) += p.size();
            }
            a.status = reason ? lease::contribution_status::rejected : lease::contribution_status::merged;
            if (reason) a.reason = *reason;
            s.fruitless = reason ? s.fruitless + 1 : 0;
            s.pledged.reset();
            s.pledged_spans.clear();
        }
        if (!in.merged.empty()) ++generation_.count;
        reply.generation = generation_;
        return reply;
    }

    // --- the rest ------------------------------------------------------------------------------------------------
    lease::release_reply run(const lease::release& in) {
        std::uint32_t n = 0;
        try {
            n = check_caller(in.who);
        } catch (const errc code) {
            if (code == errc::unknown_site || (code == errc::fenced && !in.lease)) return {};
            throw;
        }
        expire();
        std::vector<held_lease*> chosen;
        if (in.lease) {
            try {
                held_lease& l = named(*in.lease, n);
                touch(n);
                if (!l.closed) chosen.push_back(&l);
            } catch (const errc code) {
                if (code != errc::lease_gone) throw;
                touch(n);
            }
        } else {
            for (auto& [seq, l] : leases_)
                if (!l.closed && l.r.site.count == n) chosen.push_back(&l);
        }
        lease::release_reply reply;
        const std::uint64_t before = reserved(n);
        for (held_lease* l : chosen) {
            const span back{in.keep_reserved ? l->r.reserved_end : l->r.done_end, l->r.end};
            if (back.empty()) continue;
            set(back, block_state::unassigned);
            reply.released += back.size();
            l->r.end = back.start;
            l->r.reserved_end = std::min(l->r.reserved_end, back.start);
            if (l->r.end > l->r.done_end) continue;
            l->closed = close_reason::released;
            fruitless(n, l->r.grant.count);
        }
        if (reply.released > 0) seen(n);
        after_change(n, before);
        if (!in.lease) sites_[n].live.seen = sites_[n].written.seen = never;
        return reply;
    }
    lease::expire_reply run(const lease::expire&) {
        const std::uint64_t before = open_leases();
        expire();
        return {before - open_leases()};
    }
    lease::advance_reply run(const lease::advance_epoch& in) {
        if (in.from && *in.from < epoch_) return {false, epoch_};
        if (in.from && *in.from > epoch_) throw errc::epoch_incomplete;
        expire();
        if (epoch_.count + 1 >= rules_.max_epochs || count(block_state::pledged) > 0 || (!in.force && !complete()))
            throw errc::epoch_incomplete;
        next_epoch();
        return {true, epoch_};
    }
    lease::tick_reply run(const lease::tick&) {
        expire();
        for (auto& [seq, l] : leases_) {
            l.written = l.r.deadline;
            l.written_ttl = l.r.ttl_ms;
            l.r.seen_in_term = l.r.seen_in_term || l.beaten;
            l.beaten = false;
        }
        for (site& s : sites_)
            if (s.live.seen != never) s.written = s.live;
        return {};
    }
    lease::restart_reply run(const lease::restart& in) {
        if (in.term <= term_) throw errc::bad_request;
        term_ = in.term;
        lease::restart_reply reply;
        for (auto& [seq, l] : leases_) {
            const ledger_time grace = now_ + lease::setting_ms(rules_.grace_s);
            if (!l.closed && l.r.seen_in_term && grace > l.written) {
                l.written = grace;
                ++reply.extended;
            }
            l.r.deadline = l.written;
            l.r.ttl_ms = l.written_ttl;
            l.r.seen_in_term = l.beaten = false;
        }
        for (site& s : sites_) {
            s.live = s.written;
            s.draining = never;
            s.answer = lease::acquire_reason::none;
        }
        return reply;
    }
};

}  // namespace darlcore::testing
