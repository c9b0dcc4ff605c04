// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "darlcore/epoch_map.hpp"
#include "darlcore/error.hpp"
#include "darlcore/units.hpp"

namespace darlcore {

/// Positions reserved together, exactly those that the replies reserved: the unit of reserving, of shuffling and of the
/// trained watermark. These few integers are all that the ranks of a stream exchange about data.
struct phase_group {
    std::uint64_t counter = 0;  ///< g: +1 per group built in an epoch, not reset by a restart in the same epoch
    std::vector<span> spans;    ///< in grant order

    friend bool operator==(const phase_group&, const phase_group&) = default;
};

/// Windows of a group, short block included.
/// Preconditions (asserted): spans within the epoch's positions. Complexity: O(spans).
inline std::uint64_t window_count(const epoch_map& map, const phase_group& group) {
    std::uint64_t windows = 0;
    for (const span& s : group.spans) windows += map.window_count(s);
    return windows;
}

/// The shuffled windows of one group.
/// Memory: 4 bytes per window and 8 per block of this group.
/// Determinism: a function of (parameters, epoch, counter, spans); equal on every rank.
/// Thread-safety: immutable.
class group_order {
public:
    /// Preconditions (asserted): spans within the epoch; at most 2^31 - 1 windows. Complexity: O(windows).
    group_order(const epoch_map& map, const phase_group& group) : block_size_(map.parameters().block_size) {
        const std::uint64_t last_block = map.num_blocks() - 1;
        const bool has_short = map.short_block_position().has_value();
        for (const span& s : group.spans) {
            for (std::uint64_t p = s.start.count; p < s.end.count; ++p) {
                const std::uint64_t block = map.block_at(position{p});
                if (has_short && block == last_block) short_index_ = first_windows_.size();
                first_windows_.push_back(block * block_size_);
            }
        }
        if (short_index_ != no_short) short_missing_ = block_size_ - map.parameters().num_samples % block_size_;
        order_ = shuffled_indices(phase_text(map.parameters().seed, map.epoch().count, group.counter),
                                  darlcore::window_count(map, group));
    }

    [[nodiscard]] std::uint64_t size() const { return order_.size(); }

    /// The window at place i of the local order.
    /// Preconditions (asserted): i < size(). Complexity: O(1).
    [[nodiscard]] std::uint64_t operator[](std::uint64_t i) const {
        DARLCORE_ASSERT_CMP(i, <, order_.size());
        return unshuffled(order_[static_cast<std::size_t>(i)]);
    }

private:
    static constexpr std::size_t no_short = SIZE_MAX;

    // Window k of the blocks one after the other. Behind the short block everything lies as if it were whole.
    [[nodiscard]] std::uint64_t unshuffled(std::uint64_t k) const {
        if (short_index_ != no_short && k >= (short_index_ + 1) * block_size_ - short_missing_) k += short_missing_;
        return first_windows_[static_cast<std::size_t>(k / block_size_)] + k % block_size_;
    }

    std::uint64_t block_size_;
    std::size_t short_index_ = no_short;
    std::uint64_t short_missing_ = 0;
    std::vector<std::uint64_t> first_windows_;
    std::vector<std::uint32_t> order_;
};

}  // namespace darlcore
