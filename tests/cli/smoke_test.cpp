// SPDX-License-Identifier: Apache-2.0
// `darl smoke` on this machine: every check passes with one, two and four ranks.
#include <gtest/gtest.h>

#include "adapters/formats/json.hpp"
#include "tests/cli/run_darl.hpp"

namespace {

using namespace darlcore;
using darl::testing::run_darl;

class smoke : public testing::TestWithParam<int> {};

TEST_P(smoke, passes_with_exact_collectives_pinned_losses_and_outer_steps) {
    const std::string ranks = std::to_string(GetParam());
    const auto run = run_darl({"smoke", "--json", "--ranks", ranks, "--bandwidth-mib", "4"});
    ASSERT_EQ(run.status, 0) << run.out << run.err;
    const auto said = json::parse(run.out);
    ASSERT_TRUE(said) << run.out;
    EXPECT_EQ(*said->at("verdict").as_string(), "PASS");
    EXPECT_EQ(said->at("ranks").as_u64(), static_cast<std::uint64_t>(GetParam()));
    std::string names;
    for (const auto& check : *said->at("checks").as_array()) {
        EXPECT_EQ(*check.at("verdict").as_string(), "PASS") << json::dump(check);
        names += *check.at("check").as_string() + "\n";
    }
    for (const char* needed :
         {"all-reduce of rank ids", "reduce-scatter and all-gather", "loss of step 3", "first loss against",
          "outer step of 2 replicas, averaging", "outer step of 4 replicas, eta 0.7", "to f32 and back",
          "weights through a file", "inner step", "outer step", "overhead at H = 500"})
        EXPECT_NE(names.find(needed), std::string::npos) << needed;
    EXPECT_EQ(names.find("all-reduce of 4 MiB") != std::string::npos, GetParam() > 1);
}

INSTANTIATE_TEST_SUITE_P(with_ranks, smoke, testing::Values(1, 2, 4),
                         [](const auto& ranks) { return "of_" + std::to_string(ranks.param); });

TEST(smoke_command, a_number_of_ranks_that_it_cannot_check_is_an_error) {
    const auto run = run_darl({"smoke", "--ranks", "3"});
    EXPECT_EQ(run.status, 2);
    EXPECT_NE(run.err.find("1, 2 or 4"), std::string::npos) << run.err;
}

}  // namespace
