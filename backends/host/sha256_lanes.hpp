// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace darlcore::host {

inline constexpr std::size_t sha256_lane_count = 16;

/// Sixteen SHA-256 computations side by side: each word of the state for all lanes together.
struct sha256_lanes {
    alignas(64) std::uint32_t words[8][sha256_lane_count];
};

/// Takes so many blocks of 64 bytes from each of the sixteen places. Several times the bytes per second of one stream
/// on the processor's own instructions of SHA-256, whose throughput is the limit there.
/// Preconditions: this processor has instruction_set::avx512.
void sha256_lanes_update(sha256_lanes& state, const std::byte* const* from, std::size_t blocks);

}  // namespace darlcore::host
