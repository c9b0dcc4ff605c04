// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "darlcore/lease/cow.hpp"
#include "darlcore/lease/meter.hpp"

namespace darlcore::lease {

/// A hash table from lease sequences to slots. It grows one bucket at a time (extendible hashing), so that no insertion
/// moves more than the entries of one bucket: there is no call that pays for all the others. Sequences that were given
/// out together lie together, so a walk through neighbouring leases stays in the caches.
/// Complexity: find, insert, erase and clear O(1), at most two buckets of 128 cells each; every 2^k-th insertion copies
/// the directory (4 bytes per bucket). Copies share buckets until they write.
/// Source: Fagin, Nievergelt, Pippenger, Strong: Extendible hashing (1979).
template <class Meter = no_meter>
class basic_seq_table {
public:
    static constexpr std::uint32_t none = ~std::uint32_t{0};

    [[nodiscard]] std::size_t size() const noexcept { return used_; }
    [[nodiscard]] std::uint32_t find(std::uint64_t seq) const {
        if (used_ == 0) return none;
        const bucket& b = *buckets_[directory_[directory_index(hash_of(seq), depth_)]].get();
        return b.era == era_ ? b.cells[place_in(b, seq)].slot : none;
    }
    /// Preconditions: seq > 0 and not in the table.
    void insert(std::uint64_t seq, std::uint32_t slot) {
        if (buckets_.empty()) {
            directory_.push_back(0);
            buckets_.emplace_back();
        }
        const std::uint64_t hash = hash_of(seq);
        for (;;) {
            bucket& b = buckets_[directory_[directory_index(hash, depth_)]].write(empty_bucket());
            if (b.era != era_) renew(b);
            if (b.used < bucket_max) {
                b.cells[place_in(b, seq)] = {seq, slot};
                ++b.used;
                ++used_;
                return;
            }
            split(b, hash);
        }
    }
    void erase(std::uint64_t seq) {
        if (used_ == 0) return;
        bucket& b = buckets_[directory_[directory_index(hash_of(seq), depth_)]].write();
        if (b.era != era_) return;
        std::size_t i = place_in(b, seq);
        if (b.cells[i].seq == 0) return;
        // Moves later entries of the probe run into the gap, so that no search ends early.
        for (std::size_t j = (i + 1) & mask; b.cells[j].seq != 0; j = (j + 1) & mask) {
            Meter::touch();
            if (((j - home(b.cells[j].seq)) & mask) < ((j - i) & mask)) continue;
            b.cells[i] = b.cells[j];
            i = j;
        }
        b.cells[i] = {};
        --b.used;
        --used_;
    }
    /// Every bucket is emptied when it is next written, so that forgetting everything costs nothing.
    void clear() {
        ++era_;
        used_ = 0;
    }
    [[nodiscard]] std::size_t bytes() const {
        return buckets_.size() * (sizeof(bucket) + 16) + buckets_.capacity() * sizeof(buckets_.front()) +
               directory_.capacity() * sizeof(std::uint32_t);
    }

private:
    struct cell {
        std::uint64_t seq = 0;  // 0: empty
        std::uint32_t slot = none;
    };
    static constexpr std::size_t bucket_cells = 128;
    static constexpr std::size_t mask = bucket_cells - 1;
    static constexpr std::uint32_t bucket_max = 96;  // beyond that probe runs grow long
    struct bucket {
        std::array<cell, bucket_cells> cells{};
        std::uint32_t used = 0;
        std::uint32_t depth = 0;  // bits of the hash that all its entries share
        std::uint32_t era = 0;
    };

    // Eight neighbours share a hash and are told apart by their last bits.
    static constexpr std::uint64_t hash_of(std::uint64_t seq) noexcept { return (seq / 8) * 0x9E3779B97F4A7C15ULL; }
    static constexpr std::size_t home(std::uint64_t seq) noexcept {
        const std::uint64_t hash = hash_of(seq);
        return (((hash ^ (hash >> 29U)) & 15U) * 8 + seq % 8) & mask;
    }
    static constexpr std::size_t directory_index(std::uint64_t hash, std::uint32_t depth) noexcept {
        return depth == 0 ? 0 : static_cast<std::size_t>(hash >> (64 - depth));
    }
    static const bucket& empty_bucket() {
        static constexpr bucket empty{};
        return empty;
    }
    /// Where the sequence is, or the empty cell where its search ends.
    static std::size_t place_in(const bucket& b, std::uint64_t seq) {
        std::size_t i = home(seq);
        for (; b.cells[i].seq != seq && b.cells[i].seq != 0; i = (i + 1) & mask) Meter::touch();
        Meter::touch();
        return i;
    }
    void renew(bucket& b) {
        b.cells.fill({});
        b.used = 0;
        b.era = era_;
    }
    /// Moves the entries whose next bit of the hash is one into a new bucket.
    void split(bucket& full, std::uint64_t hash) {
        if (full.depth == depth_) double_directory();
        const auto new_id = static_cast<std::uint32_t>(buckets_.size());
        const std::array<cell, bucket_cells> all = full.cells;
        const std::uint32_t depth = full.depth + 1;
        cow_ptr<bucket> fresh;
        bucket& other = fresh.write(empty_bucket());
        renew(full);
        renew(other);
        full.depth = depth;
        other.depth = depth;
        for (const cell& c : all) {
            Meter::touch();
            if (c.seq == 0) continue;
            bucket& b = ((hash_of(c.seq) >> (64 - depth)) & 1U) != 0 ? other : full;
            b.cells[place_in(b, c.seq)] = c;
            ++b.used;
        }
        const std::size_t entries = std::size_t{1} << (depth_ - depth);
        const std::size_t first = directory_index(hash, depth_) / (2 * entries) * (2 * entries);
        for (std::size_t i = first + entries; i < first + 2 * entries; ++i) directory_[i] = new_id;
        buckets_.push_back(std::move(fresh));
    }
    void double_directory() {
        std::vector<std::uint32_t> wide(directory_.size() * 2);
        Meter::touch(wide.size() / 16);  // in cache lines
        for (std::size_t i = 0; i < wide.size(); ++i) wide[i] = directory_[i / 2];
        directory_ = std::move(wide);
        ++depth_;
    }

    std::vector<std::uint32_t> directory_;  // by the first depth_ bits of the hash
    std::vector<cow_ptr<bucket>> buckets_;
    std::uint32_t depth_ = 0;
    std::uint32_t era_ = 0;
    std::size_t used_ = 0;
};

using seq_table = basic_seq_table<>;

}  // namespace darlcore::lease
