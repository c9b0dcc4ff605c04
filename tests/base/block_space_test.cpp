// SPDX-License-Identifier: Apache-2.0
#include "darlcore/block_space.hpp"

#include <atomic>
#include <cstdlib>
#include <new>
#include <set>

#include <gtest/gtest.h>

#include "darlcore/testing/permutation_suite.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::testing;

// feistel-1 under the same contract.
class feistel_map : public epoch_map {
public:
    feistel_map(space_parameters p, epoch_index epoch) : epoch_map(with_feistel(p), epoch) {}

private:
    static space_parameters with_feistel(space_parameters p) {
        p.scheme = permutation_scheme::feistel_1;
        p.shuffle = true;
        return p;
    }
};

// A deliberately odd order: blocks backwards, rotated by the seed; the generic code may assume nothing about it.
class backwards_map : public epoch_map {
public:
    backwards_map(const space_parameters& p, epoch_index epoch) : epoch_map(p, epoch) {}
    [[nodiscard]] std::uint64_t block_at(position p) const { return num_blocks() - 1 - epoch_map::block_at(p); }
    [[nodiscard]] position position_of(std::uint64_t block) const {
        return epoch_map::position_of(num_blocks() - 1 - block);
    }
    [[nodiscard]] window_range windows_of(position p) const { return windows_of_block(parameters(), block_at(p)); }
    [[nodiscard]] std::uint64_t window_count(const span& s) const {
        std::uint64_t windows = 0;
        for (std::uint64_t p = s.start.count; p < s.end.count; ++p) windows += windows_of(position{p}).size();
        return windows;
    }
};

}  // namespace

namespace darlcore::testing {
INSTANTIATE_TYPED_TEST_SUITE_P(mt_shuffle, permutation_contract, ::testing::Types<epoch_map>);
INSTANTIATE_TYPED_TEST_SUITE_P(feistel, permutation_contract, ::testing::Types<feistel_map>);
INSTANTIATE_TYPED_TEST_SUITE_P(odd, permutation_contract, ::testing::Types<backwards_map>);
INSTANTIATE_TYPED_TEST_SUITE_P(twin, permutation_contract, ::testing::Types<epoch_map_twin<>>);
}  // namespace darlcore::testing

