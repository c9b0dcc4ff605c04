// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "darlcore/lease/meter.hpp"
#include "darlcore/lease/paged_vector.hpp"

namespace darlcore::lease {

/// A binary heap that knows where each of its entries is, so that any of them can be moved or removed.
/// `Key` needs `before(other)`: true where it comes out first; a strict order. Entries are named by a small number
/// (slot). Complexity: set, erase O(log n); top O(1).
template <class Key, class Meter = no_meter>
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
    [[nodiscard]] std::size_t bytes() const { return entries_.bytes() + where_.bytes(); }
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
        Meter::touch();
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

    paged_vector<entry> entries_;
    paged_vector<std::uint32_t> where_;
};

}  // namespace darlcore::lease
