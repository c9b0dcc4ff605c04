// SPDX-License-Identifier: Apache-2.0
#include "darlcore/phase.hpp"

#include <gtest/gtest.h>

#include "darlcore/block_space.hpp"
#include "darlcore/testing/phase_properties.hpp"
#include "darlcore/testing/property.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::testing;

stream_runner twin_with(space_mutant mutant) {
    return [mutant](const stream_case& c) { return run_stream_twin(c, mutant); };
}

TEST(phase_properties, each_phase_trains_exactly_the_windows_of_its_groups) {
    check_property(1000, [] { phases_train_exactly_their_groups(run_stream); });
}
TEST(phase_properties, ranks_run_equal_steps_and_micro_batches) {
    check_property(1000, [] { ranks_run_in_step(run_stream); });
}
TEST(phase_properties, streams_equal_the_twin) {
    check_property(1000, [] { streams_equal_the_twin(run_stream); });
}
TEST(phase_properties, other_ranks_have_the_same_windows_in_each_step) {
    check_property(1000, [] { ranks_do_not_change_the_steps(run_stream); });
}
TEST(phase_properties, early_ends_train_whole_groups) { check_property(1000, &early_ends_train_whole_groups); }
TEST(phase_properties, watermarks_follow_the_last_window_of_a_group) {
    check_property(1000, &watermarks_follow_the_last_window_of_a_group);
}

std::optional<std::uint64_t> nearest(std::uint64_t h, const batch_shape& s, std::uint64_t k) {
    const auto blocks = blocks_nearest(h, s, k);
    return blocks ? std::optional(*blocks) : std::nullopt;
}

TEST(sizing_properties, blocks_are_those_of_wide_arithmetic) {
    check_property(1000, [] { sizes_are_exact(nearest); });
}

// ---- the mutants: each mistake is caught by the named property

TEST(phase_mutants, a_phase_text_without_epoch_is_caught_by_the_twin) {
    EXPECT_TRUE(
        property_fails(1000, [] { streams_equal_the_twin(twin_with(space_mutant::phase_text_without_epoch)); }));
}
TEST(phase_mutants, a_dropped_ragged_step_is_caught_by_the_windows_of_phases) {
    EXPECT_TRUE(
        property_fails(1000, [] { phases_train_exactly_their_groups(twin_with(space_mutant::ragged_step_dropped)); }));
}
TEST(phase_mutants, division_by_the_global_batch_is_caught_by_the_divisors) {
    EXPECT_TRUE(property_fails(1000, [] { ranks_run_in_step(twin_with(space_mutant::divided_by_global_batch)); }));
}
TEST(phase_mutants, a_carry_over_a_phase_end_is_caught_by_the_windows_of_phases) {
    EXPECT_TRUE(property_fails(
        1000, [] { phases_train_exactly_their_groups(twin_with(space_mutant::carry_kept_over_phase_end)); }));
}
TEST(phase_mutants, a_product_of_32_bits_is_caught_by_the_sizes) {
    EXPECT_TRUE(property_fails(1000, [] {
        sizes_are_exact([](std::uint64_t h, batch_shape s, std::uint64_t k) {
            return blocks_nearest_twin(h, s, k, space_mutant::product_of_32_bits);
        });
    }));
}
TEST(phase_mutants, the_twin_itself_passes) {
    EXPECT_FALSE(property_fails(100, [] { phases_train_exactly_their_groups(twin_with(space_mutant::none)); }));
    EXPECT_FALSE(property_fails(100, [] { ranks_run_in_step(twin_with(space_mutant::none)); }));
}

// ---- edges

std::shared_ptr<const epoch_map> map_of(std::uint64_t samples, std::uint64_t block_size) {
    return block_space::build({.num_samples = samples, .block_size = block_size, .seed = 42}, epoch_index{0}).value();
}

TEST(phase_plans, no_group_and_empty_groups_are_legal) {
    const auto none = phase_plan::make(map_of(10, 2), {}, {1, 1, 1}).value();
    EXPECT_EQ(none.num_steps(), 0U);
    EXPECT_EQ(none.earliest_end(0), phase_end{});
    const auto plan = phase_plan::make(map_of(10, 2), {{0, {}}, {1, {make_span(0, 1)}}, {2, {}}}, {1, 1, 1}).value();
    EXPECT_EQ(plan.num_windows(), 2U);
    EXPECT_EQ(plan.groups_trained(0), 1U);  // an empty group is trained at once
    EXPECT_EQ(plan.groups_trained(2), 3U);
    EXPECT_EQ(plan.earliest_end(1), (phase_end{2, 2}));
}

