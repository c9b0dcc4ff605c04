// SPDX-License-Identifier: Apache-2.0
// Whole runs in simulated time. Each mutant is a mechanism taken away (see `planted`); the simulation must notice it.
#include "backends/sim/simulation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "darlcore/testing/budget.hpp"

namespace {

using namespace darlcore::sim;

struct totals {
    double hours = 0;
    std::uint64_t starts = 0;
    std::uint64_t stale = 0;
    std::map<std::string, std::uint64_t> faults;

    void add(const simulation_report& r) {
        hours += static_cast<double>(r.simulated_ms) / 3.6e6;
        starts += r.starts;
        stale += r.stale_calls_refused;
        for (const auto& [kind, count] : r.faults) faults[kind] += count;
    }
    void print(std::uint64_t seeds) const {
        std::printf("%llu seeds, %.1f simulated hours, %llu server starts, %llu calls of replaced processes refused\n",
                    static_cast<unsigned long long>(seeds), hours, static_cast<unsigned long long>(starts),
                    static_cast<unsigned long long>(stale));
        for (const auto& [kind, count] : faults)
            std::printf("  %s: %llu\n", kind.c_str(), static_cast<unsigned long long>(count));
    }
};

TEST(Simulation, WithoutFaultsEveryBlockReachesTheModelOnce) {
    const auto runs = static_cast<std::uint64_t>(darlcore::testing::property_runs(50));
    for (std::uint64_t seed = 1; seed <= runs; ++seed) {
        auto set = random_simulation(seed);
        set.plan.clear();
        set.rough_network = false;
        const auto report = simulate(set);
        ASSERT_EQ(report.verdict(), "") << "seed " << seed;
        EXPECT_EQ(report.retrained_blocks, 0U) << "seed " << seed;
    }
}

TEST(Simulation, UnderFaultsOfAllKindsEveryBlockReachesTheModelOnceAndTheEpochsEnd) {
    const auto runs = static_cast<std::uint64_t>(darlcore::testing::property_runs(100));
    totals sum;
    for (std::uint64_t seed = 1; seed <= runs; ++seed) {
        const auto report = simulate(random_simulation(seed));
        ASSERT_EQ(report.verdict(), "") << "seed " << seed;
        sum.add(report);
    }
    sum.print(runs);
    EXPECT_GT(sum.stale, 0U) << "replaced processes must have tried";
}

TEST(Simulation, WithOneHealthySiteTheEpochsEndWhateverIsWrongForEverElsewhere) {
    const auto runs = static_cast<std::uint64_t>(darlcore::testing::property_runs(100));
    totals sum;
    for (std::uint64_t seed = 1; seed <= runs; ++seed) {
        const auto report = simulate(random_simulation(seed, simulation_mode::liveness));
        ASSERT_EQ(report.verdict(), "") << "seed " << seed;
        sum.add(report);
    }
    sum.print(runs);
}

// Also P6: every step of an upload, a pledge and a merge is one of these calls.
TEST(Simulation, APowerCutAtAnyCallOfAWholeRunCostsNoBlock) {
    auto set = random_simulation(3);
    set.blocks = 6;
    set.block_size = 2;
    set.epochs = 1;
    set.sites = 2;
    set.steps = 2;
    set.per_step = 2;
    set.ms_per_window = 2'000;
    set.fault_window_ms = 60'000;
    set.plan.clear();
    set.rough_network = false;
    const std::uint64_t calls = simulate(set).io_calls;
    ASSERT_GT(calls, 200U);
    const auto step = static_cast<std::uint64_t>(std::max(1, 10 / darlcore::testing::property_runs(10)));
    std::uint64_t runs = 0;
    for (std::uint64_t call = 1; call <= calls; call += step)
        for (const loss mode : {loss::random_8, loss::dropped}) {
            set.power_cut_at_call = call;
            set.power_cut_loss = mode;
            const auto report = simulate(set);
            ASSERT_EQ(report.verdict(), "") << "call " << call << " " << word(mode);
            ++runs;
        }
    std::printf("%llu power cuts in a run of %llu I/O calls\n", static_cast<unsigned long long>(runs),
                static_cast<unsigned long long>(calls));
}

TEST(Simulation, OneSeedGivesOneRunToTheLastByte) {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
        const auto one = simulate(random_simulation(seed));
        const auto two = simulate(random_simulation(seed));
        EXPECT_EQ(one.digest, two.digest) << "seed " << seed;
        EXPECT_EQ(one.story, two.story);
        EXPECT_EQ(one.faults, two.faults);
        EXPECT_NE(one.digest, simulate(random_simulation(seed + 1)).digest);
    }
}

}  // namespace
