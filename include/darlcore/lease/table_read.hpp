// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <utility>

#include "darlcore/lease/table.hpp"

// Reads: status, verification, import.
namespace darlcore::lease {

template <class M>
bool basic_table<M>::is_complete() const {
    if (!planted(mutant::complete_counts_pledged)) return b_.epoch_complete();
    return b_.blocks.committed_count() + b_.pledged + b_.losses.quarantined_blocks() == b_.blocks.size();
}

template <class M>
block_state basic_table<M>::state_of(position p) const {
    DARLCORE_ASSERT_CMP(p.count, <, b_.blocks.size());
    if (b_.blocks.is_free(p)) return block_state::unassigned;
    if (b_.blocks.is_committed(p)) return block_state::committed;
    if (const suspect_run* r = b_.losses.empty() ? nullptr : b_.losses.at_or_after(p);
        r != nullptr && r->quarantined && r->span.contains(p))
        return block_state::quarantined;
    for (std::uint32_t i = 0; i < b_.num_slots; ++i)
        if (b_.leases[i].seq.count != 0 && b_.leases[i].at_risk().contains(p)) return block_state::leased;
    return block_state::pledged;
}

template <class M>
std::optional<site_number> basic_table<M>::find_site(std::string_view name) const {
    const auto it = names_.find(name);
    return it == names_.end() ? std::nullopt : std::optional(site_number{it->second});
}

template <class M>
bool basic_table<M>::is_live(site_number n, ledger_time now) const {
    DARLCORE_ASSERT_CMP(n.count, <, b_.num_sites);
    const live_site& live = site_live_[n.count];
    return live.open_leases > 0 || live.last_seen >= ledger_time{now.ms - live_window_ms(b_.settings, live.rtt_ms)};
}

template <class M>
site_view basic_table<M>::site(site_number n, ledger_time now) const {
    DARLCORE_ASSERT_CMP(n.count, <, b_.num_sites);
    const site_book& s = b_.sites[n.count];
    const live_site& live = site_live_[n.count];
    site_view v;
    v.number = n;
    v.id = b_.identities[n.count].get()->id;
    v.incarnation = s.incarnation;
    v.incarnations = s.incarnations;
    v.mode = s.mode;
    v.ranks = s.ranks;
    v.first_seen = s.first_seen;
    v.last_seen = std::max(live.last_seen, s.last_seen);
    v.live = is_live(n, now);
    v.macro_step_s = static_cast<double>(live.macro_step_ms) / 1000;
    v.rtt_s = static_cast<double>(live.rtt_ms) / 1000;
    v.rate_blocks_per_s = static_cast<double>(s.rate_micro) / 1e6;
    v.cursor = s.cursor;
    v.counters = s.counters;
    v.fruitless = s.fruitless;
    v.open_leases = live.open_leases;
    v.held = s.held;
    v.reserved = s.reserved;
    v.pledged = s.pledged;
    v.committed_now = s.committed_now;
    v.waiting = live.last_answer;
    return v;
}

template <class M>
std::optional<lease_record> basic_table<M>::find_lease(lease_seq seq) const {
    const std::uint32_t slot = open_index_.find(seq.count);
    return slot == nil ? std::nullopt : std::optional(lease_in(slot));
}

/// The lease of a slot, with what heartbeats told since the last tick.
template <class M>
lease_record basic_table<M>::lease_in(std::uint32_t slot) const {
    lease_record record = b_.leases[slot];
    record.deadline = live_[slot].deadline;
    record.ttl_ms = live_[slot].ttl_ms;
    return record;
}

template <class M>
position basic_table<M>::trained_end(lease_seq seq) const {
    const std::uint32_t slot = open_index_.find(seq.count);
    return slot == nil ? position{} : std::max(live_[slot].trained, b_.leases[slot].done_end);
}

template <class M>
std::vector<lease_record> basic_table<M>::leases_of(site_number n) const {
    DARLCORE_ASSERT_CMP(n.count, <, b_.num_sites);
    std::vector<lease_record> leases;
    for (std::uint32_t slot = site_live_[n.count].first_lease; slot != nil; slot = live_[slot].next)
        leases.push_back(lease_in(slot));
    std::sort(leases.begin(), leases.end(), [](const auto& a, const auto& b) { return a.seq < b.seq; });
    return leases;
}

template <class M>
std::vector<lease_record> basic_table<M>::all_leases() const {
    std::vector<lease_record> leases;
    for (std::uint32_t slot = 0; slot < b_.num_slots; ++slot)
        if (b_.leases[slot].seq.count != 0) leases.push_back(lease_in(slot));
    std::sort(leases.begin(), leases.end(), [](const auto& a, const auto& b) { return a.seq < b.seq; });
    return leases;
}

template <class M>
std::optional<contribution_answer> basic_table<M>::answer_of(site_number n, const contribution_id& id) const {
    if (const auto* answers = b_.answers[n.count].get())
        for (const contribution_answer& a : *answers)
            if (a.id == id) return a;
    return std::nullopt;
}

template <class M>
std::vector<suspect_run> basic_table<M>::suspect_runs() const {
    std::vector<suspect_run> runs;
    b_.losses.for_each([&](const suspect_run& r) { runs.push_back(r); });
    return runs;
}

template <class M>
std::vector<span> basic_table<M>::quarantined() const {
    std::vector<span> spans;
    if (b_.losses.quarantined_blocks() == 0) return spans;
    b_.losses.for_each([&](const suspect_run& r) {
        if (!r.quarantined) return;
        if (!spans.empty() && spans.back().end == r.span.start)
            spans.back().end = r.span.end;
        else
            spans.push_back(r.span);
    });
    return spans;
}

template <class M>
std::optional<std::int64_t> basic_table<M>::next_deadline_in_ms(ledger_time now) const {
    if (due_.empty()) return std::nullopt;
    return std::max<std::int64_t>(due_.top().key.at - now, 0);
}

template <class M>
result<void> basic_table<M>::verify() const {
    if (auto ok = lease::verify(b_); !ok) return ok;
    using detail::broken;
    if (due_.size() != b_.open_leases || open_index_.size() != b_.open_leases) return broken("index of open leases");
    if (closed_index_.size() != b_.closed_kept()) return broken("index of closed leases");
    if (!due_.is_consistent() || !steal_measured_.is_consistent() || !steal_unmeasured_.is_consistent())
        return broken("order of a heap");
    for (std::uint32_t slot = 0; slot < b_.num_slots; ++slot) {
        const lease_record& l = b_.leases[slot];
        if (l.seq.count == 0) continue;
        if (open_index_.find(l.seq.count) != slot) return broken("index of an open lease");
        if (!due_.contains(slot) || due_at(slot) < due_.key_of(slot).at) return broken("deadline heap");
        if (live_[slot].deadline < l.deadline) return broken("a deadline earlier than the written one");
        const bool candidate = b_.settings.allow_stealing && l.mode == site_mode::full &&
                               l.unread().size() >= 2 * b_.settings.steal_min_blocks;
        const bool measured = b_.sites[l.site.count].rate_micro != 0;
        if (steal_measured_.contains(slot) != (candidate && measured) ||
            steal_unmeasured_.contains(slot) != (candidate && !measured))
            return broken("index of leases to steal from");
    }
    for (std::uint64_t i = 0; i < b_.closed_kept(); ++i)
        if (closed_index_.find(b_.closed[i].seq.count) != i) return broken("index of a closed lease");
    return {};
}

template <class M>
result<basic_table<M>> basic_table<M>::import_state(const exported_state& state, M mutation) {
    auto b = import_book(state);
    if (!b) return b.error();
    basic_table t(mutation);
    t.b_ = *std::move(b);
    t.rebuild_indexes();
    if (auto ok = t.verify(); !ok) return ok.error();
    return t;
}

template <class M>
std::size_t basic_table<M>::bytes() const {
    const auto pages = [](const auto& array) {
        using page = typename std::remove_cvref_t<decltype(array)>::page;
        return array.pages_in_use() * (sizeof(page) + 16);
    };
    std::size_t sum = b_.blocks.bytes() + pages(b_.leases) + pages(b_.closed) + pages(b_.sites) + pages(b_.requests) +
                      pages(b_.identities) + pages(b_.pledges) + pages(b_.answers);
    sum += live_.bytes() + free_slots_.bytes() + dirty_leases_.bytes() + site_live_.capacity() * sizeof(live_site);
    sum += due_.bytes() + steal_measured_.bytes() + steal_unmeasured_.bytes() + open_index_.bytes() +
           closed_index_.bytes();
    return sum;
}

}  // namespace darlcore::lease
