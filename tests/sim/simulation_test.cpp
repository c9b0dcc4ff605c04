// SPDX-License-Identifier: Apache-2.0
#include "backends/sim/simulation.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "darlcore/testing/budget.hpp"

namespace {

using namespace darlcore::sim;

std::string verdict(const simulation_report& report) {
    if (!report.violations.empty()) return report.violations.front();
    return report.finished ? "" : "does not end: " + report.stands;
}

TEST(Simulation, WithoutFaultsEveryBlockReachesTheModelOnce) {
    const auto runs = static_cast<std::uint64_t>(darlcore::testing::property_runs(50));
    for (std::uint64_t seed = 1; seed <= runs; ++seed) {
        auto set = random_simulation(seed);
        set.faults = 0;
        const auto report = simulate(set);
        ASSERT_EQ(verdict(report), "") << "seed " << seed;
        EXPECT_EQ(report.retrained_blocks, 0U) << "seed " << seed;
    }
}

TEST(Simulation, UnderFaultsOfAllKindsEveryBlockReachesTheModelOnceAndTheEpochEnds) {
    const auto runs = static_cast<std::uint64_t>(darlcore::testing::property_runs(300));
    std::map<std::string, std::uint64_t> faults;
    double hours = 0;
    for (std::uint64_t seed = 1; seed <= runs; ++seed) {
        const auto report = simulate(random_simulation(seed));
        ASSERT_EQ(verdict(report), "") << "seed " << seed;
        hours += static_cast<double>(report.simulated_ms) / 3.6e6;
        for (const auto& [kind, count] : report.faults) faults[kind] += count;
    }
    std::printf("%llu seeds, %.1f simulated hours\n", static_cast<unsigned long long>(runs), hours);
    for (const auto& [kind, count] : faults)
        std::printf("  %s: %llu\n", kind.c_str(), static_cast<unsigned long long>(count));
}

TEST(Simulation, OneSeedGivesOneRun) {
    const auto one = simulate(random_simulation(11));
    const auto two = simulate(random_simulation(11));
    EXPECT_EQ(one.events, two.events);
    EXPECT_EQ(one.simulated_ms, two.simulated_ms);
    EXPECT_EQ(one.faults, two.faults);
    EXPECT_EQ(one.retrained_blocks, two.retrained_blocks);
}

template <class Change>
bool is_caught(Change change) {
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        auto set = random_simulation(seed);
        set.faults = 25;
        change(set);
        if (!verdict(simulate(set)).empty()) return true;
    }
    return false;
}

TEST(Simulation, CatchesASkippedSync) {
    EXPECT_TRUE(is_caught([](auto& set) { set.storage_mutants.skip_fsync = true; }));
}

TEST(Simulation, CatchesATrainerThatReadsBeyondItsReservation) {
    EXPECT_TRUE(is_caught([](auto& set) {
        set.read_unreserved = true;
        set.groups = 4;
    }));
}

}  // namespace
