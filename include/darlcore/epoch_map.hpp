// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "darlcore/assert.hpp"
#include "darlcore/digest.hpp"
#include "darlcore/feistel.hpp"
#include "darlcore/permutation.hpp"
#include "darlcore/units.hpp"

namespace darlcore {

/// Which permutation a run uses; part of its identity.
enum class permutation_scheme : std::uint8_t { mt_shuffle_1, feistel_1 };

constexpr std::string_view word(permutation_scheme scheme) {
    return scheme == permutation_scheme::feistel_1 ? "feistel-1" : "mt-shuffle-1";
}

constexpr std::optional<permutation_scheme> permutation_scheme_from_word(std::string_view text) {
    if (text == "mt-shuffle-1") return permutation_scheme::mt_shuffle_1;
    if (text == "feistel-1") return permutation_scheme::feistel_1;
    return std::nullopt;
}

/// The parameters that give positions their meaning. A window (= sample) is seq_len + 1 consecutive tokens.
struct space_parameters {
    std::uint64_t num_samples = 1;  ///< N >= 1, windows in the corpus
    std::uint64_t block_size = 1;   ///< K >= 1, windows per block
    std::int64_t seed = 0;
    bool shuffle = true;  ///< false = identity, for debugging: leases become readable ranges
    permutation_scheme scheme = permutation_scheme::mt_shuffle_1;

    friend bool operator==(const space_parameters&, const space_parameters&) = default;
};

/// M = ceil(N / K), without overflow.
constexpr std::uint64_t block_count(const space_parameters& p) {
    return p.num_samples / p.block_size + (p.num_samples % p.block_size != 0 ? 1 : 0);
}

/// Half-open range of windows [begin, end).
struct window_range {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;

    [[nodiscard]] constexpr std::uint64_t size() const { return end - begin; }
    friend constexpr bool operator==(const window_range&, const window_range&) = default;
    friend std::ostream& operator<<(std::ostream& out, const window_range& r) {
        return out << '[' << r.begin << ", " << r.end << ')';
    }
};

/// Windows of a block: [b K, min(b K + K, N)).
/// Preconditions (asserted): block < block_count(p).
constexpr window_range windows_of_block(const space_parameters& p, std::uint64_t block) {
    DARLCORE_ASSERT_CMP(block, <, block_count(p));
    const std::uint64_t begin = block * p.block_size;
    const std::uint64_t left = p.num_samples - begin;
    return {begin, left <= p.block_size ? p.num_samples : begin + p.block_size};
}

/// The order of an epoch as a list, without owning it: entry p = block at position p. Empty for an identity or
/// `feistel-1` order, which have no table.
using permutation_view = std::span<const std::uint32_t>;

namespace detail {

// Little-endian bytes of the entries, whatever the byte order of the host.
template <std::endian Host = std::endian::native>
void update_entries(blake2b& hash, std::span<const std::uint32_t> entries) {
    if constexpr (Host == std::endian::little) {
        hash.update(std::as_bytes(entries));
    } else {
        std::array<std::uint8_t, 4096> buffer{};
        std::size_t filled = 0;
        for (const std::uint32_t entry : entries) {
            for (unsigned i = 0; i < 4; ++i) buffer[filled++] = static_cast<std::uint8_t>(entry >> (8U * i));
            if (filled < buffer.size()) continue;
            hash.update(std::span<const std::uint8_t>(buffer));
            filled = 0;
        }
        hash.update(std::span<const std::uint8_t>(buffer).first(filled));
    }
}

}  // namespace detail

/// One epoch of a block space: position to block and back, windows, counts, digest.
/// Memory: 4 bytes per block (`mt-shuffle-1` with shuffle), else O(1); `position_of` on such a table costs
/// O(num_blocks) unless `with_inverse` built the other table (4 bytes more). Determinism: a function of (parameters,
/// epoch). Thread-safety: immutable after construction.
class epoch_map {
public:
    /// Preconditions (asserted): parameters that `block_space::check` accepts. Throws std::bad_alloc.
    epoch_map(const space_parameters& parameters, epoch_index epoch)
        : parameters_(parameters), epoch_(epoch), num_blocks_(block_count(parameters)) {
        if (parameters.scheme == permutation_scheme::feistel_1) {
            feistel_.emplace(parameters.seed, epoch.count, num_blocks_);
        } else if (parameters.shuffle) {
            order_ = mt_permutation(parameters.seed, epoch.count, num_blocks_);
        }
        if (shortfall() > 0) short_position_ = position_of(num_blocks_ - 1);
    }

