// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "darlcore/error.hpp"
#include "darlcore/lease/book.hpp"
#include "darlcore/lease/verify.hpp"

// The whole replayed state as plain structs, for snapshot codecs.
namespace darlcore::lease {

struct exported_request {
    std::uint32_t place = 0;  // in the site's ring
    std::string id;
    lease_seq first;
    std::uint32_t count = 0;
    friend bool operator==(const exported_request&, const exported_request&) = default;
};

struct exported_site {
    site_identity identity;
    site_book book;
    std::vector<exported_request> requests;    // ascending place
    std::vector<contribution_answer> answers;  // oldest first
    std::vector<contribution> pledge;          // none or one
};

/// Canonical: equal states export equal structs. Positions beyond the last block are 0 bits.
struct exported_state {
    lease::geometry geometry;
    lease::settings settings;
    darlcore::term term;
    epoch_index epoch;
    darlcore::generation generation;
    std::uint64_t next_seq = 1;
    bool second_chance_used = false;
    std::string corpus;
    std::vector<epoch_verdict> verdicts;
    std::vector<std::uint64_t> free_words;  // bit p % 64 of word p / 64
    std::vector<std::uint64_t> committed_words;
    std::vector<lease_record> leases;       // open, ascending seq
    std::vector<closed_lease> closed;       // oldest first
    std::vector<suspect_run> suspect_runs;  // ascending position
    std::vector<exported_site> sites;       // by number
};

namespace detail {

inline void set_words(std::vector<std::uint64_t>& words, span s) {
    for (std::uint64_t w = s.start.count / 64; w * 64 < s.end.count; ++w)
        words[w] |= bit_pages::mask_of(w, s.start.count, s.end.count);
}

inline exported_site export_site(const book& b, std::uint32_t n) {
    exported_site out{*b.identities[n].get(), b.sites[n], {}, {}, {}};
    const std::uint32_t ring = b.settings.request_ring;
    for (std::uint32_t i = 0; i < ring; ++i) {
        const request_entry& r = b.requests[std::uint64_t{n} * ring + i];
        if (r.count != 0) out.requests.push_back({i, std::string(r.id()), r.first, r.count});
    }
    if (const auto* answers = b.answers[n].get()) out.answers = *answers;
    if (const contribution* c = b.pledges[n].get()) out.pledge.push_back(*c);
    return out;
}

}  // namespace detail

/// Complexity: O(M / 64 + everything else).
inline exported_state export_state(const book& b) {
    exported_state out;
    out.geometry = b.geometry;
    out.settings = b.settings;
    out.term = b.term;
    out.epoch = b.epoch;
    out.generation = b.generation;
    out.next_seq = b.next_seq;
    out.second_chance_used = b.second_chance_used;
    out.corpus = b.corpus;
    out.verdicts = b.verdicts;
    out.free_words.resize((b.blocks.size() + 63) / 64);
    out.committed_words.resize((b.blocks.size() + 63) / 64);
    b.blocks.for_free_runs([&](span s) { detail::set_words(out.free_words, s); });
    b.blocks.for_committed_runs([&](span s) { detail::set_words(out.committed_words, s); });
    for (std::uint32_t i = 0; i < b.num_slots; ++i)
        if (b.leases[i].seq.count != 0) out.leases.push_back(b.leases[i]);
    std::sort(out.leases.begin(), out.leases.end(), [](const auto& x, const auto& y) { return x.seq < y.seq; });
    for (std::uint64_t i = b.closed_written - b.closed_kept(); i < b.closed_written; ++i)
        out.closed.push_back(b.closed[i % b.settings.closed_leases]);
    b.losses.for_each([&](const suspect_run& r) { out.suspect_runs.push_back(r); });
    for (std::uint32_t n = 0; n < b.num_sites; ++n) out.sites.push_back(detail::export_site(b, n));
    return out;
}

namespace detail {

/// Calls fn(span) for each run of ones; false where a bit lies beyond `size`.
template <class Fn>
bool for_word_runs(const std::vector<std::uint64_t>& words, std::uint64_t size, Fn&& fn) {
    std::uint64_t start = 0;
    bool inside = false;
    for (std::uint64_t w = 0; w < words.size(); ++w) {
        const std::uint64_t word = words[w];
        if ((word & ~bit_pages::mask_of(w, 0, size)) != 0) return false;
        if (word == (inside ? bit_pages::all_ones : 0)) continue;
        for (std::uint64_t i = 0; i < 64; ++i) {
            const bool one = ((word >> i) & 1U) != 0;
            if (one == inside) continue;
            if (one)
                start = w * 64 + i;
            else
                fn(make_span(start, w * 64 + i));
            inside = one;
        }
    }
    if (inside) fn(make_span(start, size));
    return true;
}

inline result<void> import_blocks(book& b, const exported_state& state) {
    const std::uint64_t size = state.geometry.num_blocks;
    const std::uint64_t words = (size + 63) / 64;
    if (state.free_words.size() != words || state.committed_words.size() != words)
        return fail(errc::corrupt, "state: the block maps do not have the size of the epoch");
    b.blocks = block_map(size);
    for (std::uint64_t w = 0; w < words; ++w)
        if ((state.free_words[w] & state.committed_words[w]) != 0)
            return fail(errc::corrupt, "state: a block is both free and committed");
    std::vector<std::uint64_t> taken(words);
    for (std::uint64_t w = 0; w < words; ++w) taken[w] = ~state.free_words[w] & bit_pages::mask_of(w, 0, size);
    bool ok = for_word_runs(state.free_words, size, [](span) {});
    ok = for_word_runs(taken, size, [&](span s) { b.blocks.take(s); }) && ok;
    ok = for_word_runs(state.committed_words, size, [&](span s) { b.blocks.commit(s); }) && ok;
    if (!ok) return fail(errc::corrupt, "state: a block map has bits beyond the last block");
    return {};
}

inline result<void> import_site(book& b, const exported_site& s, std::uint32_t n) {
    b.identities.write(n).write(s.identity);
    b.sites.write(n) = s.book;
    if (s.identity.superseded.size() > 64) return fail(errc::corrupt, "state: too many superseded incarnations");
    if (s.book.ring_next >= b.settings.request_ring) return fail(errc::corrupt, "state: request ring out of range");
    for (const exported_request& r : s.requests) {
        if (r.place >= b.settings.request_ring || r.id.empty() || r.id.size() > request_entry::text_max ||
            r.count < 1 || r.count > 64)
            return fail(errc::corrupt, "state: a remembered request is out of range");
        const std::uint64_t index = std::uint64_t{n} * b.settings.request_ring + r.place;
        request_entry& entry = b.requests.write(index);
        if (entry.count != 0) return fail(errc::corrupt, "state: two requests share a place");
        std::copy(r.id.begin(), r.id.end(), entry.text.begin());
        entry.length = static_cast<std::uint8_t>(r.id.size());
        entry.count = static_cast<std::uint8_t>(r.count);
        entry.first = r.first;
        b.requests_print += print_of(entry, index);
    }
    if (!s.answers.empty()) b.answers.write(n).write(s.answers);
    if (s.pledge.size() > 1) return fail(errc::corrupt, "state: a site has two pledges");
    if (!s.pledge.empty()) {
        b.pledges.write(n).write(s.pledge.front());
        b.pledging.push_back(site_number{n});
        b.pledged += s.pledge.front().blocks();
    }
    if (s.book.rate_micro != 0) {
        ++b.rates_measured;
        b.rate_sum_micro += s.book.rate_micro;
    }
    return {};
}

}  // namespace detail

/// The book of an exported state, checked in full.
/// Errors: errc::corrupt or errc::invalid_argument where its parts contradict each other or a limit.
inline result<book> import_book(const exported_state& state) {
    if (auto ok = check(state.settings); !ok) return ok.error();
    if (auto ok = check(state.geometry); !ok) return ok.error();
    const settings& s = state.settings;
    if (state.sites.size() > s.max_sites || state.closed.size() > s.closed_leases || state.verdicts.size() > 64 ||
        state.leases.size() > std::uint64_t{s.max_sites} * s.max_leases_per_site)
        return fail(errc::corrupt, "state: more entries than its settings allow");
    book b = empty_book(state.geometry, s);
    b.term = state.term;
    b.epoch = state.epoch;
    b.generation = state.generation;
    b.next_seq = state.next_seq;
    b.second_chance_used = state.second_chance_used;
    b.corpus = state.corpus;
    b.verdicts = state.verdicts;
    if (auto ok = detail::import_blocks(b, state); !ok) return ok.error();
    b.num_sites = static_cast<std::uint32_t>(state.sites.size());
    for (std::uint32_t n = 0; n < b.num_sites; ++n)
        if (auto ok = detail::import_site(b, state.sites[n], n); !ok) return ok.error();
    b.leases.grow(state.leases.size());
    for (const lease_record& l : state.leases) {
        b.leases.write(b.num_slots++) = l;
        b.leased += l.at_risk().size();
    }
    b.open_leases = b.num_slots;
    for (const closed_lease& c : state.closed) {
        b.closed.write(b.closed_written++) = c;
        b.closed_print += print_of(c);
    }
    position at;
    for (const suspect_run& r : state.suspect_runs) {
        if (r.span.start < at || r.span.end <= r.span.start || r.span.end.count > state.geometry.num_blocks)
            return fail(errc::corrupt, "state: runs of lost blocks overlap or are out of range");
        at = r.span.end;
        b.losses.append(r);
    }
    if (auto ok = verify(b); !ok) return ok.error();
    return b;
}

}  // namespace darlcore::lease
