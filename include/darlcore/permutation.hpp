// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "darlcore/assert.hpp"
#include "darlcore/random.hpp"

namespace darlcore {

/// Largest number of entries that 4-byte entries may have.
inline constexpr std::uint64_t mt_shuffle_entries_max = (std::uint64_t{1} << 31U) - 1;

namespace detail {

// 0, 1, 2, ...: fills a vector in one pass instead of zeros first and numbers second.
struct counting_iterator {
    using iterator_category = std::random_access_iterator_tag;
    using value_type = std::uint32_t;
    using difference_type = std::int64_t;
    using pointer = const std::uint32_t*;
    using reference = std::uint32_t;

    std::uint32_t value;

    reference operator*() const { return value; }
    counting_iterator& operator++() {
        ++value;
        return *this;
    }
    counting_iterator operator++(int) { return {value++}; }
    friend difference_type operator-(counting_iterator a, counting_iterator b) {
        return difference_type{a.value} - difference_type{b.value};
    }
    friend bool operator==(counting_iterator a, counting_iterator b) { return a.value == b.value; }
    friend bool operator!=(counting_iterator a, counting_iterator b) { return a.value != b.value; }
};

inline void prefetch_for_write([[maybe_unused]] const void* p) {
#if defined(__GNUC__) || defined(__clang__)
    __builtin_prefetch(p, 1);
#endif
}

// Accepted draws of one stretch of the shuffle, still to be swapped: a[top - c] with a[chosen[c]].
struct swap_batch {
    std::array<std::uint32_t, mt19937::state_words> chosen;
    std::uint32_t top = 0;
    std::size_t count = 0;
};

// Swaps between asking for a cache line and using it: enough for a miss to memory, few enough for the first-level TLB.
inline constexpr std::size_t prefetch_distance = 96;

// Swaps the batch, asking ahead for the lines of its own later swaps and of the first ones of the batch after it.
inline void apply_swaps(std::uint32_t* a, const swap_batch& batch, const swap_batch& next) {
    const std::size_t ahead = batch.count > prefetch_distance ? batch.count - prefetch_distance : 0;
    std::size_t c = 0;
    for (; c < ahead; ++c) {
        prefetch_for_write(a + batch.chosen[c + prefetch_distance]);
        std::swap(a[batch.top - c], a[batch.chosen[c]]);
    }
    for (std::size_t k = 0; k < std::min(next.count, prefetch_distance); ++k) prefetch_for_write(a + next.chosen[k]);
    for (; c < batch.count; ++c) std::swap(a[batch.top - c], a[batch.chosen[c]]);
}

// Draws for a[i], a[i - 1], ... as long as the bit length of the bound stays the same and outputs are ready. Rejection
// costs no branch: a rejected value is overwritten by the next one. Returns the next i.
inline std::uint32_t draw_batch(mt19937& engine, std::uint32_t i, swap_batch& batch) {
    const auto bits = static_cast<unsigned>(std::bit_width(i + 1));
    const unsigned shift = 32U - bits;
    const std::uint32_t lowest = std::max<std::uint32_t>((std::uint32_t{1} << (bits - 1)) - 1, 1);
    const auto outputs = engine.ready();
    const std::size_t tries = std::min<std::size_t>(outputs.size(), i - lowest + std::size_t{1});
    const std::uint32_t* in = outputs.data();
    std::uint32_t* out = batch.chosen.data();
    batch.top = i;
    for (std::size_t t = 0; t < tries; ++t) {
        const std::uint32_t value = in[t] >> shift;
        const std::uint32_t accepted = value <= i ? 1U : 0U;
        *out = value;
        out += accepted;
        i -= accepted;
    }
    batch.count = static_cast<std::size_t>(out - batch.chosen.data());
    engine.skip(tries);
    return i;
}

}  // namespace detail

/// Shuffles in place: for i = size - 1 down to 1, swap entry i with entry draw(i + 1). The order of `mt-shuffle-1`.
/// Determinism: a function of the engine's state and the size.
/// Preconditions (asserted): at most 2^31 - 1 entries.
/// Complexity: O(size); draws are made in batches ahead of their swaps, so that memory latency overlaps.
inline void shuffle(mt19937& engine, std::span<std::uint32_t> a) {
    DARLCORE_ASSERT_CMP(a.size(), <=, mt_shuffle_entries_max);
    if (a.size() < 2) return;
    detail::swap_batch batches[2];
    auto* drawn = &batches[0];
    auto* pending = &batches[1];
    for (auto i = static_cast<std::uint32_t>(a.size() - 1); i > 0; std::swap(drawn, pending)) {
        i = detail::draw_batch(engine, i, *drawn);
        detail::apply_swaps(a.data(), *pending, *drawn);
    }
    drawn->count = 0;
    detail::apply_swaps(a.data(), *pending, *drawn);
}

/// 0 ... count - 1 in the order that the text names: steps 2 to 6 of `mt-shuffle-1`.
/// Preconditions (asserted): count <= 2^31 - 1.
inline std::vector<std::uint32_t> shuffled_indices(std::string_view text, std::uint64_t count) {
    DARLCORE_ASSERT_CMP(count, <=, mt_shuffle_entries_max);
    std::vector<std::uint32_t> order(detail::counting_iterator{0},
                                     detail::counting_iterator{static_cast<std::uint32_t>(count)});
    if (count < 2) return order;
    mt19937 engine = seeded_engine(text);
    shuffle(engine, order);
    return order;
}

/// Text that names the permutation of an epoch.
inline std::string permutation_text(std::int64_t seed, std::uint32_t epoch) {
    return "pww-darl:" + std::to_string(seed) + ":" + std::to_string(epoch);
}

/// Text that names the local order of group `group` of an epoch.
inline std::string phase_text(std::int64_t seed, std::uint32_t epoch, std::uint64_t group) {
    return "pww-darl-phase:" + std::to_string(seed) + ":" + std::to_string(epoch) + ":" + std::to_string(group);
}

/// `mt-shuffle-1`: the block at each position of an epoch.
/// Units: entry p = block at position p. Memory: 4 bytes per block.
/// Preconditions (asserted): num_blocks <= 2^31 - 1.
/// Source: paper, data leasing; bit-identical to the reference implementation.
inline std::vector<std::uint32_t> mt_permutation(std::int64_t seed, std::uint32_t epoch, std::uint64_t num_blocks) {
    return shuffled_indices(permutation_text(seed, epoch), num_blocks);
}

}  // namespace darlcore