TEST(phase_plans, one_window_on_many_ranks_is_one_ragged_step) {
    const auto plan = phase_plan::make(map_of(1, 5), {{0, {make_span(0, 1)}}}, {3, 9, 4}).value();
    EXPECT_EQ(plan.num_steps(), 1U);
    EXPECT_EQ(plan.step_windows(0), 1U);
    EXPECT_EQ(plan.micro_batches(0), 1U);
    std::vector<std::uint64_t> batch;
    for (std::uint64_t rank = 0; rank < 9; ++rank) {
        phase_reader reader(plan);
        EXPECT_EQ(reader.read(rank, 0, 0, batch), rank == 0 ? 1U : 0U);
        EXPECT_EQ(batch, std::vector<std::uint64_t>(3, 0));  // filler where nothing is real
    }
}

TEST(phase_plans, a_step_that_straddles_groups_moves_the_earliest_end) {
    // groups of 10 windows, steps of 4: step 2 takes windows 8 ... 11
    const auto plan =
        phase_plan::make(map_of(100, 10), {{0, {make_span(0, 1)}}, {1, {make_span(1, 2)}}, {2, {make_span(5, 6)}}},
                         {4, 1, 1})
            .value();
    EXPECT_EQ(plan.earliest_end(2), (phase_end{1, 3}));
    EXPECT_EQ(plan.earliest_end(3), (phase_end{2, 5}));
    EXPECT_EQ(plan.groups_trained(3), 1U);
    EXPECT_EQ(plan.ended_after(1).step_windows(2), 2U);
    EXPECT_EQ(plan.trained_spans(5), (std::vector<span>{make_span(0, 1), make_span(1, 2)}));
}

TEST(phase_plans, seeking_costs_the_same_as_reading_in_order) {
    const auto plan =
        phase_plan::make(map_of(1000, 10), {{4, {make_span(0, 50)}}, {5, {make_span(50, 100)}}}, {1, 1, 1}).value();
    std::vector<std::uint64_t> in_order;
    phase_reader reader(plan);
    for (std::uint64_t y = 0; y < plan.num_windows(); ++y) in_order.push_back(reader.window_at(y));
    for (const std::uint64_t y : {999U, 0U, 500U, 499U, 750U}) {
        phase_reader fresh(plan);
        EXPECT_EQ(fresh.window_at(y), in_order[static_cast<std::size_t>(y)]);
    }
}

TEST(phase_plans, refuse_bad_input_by_name) {
    const auto map = map_of(100, 10);
    EXPECT_EQ(phase_plan::make(map, {}, {0, 1, 1}).error().code, errc::invalid_argument);
    EXPECT_EQ(phase_plan::make(map, {}, {UINT64_MAX, 2, 1}).error().code, errc::overflow);
    EXPECT_EQ(phase_plan::make(map, {{0, {make_span(9, 11)}}}, {1, 1, 1}).error().code, errc::invalid_argument);
    const auto huge = block_space::build({.num_samples = UINT64_MAX, .block_size = UINT64_MAX}, epoch_index{0}).value();
    EXPECT_EQ(phase_plan::make(huge, {{0, {make_span(0, 1)}}}, {1, 1, 1}).error().code, errc::invalid_argument);
}

TEST(sizing, refuses_zero_and_overflow_by_name) {
    EXPECT_EQ(blocks_nearest(0, {1, 1, 1}, 1).error().code, errc::invalid_argument);
    EXPECT_EQ(blocks_nearest(1, {1, 0, 1}, 1).error().code, errc::invalid_argument);
    EXPECT_EQ(blocks_nearest(1, {1, 1, 1}, 0).error().code, errc::invalid_argument);
    EXPECT_EQ(blocks_up(1, {1, 1, 1}, 0).error().code, errc::invalid_argument);
    const std::uint64_t big = std::uint64_t{1} << 33U;
    EXPECT_EQ(blocks_nearest(big, {big, 1, 1}, 1).error().code, errc::overflow);
    EXPECT_EQ(blocks_up(2, {big, big, 1}, 1).error().code, errc::overflow);
    EXPECT_EQ(blocks_nearest(big, {1, std::uint64_t{1} << 30U, 1}, big).value(), std::uint64_t{1} << 30U);
}

TEST(sizing, halves_round_up) {
    EXPECT_EQ(blocks_nearest(5, {1, 1, 1}, 10).value(), 1U);
    EXPECT_EQ(blocks_nearest(14, {1, 1, 1}, 10).value(), 1U);
    EXPECT_EQ(blocks_nearest(15, {1, 1, 1}, 10).value(), 2U);
    EXPECT_EQ(blocks_up(11, {1, 1, 1}, 10).value(), 2U);
}

TEST(sizing, groups_are_nearly_equal) {
    EXPECT_EQ(default_groups(4), 1U);
    EXPECT_EQ(default_groups(5), 4U);
    EXPECT_EQ(group_sizes(10, 4), (std::vector<std::uint64_t>{3, 3, 2, 2}));
    EXPECT_EQ(group_sizes(2, 4), (std::vector<std::uint64_t>{1, 1}));
    EXPECT_TRUE(group_sizes(0, 4).empty());
}

}  // namespace
