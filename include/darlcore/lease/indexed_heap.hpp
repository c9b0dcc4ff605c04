// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "darlcore/assert.hpp"

namespace darlcore::lease {

/// A binary heap that knows where each of its entries is, so that any of them can be moved or removed.
/// `Key` needs `before(other)`: true where it comes out first; a strict order. Entries are named by a small number
/// (slot). Complexity: set, erase O(log n); top O(1).
template <class Key>
class indexed_heap {
public:
    struct entry {
        Key key;
        std::uint32_t slot;
    };

    [[nodiscard]] bool empty() const noexcept { return entries_.empty(); }
    [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }
    [[nodiscard]] const entry& top() const { return entries_.front(); }
    /// Entries as a tree: the children of i are 2 i + 1 and 2 i + 2, and none comes out before its parent.
    [[nodiscard]] const entry& at(std::size_t i) const { return entries_[i]; }
    [[nodiscard]] bool contains(std::uint32_t slot) const { return slot < where_.size() && where_[slot] != absent; }
    /// Preconditions: contains(slot).
    [[nodiscard]] const Key& key_of(std::uint32_t slot) const { return entries_[where_[slot]].key; }

    /// Inserts the slot or moves it to its new place.
    void set(std::uint32_t slot, const Key& key) {
        if (slot >= where_.size()) where_.resize(slot + 1U, absent);
        if (where_[slot] == absent) {
            where_[slot] = static_cast<std::uint32_t>(entries_.size());
            entries_.push_back({key, slot});
            sift_up(entries_.size() - 1);
            return;
        }
        const std::size_t i = where_[slot];
        const bool earlier = key.before(entries_[i].key);
        entries_[i].key = key;
        earlier ? sift_up(i) : sift_down(i);
    }
    void erase(std::uint32_t slot) {
        if (!contains(slot)) return;
        const std::size_t i = where_[slot];
        where_[slot] = absent;
        const entry last = entries_.back();
        entries_.pop_back();
        if (i == entries_.size()) return;
        const bool earlier = last.key.before(entries_[i].key);
        place(i, last);
        earlier ? sift_up(i) : sift_down(i);
    }
    [[nodiscard]] std::size_t bytes() const {
        return entries_.capacity() * sizeof(entry) + where_.capacity() * sizeof(std::uint32_t);
    }
    /// True where the order and the places are right. Complexity: O(n).
    [[nodiscard]] bool is_consistent() const {
        for (std::size_t i = 0; i < entries_.size(); ++i) {
            if (where_[entries_[i].slot] != i) return false;
            if (i > 0 && entries_[i].key.before(entries_[(i - 1) / 2].key)) return false;
        }
        return true;
    }

private:
    static constexpr std::uint32_t absent = ~std::uint32_t{0};

    void place(std::size_t i, const entry& e) {
        entries_[i] = e;
        where_[e.slot] = static_cast<std::uint32_t>(i);
    }
    void sift_up(std::size_t i) {
        const entry moving = entries_[i];
        while (i > 0) {
            const std::size_t parent = (i - 1) / 2;
            if (!moving.key.before(entries_[parent].key)) break;
            place(i, entries_[parent]);
            i = parent;
        }
        place(i, moving);
    }
    void sift_down(std::size_t i) {
        const entry moving = entries_[i];
        for (std::size_t child = 2 * i + 1; child < entries_.size(); child = 2 * i + 1) {
            if (child + 1 < entries_.size() && entries_[child + 1].key.before(entries_[child].key)) ++child;
            if (!entries_[child].key.before(moving.key)) break;
            place(i, entries_[child]);
            i = child;
        }
        place(i, moving);
    }

    std::vector<entry> entries_;
    std::vector<std::uint32_t> where_;
};

/// A hash table from lease sequences to slots, open addressing.
/// Complexity: O(1) each.
class seq_table {
public:
    static constexpr std::uint32_t none = ~std::uint32_t{0};

    [[nodiscard]] std::size_t size() const noexcept { return used_; }
    [[nodiscard]] std::uint32_t find(std::uint64_t seq) const {
        if (used_ == 0) return none;
        for (std::size_t i = home(seq);; i = (i + 1) & mask()) {
            if (cells_[i].seq == seq) return cells_[i].slot;
            if (cells_[i].seq == 0) return none;
        }
    }
    /// Preconditions: seq > 0 and not in the table.
    void insert(std::uint64_t seq, std::uint32_t slot) {
        if (2 * (used_ + 1) > cells_.size()) grow();
        put({seq, slot});
        ++used_;
    }
    void erase(std::uint64_t seq) {
        if (used_ == 0) return;
        std::size_t i = home(seq);
        for (; cells_[i].seq != seq; i = (i + 1) & mask())
            if (cells_[i].seq == 0) return;
        // Moves later entries of the probe run into the gap, so that no search ends early.
        for (std::size_t j = (i + 1) & mask(); cells_[j].seq != 0; j = (j + 1) & mask()) {
            if (((j - home(cells_[j].seq)) & mask()) < ((j - i) & mask())) continue;
            cells_[i] = cells_[j];
            i = j;
        }
        cells_[i] = {};
        --used_;
    }
    void clear() {
        cells_.clear();
        used_ = 0;
    }
    [[nodiscard]] std::size_t bytes() const { return cells_.capacity() * sizeof(cell); }

private:
    struct cell {
        std::uint64_t seq = 0;
        std::uint32_t slot = none;
    };
    [[nodiscard]] std::size_t mask() const { return cells_.size() - 1; }
    [[nodiscard]] std::size_t home(std::uint64_t seq) const {
        return static_cast<std::size_t>((seq * 0x9E3779B97F4A7C15ULL) >> 20U) & mask();
    }
    void put(const cell& c) {
        std::size_t i = home(c.seq);
        while (cells_[i].seq != 0) i = (i + 1) & mask();
        cells_[i] = c;
    }
    void grow() {
        std::vector<cell> old(cells_.empty() ? 16 : 2 * cells_.size());
        old.swap(cells_);
        for (const cell& c : old)
            if (c.seq != 0) put(c);
    }

    std::vector<cell> cells_;
    std::size_t used_ = 0;
};

}  // namespace darlcore::lease
