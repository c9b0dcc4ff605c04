// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "darlcore/lease/block_map.hpp"
#include "darlcore/lease/cow.hpp"
#include "darlcore/lease/fingerprint.hpp"
#include "darlcore/lease/settings.hpp"
#include "darlcore/lease/suspects.hpp"
#include "darlcore/lease/types.hpp"

namespace darlcore::lease {

/// One answered acquire: the leases [first, first + count). Texts are at most 64 bytes.
struct request_entry {
    static constexpr std::size_t text_max = 64;
    std::array<char, text_max> text{};
    std::uint8_t length = 0;
    std::uint8_t count = 0;  // 0: empty place
    lease_seq first;

    [[nodiscard]] std::string_view id() const { return {text.data(), length}; }
};

/// Never 0, so that it can mark an empty place.
inline std::uint32_t request_tag(std::string_view id) {
    return static_cast<std::uint32_t>(mixer{}.add(id).value()) | 1U;
}

/// A lease that is no longer open, remembered for late work and repeated commits. done_end moves with late work.
struct closed_lease {
    lease_seq seq;
    position start;
    position done_end;
    position reserved_end;
    position end;
    site_number site;
    darlcore::term term;
    close_reason reason = close_reason::committed;
    site_mode mode = site_mode::full;
    friend bool operator==(const closed_lease&, const closed_lease&) = default;
};

/// A contribution's answer, kept for some generations.
struct contribution_answer {
    contribution_id id;
    generation base;
    std::uint64_t blocks = 0;
    contribution_status status = contribution_status::pledged;
    errc reason = errc::not_finite;
    friend bool operator==(const contribution_answer&, const contribution_answer&) = default;
};

/// What of a site changes rarely.
struct site_identity {
    site_id id;
    std::vector<incarnation> superseded;  // the last 64
};

/// What of a site changes with events. Units: blocks unless named.
struct site_book {
    darlcore::incarnation incarnation;
    site_mode mode = site_mode::full;
    std::uint32_t ranks = 0;
    std::uint32_t incarnations = 1;
    ledger_time first_seen;
    ledger_time last_seen;  // as of the last event that names the site; never_seen after a release-all
    std::int64_t macro_step_ms = 0;
    std::int64_t rtt_ms = 0;

    std::uint64_t rate_micro = 0;  // blocks per busy second, in millionths; 0: not measured
    bool sample_open = false;
    ledger_time sample_opened;
    ledger_time sample_last;  // last pledge or commit in it
    std::uint64_t sample_blocks = 0;

    position cursor;
    site_counters counters;
    std::uint32_t fruitless = 0;      // grants in a row that ended without a block that counted
    lease_seq useful_grant;           // newest grant of which something was pledged or committed
    lease_seq fruitless_grant;        // newest grant already counted as fruitless
    std::uint64_t held = 0;           // LEASED now
    std::uint64_t reserved = 0;       // of them possibly read
    std::uint64_t pledged = 0;        // PLEDGED now
    std::uint64_t committed_now = 0;  // COMMITTED in this epoch
    std::uint32_t ring_next = 0;

    /// The run went back and no process has registered since. A client of protocol 1 has no name to forget.
    [[nodiscard]] bool is_vacant() const { return mode == site_mode::full && incarnation.is_none(); }
};

inline constexpr ledger_time never_seen{-(std::int64_t{1} << 62)};

/// Everything that events change: the state of a lease table without its indexes and without what heartbeats told since
/// the last tick. Copies share pages, so a copy for a snapshot takes microseconds.
/// Thread-safety: a copy may be read by another thread.
struct book {
    lease::geometry geometry;
    lease::settings settings;
    darlcore::term term;
    epoch_index epoch;
    darlcore::generation generation;
    std::uint64_t next_seq = 1;
    bool second_chance_used = false;
    std::string corpus;                   // empty: not pinned
    std::vector<epoch_verdict> verdicts;  // the last 64

