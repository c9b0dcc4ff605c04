// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "darlcore/error.hpp"

namespace darlcore {

/// How a stream cuts its windows into steps: each rank takes `batch` windows per micro-batch, `accumulate`
/// micro-batches per step, on `ranks` ranks.
struct batch_shape {
    std::uint64_t batch = 1;       ///< B >= 1
    std::uint64_t ranks = 1;       ///< W >= 1
    std::uint64_t accumulate = 1;  ///< A >= 1

    friend bool operator==(const batch_shape&, const batch_shape&) = default;
};

namespace detail {

inline result<std::uint64_t> checked_product(std::uint64_t a, std::uint64_t b, const char* what) {
    if (a != 0 && b > UINT64_MAX / a)
        return fail(errc::overflow, std::string(what) + " does not fit 64 bits: " + std::to_string(a) + " x " +
                                        std::to_string(b) + "; make one of the factors smaller");
    return a * b;
}

}  // namespace detail

/// Global batch G = B W A, windows per step.
/// Errors: errc::invalid_argument (a factor is 0), errc::overflow.
inline result<std::uint64_t> global_batch(const batch_shape& s) {
    if (s.batch == 0 || s.ranks == 0 || s.accumulate == 0)
        return fail(errc::invalid_argument, "batch, ranks and accumulate must be at least 1");
    auto per_micro_batch = detail::checked_product(s.batch, s.ranks, "batch x ranks");
    if (!per_micro_batch) return per_micro_batch;
    return detail::checked_product(*per_micro_batch, s.accumulate, "batch x ranks x accumulate");
}

/// Windows that H inner steps use: H G.
/// Errors: errc::invalid_argument (a factor is 0), errc::overflow.
inline result<std::uint64_t> windows_per_phase(std::uint64_t inner_steps, const batch_shape& s) {
    if (inner_steps == 0) return fail(errc::invalid_argument, "inner_steps must be at least 1");
    auto per_step = global_batch(s);
    if (!per_step) return per_step;
    return detail::checked_product(inner_steps, *per_step, "inner_steps x global batch");
}

/// Blocks of a phase, rounded up: max(1, ceil(H G / K)). As the reference implementation.
/// Errors: as `windows_per_phase`; errc::invalid_argument when block_size = 0.
inline result<std::uint64_t> blocks_up(std::uint64_t inner_steps, const batch_shape& s, std::uint64_t block_size) {
    if (block_size == 0) return fail(errc::invalid_argument, "block_size must be at least 1");
    const auto windows = windows_per_phase(inner_steps, s);
    if (!windows) return windows;
    return std::max<std::uint64_t>(1, *windows / block_size + (*windows % block_size != 0 ? 1 : 0));
}

/// Blocks of a phase, rounded to the nearest (halves up): max(1, (2 H G + K) div 2 K). Phases of whole blocks rounded
/// always up would train up to K / G steps more than H. Errors: as `blocks_up`.
inline result<std::uint64_t> blocks_nearest(std::uint64_t inner_steps, const batch_shape& s, std::uint64_t block_size) {
    if (block_size == 0) return fail(errc::invalid_argument, "block_size must be at least 1");
    const auto windows = windows_per_phase(inner_steps, s);
    if (!windows) return windows;
    const std::uint64_t rest = *windows % block_size;
    const std::uint64_t up = rest != 0 && rest >= block_size - rest ? 1 : 0;  // 2 rest >= K without its overflow
    return std::max<std::uint64_t>(1, *windows / block_size + up);
}

/// Groups of a phase when the user sets none: one for up to 4 blocks, else 4. More groups leave a slow site's tail
/// stealable for longer, fewer mix better.
constexpr std::uint64_t default_groups(std::uint64_t blocks) { return blocks <= 4 ? 1 : 4; }

/// Blocks of each group: nearly equal, larger ones first; never more groups than blocks.
/// Preconditions (asserted): groups >= 1.
inline std::vector<std::uint64_t> group_sizes(std::uint64_t blocks, std::uint64_t groups) {
    DARLCORE_ASSERT(groups >= 1);
    groups = std::min(groups, blocks);
    std::vector<std::uint64_t> out;
    for (std::uint64_t g = 0; g < groups; ++g) out.push_back(blocks / groups + (g < blocks % groups ? 1 : 0));
    return out;
}

}  // namespace darlcore
