// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "darlcore/lease/table.hpp"

// The way back to an older model: an event that no request leads to, only the tool that rescues a journal.
namespace darlcore::lease {

template <class M>
std::optional<std::string_view> basic_table<M>::misfit(const events::rolled_back& e) const {
    if (e.to <= b_.generation) return "generation of a way back";
    if (e.next_seq < b_.next_seq) return "lease sequence of a way back";
    return std::nullopt;
}

template <class M>
void basic_table<M>::install(const events::rolled_back& e, ledger_time at) {
    for (const site_number n : b_.pledging) {
        const contribution pledge = *b_.pledges[n.count].get();
        for (const pledged_span& p : pledge.spans) b_.blocks.give_back(p.span);
        set_answer(n.count, pledge.id, contribution_status::rejected, errc::stale_generation);
        b_.pledges.write(n.count).reset();
    }
    b_.pledging.clear();
    b_.pledged = 0;
    for (const lease_record& l : all_leases()) {
        b_.blocks.give_back(l.at_risk());
        close_lease(open_index_.find(l.seq.count), close_reason::dropped, false);
    }
    b_.leased = 0;
    forget_closed();
    for (std::uint32_t n = 0; n < b_.num_sites; ++n) vacate(n, at);
    b_.generation = e.to;
    b_.next_seq = e.next_seq;
}

/// Nobody holds anything for this site, and nobody speaks for it until a process registers.
template <class M>
void basic_table<M>::vacate(std::uint32_t site, ledger_time at) {
    site_book& s = b_.sites.write(site);
    const std::uint64_t before = s.reserved;
    s.held = 0;
    s.reserved = 0;
    s.pledged = 0;
    s.incarnation = {};
    s.last_seen = never_seen;
    site_live_[site].last_seen = never_seen;
    site_live_[site].draining_since = never_seen;
    set_last_answer(site, acquire_reason::none);
    reserved_changed(site, before, at);
}

}  // namespace darlcore::lease
