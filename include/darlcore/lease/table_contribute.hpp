// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <utility>

#include "darlcore/lease/table.hpp"

// Commit, pledge and the outcome of merges: how blocks leave leases for good.
namespace darlcore::lease {

/// The runs that these losses would push over a limit. The spans are disjoint.
template <class M>
std::vector<events::quarantined_run> basic_table<M>::preview_losses(
    const std::vector<std::pair<span, site_number>>& lost) const {
    std::vector<events::quarantined_run> runs;
    const settings& rules = b_.settings;
    if (rules.max_attempts == 0) return runs;
    for (const auto& loss : lost) {
        b_.losses.for_pieces(loss.first, [&](const suspect_run& before) {
            suspect_run r = before;
            add_loss(r, loss.second, loss.first.size(), planted(mutant::attempts_per_loss));
            if (!reaches_limit(r, rules.max_attempts, rules.max_losses)) return;
            events::quarantined_run q{r.span, r.losses, {}};
            for (std::size_t i = 0; i < std::min<std::size_t>(r.distinct_sites, suspect_run::sites_max); ++i)
                q.sites.push_back(site_number{r.sites[i]});
            runs.push_back(std::move(q));
        });
    }
    return runs;
}

// --- commit -----------------------------------------------------------------------------------------------------

template <class M>
commit_reply basic_table<M>::make_commit_reply(position end, bool closed, bool late) const {
    return {end, closed, late, b_.blocks.committed_count(), is_complete()};
}

template <class M>
outcome<commit_reply> basic_table<M>::apply(const commit& in, ledger_time now) {
    outcome<commit_reply> out;
    std::uint32_t site = 0;
    if (auto no = check_caller(in.who, site)) return answer(std::move(out), *std::move(no));
    if (b_.settings.commit_policy != commit_policy::on_checkpoint) return refuse(std::move(out), errc::policy);
    expire_due(out, now);
    const found f = find_named(in.lease, site);
    if (f.refused) return refuse(std::move(out), *f.refused);
    if (f.slot == nil) return commit_closed(in, std::move(out), site, f.place, now);
    const lease_record& lease = b_.leases[f.slot];
    position through = in.through;
    if (lease.mode == site_mode::legacy) through = std::min(through, lease.end);
    if (through > lease.reserved_end) return refuse(std::move(out), errc::beyond_reserved);
    touch(site, nullptr, now);
    if (planted(mutant::commit_through_end)) through = lease.end;
    if (through <= lease.done_end) return answer(std::move(out), make_commit_reply(lease.done_end, false, false));
    const bool closes = through == lease.end;
    happen(out,
           events::committed{site_number{site}, lease.seq, lease.done_end, through, false,
                             now + hold_limit_ms(b_.settings, site_live_[site].macro_step_ms)},
           now);
    out.answer = make_commit_reply(through, closes, false);
    return out;
}

/// A repeated closing commit, or late work: the longest prefix of which nothing was given to anybody meanwhile.
template <class M>
outcome<commit_reply> basic_table<M>::commit_closed(const commit& in, outcome<commit_reply>&& out, std::uint32_t site,
                                                    std::uint32_t place, ledger_time now) {
    const closed_lease& c = b_.closed[place];
    const position through = c.mode == site_mode::legacy ? std::min(in.through, c.end) : in.through;
    const bool late = c.reason == close_reason::expired || c.reason == close_reason::taken_over;
    if (!late && (c.reason != close_reason::committed || planted(mutant::closed_commit_is_an_error)))
        return refuse(std::move(out), errc::lease_gone);
    if (through > c.reserved_end) return refuse(std::move(out), errc::beyond_reserved);
    if (through <= c.done_end) {
        touch(site, nullptr, now);
        return answer(std::move(out), make_commit_reply(c.done_end, true, late));
    }
    const position end{b_.blocks.free_run_end(c.done_end.count, through.count)};
    if (end == c.done_end) return refuse(std::move(out), errc::lease_gone);
    touch(site, nullptr, now);
    happen(out, events::committed{site_number{site}, c.seq, c.done_end, end, true, {}}, now);
    return answer(std::move(out), make_commit_reply(end, true, true));
}

// --- pledge -----------------------------------------------------------------------------------------------------

template <class M>
std::optional<std::string_view> basic_table<M>::shape_fault(const pledge& in) {
    if (in.id.text.empty() || in.id.text.size() > 128) return "a contribution id has 1 to 128 bytes";
    if (in.claims.empty() || in.claims.size() > 256) return "a contribution names 1 to 256 leases";
    if (in.fault && !counts_as_attempt(*in.fault)) return "a content fault is not_finite, growth or norm_outlier";
    std::vector<lease_seq> seqs;
    for (const claim& c : in.claims) seqs.push_back(c.lease.seq);
    std::sort(seqs.begin(), seqs.end());
    if (std::adjacent_find(seqs.begin(), seqs.end()) != seqs.end()) return "a contribution names each lease once";
    return std::nullopt;
}

template <class M>
std::optional<pledge_reply> basic_table<M>::answered(const pledge& in, std::uint32_t site) const {
    const auto known = answer_of(site_number{site}, in.id);
    if (!known) return std::nullopt;
    return pledge_reply{known->status, known->blocks, known->base, known->reason, true};
}

template <class M>
std::optional<errc> basic_table<M>::check_claim(const claim& c, std::uint32_t site, pledged_span& taken) const {
    const found f = find_named(c.lease, site);
    if (f.refused) return f.refused;
    const bool open = f.slot != nil;
    if (!open && b_.closed[f.place].reason != close_reason::expired &&
        b_.closed[f.place].reason != close_reason::taken_over)
        return errc::lease_gone;
    const position done_end = open ? b_.leases[f.slot].done_end : b_.closed[f.place].done_end;
    const position reserved_end = open ? b_.leases[f.slot].reserved_end : b_.closed[f.place].reserved_end;
    const bool from_fits = c.from == done_end || planted(mutant::pledge_from_not_compared);
    if (!from_fits || c.through <= done_end) return errc::blocks_lost;
    if (c.through > reserved_end) return errc::beyond_reserved;
    taken = {c.lease.seq, {done_end, c.through}, !open};
    if (open || b_.blocks.all_free(taken.span)) return std::nullopt;
    if (!planted(mutant::late_pledge_with_a_lost_block)) return errc::blocks_lost;
    taken.span.end = position{b_.blocks.free_run_end(done_end.count, c.through.count)};
    return std::nullopt;
}

template <class M>
std::variant<std::vector<pledged_span>, errc> basic_table<M>::check_claims(const pledge& in, std::uint32_t site) const {
    std::vector<pledged_span> spans(in.claims.size());
    for (std::size_t i = 0; i < in.claims.size(); ++i)
        if (const auto refused = check_claim(in.claims[i], site, spans[i])) return *refused;
    // Two leases that are both long closed may have held the same blocks one after the other.
    std::vector<span> late;
    for (const pledged_span& p : spans)
        if (p.late) late.push_back(p.span);
    std::sort(late.begin(), late.end());
    for (std::size_t i = 1; i < late.size(); ++i)
        if (late[i].start < late[i - 1].end) return errc::blocks_lost;
    return spans;
}

template <class M>
outcome<pledge_reply> basic_table<M>::apply(const pledge& in, ledger_time now) {
    outcome<pledge_reply> out;
    std::uint32_t site = 0;
    if (const auto fault = shape_fault(in)) return refuse(std::move(out), errc::bad_request, *fault);
    if (auto no = check_caller(in.who, site)) return answer(std::move(out), *std::move(no));
    if (b_.settings.commit_policy != commit_policy::on_merge) return refuse(std::move(out), errc::policy);
    if (const auto known = answered(in, site)) {
        touch(site, nullptr, now);
        return answer(std::move(out), *known);
    }
    for (const site_number n : b_.pledging)
        if (b_.pledges[n.count].get()->id == in.id)
            return refuse(std::move(out), errc::bad_request,
                          "this contribution id is taken by another site: choose a unique one");
    expire_due(out, now);
    if (in.base != b_.generation) return refuse(std::move(out), errc::stale_generation);
    if (const auto* answers = b_.answers[site].get())
        for (const contribution_answer& a : *answers)
            if (a.base == in.base) return refuse(std::move(out), errc::already_contributed);
    auto checked = check_claims(in, site);
    if (const auto* code = std::get_if<errc>(&checked)) return refuse(std::move(out), *code);
    auto& spans = std::get<0>(checked);
    touch(site, nullptr, now);
    const ledger_time hold = now + hold_limit_ms(b_.settings, site_live_[site].macro_step_ms);
    pledge_reply reply;
    reply.base = in.base;
    for (const pledged_span& p : spans) reply.blocks += p.span.size();
    if (!in.fault) {
        happen(out, events::pledged{site_number{site}, in.id, in.base, std::move(spans), hold}, now);
        return answer(std::move(out), reply);
    }
    std::vector<std::pair<span, site_number>> lost;
    for (const pledged_span& p : spans) lost.emplace_back(p.span, site_number{site});
    auto quarantined_runs = preview_losses(lost);
    happen(out,
           events::contribution_rejected{site_number{site}, in.id, in.base, *in.fault, std::move(spans),
                                         std::move(quarantined_runs), hold},
           now);
    reply.status = contribution_status::rejected;
    reply.reason = *in.fault;
    return answer(std::move(out), reply);
}

// --- the outcome of a merge -------------------------------------------------------------------------------------

template <class M>
std::variant<std::optional<events::resolved>, refusal> basic_table<M>::decide(const resolve& in) const {
    const auto no = [](errc code, std::string_view text) { return refusal{code, std::string(text), 0, std::nullopt}; };
    if (b_.settings.commit_policy != commit_policy::on_merge) return no(errc::policy, explain(errc::policy));
    if (in.base < b_.generation && !planted(mutant::stale_resolve_accepted)) return std::nullopt;
    if (in.base > b_.generation) return no(errc::stale_generation, "this generation has not been reached yet");
    std::vector<contribution_id> named = in.merged;
    for (const auto& r : in.rejected) named.push_back(r.id);
    std::sort(named.begin(), named.end());
    if (std::adjacent_find(named.begin(), named.end()) != named.end())
        return no(errc::bad_request, "a contribution is named twice");
    std::vector<std::pair<span, site_number>> lost;
    std::size_t open = 0;
    for (const site_number n : b_.pledging) {
        const contribution& pledge = *b_.pledges[n.count].get();
        if (!std::binary_search(named.begin(), named.end(), pledge.id)) continue;
        ++open;
        for (const auto& r : in.rejected)
            if (r.id == pledge.id && counts_as_attempt(r.reason))
                for (const pledged_span& p : pledge.spans) lost.emplace_back(p.span, n);
    }
    if (open == 0 && in.merged.empty()) return std::nullopt;  // these rejections have been done
    if (open != named.size()) return no(errc::bad_request, "a contribution is named that does not wait for this merge");
    if (!in.merged.empty() && open != b_.pledging.size())
        return no(errc::bad_request, "every waiting contribution must be merged or rejected");
    return events::resolved{in.base, in.merged, in.rejected, preview_losses(lost)};
}

template <class M>
outcome<resolve_reply> basic_table<M>::apply(const resolve& in, ledger_time now) {
    outcome<resolve_reply> out;
    expire_due(out, now);
    auto decided = decide(in);
    if (auto* no = std::get_if<refusal>(&decided)) return answer(std::move(out), std::move(*no));
    auto& e = std::get<0>(decided);
    resolve_reply reply;
    if (e) {
        const block_counts before = b_.counts();
        happen(out, std::move(*e), now);
        reply.committed = b_.blocks.committed_count() - before.committed;
        reply.returned = before.pledged - b_.pledged - reply.committed;
    } else {
        reply.repeated = true;
    }
    reply.generation = b_.generation;
    return answer(std::move(out), reply);
}

}  // namespace darlcore::lease
