// SPDX-License-Identifier: Apache-2.0
#include "darlcore/random.hpp"

#include <random>

#include <gtest/gtest.h>

#include "darlcore/permutation.hpp"
#include "darlcore/testing/property.hpp"
#include "darlcore/testing/space_twin.hpp"

namespace {

using namespace darlcore;

// Published with the generator: init_by_array({0x123, 0x234, 0x345, 0x456}).
TEST(mt19937_engine, gives_the_published_outputs) {
    const std::uint32_t key[] = {0x123, 0x234, 0x345, 0x456};
    mt19937 engine(key);
    for (const std::uint32_t expected : {1067595299U, 955945823U, 477289528U, 4107218783U, 4228976476U})
        EXPECT_EQ(engine(), expected);
}

TEST(mt19937_engine, equals_the_plain_twin_over_many_blocks) {
    mt19937 engine = seeded_engine("twin");
    darlcore::testing::engine_twin twin("twin");
    for (int i = 0; i < 5000; ++i) ASSERT_EQ(engine(), twin.output()) << i;
}

TEST(mt19937_engine, works_in_constant_expressions) {
    constexpr std::uint32_t first = [] {
        const std::uint32_t key[] = {0x123, 0x234, 0x345, 0x456};
        return mt19937(key)();
    }();
    static_assert(first == 1067595299U);
}

TEST(mt19937_engine, batches_and_single_outputs_are_one_stream) {
    mt19937 single = seeded_engine("batch");
    mt19937 batched = seeded_engine("batch");
    for (int round = 0; round < 500; ++round) {
        const auto ready = batched.ready();
        const std::size_t taken = std::min<std::size_t>(ready.size(), static_cast<std::size_t>(round % 19));
        for (std::size_t i = 0; i < taken; ++i) ASSERT_EQ(ready[i], single());
        batched.skip(taken);
        ASSERT_EQ(batched(), single());
    }
}

DARLCORE_PROPERTY(shuffles, equal_the_twin_at_any_size, 1000, (const std::string& text)) {
    const auto n = *rc::gen::inRange<std::uint64_t>(0, 3000);
    const auto order = shuffled_indices(text, n);
    RC_ASSERT(std::vector<std::uint64_t>(order.begin(), order.end()) == darlcore::testing::shuffled_twin(text, n));
}

TEST(shuffles, equal_the_twin_around_every_power_of_two) {
    for (std::uint64_t bits = 1; bits <= 14; ++bits)
        for (const std::uint64_t n : {(1ULL << bits) - 1, 1ULL << bits, (1ULL << bits) + 1}) {
            const auto order = shuffled_indices("sizes", n);
            EXPECT_EQ(std::vector<std::uint64_t>(order.begin(), order.end()),
                      darlcore::testing::shuffled_twin("sizes", n))
                << n;
        }
}

TEST(seed_keys, have_no_zero_word_at_the_top) {
    EXPECT_EQ(seed_key("pww-darl:42:0").size(), 20U);
    EXPECT_EQ(seed_key("pww-darl:42:0").back(), 0x70U);
    EXPECT_EQ(seed_key("").size(), 16U);
    EXPECT_EQ(seed_key(std::string(4, '\0')).size(), 16U);
}

TEST(splitmix64_engine, gives_the_published_outputs) {
    splitmix64 engine(1234567);
    for (const std::uint64_t expected : {6457827717110365317ULL, 3203168211198807973ULL, 9817491932198370423ULL})
        EXPECT_EQ(engine(), expected);
}

TEST(xoshiro256_engine, stays_below_its_bound_and_reaches_every_value) {
    xoshiro256 engine(1);
    std::vector<int> counts(7, 0);
    for (int i = 0; i < 7000; ++i) ++counts[static_cast<std::size_t>(engine.below(7))];
    for (const int c : counts) EXPECT_NEAR(c, 1000, 200);
    for (int i = 0; i < 1000; ++i) {
        const double u = engine.unit();
        ASSERT_TRUE(u >= 0 && u < 1);
    }
    EXPECT_FALSE(engine.chance(0));
    EXPECT_TRUE(engine.chance(1));
    EXPECT_EQ(xoshiro256(5)(), xoshiro256(5)());
}

}  // namespace
