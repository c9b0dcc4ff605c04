// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>

#include "darlcore/lease/table.hpp"

// Replay: an event from a journal is checked against the state, then installed. Nothing is decided.
namespace darlcore::lease {

template <class M>
result<void> basic_table<M>::replay(const event& e, ledger_time at) {
    begin(at);
    return std::visit(
        [&](const auto& inner) -> result<void> {
            if (const auto fault = misfit(inner))
                return fail(errc::corrupt, "an event does not fit the state: " + std::string(*fault));
            install(inner, at);
            return {};
        },
        e);
}

template <class M>
std::optional<std::string_view> basic_table<M>::lost_misfit(const std::vector<events::lost_lease>& lost) const {
    std::vector<lease_seq> seqs;
    for (const auto& l : lost) {
        const std::uint32_t slot = open_index_.find(l.lease.count);
        if (slot == nil) return "a lost lease is not open";
        const lease_record& r = b_.leases[slot];
        if (r.site != l.site || r.done_end != l.done_end || r.reserved_end != l.reserved_end || r.end != l.end)
            return "a lost lease has other watermarks";
        seqs.push_back(l.lease);
    }
    std::sort(seqs.begin(), seqs.end());
    if (std::adjacent_find(seqs.begin(), seqs.end()) != seqs.end()) return "a lease is lost twice";
    return std::nullopt;
}

/// Quarantined runs must be among the blocks that the event returns; `returned` is disjoint.
template <class M>
std::optional<std::string_view> basic_table<M>::quarantine_misfit(const std::vector<events::quarantined_run>& runs,
                                                                  std::vector<span> returned) const {
    std::sort(returned.begin(), returned.end());
    std::vector<span> asides;
    for (const auto& q : runs) {
        if (q.span.end <= q.span.start) return "an empty quarantined run";
        const auto it = std::find_if(returned.begin(), returned.end(),
                                     [&](span s) { return s.start <= q.span.start && q.span.end <= s.end; });
        if (it == returned.end()) return "a quarantined run was not lost";
        asides.push_back(q.span);
    }
    std::sort(asides.begin(), asides.end());
    for (std::size_t i = 1; i < asides.size(); ++i)
        if (asides[i].start < asides[i - 1].end) return "quarantined runs overlap";
    return std::nullopt;
}

/// Spans of a contribution: what they leave must be there, and no lease is named twice.
template <class M>
std::optional<std::string_view> basic_table<M>::spans_misfit(const std::vector<pledged_span>& spans,
                                                             site_number site) const {
    std::vector<lease_seq> seqs;
    std::vector<span> late;
    for (const pledged_span& p : spans) {
        if (p.span.end <= p.span.start || p.span.end.count > b_.blocks.size()) return "a span is empty or out of range";
        seqs.push_back(p.lease);
        if (p.late) {
            const std::uint32_t place = closed_index_.find(p.lease.count);
            if (place == nil || b_.closed[place].site != site || b_.closed[place].done_end != p.span.start ||
                p.span.end > b_.closed[place].reserved_end)
                return "late work of a lease that is not remembered so";
            if (!b_.blocks.all_free(p.span)) return "late work on blocks that are not free";
            late.push_back(p.span);
            continue;
        }
        const std::uint32_t slot = open_index_.find(p.lease.count);
        if (slot == nil || b_.leases[slot].site != site) return "a lease is not open or of another site";
        if (b_.leases[slot].done_end != p.span.start || p.span.end > b_.leases[slot].reserved_end)
            return "a span does not lie between done_end and reserved_end";
    }
    std::sort(seqs.begin(), seqs.end());
    if (spans.empty() || std::adjacent_find(seqs.begin(), seqs.end()) != seqs.end()) return "leases of a contribution";
    std::sort(late.begin(), late.end());
    for (std::size_t i = 1; i < late.size(); ++i)
        if (late[i].start < late[i - 1].end) return "late spans overlap";
    return std::nullopt;
}

template <class M>
std::optional<std::string_view> basic_table<M>::misfit(const events::registered& e) const {
    if (e.site.count > b_.num_sites || e.site.count >= b_.settings.max_sites) return "site number";
    const auto known = find_site(e.name.name);
    if (!is_valid_name(e.name.name) || known != (is_unknown(e.site) ? std::nullopt : std::optional(e.site)))
        return "site name";
    if (known && b_.sites[e.site.count].incarnation != e.incarnation) return "incarnation of a known site";
    return std::nullopt;
}

template <class M>
std::optional<std::string_view> basic_table<M>::misfit(const events::superseded& e) const {
    if (is_unknown(e.site) || b_.sites[e.site.count].incarnation != e.before) return "process to supersede";
    if (const auto fault = lost_misfit(e.lost)) return fault;
    if (e.lost.size() != site_live_[e.site.count].open_leases) return "leases of the superseded process";
    std::vector<span> returned;
    for (const auto& l : e.lost) {
        if (l.site != e.site) return "a lease of another site";
        returned.push_back({l.done_end, l.end});
    }
    return quarantine_misfit(e.quarantined, std::move(returned));
}

template <class M>
std::optional<std::string_view> basic_table<M>::misfit(const events::corpus_pinned& e) const {
    if (!b_.corpus.empty() || e.corpus.empty()) return "corpus is pinned once";
    return std::nullopt;
}

template <class M>
std::optional<std::string_view> basic_table<M>::misfit(const events::reserved& e) const {
    const std::uint32_t slot = open_index_.find(e.lease.count);
    if (slot == nil || b_.leases[slot].site != e.site) return "a lease is not open or of another site";
    const lease_record& l = b_.leases[slot];
    if (l.reserved_end != e.old_reserved_end || e.reserved_end <= l.reserved_end || e.reserved_end > l.end ||
        e.hold_deadline < l.granted_at)
        return "reserved watermark";
    return std::nullopt;
}

template <class M>
std::optional<std::string_view> basic_table<M>::misfit(const events::committed& e) const {
    if (is_unknown(e.site) || b_.settings.commit_policy != commit_policy::on_checkpoint) return "commit policy";
    if (!e.late && open_index_.find(e.lease.count) != nil &&
        e.hold_deadline < b_.leases[open_index_.find(e.lease.count)].granted_at)
        return "hold deadline";
    return spans_misfit({{e.lease, {e.from, e.through}, e.late}}, e.site);
}

template <class M>
std::optional<std::string_view> basic_table<M>::misfit(const events::pledged& e) const {
    if (is_unknown(e.site) || b_.settings.commit_policy != commit_policy::on_merge) return "commit policy";
    if (!b_.pledges[e.site.count].is_null() || e.base != b_.generation) return "a second or stale pledge";
    if (e.id.text.empty() || e.id.text.size() > 128 || pledge_with(e.id) != nullptr) return "contribution id";
    return spans_misfit(e.spans, e.site);
}

template <class M>
std::optional<std::string_view> basic_table<M>::misfit(const events::contribution_rejected& e) const {
    if (is_unknown(e.site) || b_.settings.commit_policy != commit_policy::on_merge) return "commit policy";
    if (e.id.text.empty() || e.id.text.size() > 128 || pledge_with(e.id) != nullptr) return "contribution id";
    if (const auto fault = spans_misfit(e.spans, e.site)) return fault;
    std::vector<span> returned;
    for (const pledged_span& p : e.spans) returned.push_back(p.span);
    return quarantine_misfit(e.quarantined, std::move(returned));
}

template <class M>
std::optional<std::string_view> basic_table<M>::misfit(const events::released& e) const {
    if (is_unknown(e.site)) return "site number";
    std::vector<lease_seq> seqs;
    for (const auto& r : e.leases) {
        const std::uint32_t slot = open_index_.find(r.lease.count);
        if (slot == nil || b_.leases[slot].site != e.site) return "a lease is not open or of another site";
        const lease_record& l = b_.leases[slot];
        if (r.old_end != l.end || r.from >= l.end || (r.from != l.done_end && r.from != l.reserved_end))
            return "released span";
        seqs.push_back(r.lease);
    }
    std::sort(seqs.begin(), seqs.end());
    if (std::adjacent_find(seqs.begin(), seqs.end()) != seqs.end()) return "a lease is released twice";
    return std::nullopt;
}

template <class M>
std::optional<std::string_view> basic_table<M>::misfit(const events::expired& e) const {
    if (const auto fault = lost_misfit(e.lost)) return fault;
    std::vector<span> returned;
    for (const auto& l : e.lost) returned.push_back({l.done_end, l.end});
    return quarantine_misfit(e.quarantined, std::move(returned));
}

template <class M>
std::optional<std::string_view> basic_table<M>::misfit(const events::requeued& e) const {
    if (e.spans != quarantined() || e.spans.empty()) return "quarantined positions";
    return std::nullopt;
}

template <class M>
std::optional<std::string_view> basic_table<M>::misfit(const events::epoch_advanced& e) const {
    if (e.from != b_.epoch || e.to.count != b_.epoch.count + 1 || b_.pledged > 0) return "epoch";
    std::vector<lease_seq> open;
    for (const lease_record& l : all_leases()) open.push_back(l.seq);
    if (e.dropped != open) return "dropped leases";
    return std::nullopt;
}

template <class M>
std::optional<std::string_view> basic_table<M>::misfit(const events::tick& e) const {
    if (const auto fault = renewals_misfit(e.leases)) return fault;
    for (const auto& s : e.sites)
        if (is_unknown(s.site) || s.macro_step_ms < 0 || s.rtt_ms < 0) return "site seen";
    return std::nullopt;
}

template <class M>
std::optional<std::string_view> basic_table<M>::misfit(const events::term_started& e) const {
    if (e.term <= b_.term) return "term";
    return renewals_misfit(e.extended);
}

template <class M>
std::optional<std::string_view> basic_table<M>::renewals_misfit(const std::vector<events::renewed_lease>& list) const {
    for (const auto& r : list) {
        const std::uint32_t slot = open_index_.find(r.lease.count);
        if (slot == nil) return "a renewed lease is not open";
        if (r.deadline < b_.leases[slot].granted_at) return "a deadline before the grant";
    }
    return std::nullopt;
}

template <class M>
const contribution* basic_table<M>::pledge_with(const contribution_id& id) const {
    for (const site_number n : b_.pledging)
        if (b_.pledges[n.count].get()->id == id) return b_.pledges[n.count].get();
    return nullptr;
}

template <class M>
std::optional<std::string_view> basic_table<M>::misfit(const events::granted& e) const {
    if (e.site.count >= b_.num_sites) return "site number";
    if (e.leases.empty() || e.leases.size() > 64 || e.request_id.size() > request_entry::text_max)
        return "size of a grant";
    if (!e.steals.empty() && e.steals.size() != e.leases.size()) return "stolen tails";
    if (e.cursor.count >= b_.blocks.size()) return "cursor";
    if (site_live_[e.site.count].open_leases + e.leases.size() > b_.settings.max_leases_per_site)
        return "too many leases";
    std::vector<span> spans;
    for (std::size_t i = 0; i < e.leases.size(); ++i) {
        const lease_record& l = e.leases[i];
        if (l.seq.count != e.leases.front().seq.count + i || l.seq.count < b_.next_seq) return "lease sequence";
        if (l.site != e.site || l.epoch != b_.epoch || l.term != b_.term || l.stolen == e.steals.empty())
            return "lease";
        if (l.start != l.done_end || l.reserved_end < l.start || l.reserved_end > l.end || l.end <= l.start ||
            l.end.count > b_.blocks.size() || l.deadline < l.granted_at || l.hold_deadline < l.granted_at ||
            (l.mode == site_mode::legacy && l.reserved_end != l.end))
            return "watermarks or deadlines of a lease";
        spans.push_back(l.at_risk());
        if (e.steals.empty()) {
            if (!b_.blocks.all_free(l.at_risk())) return "granted blocks are not free";
            continue;
        }
        const events::stolen_tail& piece = e.steals[i];
        const std::uint32_t slot = open_index_.find(piece.victim.count);
        if (slot == nil || piece.new_end != l.start || piece.old_end != l.end || b_.leases[slot].end != piece.old_end ||
            piece.new_end < b_.leases[slot].reserved_end || piece.new_end <= b_.leases[slot].done_end)
            return "stolen tail";
    }
    std::sort(spans.begin(), spans.end());
    for (std::size_t i = 1; i < spans.size(); ++i)
        if (spans[i].start < spans[i - 1].end) return "granted spans overlap";
    return std::nullopt;
}

template <class M>
std::optional<std::string_view> basic_table<M>::misfit(const events::resolved& e) const {
    if (b_.settings.commit_policy != commit_policy::on_merge || e.base != b_.generation) return "generation";
    std::vector<contribution_id> named = e.merged;
    for (const auto& r : e.rejected) named.push_back(r.id);
    std::sort(named.begin(), named.end());
    if (named.empty() || std::adjacent_find(named.begin(), named.end()) != named.end()) return "contribution ids";
    std::vector<span> returned;
    for (const contribution_id& id : named)
        if (pledge_with(id) == nullptr) return "a contribution does not wait";
    for (const auto& r : e.rejected)
        for (const pledged_span& p : pledge_with(r.id)->spans) returned.push_back(p.span);
    if (!e.merged.empty() && named.size() != b_.pledging.size()) return "a contribution is left out";
    return quarantine_misfit(e.quarantined, std::move(returned));
}

}  // namespace darlcore::lease
