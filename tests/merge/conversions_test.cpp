// SPDX-License-Identifier: Apache-2.0
#include "darlcore/merge/conversions.hpp"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "darlcore/testing/budget.hpp"

namespace {

using namespace darlcore;

// A second way: values as f64, the nearest by comparing with both neighbours.
double value_of_f16(std::uint16_t bits) {
    const int exponent = (bits >> 10) & 31;
    const double mantissa = bits & 1023;
    const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
    if (exponent == 31) return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
    return exponent == 0 ? sign * std::ldexp(mantissa, -24) : sign * std::ldexp(1024 + mantissa, exponent - 25);
}

// Rounds |x| to a grid of `step`, ties to even.
double to_grid(double x, double step) { return std::nearbyint(x / step) * step; }

std::uint16_t twin_f16(float value) {
    const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000U : 0U);
    const auto x = std::fabs(static_cast<double>(value));
    if (x >= 65520.0) return sign | 0x7c00U;
    int exponent = 0;
    std::frexp(x, &exponent);
    const int unit = std::max(exponent - 11, -24);
    const double rounded = to_grid(x, std::ldexp(1.0, unit));
    if (rounded == 0) return sign;
    std::frexp(rounded, &exponent);
    if (exponent <= -14) return static_cast<std::uint16_t>(sign | static_cast<unsigned>(std::ldexp(rounded, 24)));
    const auto mantissa = static_cast<unsigned>(std::ldexp(rounded, 11 - exponent)) - 1024U;
    return static_cast<std::uint16_t>(sign | (static_cast<unsigned>(exponent + 14) << 10U) | mantissa);
}

std::uint16_t twin_bf16(float value) {
    const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000U : 0U);
    const auto x = std::fabs(static_cast<double>(value));
    if (std::isinf(x)) return sign | 0x7f80U;
    if (x == 0) return sign;
    int exponent = 0;
    std::frexp(x, &exponent);
    const double rounded = to_grid(x, std::ldexp(1.0, std::max(exponent - 8, -133)));
    const auto narrow = static_cast<float>(rounded);  // exact, or inf above the largest
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(narrow) >> 16U));
}

void check(std::uint32_t bits) {
    const auto value = std::bit_cast<float>(bits);
    const std::uint16_t half = f16_bits_from_f32(bits);
    const std::uint16_t brain = bf16_bits_from_f32(bits);
    if (std::isnan(value)) {
        const std::uint32_t sign = bits >> 31U;
        ASSERT_EQ(half, (sign << 15U) | 0x7e00U | ((bits >> 13U) & 0x3ffU)) << std::hex << bits;
        ASSERT_EQ(brain, (bits >> 16U) | 0x40U) << std::hex << bits;
        return;
    }
    ASSERT_EQ(half, twin_f16(value)) << std::hex << bits;
    ASSERT_EQ(brain, twin_bf16(value)) << std::hex << bits;
}

TEST(conversions, every_f16_widens_to_its_value_and_comes_back) {
    for (std::uint32_t i = 0; i < 65536; ++i) {
        const auto bits = static_cast<std::uint16_t>(i);
        const double value = value_of_f16(bits);
        const float wide = f32_from_f16(bits);
        if (std::isnan(value)) {
            ASSERT_EQ(std::bit_cast<std::uint32_t>(wide), ((i & 0x8000U) << 16U) | 0x7fc00000U | ((i & 0x3ffU) << 13U))
                << i;
            ASSERT_EQ(f16_from_f32(wide), bits | 0x200U) << i;
            continue;
        }
        ASSERT_EQ(static_cast<double>(wide), value) << i;
        ASSERT_EQ(std::signbit(wide), (i & 0x8000U) != 0) << i;
        ASSERT_EQ(f16_from_f32(wide), bits) << i;
    }
}

TEST(conversions, every_bf16_widens_by_sixteen_zero_bits_and_comes_back) {
    for (std::uint32_t i = 0; i < 65536; ++i) {
        const auto bits = static_cast<std::uint16_t>(i);
        const float wide = f32_from_bf16(bits);
        ASSERT_EQ(f32_bits_from_bf16(bits), i << 16U);
        const bool nan = (i & 0x7fffU) > 0x7f80U;
        ASSERT_EQ(bf16_bits_from_f32(std::bit_cast<std::uint32_t>(wide)), nan ? bits | 0x40U : bits) << i;
    }
}

TEST(conversions, a_bf16_word_is_reinterpreted_never_converted_as_a_number) {
    EXPECT_EQ(f32_from_bf16(0x3fc0), 1.5F);
    EXPECT_NE(f32_from_bf16(0x3fc0), 16320.0F);
}

TEST(conversions, no_nan_ever_becomes_infinite) {
    for (std::uint32_t payload = 1; payload < 0x800000U; payload = payload * 2 + 1)
        for (const std::uint32_t sign : {0U, 0x80000000U}) {
            check(sign | 0x7f800000U | payload);
            check(sign | 0x7f800000U | (0x800000U - payload));
        }
}

TEST(conversions, narrowing_agrees_with_the_twin_around_every_tie) {
    for (std::uint32_t high = 0; high < 0x10000U; ++high)
        for (const std::uint32_t low :
             {0U, 1U, 0x0fffU, 0x1000U, 0x1001U, 0x2fffU, 0x3000U, 0x3001U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU})
            check((high << 16U) | low);
}

TEST(conversions, narrowing_agrees_with_the_twin_for_all_f32_values) {
    const bool nightly = darlcore::testing::property_runs(10) > 10;
    if (!nightly) GTEST_SKIP() << "2^32 values take minutes; set DARLCORE_PROPERTY_BUDGET=nightly";
    std::uint32_t bits = 0;
    do {
        check(bits);
        if (::testing::Test::HasFatalFailure()) return;
    } while (++bits != 0);
}

}  // namespace
