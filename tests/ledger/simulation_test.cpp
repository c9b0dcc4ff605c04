// SPDX-License-Identifier: Apache-2.0
#include "tests/ledger/simulation.hpp"

#include <gtest/gtest.h>

#include "darlcore/testing/budget.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::ledger;
using ledger::testing::sim_options;
using ledger::testing::simulation;
using ledger::testing::world;

/// Blocks, phases and sites of any relation; a third of the runs without faults.
sim_options random_geometry(std::uint64_t seed) {
    xoshiro256 random(seed * 7919);
    sim_options o;
    o.run = world::small_run(1 + random.below(60), 1 + random.below(4));
    o.run.seq_len = 8;
    o.run.space.num_samples -= random.below(o.run.space.block_size);
    o.run.lease.max_epochs = static_cast<std::uint32_t>(1 + random.below(2));
    o.run.round.quorum = static_cast<std::uint32_t>(1 + random.below(2));
    o.run.round.unknown_phase_ms = 600'000;
    o.run.round.unknown_transfer_ms = 60'000;
    o.target_blocks = 1 + random.below(20);
    const auto sites = 1 + random.below(4);
    for (std::uint64_t i = 0; i < sites; ++i)
        o.ms_per_block.push_back(static_cast<std::int64_t>(500 + random.below(20'000)));
    if (random.below(3) != 0) {
        o.kills = random.below(4);
        o.hangs = sites > 1 ? random.below(2) : 0;
        o.server_restarts = random.below(3);
        o.merge_failures = random.below(8);
    }
    return o;
}

TEST(epoch_end, is_always_reached_with_every_block_in_the_model_exactly_once) {
    const int seeds = darlcore::testing::property_runs(1'000);
    for (int seed = 1; seed <= seeds; ++seed) {
        simulation run(random_geometry(static_cast<std::uint64_t>(seed)), static_cast<std::uint64_t>(seed));
        const auto trouble = run.run();
        ASSERT_EQ(trouble, "") << "seed " << seed;
    }
}

TEST(replay, gives_the_same_state_after_every_command_of_random_runs) {
    const int seeds = darlcore::testing::property_runs(40);
    for (int seed = 1; seed <= seeds; ++seed) {
        auto o = random_geometry(static_cast<std::uint64_t>(seed));
        o.check_replay = true;
        simulation run(o, static_cast<std::uint64_t>(seed));
        ASSERT_EQ(run.run(), "") << "seed " << seed;
    }
}

sim_options two_unequal_sites(bool budget) {
    sim_options o;
    o.run = world::small_run(4'000, 1);
    o.run.round.budget = budget;
    o.ms_per_block = {1'000, 4'000};
    o.target_blocks = 40;
    return o;
}

double idle_of_the_fast_site(bool budget) {
    simulation run(two_unequal_sites(budget), 1);
    run.stop_after_rounds = 20;
    EXPECT_EQ(run.run(), "");
    return run.idle_share(0);
}

TEST(speed_ratio_four, the_fast_site_idles_less_than_30_percent_with_budgets) {
    const double idle = idle_of_the_fast_site(true);
    std::cout << "idle share with budgets " << idle << "\n";
    EXPECT_LT(idle, 0.30);
}

TEST(speed_ratio_four, the_fast_site_idles_about_75_percent_without_budgets) {
    const double idle = idle_of_the_fast_site(false);
    std::cout << "idle share without budgets " << idle << "\n";
    EXPECT_NEAR(idle, 0.75, 0.03);
}

// Scoring takes 65 s beside phases of half an hour, as in the paper's runs.
std::pair<std::int64_t, std::uint64_t> median_round(std::uint32_t eval_every, std::vector<std::int64_t> ms_per_block,
                                                    bool score_every_phase = false) {
    sim_options o;
    o.run = world::small_run(20'000, 1);
    o.run.round.eval_every = eval_every;
    o.ms_per_block = std::move(ms_per_block);
    o.target_blocks = 40;
    o.evaluate_ms = 65'000;
    o.score_every_phase = score_every_phase;
    simulation run(o, 1);
    run.stop_after_rounds = 41;
    EXPECT_EQ(run.run(), "");
    return {run.median_round_ms(), run.scores_used()};
}

TEST(evaluation, changes_the_median_round_time_by_less_than_2_percent) {
    for (const std::vector<std::int64_t>& speeds :
         {std::vector<std::int64_t>{45'000, 45'000, 45'000}, {45'000, 60'000, 50'000}, {45'000}}) {
        const auto [without, none] = median_round(0, speeds);
        const auto [with, scores] = median_round(5, speeds);
        EXPECT_EQ(none, 0U);
        EXPECT_GE(scores, 7U) << "every fifth generation has a score";
        EXPECT_LT(std::abs(static_cast<double>(with - without)), 0.02 * static_cast<double>(without));
    }
}

TEST(evaluation, inside_the_barrier_would_cost_more_than_2_percent) {
    const auto [without, none] = median_round(0, {45'000, 45'000, 45'000});
    const auto [with, scores] = median_round(5, {45'000, 45'000, 45'000}, true);
    EXPECT_GT(static_cast<double>(with - without), 0.02 * static_cast<double>(without));
}

}  // namespace
