// SPDX-License-Identifier: Apache-2.0
// Real server, real sites, real kills: the audit must pass, three times in CI.
#include <gtest/gtest.h>

#include "adapters/formats/json.hpp"
#include "darlcore/testing/budget.hpp"
#include "tests/cli/run_darl.hpp"

namespace {

using namespace darlcore;

TEST(simulate, ends_with_each_block_in_the_model_once_though_sites_and_server_are_killed) {
    const int runs = darlcore::testing::property_runs(3);
    for (int seed = 1; seed <= runs; ++seed) {
        const auto run =
            darl::testing::run_darl({"simulate", "--json", "--sites", "4", "--blocks", "300", "--kill", "1", "--late",
                                     "1", "--kill-ledger", "2", "--seed", std::to_string(seed)});
        ASSERT_EQ(run.status, 0) << run.out << run.err;
        const auto report = json::parse(run.out);
        ASSERT_TRUE(report) << run.out;
        EXPECT_EQ(*report->at("verdict").as_string(), "PASS");
        EXPECT_EQ(report->at("covered").as_u64(), 300U);
        EXPECT_EQ(report->at("duplicates").as_u64(), 0U);
        EXPECT_EQ(report->at("missing").as_u64(), 0U);
        EXPECT_EQ(report->at("sites").size(), 4U);
    }
}

TEST(simulate, a_site_that_sleeps_beyond_its_leases_costs_nothing_but_its_own_work) {
    const auto run = darl::testing::run_darl(
        {"simulate", "--json", "--sites", "3", "--blocks", "200", "--pause", "1", "--ttl", "2", "--seed", "5"});
    ASSERT_EQ(run.status, 0) << run.out << run.err;
    EXPECT_EQ(*json::parse(run.out)->at("verdict").as_string(), "PASS");
}

TEST(simulate, wrong_arguments_are_named_and_end_with_2) {
    EXPECT_EQ(darl::testing::run_darl({"simulate", "--sites", "0"}).status, 2);
    const auto unknown = darl::testing::run_darl({"simulate", "--blokcs", "5"});
    EXPECT_EQ(unknown.status, 2);
    EXPECT_NE(unknown.err.find("blokcs"), std::string::npos);
}

}  // namespace
