// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "darlcore/assert.hpp"
#include "darlcore/lease/cow.hpp"
#include "darlcore/units.hpp"

namespace darlcore::lease {

/// Bits of positions [0, size) in shared pages of 2 KiB.
/// Complexity: range operations O(1 + length / 64); copies see cow_array.
class bit_pages {
public:
    using words = cow_array<std::uint64_t, 256>;
    static constexpr std::uint64_t all_ones = ~std::uint64_t{0};

    bit_pages() = default;
    bit_pages(std::uint64_t size, bool initially_set)
        : size_(size), words_((size + 63) / 64, initially_set ? all_ones : 0) {}

    [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
    [[nodiscard]] bool test(std::uint64_t i) const { return ((words_[i / 64] >> (i % 64)) & 1U) != 0; }
    [[nodiscard]] std::uint64_t word(std::uint64_t index) const { return words_[index]; }
    [[nodiscard]] std::uint64_t num_words() const { return words_.size(); }
    std::uint64_t& write_word(std::uint64_t index) { return words_.write(index); }

    /// Calls fn(word, mask, word_index) for each word of [start, end), writable, page by page.
    template <class Fn>
    void for_words(std::uint64_t start, std::uint64_t end, Fn&& fn) {
        if (start >= end) return;
        const std::uint64_t last = (end - 1) / 64;
        for (std::uint64_t w = start / 64; w <= last;) {
            auto& page = words_.write_page(w / words::page_size);
            const std::uint64_t stop = std::min(last, (w / words::page_size + 1) * words::page_size - 1);
            for (; w <= stop; ++w) fn(page[w % words::page_size], mask_of(w, start, end), w);
        }
    }

    /// First position in [from, limit) whose bit is `value`, else limit. Complexity: O(1 + distance / 64).
    [[nodiscard]] std::uint64_t find(std::uint64_t from, std::uint64_t limit, bool value) const {
        if (from >= limit) return limit;
        const std::uint64_t flip = value ? 0 : all_ones;
        std::uint64_t w = from / 64;
        std::uint64_t bits = (words_[w] ^ flip) & (all_ones << (from % 64));
        while (bits == 0) {
            if (++w * 64 >= limit) return limit;
            bits = words_[w] ^ flip;
        }
        return std::min(limit, w * 64 + static_cast<std::uint64_t>(std::countr_zero(bits)));
    }

    [[nodiscard]] std::uint64_t count_set() const {
        std::uint64_t n = 0;
        for (std::uint64_t w = 0; w < words_.size(); ++w)
            n += static_cast<std::uint64_t>(std::popcount(words_[w] & mask_of(w, 0, size_)));
        return n;
    }

    void clear(words::graveyard& old) { words_.clear(old); }
    [[nodiscard]] std::size_t bytes() const {
        return words_.pages_in_use() * (sizeof(words::page) + 16) + size_ / 16384 * 8;
    }

    /// Bits of word `w` that lie in [start, end).
    static constexpr std::uint64_t mask_of(std::uint64_t w, std::uint64_t start, std::uint64_t end) noexcept {
        std::uint64_t mask = all_ones;
        if (w * 64 < start) mask &= all_ones << (start - w * 64);
        if (end < (w + 1) * 64) mask &= all_ones >> ((w + 1) * 64 - end);
        return mask;
    }

private:
    std::uint64_t size_ = 0;
    words words_;
};

/// Bits with summary levels above them: bit i of level k + 1 says that word i of level k is not zero.
/// Complexity: next_set O(levels) however far the next bit is.
class summed_bits {
public:
    summed_bits() = default;
    /// All bits set.
    explicit summed_bits(std::uint64_t size) {
        levels_.emplace_back(size, true);
        while (levels_.back().num_words() > 1) levels_.emplace_back(levels_.back().num_words(), true);
    }

    [[nodiscard]] const bit_pages& bits() const { return levels_.front(); }
    [[nodiscard]] std::uint64_t size() const { return levels_.front().size(); }

    /// Sets or clears [start, end); returns how many bits changed.
    std::uint64_t assign(std::uint64_t start, std::uint64_t end, bool value) {
        std::uint64_t changed = 0;
        levels_[0].for_words(start, end, [&](std::uint64_t& word, std::uint64_t mask, std::uint64_t) {
            changed += static_cast<std::uint64_t>(std::popcount(value ? ~word & mask : word & mask));
            word = value ? word | mask : word & ~mask;
        });
        if (start < end) sum_up(start / 64, (end - 1) / 64 + 1, value);
        return changed;
    }

    /// First set position >= from, or size().
    [[nodiscard]] std::uint64_t next_set(std::uint64_t from) const {
        std::uint64_t at = from;
        for (std::size_t k = 0; k < levels_.size(); ++k) {
            if (at >= levels_[k].size()) return size();
            const std::uint64_t rest = levels_[k].word(at / 64) & (bit_pages::all_ones << (at % 64));
            if (rest == 0) {
                at = at / 64 + 1;
                continue;
            }
            at = at / 64 * 64 + static_cast<std::uint64_t>(std::countr_zero(rest));
            if (at >= levels_[k].size()) return size();
            while (k-- > 0) at = at * 64 + static_cast<std::uint64_t>(std::countr_zero(levels_[k].word(at)));
            return std::min(at, size());
        }
        return size();
    }

    void clear(bit_pages::words::graveyard& old) {
        for (auto& level : levels_) level.clear(old);
    }
    [[nodiscard]] std::size_t bytes() const {
        std::size_t sum = 0;
        for (const auto& level : levels_) sum += level.bytes();
        return sum;
    }
    /// True where every summary bit agrees with the words below it. Complexity: O(size).
    [[nodiscard]] bool summaries_agree() const {
        for (std::size_t k = 1; k < levels_.size(); ++k)
            for (std::uint64_t i = 0; i < levels_[k].size(); ++i) {
                const std::uint64_t mask = bit_pages::mask_of(i, 0, levels_[k - 1].size());
                if (levels_[k].test(i) != ((levels_[k - 1].word(i) & mask) != 0)) return false;
            }
        return true;
    }

private:
    // Words [first, last) of the level below were all touched by one assignment.
    void sum_up(std::uint64_t first, std::uint64_t last, bool value) {
        for (std::size_t k = 1; k < levels_.size(); ++k) {
            if (!value) {  // only words that became empty clear their bit: the two at the borders may not have
                while (first < last && live(k - 1, first)) ++first;
                while (first < last && live(k - 1, last - 1)) --last;
                if (first == last) return;
            }
            bool changed = false;
            levels_[k].for_words(first, last, [&](std::uint64_t& word, std::uint64_t mask, std::uint64_t) {
                const std::uint64_t next = value ? word | mask : word & ~mask;
                changed |= next != word;
                word = next;
            });
            if (!changed) return;
            first /= 64;
            last = (last - 1) / 64 + 1;
        }
    }
    [[nodiscard]] bool live(std::size_t level, std::uint64_t word) const {
        return (levels_[level].word(word) & bit_pages::mask_of(word, 0, levels_[level].size())) != 0;
    }

    std::vector<bit_pages> levels_;
};

}  // namespace darlcore::lease
