// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace darlcore::formats {

/// Byte pair encoding: a word's bytes become ids, then the pair of neighbours that comes first in the list of merges
/// (the leftmost of equals) is joined, until no pair of the list is left.
/// Determinism: a function of the word and the merges. Thread-safety: const members from several threads at once.
class bpe {
public:
    static constexpr std::uint32_t no_id = 0xffffffff;
    struct merge {
        std::uint32_t left = 0, right = 0, joined = 0;
    };

    /// `byte_ids[b]` is the id of byte b, or no_id for bytes that no word has; merges in order of priority.
    bpe(const std::array<std::uint32_t, 256>& byte_ids, std::span<const merge> merges);

    /// Appends the ids of a word. Complexity: O(n^2) moves up to 48 bytes, above O(n log n).
    /// Preconditions: every byte of the word has an id.
    void encode(std::string_view word, std::vector<std::uint32_t>& ids) const;

private:
    struct slot {
        std::uint64_t pair = ~std::uint64_t{0};
        std::uint32_t rank = no_id;
        std::uint32_t joined = no_id;
    };
    [[nodiscard]] const slot& find(std::uint32_t left, std::uint32_t right) const;
    void encode_short(std::string_view word, std::vector<std::uint32_t>& ids) const;
    void encode_long(std::string_view word, std::vector<std::uint32_t>& ids) const;

    std::array<std::uint32_t, 256> byte_ids_;
    std::vector<slot> slots_;  // open addressing, a power of two
    std::uint64_t mask_ = 0;
};

/// Ids of words seen lately: a table with one place per hash value, of fixed size. Long words and words of many ids are
/// not kept. Thread-safety: none.
class word_cache {
public:
    static constexpr std::size_t word_bytes_max = 22;
    static constexpr std::size_t ids_max = 6;

    struct entry {
        std::array<char, word_bytes_max> word{};
        std::uint8_t bytes = 0;  // 0 = free: no word is empty
        std::uint8_t count = 0;
        std::array<std::uint32_t, ids_max> ids{};
    };

    word_cache() : entries_(std::size_t{1} << 15U) {}

    /// The place of a word; `holds` says whether it is there. Preconditions: 0 < word.size() <= word_bytes_max.
    entry& place(std::string_view word) { return entries_[hash(word) >> 49U]; }
    static bool holds(const entry& e, std::string_view word) {
        return e.bytes == word.size() && std::memcmp(e.word.data(), word.data(), word.size()) == 0;
    }
    static void keep(entry& e, std::string_view word, std::span<const std::uint32_t> ids) {
        if (ids.size() > ids_max) return;
        e.bytes = static_cast<std::uint8_t>(word.size());
        e.count = static_cast<std::uint8_t>(ids.size());
        std::memcpy(e.word.data(), word.data(), word.size());
        for (std::size_t i = 0; i < ids.size(); ++i) e.ids[i] = ids[i];
    }

private:
    static std::uint64_t hash(std::string_view word) {
        std::uint64_t h = word.size();
        for (std::size_t i = 0; i < word.size(); i += 8) {
            std::uint64_t part = 0;
            std::memcpy(&part, word.data() + i, word.size() - i < 8 ? word.size() - i : 8);
            h = (h ^ part) * 0x9e3779b97f4a7c15ULL;
            h ^= h >> 29U;
        }
        return h * 0xbf58476d1ce4e5b9ULL;
    }
    std::vector<entry> entries_;
};

}  // namespace darlcore::formats
