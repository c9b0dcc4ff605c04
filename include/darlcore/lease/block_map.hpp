// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "darlcore/assert.hpp"
#include "darlcore/lease/bit_pages.hpp"
#include "darlcore/lease/fingerprint.hpp"
#include "darlcore/units.hpp"

namespace darlcore::lease {

/// Which positions of an epoch are in the pool and which are committed; every other one is held by a lease, a pledge or
/// quarantine, which are kept elsewhere.
/// Units: 2.1 bits per block, however fragmented. Preconditions (asserted): spans lie in [0, size) and are wholly in
/// the state that the operation leaves, so nothing is freed or counted twice. Complexity: changes O(1 + length / 64),
/// searches as stated; copies share pages until they write.
class block_map {
public:
    block_map() = default;
    explicit block_map(std::uint64_t num_blocks)
        : free_(num_blocks), committed_(num_blocks, false), free_count_(num_blocks), fragments_(1) {
        free_print_.add(make_span(0, num_blocks));
    }

    [[nodiscard]] std::uint64_t size() const { return committed_.size(); }
    [[nodiscard]] std::uint64_t free_count() const noexcept { return free_count_; }
    [[nodiscard]] std::uint64_t committed_count() const noexcept { return committed_count_; }
    /// Maximal runs of free positions.
    [[nodiscard]] std::uint64_t fragments() const noexcept { return fragments_; }
    [[nodiscard]] bool is_free(position p) const { return free_.bits().test(p.count); }
    [[nodiscard]] bool is_committed(position p) const { return committed_.test(p.count); }
    [[nodiscard]] std::uint64_t free_print() const noexcept { return free_print_.value(); }
    [[nodiscard]] std::uint64_t committed_print() const noexcept { return committed_print_.value(); }

    /// First free position at or after p, or size(). Complexity: O(log size).
    [[nodiscard]] std::uint64_t next_free(std::uint64_t p) const { return free_.next_set(p); }
    /// End of the free run that starts at p, at most limit. Complexity: O(run / 64).
    [[nodiscard]] std::uint64_t free_run_end(std::uint64_t p, std::uint64_t limit) const {
        return free_.bits().find(p, std::min(limit, size()), false);
    }
    [[nodiscard]] bool has_committed(span s) const {
        return committed_.find(s.start.count, s.end.count, true) < s.end.count;
    }
    [[nodiscard]] bool all_free(span s) const { return free_run_end(s.start.count, s.end.count) == s.end.count; }

    /// Out of the pool.
    void take(span s) {
        if (s.empty()) return;
        const std::uint64_t changed = free_.assign(s.start.count, s.end.count, false);
        DARLCORE_ASSERT_CMP(changed, ==, s.size());
        free_count_ -= changed;
        free_print_.remove(s);
        fragments_ = fragments_ + free_neighbours(s) - 1;
    }
    /// Back into the pool. With `lenient` what is free already is passed over in silence (planted mutant only).
    void give_back(span s, bool lenient = false) {
        if (s.empty()) return;
        const std::uint64_t neighbours = free_neighbours(s);
        const std::uint64_t changed = free_.assign(s.start.count, s.end.count, true);
        if (!lenient) DARLCORE_ASSERT_CMP(changed, ==, s.size());
        free_count_ += changed;
        free_print_.add(s);
        fragments_ = fragments_ + 1 - neighbours;
    }
    /// Held to committed.
    void commit(span s) {
        if (s.empty()) return;
        std::uint64_t changed = 0;
        committed_.for_words(s.start.count, s.end.count, [&](std::uint64_t& word, std::uint64_t mask, std::uint64_t) {
            changed += static_cast<std::uint64_t>(std::popcount(~word & mask));
            word |= mask;
        });
        DARLCORE_ASSERT_CMP(changed, ==, s.size());
        committed_count_ += changed;
        committed_print_.add(s);
    }

    /// Everything free again. The old pages go to `old`. Complexity: O(size / 2^20).
    void reset(bit_pages::words::graveyard& old) {
        const std::uint64_t num_blocks = size();
        free_.clear(old);
        committed_.clear(old);
        free_count_ = num_blocks;
        committed_count_ = 0;
        fragments_ = 1;
        free_print_ = {};
        free_print_.add(make_span(0, num_blocks));
        committed_print_ = {};
    }

    /// Calls fn(span) for each maximal run of free, or of committed positions, in order. Complexity: O(size / 64).
    template <class Fn>
    void for_free_runs(Fn&& fn) const {
        for_runs(free_.bits(), fn);
    }
    template <class Fn>
    void for_committed_runs(Fn&& fn) const {
        for_runs(committed_, fn);
    }

    /// True where counts, fingerprints, fragments and summaries are what a recount gives. Complexity: O(size / 64).
    [[nodiscard]] bool is_consistent() const {
        std::uint64_t free = 0;
        std::uint64_t runs = 0;
        std::uint64_t committed = 0;
        bool disjoint = true;
        set_fingerprint free_print;
        set_fingerprint committed_print;
        for_free_runs([&](span s) {
            free += s.size();
            ++runs;
            free_print.add(s);
            disjoint = disjoint && committed_.find(s.start.count, s.end.count, true) == s.end.count;
        });
        for_committed_runs([&](span s) {
            committed += s.size();
            committed_print.add(s);
        });
        return disjoint && free == free_count_ && runs == fragments_ && committed == committed_count_ &&
               free_print == free_print_ && committed_print == committed_print_ && free_.summaries_agree();
    }
    /// Memory of the pages in use. Units: bytes.
    [[nodiscard]] std::size_t bytes() const { return free_.bytes() + committed_.bytes(); }

private:
    [[nodiscard]] std::uint64_t free_neighbours(span s) const {
        const bool left = s.start.count > 0 && free_.bits().test(s.start.count - 1);
        const bool right = s.end.count < size() && free_.bits().test(s.end.count);
        return (left ? 1U : 0U) + (right ? 1U : 0U);
    }
    template <class Fn>
    void for_runs(const bit_pages& bits, Fn& fn) const {
        const std::uint64_t n = size();
        for (std::uint64_t p = bits.find(0, n, true); p < n;) {
            const std::uint64_t end = bits.find(p, n, false);
            fn(make_span(p, end));
            p = bits.find(end, n, true);
        }
    }

    summed_bits free_;
    bit_pages committed_;
    std::uint64_t free_count_ = 0;
    std::uint64_t committed_count_ = 0;
    std::uint64_t fragments_ = 0;
    set_fingerprint free_print_;
    set_fingerprint committed_print_;
};

}  // namespace darlcore::lease
