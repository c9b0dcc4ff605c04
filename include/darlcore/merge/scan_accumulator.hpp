// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "darlcore/merge/conversions.hpp"
#include "darlcore/merge/delta_scan.hpp"
#include "darlcore/merge/tensor_view.hpp"

namespace darlcore {

/// Elements of one block of the sum of squares, and lanes within it.
inline constexpr std::uint64_t scan_block_elements = 65536;
inline constexpr std::size_t scan_lanes = 16;

/// Element `index` of a host view as f32.
/// Preconditions (asserted by the caller): the dtype enters merges; index inside.
inline float element_as_f32(const const_tensor_view& view, std::uint64_t index) {
    const auto* bytes = static_cast<const std::byte*>(view.data) + index * size_of(view.dtype);
    if (view.dtype == dtype::f32) {
        float value = 0;
        __builtin_memcpy(&value, bytes, 4);
        return value;
    }
    std::uint16_t word16 = 0;
    __builtin_memcpy(&word16, bytes, 2);
    return view.dtype == dtype::bf16 ? f32_from_bf16(word16) : f32_from_f16(word16);
}

/// Scans one tensor piece by piece, in plain scalar code: the definition that every backend's scan is compared with.
/// Determinism: the sum of squares is taken in f64 over blocks of 65536 elements counted from the tensor's first
/// element, within a block in 16 interleaved lanes, lanes added 0..15, blocks in index order. So the pieces, threads
/// and widths change no bit.
class scan_accumulator {
public:
    /// Preconditions (asserted): host memory; f32, bf16 or f16.
    void feed(const const_tensor_view& piece) {
        DARLCORE_ASSERT(enters_merge(piece.dtype));
        for (std::uint64_t i = 0; i < piece.elements; ++i) add(element_as_f32(piece, i));
    }

    /// The scan of what was fed so far, as if the tensor ended here.
    [[nodiscard]] delta_scan finish() const {
        if (max_bits_ >= 0x7f800000U) return {false, 0.0F, 0.0};
        delta_scan scan{true, std::bit_cast<float>(max_bits_), closed_sum_};
        if (in_block_ > 0) scan.sum_squares += block_sum();
        return scan;
    }

private:
    void add(float value) {
        const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(value) & 0x7fffffffU;
        if (magnitude > max_bits_) max_bits_ = magnitude;
        const auto wide = static_cast<double>(value);
        lanes_[in_block_ % scan_lanes] += wide * wide;
        if (++in_block_ < scan_block_elements) return;
        closed_sum_ += block_sum();
        lanes_ = {};
        in_block_ = 0;
    }

    [[nodiscard]] double block_sum() const {
        double sum = lanes_[0];
        for (std::size_t lane = 1; lane < scan_lanes; ++lane) sum += lanes_[lane];
        return sum;
    }

    std::array<double, scan_lanes> lanes_{};
    std::uint64_t in_block_ = 0;
    std::uint32_t max_bits_ = 0;
    double closed_sum_ = 0.0;
};

}  // namespace darlcore
