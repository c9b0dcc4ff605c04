// SPDX-License-Identifier: Apache-2.0
#include "tests/site/site_world.hpp"

#include <cstdio>

#include <gtest/gtest.h>

#include "darlcore/testing/budget.hpp"

namespace {

using namespace darlcore;
using test::site_world;
using test::world_settings;

/// Runs one seed; the text says what went wrong, empty = nothing.
std::string run_once(const world_settings& set, std::uint64_t* harmed = nullptr, std::int64_t* simulated_ms = nullptr) {
    site_world world(set);
    const bool ended = world.run();
    if (harmed != nullptr) *harmed += world.harmed();
    if (simulated_ms != nullptr) *simulated_ms += world.now_ms();
    if (!world.violations().empty()) return world.violations().front();
    const auto times = world.merged_times();
    for (std::size_t p = 0; p < times.size(); ++p)
        if (times[p] > 1)
            return "position " + std::to_string(p) + " is in the model " + std::to_string(times[p]) + " times";
    if (!ended) return "does not end: " + world.where_it_stands();
    const auto books = world.ledger().leases().counts();
    std::uint64_t missing = 0;
    for (const auto n : times) missing += n == 0 ? 1 : 0;
    if (missing != books.quarantined) return std::to_string(missing) + " positions are missing";
    return {};
}

world_settings random_settings(std::uint64_t seed, bool with_harm) {
    xoshiro256 chance(seed * 77 + 5);
    world_settings set;
    set.seed = seed;
    set.blocks = 1 + chance() % 60;
    set.block_size = 1 + chance() % 5;
    set.sites = 1 + chance() % 4;
    set.groups = chance() % 4;
    set.steps = 1 + chance() % 12;
    set.per_step = 1 + chance() % 8;
    if (!with_harm) return set;
    set.loss_percent = chance() % 6;
    set.repeat_percent = chance() % 10;
    set.kills = chance() % 4;
    set.pauses = chance() % 3;
    return set;
}

TEST(site_world, every_random_geometry_ends_with_each_block_in_the_model_once) {
    const std::uint64_t runs = static_cast<std::uint64_t>(darlcore::testing::property_runs(1'000));
    for (std::uint64_t seed = 1; seed <= runs; ++seed) {
        const std::string wrong = run_once(random_settings(seed, false));
        ASSERT_EQ(wrong, "") << "seed " << seed;
    }
}

TEST(site_world, loss_repetition_kills_and_sleeps_cost_time_but_no_block) {
    const std::uint64_t runs = static_cast<std::uint64_t>(darlcore::testing::property_runs(1'000));
    std::uint64_t harmed = 0;
    std::int64_t simulated_ms = 0;
    for (std::uint64_t seed = 1; seed <= runs; ++seed) {
        const std::string wrong = run_once(random_settings(seed, true), &harmed, &simulated_ms);
        ASSERT_EQ(wrong, "") << "seed " << seed;
    }
    std::printf("%llu runs, %.1f simulated hours, %llu kills and sleeps\n", static_cast<unsigned long long>(runs),
                static_cast<double>(simulated_ms) / 3.6e6, static_cast<unsigned long long>(harmed));
    EXPECT_GT(harmed, runs);
}

// Whatever a site has not reserved is stolen while it trains; without the reservation the runs fail.
TEST(site_world, theft_at_every_opportunity_never_trains_a_position_twice) {
    std::uint64_t thefts = 0;
    std::uint64_t caught = 0;
    const std::uint64_t runs = static_cast<std::uint64_t>(darlcore::testing::property_runs(200));
    for (std::uint64_t seed = 1; seed <= runs; ++seed) {
        auto set = random_settings(seed, false);
        set.groups = 4;
        set.theft = true;
        site_world world(set);
        EXPECT_TRUE(world.run()) << "seed " << seed << ": " << world.where_it_stands();
        for (const auto n : world.merged_times()) ASSERT_EQ(n, 1U) << "seed " << seed;
        thefts += world.thefts();
        set.read_unreserved = true;
        caught += run_once(set).empty() ? 0 : 1;
    }
    std::printf("%llu thefts in %llu runs; without the reservation %llu fail\n",
                static_cast<unsigned long long>(thefts), static_cast<unsigned long long>(runs),
                static_cast<unsigned long long>(caught));
    EXPECT_GT(thefts, 10 * runs);
    EXPECT_GT(caught, runs / 4);
}

TEST(site_world, a_trainer_that_reads_beyond_its_reservation_is_caught) {
    bool caught = false;
    for (std::uint64_t seed = 1; seed <= 300 && !caught; ++seed) {
        auto set = random_settings(seed, false);
        set.read_unreserved = true;
        set.groups = 4;
        caught = !run_once(set).empty();
    }
    EXPECT_TRUE(caught);
}

}  // namespace
