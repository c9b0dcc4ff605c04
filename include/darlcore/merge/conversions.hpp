// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

// Conversions on bit patterns, in integers only: neither flush-to-zero nor the rounding mode of the calling thread can
// change them. NaN: sign and the payload bits that fit are kept and the quiet bit is set, so that a truncated payload
// never becomes inf (bf16 to f32 appends zero bits and changes nothing).
namespace darlcore {

/// Exact.
constexpr std::uint32_t f32_bits_from_bf16(std::uint16_t bits) noexcept {
    return static_cast<std::uint32_t>(bits) << 16U;
}

/// Nearest, ties to even; from 0x7f7f8000 up inf; denormals kept.
constexpr std::uint16_t bf16_bits_from_f32(std::uint32_t bits) noexcept {
    if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16U) | 0x40U);
    return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U);
}

/// Exact; f16 denormals become normal f32.
constexpr std::uint32_t f32_bits_from_f16(std::uint16_t bits) noexcept {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16U;
    const std::uint32_t exponent = (bits >> 10U) & 0x1fU;
    const std::uint32_t mantissa = bits & 0x3ffU;
    if (exponent == 0x1fU) {
        const std::uint32_t quiet = mantissa == 0 ? 0U : 0x400000U;
        return sign | 0x7f800000U | quiet | (mantissa << 13U);
    }
    if (exponent != 0) return sign | ((exponent + 112U) << 23U) | (mantissa << 13U);
    if (mantissa == 0) return sign;
    const auto shift = static_cast<std::uint32_t>(std::countl_zero(mantissa)) - 21U;
    return sign | ((113U - shift) << 23U) | (((mantissa << shift) & 0x3ffU) << 13U);
}

/// Nearest, ties to even; from 65520 up inf; below 2^-14 f16 denormals; 2^-25 becomes 0, the next above it 2^-24.
constexpr std::uint16_t f16_bits_from_f32(std::uint32_t bits) noexcept {
    const std::uint32_t sign = (bits >> 16U) & 0x8000U;
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    if (magnitude > 0x7f800000U) return static_cast<std::uint16_t>(sign | 0x7e00U | ((magnitude >> 13U) & 0x3ffU));
    if (magnitude >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);
    if (magnitude >= 0x38800000U) {
        const std::uint32_t rounded = magnitude - (112U << 23U) + 0xfffU + ((magnitude >> 13U) & 1U);
        return static_cast<std::uint16_t>(sign | (rounded >> 13U));
    }
    if (magnitude <= 0x33000000U) return static_cast<std::uint16_t>(sign);
    // A denormal result: the 24-bit significand is shifted to units of 2^-24 and rounded by hand.
    const std::uint32_t shift = 126U - (magnitude >> 23U);
    const std::uint32_t significand = (magnitude & 0x7fffffU) | 0x800000U;
    const std::uint32_t kept = significand >> shift;
    const std::uint32_t rest = significand & ((1U << shift) - 1U);
    const std::uint32_t half = 1U << (shift - 1U);
    const std::uint32_t up = rest > half || (rest == half && (kept & 1U) != 0) ? 1U : 0U;
    return static_cast<std::uint16_t>(sign | (kept + up));
}

constexpr float f32_from_bf16(std::uint16_t bits) noexcept { return std::bit_cast<float>(f32_bits_from_bf16(bits)); }
constexpr float f32_from_f16(std::uint16_t bits) noexcept { return std::bit_cast<float>(f32_bits_from_f16(bits)); }
constexpr std::uint16_t bf16_from_f32(float value) noexcept {
    return bf16_bits_from_f32(std::bit_cast<std::uint32_t>(value));
}
constexpr std::uint16_t f16_from_f32(float value) noexcept {
    return f16_bits_from_f32(std::bit_cast<std::uint32_t>(value));
}

}  // namespace darlcore