    block_map blocks;
    suspects losses;
    std::uint64_t leased = 0;
    std::uint64_t pledged = 0;

    cow_array<lease_record, 16> leases;  // by slot; seq 0 = free
    std::uint32_t num_slots = 0;
    std::uint32_t open_leases = 0;

    cow_array<closed_lease, 32> closed;  // ring
    std::uint64_t closed_written = 0;    // ring place = written % settings.closed_leases
    std::uint64_t closed_print = 0;      // sum over the ring

    std::uint32_t num_sites = 0;
    cow_array<site_book, 8> sites;
    cow_array<cow_ptr<site_identity>, 64> identities;
    cow_array<request_entry, 16> requests;  // site * request_ring + place
    std::uint64_t requests_print = 0;
    cow_array<cow_ptr<contribution>, 64> pledges;                      // by site; null = none
    std::vector<site_number> pledging;                                 // ascending
    cow_array<cow_ptr<std::vector<contribution_answer>>, 64> answers;  // by site
    std::uint64_t rate_sum_micro = 0;
    std::uint32_t rates_measured = 0;

    [[nodiscard]] block_counts counts() const {
        return {blocks.free_count(), leased, pledged, blocks.committed_count(), losses.quarantined_blocks()};
    }
    [[nodiscard]] bool second_chance_open() const {
        return settings.quarantine_second_chance && !second_chance_used && losses.quarantined_blocks() > 0;
    }
    /// Everything is committed or set aside for good.
    [[nodiscard]] bool epoch_complete() const {
        return blocks.committed_count() + losses.quarantined_blocks() == blocks.size() && !second_chance_open();
    }
    [[nodiscard]] std::uint64_t closed_kept() const {
        return std::min<std::uint64_t>(closed_written, settings.closed_leases);
    }
};

/// The state of a run in which nothing has happened.
inline book empty_book(const geometry& g, const settings& s) {
    book b;
    b.geometry = g;
    b.settings = s;
    b.blocks = block_map(g.num_blocks);
    b.closed = decltype(b.closed)(s.closed_leases);
    b.sites = decltype(b.sites)(s.max_sites);
    b.identities = decltype(b.identities)(s.max_sites);
    b.requests = decltype(b.requests)(std::size_t{s.max_sites} * s.request_ring);
    b.pledges = decltype(b.pledges)(s.max_sites);
    b.answers = decltype(b.answers)(s.max_sites);
    return b;
}

/// Fingerprint of one remembered lease; the ring's is their sum.
inline std::uint64_t print_of(const closed_lease& c) {
    return mixer{}
        .add(c.seq.count)
        .add(c.start.count)
        .add(c.done_end.count)
        .add(c.reserved_end.count)
        .add(c.end.count)
        .add(c.site.count)
        .add(c.term.count)
        .add(static_cast<std::uint64_t>(c.reason))
        .add(static_cast<std::uint64_t>(c.mode))
        .value();
}
inline std::uint64_t print_of(const request_entry& r, std::uint64_t place) {
    if (r.count == 0) return 0;
    return mixer{}.add(place).add(r.id()).add(r.count).add(r.first.count).value();
}
inline std::uint64_t print_of(const lease_record& l) {
    return mixer{}
        .add(l.seq.count)
        .add(l.term.count)
        .add(l.site.count)
        .add(l.epoch.count)
        .add(l.start.count)
        .add(l.done_end.count)
        .add(l.reserved_end.count)
        .add(l.end.count)
        .add(static_cast<std::uint64_t>(l.granted_at.ms))
        .add(static_cast<std::uint64_t>(l.deadline.ms))
        .add(static_cast<std::uint64_t>(l.hold_deadline.ms))
        .add(static_cast<std::uint64_t>(l.ttl_ms))
        .add(l.grant.count)
        .add(static_cast<std::uint64_t>(l.mode) | (l.stolen ? 2U : 0U) | (l.seen_in_term ? 4U : 0U))
        .value();
}
inline std::uint64_t print_of(const suspect_run& r) {
    mixer m;
    m.add(r.span.start.count).add(r.span.end.count).add(r.lost_run).add(r.losses).add(r.distinct_sites);
    for (const std::uint32_t s : r.sites) m.add(s);
    return m.add((r.quarantined ? 1U : 0U) | (r.last_chance ? 2U : 0U)).value();
}

namespace detail {

inline void add_site(mixer& m, const book& b, std::uint32_t n) {
    const site_book& s = b.sites[n];
    const site_identity& who = *b.identities[n].get();
    m.add(who.id.name);
    for (const incarnation& i : who.superseded) m.add(i.high).add(i.low);
    m.add(s.incarnation.high).add(s.incarnation.low).add(static_cast<std::uint64_t>(s.mode)).add(s.ranks);
    m.add(s.incarnations).add(static_cast<std::uint64_t>(s.first_seen.ms));
    m.add(static_cast<std::uint64_t>(s.last_seen.ms)).add(static_cast<std::uint64_t>(s.macro_step_ms));
    m.add(static_cast<std::uint64_t>(s.rtt_ms)).add(s.rate_micro).add(s.sample_open ? 1U : 0U);
    m.add(static_cast<std::uint64_t>(s.sample_opened.ms)).add(static_cast<std::uint64_t>(s.sample_last.ms));
    m.add(s.sample_blocks).add(s.cursor.count);
    const site_counters& c = s.counters;
    m.add(c.grants).add(c.granted).add(c.committed).add(c.pledged).add(c.lost).add(c.released);
    m.add(c.stolen_from).add(c.stolen_by).add(c.expiries).add(c.rejected);
    m.add(s.fruitless).add(s.useful_grant.count).add(s.fruitless_grant.count);
    m.add(s.held).add(s.reserved).add(s.pledged).add(s.committed_now).add(s.ring_next);
    if (const auto* answers = b.answers[n].get())
        for (const auto& a : *answers)
            m.add(a.id.text)
                .add(a.base.count)
                .add(a.blocks)
                .add(static_cast<std::uint64_t>(a.status))
                .add(word(a.reason));
}

}  // namespace detail

/// Digest of everything that events change: equal states give equal digests, however they came about.
/// Complexity: O(open leases + sites + suspects), independent of the number of blocks.
inline std::uint64_t digest(const book& b) {
    mixer m;
    m.add(b.geometry.num_blocks).add(b.geometry.space_digest).add(b.term.count).add(b.epoch.count);
    m.add(b.generation.count).add(b.next_seq).add(b.second_chance_used ? 1U : 0U).add(b.corpus);
    m.add(b.blocks.free_count()).add(b.blocks.free_print()).add(b.blocks.fragments());
    m.add(b.blocks.committed_count()).add(b.blocks.committed_print()).add(b.leased).add(b.pledged);
    for (const auto& v : b.verdicts) m.add(v.epoch.count).add(v.committed).add(v.quarantined).add(v.forced ? 1U : 0U);
    std::uint64_t leases = 0;
    for (std::uint32_t i = 0; i < b.num_slots; ++i)
        if (b.leases[i].seq.count != 0) leases += print_of(b.leases[i]);
    m.add(b.open_leases).add(leases).add(b.closed_kept()).add(b.closed_print).add(b.requests_print);
    b.losses.for_each([&](const suspect_run& r) { m.add(print_of(r)); });
    for (std::uint32_t n = 0; n < b.num_sites; ++n) detail::add_site(m, b, n);
    for (const site_number n : b.pledging) {
        const contribution& c = *b.pledges[n.count].get();
        m.add(n.count).add(c.id.text).add(c.base.count).add(static_cast<std::uint64_t>(c.pledged_at.ms));
        for (const auto& s : c.spans)
            m.add(s.lease.count).add(s.span.start.count).add(s.span.end.count).add(s.late ? 1U : 0U);
    }
    return m.value();
}

}  // namespace darlcore::lease
