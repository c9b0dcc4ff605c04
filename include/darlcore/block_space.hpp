// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "darlcore/epoch_map.hpp"
#include "darlcore/error.hpp"
#include "darlcore/units.hpp"

namespace darlcore {

/// What a position means, over all epochs: N windows in blocks of K, permuted anew in each epoch. Two machines with
/// equal parameters agree on everything here without talking. Memory: 4 bytes per block and epoch held
/// (`mt-shuffle-1`), at most two epochs; nothing for `feistel-1` or no shuffle. Thread-safety: none for the object; the
/// maps it hands out are immutable and may be shared. Source: paper, data leasing; differs: epoch digests, `feistel-1`.
class block_space {
public:
    /// Errors: errc::invalid_argument (N or K = 0, feistel-1 without shuffle), errc::too_many_blocks.
    static result<block_space> make(const space_parameters& parameters) {
        const auto valid = check(parameters);
        if (!valid) return valid.error();
        return block_space(parameters);
    }

    [[nodiscard]] const space_parameters& parameters() const { return parameters_; }
    [[nodiscard]] std::uint64_t num_samples() const { return parameters_.num_samples; }
    [[nodiscard]] std::uint64_t block_size() const { return parameters_.block_size; }
    [[nodiscard]] std::uint64_t num_blocks() const { return block_count(parameters_); }

    /// The map of an epoch: taken from the two that are held, else built (replacing the one used longest ago).
    /// Errors: errc::out_of_memory.
    /// Complexity: O(1) when held; else O(num_blocks) for `mt-shuffle-1`.
    result<std::shared_ptr<const epoch_map>> map(epoch_index epoch) {
        if (recent_ && recent_->epoch() == epoch) return recent_;
        if (older_ && older_->epoch() == epoch) {
            std::swap(recent_, older_);
            return recent_;
        }
        older_.reset();  // before the new one is built: never three at a time
        auto built = build(parameters_, epoch);
        if (!built) return built;
        hold(*built);
        return built;
    }

    /// Takes a map that was prepared elsewhere, for example in another thread while the previous epoch still runs.
    /// Preconditions (asserted): it was built with equal parameters.
    void adopt(std::shared_ptr<const epoch_map> prepared) {
        DARLCORE_ASSERT(prepared != nullptr && prepared->parameters() == parameters_);
        hold(std::move(prepared));
    }

    /// Builds the map of an epoch without touching any object: what a preparing thread calls.
    /// Errors: as `make`, and errc::out_of_memory.
    static result<std::shared_ptr<const epoch_map>> build(const space_parameters& parameters, epoch_index epoch) {
        const auto valid = check(parameters);
        if (!valid) return valid.error();
        try {
            return std::shared_ptr<const epoch_map>(std::make_shared<epoch_map>(parameters, epoch));
        } catch (const std::bad_alloc&) {
            return fail(errc::out_of_memory, "no memory for the permutation of " +
                                                 std::to_string(block_count(parameters)) + " blocks (4 bytes each)");
        }
    }

    // Shorthands that build the epoch on demand. Preconditions (asserted): its memory is there; else use `map`.
    permutation_view permutation(epoch_index epoch) { return map(epoch).value()->permutation(); }
    std::uint64_t block_at(position p, epoch_index epoch) { return map(epoch).value()->block_at(p); }
    position position_of(std::uint64_t block, epoch_index epoch) { return map(epoch).value()->position_of(block); }
    window_range windows_of(position p, epoch_index epoch) { return map(epoch).value()->windows_of(p); }
    std::uint64_t window_count(const span& s, epoch_index epoch) { return map(epoch).value()->window_count(s); }
    digest16 digest(epoch_index epoch) { return map(epoch).value()->digest(); }

    /// The check behind `make`.
    static result<void> check(const space_parameters& p) {
        if (p.num_samples == 0)
            return fail(errc::invalid_argument, "num_samples is 0: a corpus has at least one window");
        if (p.block_size == 0) return fail(errc::invalid_argument, "block_size is 0: a block has at least one window");
        if (p.scheme == permutation_scheme::feistel_1 && !p.shuffle)
            return fail(errc::invalid_argument, "feistel-1 always shuffles: use mt-shuffle-1 for shuffle = false");
        const std::uint64_t blocks = block_count(p);
        if (p.scheme == permutation_scheme::mt_shuffle_1 && blocks > mt_shuffle_entries_max)
            return fail(errc::too_many_blocks,
                        std::to_string(blocks) +
                            " blocks are more than mt-shuffle-1 holds (2^31 - 1): use the scheme "
                            "feistel-1, or a block_size of at least " +
                            std::to_string(smallest_block_size(p.num_samples)));
        if (blocks > feistel_entries_max)
            return fail(errc::too_many_blocks, std::to_string(blocks) + " blocks are more than feistel-1 holds (2^62)");
        return {};
    }

private:
    explicit block_space(const space_parameters& parameters) : parameters_(parameters) {}

    static std::uint64_t smallest_block_size(std::uint64_t num_samples) {
        return num_samples / mt_shuffle_entries_max + (num_samples % mt_shuffle_entries_max != 0 ? 1 : 0);
    }
    void hold(std::shared_ptr<const epoch_map> map) {
        if (!(recent_ && recent_->epoch() == map->epoch())) older_ = std::move(recent_);
        recent_ = std::move(map);
    }

    space_parameters parameters_;
    std::shared_ptr<const epoch_map> recent_;
    std::shared_ptr<const epoch_map> older_;
};

}  // namespace darlcore
