// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

#include "darlcore/assert.hpp"
#include "darlcore/digest.hpp"
#include "darlcore/random.hpp"

namespace darlcore {

/// Largest domain of `feistel-1`.
inline constexpr std::uint64_t feistel_entries_max = std::uint64_t{1} << 62U;

/// `feistel-1`: a permutation of [0, M) with random access both ways and no table, for huge M. It scatters well; it
/// promises nothing cryptographic. Not the same permutation as `mt-shuffle-1`. Determinism: a function of (M, seed,
/// epoch). Complexity: O(1) per access, at most 4 walks of the network on average; 88 bytes. Thread-safety: immutable.
class feistel_permutation {
public:
    /// Preconditions (asserted): 1 <= size <= 2^62.
    feistel_permutation(std::int64_t seed, std::uint32_t epoch, std::uint64_t size) : size_(size) {
        DARLCORE_ASSERT(size >= 1 && size <= feistel_entries_max);
        const auto bits = static_cast<unsigned>(std::bit_width(size - 1));
        half_bits_ = bits < 2 ? 1 : (bits + 1) / 2;
        mask_ = (std::uint64_t{1} << half_bits_) - 1;
        const auto bytes = blake2b_of<64>("darl-feistel-1:" + std::to_string(seed) + ":" + std::to_string(epoch));
        for (std::size_t i = 0; i < bytes.size(); ++i) keys_[i / 8] |= std::uint64_t{bytes[i]} << (8U * (i % 8U));
    }

    [[nodiscard]] std::uint64_t size() const { return size_; }

    /// The image of x. Preconditions (asserted): x < size().
    [[nodiscard]] std::uint64_t forward(std::uint64_t x) const {
        DARLCORE_ASSERT_CMP(x, <, size_);
        do x = network(x);
        while (x >= size_);
        return x;
    }

    /// The x with forward(x) = y. Preconditions (asserted): y < size().
    [[nodiscard]] std::uint64_t inverse(std::uint64_t y) const {
        DARLCORE_ASSERT_CMP(y, <, size_);
        do y = network_inverse(y);
        while (y >= size_);
        return y;
    }

private:
    [[nodiscard]] std::uint64_t network(std::uint64_t x) const {
        std::uint64_t left = x >> half_bits_;
        std::uint64_t right = x & mask_;
        for (const std::uint64_t key : keys_) {
            const std::uint64_t mixed = left ^ (splitmix64::mixed(right + key) & mask_);
            left = right;
            right = mixed;
        }
        return (left << half_bits_) | right;
    }
    [[nodiscard]] std::uint64_t network_inverse(std::uint64_t y) const {
        std::uint64_t left = y >> half_bits_;
        std::uint64_t right = y & mask_;
        for (std::size_t k = keys_.size(); k-- > 0;) {
            const std::uint64_t mixed = right ^ (splitmix64::mixed(left + keys_[k]) & mask_);
            right = left;
            left = mixed;
        }
        return (left << half_bits_) | right;
    }

    std::uint64_t size_;
    std::uint64_t mask_ = 0;
    unsigned half_bits_ = 1;
    std::array<std::uint64_t, 8> keys_{};
};

}  // namespace darlcore