    [[nodiscard]] const space_parameters& parameters() const { return parameters_; }
    [[nodiscard]] epoch_index epoch() const { return epoch_; }
    [[nodiscard]] std::uint64_t num_blocks() const { return num_blocks_; }
    [[nodiscard]] permutation_view permutation() const { return order_; }

    /// Preconditions (asserted): p < num_blocks(). Complexity: O(1).
    [[nodiscard]] std::uint64_t block_at(position p) const {
        DARLCORE_ASSERT_CMP(p.count, <, num_blocks_);
        if (feistel_) return feistel_->forward(p.count);
        return order_.empty() ? p.count : order_[static_cast<std::size_t>(p.count)];
    }

    /// Preconditions (asserted): block < num_blocks(). Complexity: O(1), except O(num_blocks) on a table without
    /// inverse.
    [[nodiscard]] position position_of(std::uint64_t block) const {
        DARLCORE_ASSERT_CMP(block, <, num_blocks_);
        if (feistel_) return position{feistel_->inverse(block)};
        if (order_.empty()) return position{block};
        if (!inverse_.empty()) return position{inverse_[static_cast<std::size_t>(block)]};
        const auto found = std::find(order_.begin(), order_.end(), static_cast<std::uint32_t>(block));
        return position{static_cast<std::uint64_t>(found - order_.begin())};
    }

    /// Builds the table that makes `position_of` O(1). Throws std::bad_alloc.
    void with_inverse() {
        inverse_.resize(order_.size());
        for (std::size_t p = 0; p < order_.size(); ++p) inverse_[order_[p]] = static_cast<std::uint32_t>(p);
    }

    /// Windows of the block at a position, ascending. Preconditions (asserted): p < num_blocks(). Complexity: O(1).
    [[nodiscard]] window_range windows_of(position p) const { return windows_of_block(parameters_, block_at(p)); }

    /// Number of windows of a span: n K, less what the short block lacks if the span holds it. Nobody may assume n K.
    /// Preconditions (asserted): s.end <= num_blocks(). Complexity: O(1).
    [[nodiscard]] std::uint64_t window_count(const span& s) const {
        DARLCORE_ASSERT_CMP(s.end.count, <=, num_blocks_);
        const std::uint64_t blocks = s.size();
        if (!short_position_ || !s.contains(*short_position_)) return blocks * parameters_.block_size;
        return (blocks - 1) * parameters_.block_size + parameters_.num_samples % parameters_.block_size;
    }

    /// Position of the short block; nothing when K divides N.
    [[nodiscard]] std::optional<position> short_block_position() const { return short_position_; }

    /// Fingerprint of what positions mean in this epoch; equal on two machines exactly if they read the same windows.
    /// Complexity: O(num_blocks) for a shuffled table, else O(1).
    [[nodiscard]] digest16 digest() const {
        blake2b hash(16);
        if (feistel_) {
            hash.update("feistel-1:" + counts_text() + ':' + std::to_string(epoch_.count));
            update_images(hash);
        } else {
            hash.update(counts_text() + (parameters_.shuffle ? ":True:" : ":False:") + std::to_string(epoch_.count));
            detail::update_entries(hash, order_);
        }
        return finish_digest<16>(hash);
    }

private:
    [[nodiscard]] std::uint64_t shortfall() const {
        const std::uint64_t rest = parameters_.num_samples % parameters_.block_size;
        return rest == 0 ? 0 : parameters_.block_size - rest;
    }
    [[nodiscard]] std::string counts_text() const {
        return std::to_string(parameters_.num_samples) + ':' + std::to_string(parameters_.block_size) + ':' +
               std::to_string(parameters_.seed);
    }
    void update_images(blake2b& hash) const {
        for (std::uint64_t p = 0; p < std::min<std::uint64_t>(num_blocks_, 64); ++p) {
            const std::uint64_t image = feistel_->forward(p);
            std::array<std::uint8_t, 8> bytes{};
            for (unsigned i = 0; i < 8; ++i) bytes[i] = static_cast<std::uint8_t>(image >> (8U * i));
            hash.update(std::span<const std::uint8_t>(bytes));
        }
    }

    space_parameters parameters_;
    epoch_index epoch_;
    std::uint64_t num_blocks_;
    std::vector<std::uint32_t> order_;
    std::vector<std::uint32_t> inverse_;
    std::optional<feistel_permutation> feistel_;
    std::optional<position> short_position_;
};

}  // namespace darlcore
