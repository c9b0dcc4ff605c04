// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace darlcore {

/// What one pass over a tensor or a whole delta finds out.
/// When `finite` is false the two numbers are 0.
struct delta_scan {
    bool finite = true;
    float max_abs = 0.0F;
    double sum_squares = 0.0;

    /// Euclidean norm.
    [[nodiscard]] double norm() const { return std::sqrt(sum_squares); }

    /// Adds the next tensor in layout order. The order is part of the promise: sums of f64 depend on it.
    constexpr void append(const delta_scan& next) {
        if (!finite || !next.finite) {
            *this = {false, 0.0F, 0.0};
            return;
        }
        // as bits: a thread that takes denormals for zero must not change the answer
        if (std::bit_cast<std::uint32_t>(next.max_abs) > std::bit_cast<std::uint32_t>(max_abs)) max_abs = next.max_abs;
        sum_squares += next.sum_squares;
    }

    friend bool operator==(const delta_scan&, const delta_scan&) = default;
};

}  // namespace darlcore
