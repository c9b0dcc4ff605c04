// SPDX-License-Identifier: Apache-2.0
#include "darlcore/testing/budget.hpp"

#include "darlcore/testing/property.hpp"

namespace {

using namespace darlcore::testing;

TEST(property_budget, scales_the_number_of_cases) {
    EXPECT_EQ(scaled_runs(1000, budget_from_text("small")), 100);
    EXPECT_EQ(scaled_runs(5, property_budget::small), 1);
    EXPECT_EQ(scaled_runs(1000, budget_from_text("nightly")), 100000);
    EXPECT_EQ(scaled_runs(1000, budget_from_text("full")), 1000);
}

TEST(property_budget, a_misspelt_budget_is_full) { EXPECT_EQ(budget_from_text("smal"), property_budget::full); }

TEST(property_runner, counts_cases_and_finds_counterexamples) {
    int cases = 0;
    check_property(40, [&cases] { ++cases; });
    EXPECT_EQ(cases, property_runs(40));
    EXPECT_TRUE(property_fails(200, [](int a) { RC_ASSERT(a < 1000 && a > -1000); }));
    EXPECT_FALSE(property_fails(20, [](int a) { RC_ASSERT(a == a); }));
}

}  // namespace