namespace {

TEST(block_space_properties, order_counts_and_digest_equal_the_twin) {
    check_property(1000, &agrees_with_the_twin<epoch_map>);
}

struct engine {
    explicit engine(const std::string& text) : mt(seeded_engine(text)) {}
    std::uint32_t draw(std::uint32_t n) { return mt.draw(n); }
    std::uint32_t output() { return mt(); }
    mt19937 mt;
};

TEST(block_space_properties, draws_are_uniform_and_take_one_output_per_try) {
    check_property(1000, &draws_are_uniform<engine>);
}

TEST(block_space_properties, neighbouring_seeds_agree_in_one_position_on_average) {
    std::uint64_t total = 0;
    constexpr std::uint64_t pairs = 1000;
    for (std::uint64_t s = 0; s < pairs; ++s) {
        const space_parameters p{.num_samples = 500, .seed = static_cast<std::int64_t>(s)};
        const space_parameters next{.num_samples = 500, .seed = static_cast<std::int64_t>(s + 1)};
        total += agreements(epoch_map(p, epoch_index{0}), epoch_map(next, epoch_index{0}));
    }
    EXPECT_NEAR(static_cast<double>(total) / pairs, 1.0, 0.16);  // five standard deviations
}

DARLCORE_PROPERTY(block_space_properties, digest_does_not_depend_on_the_byte_order_of_the_host, 1000, ()) {
    const auto entries = *rc::gen::container<std::vector<std::uint32_t>>(rc::gen::arbitrary<std::uint32_t>());
    std::vector<std::uint32_t> longer;
    for (int i = 0; i < 30; ++i) longer.insert(longer.end(), entries.begin(), entries.end());
    blake2b native(16);
    blake2b swapping(16);
    detail::update_entries(native, longer);
    detail::update_entries<std::endian::big>(swapping, longer);
    RC_ASSERT(finish_digest<16>(native) == finish_digest<16>(swapping));
}

DARLCORE_PROPERTY(block_space_properties, inverse_table_and_search_agree, 1000, ()) {
    epoch_map map(any_space(2000), any_epoch());
    std::vector<position> searched;
    for (std::uint64_t b = 0; b < std::min<std::uint64_t>(map.num_blocks(), 50); ++b)
        searched.push_back(map.position_of(b));
    map.with_inverse();
    for (std::size_t b = 0; b < searched.size(); ++b) RC_ASSERT(map.position_of(b) == searched[b]);
}

// ---- the mutants: each mistake is caught by the named property

TEST(block_space_mutants, bit_length_of_n_minus_1_is_caught_by_the_twin) {
    EXPECT_TRUE(property_fails(1000, &agrees_with_the_twin<epoch_map_twin<space_mutant::bit_length_of_n_minus_1>>));
}

TEST(block_space_mutants, bit_length_of_n_minus_1_is_caught_by_the_draws) {
    struct mutant : engine_twin {
        explicit mutant(const std::string& text) : engine_twin(text, space_mutant::bit_length_of_n_minus_1) {}
    };
    EXPECT_TRUE(property_fails(1000, &draws_are_uniform<mutant>));
}

TEST(block_space_mutants, words_most_significant_first_is_caught_by_the_twin) {
    EXPECT_TRUE(
        property_fails(1000, &agrees_with_the_twin<epoch_map_twin<space_mutant::words_most_significant_first>>));
}

TEST(block_space_mutants, shuffling_low_to_high_is_caught_by_the_twin) {
    EXPECT_TRUE(property_fails(1000, &agrees_with_the_twin<epoch_map_twin<space_mutant::shuffle_low_to_high>>));
}

TEST(block_space_mutants, short_block_assumed_last_is_caught_by_the_window_counts) {
    EXPECT_TRUE(
        property_fails(1000, &every_window_lies_in_one_block<epoch_map_twin<space_mutant::short_block_assumed_last>>));
}

TEST(block_space_mutants, digest_without_permutation_is_caught_by_the_twin) {
    EXPECT_TRUE(property_fails(1000, &agrees_with_the_twin<epoch_map_twin<space_mutant::digest_without_permutation>>));
}

// ---- feistel-1

TEST(feistel_1, is_a_bijection_for_every_size_up_to_4096) {
    for (std::uint64_t m = 1; m <= 4096; ++m) {
        const feistel_permutation f(static_cast<std::int64_t>(m) * 7 - 9000, static_cast<std::uint32_t>(m % 3), m);
        std::vector<bool> seen(static_cast<std::size_t>(m), false);
        for (std::uint64_t x = 0; x < m; ++x) {
            const std::uint64_t y = f.forward(x);
            ASSERT_LT(y, m);
            ASSERT_FALSE(seen[static_cast<std::size_t>(y)]) << m;
            seen[static_cast<std::size_t>(y)] = true;
        }
    }
}

DARLCORE_PROPERTY(feistel_1, inverse_undoes_forward_for_any_size, 1000, (std::int64_t seed, std::uint32_t epoch)) {
    const auto bits = *rc::gen::inRange(1, 63);
    const auto low = std::uint64_t{1} << (bits - 1);
    const auto m = *rc::gen::inRange<std::uint64_t>(low, 2 * low + 1);
    const feistel_permutation f(seed, epoch, m);
    for (int k = 0; k < 20; ++k) {
        const auto x = *rc::gen::inRange<std::uint64_t>(0, m);
        const auto y = f.forward(x);
        RC_ASSERT(y < m);
        RC_ASSERT(f.inverse(y) == x);
        RC_ASSERT(f.forward(f.inverse(x)) == x);
    }
}

TEST(feistel_1, scatters_like_chance_over_a_million_positions) {
    for (const std::uint64_t m :
         {std::uint64_t{1} << 20U, std::uint64_t{3'000'000}, std::uint64_t{10'000'000'000'000}}) {
        const feistel_permutation f(42, 0, m);
        std::vector<std::uint64_t> counts(1024, 0);
        for (std::uint64_t x = 0; x < (1U << 20U); ++x) {
            // Rounding makes some cells hold one place more; the difference is far below what the test can see.
            const double share = static_cast<double>(f.forward(x)) / static_cast<double>(m);
            ++counts[static_cast<std::size_t>(share * 1024)];
        }
        EXPECT_LT(chi_square_deviate(chi_square(counts), 1023), 5.0) << m;
    }
    const feistel_permutation f(42, 0, 1U << 20U);
    std::vector<std::uint64_t> steps(64, 0);
    for (std::uint64_t x = 0; x + 1 < (1U << 20U); ++x)
        ++steps[static_cast<std::size_t>(((f.forward(x + 1) - f.forward(x)) & 0xfffffU) >> 14U)];
    EXPECT_LT(chi_square_deviate(chi_square(steps), 63), 5.0);
}

// ---- the object

space_parameters sized(std::uint64_t samples, std::uint64_t block_size) {
    return {.num_samples = samples, .block_size = block_size, .seed = 42};
}

TEST(block_spaces, refuse_bad_parameters_by_name) {
    EXPECT_EQ(block_space::make(sized(0, 1)).error().code, errc::invalid_argument);
    EXPECT_NE(block_space::make(sized(0, 1)).error().context.find("num_samples"), std::string::npos);
    EXPECT_EQ(block_space::make(sized(1, 0)).error().code, errc::invalid_argument);
    EXPECT_NE(block_space::make(sized(1, 0)).error().context.find("block_size"), std::string::npos);
    const auto many = block_space::make(sized(std::uint64_t{1} << 31U, 1));
    EXPECT_EQ(many.error().code, errc::too_many_blocks);
    EXPECT_NE(many.error().context.find("feistel-1"), std::string::npos);
    EXPECT_NE(many.error().context.find("at least 2"), std::string::npos) << many.error().context;
    EXPECT_TRUE(block_space::make(sized((std::uint64_t{1} << 31U) - 1, 1)));
    EXPECT_TRUE(block_space::make(sized(std::uint64_t{1} << 31U, 2)));
    auto feistel = sized(UINT64_MAX, 1);
    feistel.scheme = permutation_scheme::feistel_1;
    EXPECT_EQ(block_space::make(feistel).error().code, errc::too_many_blocks);
    feistel.num_samples = std::uint64_t{1} << 62U;
    EXPECT_TRUE(block_space::make(feistel));
    feistel.shuffle = false;
    EXPECT_EQ(block_space::make(feistel).error().code, errc::invalid_argument);
}

TEST(block_spaces, count_without_overflow_at_the_largest_numbers) {
    auto space = block_space::make(sized(UINT64_MAX, UINT64_MAX - 1)).value();
    EXPECT_EQ(space.num_blocks(), 2U);
    const auto map = space.map(epoch_index{0}).value();
    EXPECT_EQ(map->window_count(make_span(0, 2)), UINT64_MAX);
    EXPECT_EQ(map->windows_of(map->position_of(1)), (window_range{UINT64_MAX - 1, UINT64_MAX}));
    EXPECT_EQ(block_count(sized(UINT64_MAX, UINT64_MAX)), 1U);
}

TEST(block_spaces, hold_at_most_two_epochs) {
    auto space = block_space::make(sized(1000, 1)).value();
    const std::weak_ptr<const epoch_map> first = space.map(epoch_index{0}).value();
    const std::weak_ptr<const epoch_map> second = space.map(epoch_index{1}).value();
    EXPECT_EQ(space.map(epoch_index{0}).value(), first.lock());
    const std::weak_ptr<const epoch_map> third = space.map(epoch_index{2}).value();
    EXPECT_FALSE(first.expired());
    EXPECT_TRUE(second.expired());  // used longest ago
    EXPECT_FALSE(third.expired());
}

TEST(block_spaces, take_a_map_that_was_prepared_elsewhere) {
    auto space = block_space::make(sized(1000, 1)).value();
    const auto prepared = block_space::build(space.parameters(), epoch_index{7}).value();
    space.adopt(prepared);
    EXPECT_EQ(space.map(epoch_index{7}).value(), prepared);
}

TEST(block_spaces, shorthands_read_the_map) {
    auto space = block_space::make(sized(25, 10)).value();
    const epoch_index e{3};
    const auto map = space.map(e).value();
    EXPECT_EQ(space.num_blocks(), 3U);
    EXPECT_EQ(space.permutation(e).size(), 3U);
    EXPECT_EQ(space.block_at(position{1}, e), map->block_at(position{1}));
    EXPECT_EQ(space.position_of(2, e), map->position_of(2));
    EXPECT_EQ(space.windows_of(space.position_of(2, e), e), (window_range{20, 25}));
    EXPECT_EQ(space.window_count(make_span(0, 3), e), 25U);
    EXPECT_EQ(space.digest(e), map->digest());
}

TEST(block_spaces, one_block_larger_than_the_corpus_is_legal) {
    auto space = block_space::make(sized(7, 10)).value();
    EXPECT_EQ(space.num_blocks(), 1U);
    EXPECT_EQ(space.windows_of(position{0}, epoch_index{0}), (window_range{0, 7}));
    EXPECT_EQ(space.window_count(make_span(0, 1), epoch_index{0}), 7U);
}

TEST(permutation_schemes, have_the_documented_words) {
    for (const auto scheme : {permutation_scheme::mt_shuffle_1, permutation_scheme::feistel_1})
        EXPECT_EQ(permutation_scheme_from_word(word(scheme)), scheme);
    EXPECT_FALSE(permutation_scheme_from_word("mt-shuffle-2"));
}

}  // namespace
