// SPDX-License-Identifier: Apache-2.0
// The centralised baseline beside the run of the sites that it is compared with.
#include <gtest/gtest.h>

#include "adapters/cli/run_match.hpp"
#include "tests/cli/train_world.hpp"

namespace {

using namespace darlcore;
using darl::match_differences;
using darl::testing::run_darl;
using darl::testing::train_world;

TEST(run_match, half_a_percent_is_a_match_and_more_is_none_in_any_figure) {
    const auto differ = [](std::uint64_t tokens, std::uint64_t steps) {
        return match_differences({tokens, steps}, {32'000, 1'000}, 4).size();
    };
    EXPECT_EQ(differ(32'000, 1'000), 0U);
    EXPECT_EQ(differ(32'160, 1'005), 0U);
    EXPECT_EQ(differ(31'840, 995), 0U);
    EXPECT_EQ(differ(32'161, 1'005), 1U);  // tokens
    EXPECT_EQ(differ(32'000, 1'006), 2U);  // steps, and with them the batch
    EXPECT_EQ(differ(32'100, 996), 1U);    // each alone is near enough, the batch is not
    EXPECT_EQ(differ(16'000, 500), 2U);    // the same batch for half as long
    EXPECT_EQ(match_differences({0, 0}, {32'000, 1'000}, 4).size(), 3U);
    const auto half = match_differences({32'000, 500}, {32'000, 1'000}, 4);
    ASSERT_EQ(half.size(), 2U);
    EXPECT_EQ(half[1], "16.00 windows per step, the sites 8.00");
}

TEST(run_match, a_generation_that_cannot_be_read_is_named) {
    train_world world;
    EXPECT_EQ(darl::figures_of_generation(world.path("none")).error().code, errc::not_found);
    std::ofstream(world.path("meta.json")) << R"({"global_step":3})";
    const auto read = darl::figures_of_generation(world.path("meta.json"));
    EXPECT_EQ(read.error().code, errc::parse_error);
    EXPECT_NE(read.error().context.find("tokens_total"), std::string::npos);
}

TEST(train_match, a_baseline_with_the_sites_tokens_and_steps_runs_and_shows_both_sides) {
    train_world world;
    world.serve();
    ASSERT_EQ(world.train("alpha").status, 0);
    world.server.stop();
    const auto generation = darl::current_generation(world.path("state")).value();
    const std::vector<std::string> words = {"train",         "--json",  "--config", world.path("alpha.toml"),
                                            "--centralised", "--match", generation, "--global-batch"};
    const auto baseline = [&](const char* batch) {
        auto all = words;
        all.emplace_back(batch);
        return run_darl(all);
    };
    const auto same = baseline("4");
    ASSERT_EQ(same.status, 0) << same.err;
    const auto said = json::parse(same.out);
    ASSERT_TRUE(said) << same.out;
    EXPECT_EQ(said->at("match").at("tokens").as_u64(), said->at("tokens").as_u64());
    EXPECT_EQ(said->at("match").at("steps").as_u64(), 24U);
    EXPECT_EQ(said->at("steps").as_u64(), 24U);
    EXPECT_NE(same.err.find("match: tokens 3072 here, 3072 at the sites; steps 24, 24"), std::string::npos) << same.err;

    const auto other = baseline("8");
    EXPECT_EQ(other.status, 1);
    EXPECT_EQ(other.out, "");  // nothing was trained
    EXPECT_NE(other.err.find("12 steps, the sites 24; 8.00 windows per step, the sites 4.00"), std::string::npos)
        << other.err;
}

}  // namespace
