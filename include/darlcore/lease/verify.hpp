// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "darlcore/error.hpp"
#include "darlcore/lease/book.hpp"

// The invariants of the replayed state. What indexes and deadlines add is checked by table::verify.
namespace darlcore::lease {

namespace detail {

inline error broken(const std::string& what) { return fail(errc::corrupt, "invariant broken: " + what); }

struct site_sums {
    std::uint64_t held = 0;
    std::uint64_t reserved = 0;
    std::uint64_t open = 0;
};

inline result<void> verify_lease(const book& b, const lease_record& l) {
    const std::string name = "lease " + std::to_string(l.seq.count) + " ";
    if (l.seq.count == 0 || l.seq.count >= b.next_seq) return broken(name + "has a sequence not given out");
    if (l.site.count >= b.num_sites) return broken(name + "has an unknown site");
    if (l.epoch != b.epoch) return broken(name + "is of another epoch");
    if (!(l.start <= l.done_end && l.done_end <= l.reserved_end && l.reserved_end <= l.end && l.done_end < l.end &&
          l.end.count <= b.blocks.size()))
        return broken(name + "has watermarks out of order");
    if (l.deadline < l.granted_at || l.hold_deadline < l.granted_at) return broken(name + "ends before its grant");
    if (l.term > b.term) return broken(name + "has a token of the future");
    if (l.mode == site_mode::legacy && l.reserved_end != l.end)
        return broken(name + "is legacy but not reserved whole");
    return {};
}

/// Collects what is held: at-risk spans, pledged spans, quarantined runs.
inline result<void> collect_held(const book& b, std::vector<span>& held, std::vector<site_sums>& sums) {
    std::uint64_t leased = 0;
    std::uint32_t open = 0;
    std::set<lease_seq> seqs;
    for (std::uint32_t i = 0; i < b.num_slots; ++i) {
        const lease_record& l = b.leases[i];
        if (l.seq.count == 0) continue;
        if (auto ok = verify_lease(b, l); !ok) return ok.error();
        if (!seqs.insert(l.seq).second) return broken("a lease sequence occurs twice");
        held.push_back(l.at_risk());
        leased += l.at_risk().size();
        ++open;
        site_sums& s = sums[l.site.count];
        s.held += l.at_risk().size();
        s.reserved += l.maybe_read().size();
        ++s.open;
    }
    if (leased != b.leased || open != b.open_leases) return broken("totals of leased blocks or open leases");
    std::uint64_t pledged = 0;
    for (const site_number n : b.pledging) {
        const contribution* const c = n.count < b.num_sites ? b.pledges[n.count].get() : nullptr;
        if (c == nullptr || c->site != n) return broken("a pledge without its contribution");
        if (c->base != b.generation) return broken("a contribution waits for another generation");
        if (c->blocks() != b.sites[n.count].pledged) return broken("pledged blocks of a site");
        for (const pledged_span& p : c->spans) {
            if (p.span.end <= p.span.start) return broken("an empty span in a contribution");
            held.push_back(p.span);
        }
        pledged += c->blocks();
    }
    if (!std::is_sorted(b.pledging.begin(), b.pledging.end()) ||
        std::adjacent_find(b.pledging.begin(), b.pledging.end()) != b.pledging.end())
        return broken("list of pledging sites");
    if (pledged != b.pledged) return broken("total of pledged blocks");
    return {};
}

inline result<void> verify_losses(const book& b, std::vector<span>& held) {
    result<void> verdict;
    const settings& s = b.settings;
    b.losses.for_each([&](const suspect_run& r) {
        if (r.span.end.count > b.blocks.size() || r.losses == 0) verdict = broken("a run of lost blocks");
        if (r.quarantined) held.push_back(r.span);
        const bool over = s.max_attempts > 0 && (r.distinct_sites >= s.max_attempts || r.losses >= s.max_losses);
        if (r.quarantined && !over && !r.last_chance) verdict = broken("quarantined below every limit");
        if (!r.quarantined && over && !r.last_chance) verdict = broken("over a limit but not quarantined");
        if (b.blocks.has_committed(r.span)) verdict = broken("attempts on a committed block");
    });
    return verdict;
}

/// The held spans and the free and committed runs must tile the epoch.
inline result<void> verify_partition(const book& b, std::vector<span>& held) {
    std::sort(held.begin(), held.end());
    std::uint64_t blocks = b.blocks.free_count() + b.blocks.committed_count();
    for (std::size_t i = 0; i < held.size(); ++i) {
        const span s = held[i];
        if (i > 0 && s.start < held[i - 1].end) return broken("two holders of one block");
        if (s.end.count > b.blocks.size()) return broken("a holder beyond the last block");
        if (b.blocks.next_free(s.start.count) < s.end.count) return broken("a held block is free");
        if (b.blocks.has_committed(s)) return broken("a held block is committed");
        blocks += s.size();
    }
    if (blocks != b.blocks.size()) return broken("a block is in no state");
    return {};
}

inline result<void> verify_sites(const book& b, const std::vector<site_sums>& sums) {
    std::uint64_t committed = 0;
    std::set<std::string> names;
    for (std::uint32_t n = 0; n < b.num_sites; ++n) {
        const site_book& s = b.sites[n];
        if (b.identities[n].is_null()) return broken("a site without a name");
        const std::string& name = b.identities[n].get()->id.name;
        if (!is_valid_name(name) || !names.insert(name).second) return broken("site names");
        if (s.held != sums[n].held || s.reserved != sums[n].reserved) return broken("held blocks of site " + name);
        if (sums[n].open > b.settings.max_leases_per_site) return broken("too many leases of site " + name);
        if (s.cursor.count >= b.blocks.size()) return broken("cursor of site " + name);
        if (b.pledges[n].is_null() && s.pledged != 0) return broken("pledged blocks of site " + name);
        committed += s.committed_now;
    }
    if (committed != b.blocks.committed_count()) return broken("committed blocks by site");
    return {};
}

inline result<void> verify_closed(const book& b) {
    std::uint64_t print = 0;
    std::set<lease_seq> seqs;
    for (std::uint64_t i = 0; i < b.closed_kept(); ++i) {
        const closed_lease& c = b.closed[i];
        print += print_of(c);
        const bool ordered = c.start <= c.done_end && c.done_end <= c.reserved_end && c.reserved_end <= c.end &&
                             c.end.count <= b.blocks.size();
        if (!ordered || c.seq.count == 0 || c.seq.count >= b.next_seq || c.site.count >= b.num_sites ||
            !seqs.insert(c.seq).second)
            return broken("a remembered lease");
    }
    return print == b.closed_print ? result<void>{} : broken("fingerprint of remembered leases");
}

}  // namespace detail

/// Checks the invariants of a book: blocks partitioned, holders disjoint, sums and limits right.
/// Errors: errc::corrupt, naming the first invariant that fails. Complexity: O(M / 64 + n log n).
inline result<void> verify(const book& b) {
    using namespace detail;
    if (!b.blocks.is_consistent()) return broken("counts, fragments or summaries of the block map");
    std::vector<span> held;
    std::vector<site_sums> sums(b.num_sites);
    if (auto ok = collect_held(b, held, sums); !ok) return ok;
    if (auto ok = verify_losses(b, held); !ok) return ok;
    if (auto ok = verify_partition(b, held); !ok) return ok;
    if (auto ok = verify_sites(b, sums); !ok) return ok;
    return verify_closed(b);
}

}  // namespace darlcore::lease
