// SPDX-License-Identifier: Apache-2.0
// The checker is checked: each mechanism taken away makes a simulation fail within a few hundred seeds, and the failing
// run can be made short. The same seeds pass with everything in place (simulation_test.cpp).
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "backends/sim/simulation.hpp"

namespace {

using namespace darlcore::sim;

constexpr std::uint64_t seeds_max = 400;

/// The kinds of faults under which the absence of a mechanism shows soonest; none: all of them.
std::vector<harm> telling_faults(planted mechanism) {
    switch (mechanism) {
        case planted::merge_order:
            return {harm::power_cut, harm::power_cut_in_batch};
        case planted::blob_digest:
        case planted::model_digest:
            return {harm::bit_flip};
        case planted::tail_rewrite:
            return {harm::failed_sync, harm::power_cut};
        default:
            return {};
    }
}

/// First of the usual seeds that fails without the mechanism; more faults than usual, so that it comes soon.
simulation_settings first_failing(planted mechanism) {
    const auto kinds = telling_faults(mechanism);
    for (std::uint64_t seed = 1; seed <= seeds_max; ++seed) {
        auto set = random_simulation(seed);
        set.plan = random_plan(seed, 120, set.sites, set.fault_window_ms);
        if (!kinds.empty())
            for (auto& f : set.plan) f.kind = kinds[f.seed % kinds.size()];
        set.until_ms = 4 * set.fault_window_ms;
        set.plant = mechanism;
        if (!simulate(set).violations.empty()) return set;
    }
    simulation_settings none;
    none.seed = 0;
    return none;
}

class SimulationMutants : public ::testing::TestWithParam<planted> {};

TEST_P(SimulationMutants, IsCaught) {
    const auto failing = first_failing(GetParam());
    ASSERT_NE(failing.seed, 0U) << "not caught by " << seeds_max << " seeds";
    auto sound = failing;
    sound.plant = planted::none;
    EXPECT_EQ(simulate(sound).violations, std::vector<std::string>{});
    std::printf("%s: seed %llu: %s\n", std::string(word(GetParam())).c_str(),
                static_cast<unsigned long long>(failing.seed), simulate(failing).verdict().c_str());
}

INSTANTIATE_TEST_SUITE_P(Planted, SimulationMutants, ::testing::ValuesIn(every_planted()),
                         [](const auto& one) { return std::string(word(one.param)); });

TEST(SimulationShrink, AFailingRunIsReducedToTheFaultsThatItNeeds) {
    const auto failing = first_failing(planted::early_reply);
    ASSERT_NE(failing.seed, 0U);
    const auto fewest = shrink(failing, 200);
    EXPECT_LT(fewest.plan.size(), 8U);
    EXPECT_FALSE(simulate(fewest).passed());
    const auto report = simulate(fewest);
    EXPECT_EQ(report.story, simulate(fewest).story);
    for (std::size_t i = 0; i < fewest.plan.size(); ++i) {
        auto less = fewest;
        less.plan.erase(less.plan.begin() + static_cast<std::ptrdiff_t>(i));
        EXPECT_TRUE(simulate(less).passed()) << "fault " << i << " is not needed";
    }
}

}  // namespace
