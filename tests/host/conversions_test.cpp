// SPDX-License-Identifier: Apache-2.0
// Conversions of the vector kernels against the plain ones, which are compared with the twin in tests/merge.
#include <bit>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "backends/host/instruction_set.hpp"
#include "darlcore/merge/conversions.hpp"
#include "darlcore/merge/ieee_mode.hpp"
#include "darlcore/testing/budget.hpp"

namespace {

using namespace darlcore;

constexpr std::uint32_t low_values = 1U << 16U;

/// All f32 values whose upper half is `high`, narrowed by one instruction set.
void check(std::uint32_t high, host::instruction_set set) {
    std::vector<std::uint32_t> bits(low_values);
    std::vector<std::uint16_t> brain(low_values), half(low_values);
    for (std::uint32_t low = 0; low < low_values; ++low) bits[low] = high << 16U | low;
    const auto& kernels = host::kernels_of(set);
    kernels.convert(bits.data(), dtype::f32, brain.data(), dtype::bf16, low_values);
    kernels.convert(bits.data(), dtype::f32, half.data(), dtype::f16, low_values);
    for (std::uint32_t low = 0; low < low_values; ++low) {
        ASSERT_EQ(brain[low], bf16_bits_from_f32(bits[low])) << host::word(set) << ' ' << std::hex << bits[low];
        ASSERT_EQ(half[low], f16_bits_from_f32(bits[low])) << host::word(set) << ' ' << std::hex << bits[low];
    }
}

// All 2^32 in the nightly budget; else every 127th upper half, which meets all exponents of both signs.
TEST(host_conversions, narrowing_has_the_bits_of_the_plain_functions_on_every_instruction_set) {
    const std::uint32_t step = darlcore::testing::property_runs(10) > 10 ? 1 : 127;
    const ieee_mode guard;
    for (const host::instruction_set set : host::available_instruction_sets())
        for (std::uint32_t high = 0; high < 0x10000U; high += step) {
            check(high, set);
            if (::testing::Test::HasFatalFailure()) return;
        }
}

}  // namespace
