// SPDX-License-Identifier: Apache-2.0
#include "darlcore/plan/monte_carlo.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/plan/two_sites.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::plan;
using plan_test::two_sites;

std::vector<site_choices> choices() {
    plan_option a, b;
    a.site = "a";
    a.gpus = 4;
    a.wait_s = 7200;
    b.site = "b";
    b.gpus = 8;
    b.wait_s = 600;
    for (plan_option* o : {&a, &b}) {
        o->shape = "s";
        o->walltime_s = 6 * 3600;
        o->startup_s = 108;
        o->links = 4;
        o->chain = chain_policy::self;
    }
    return {{"a", {a}}, {"b", {b}}};
}

campaign_config config() {
    campaign_config k;
    k.horizon_s = 400000;
    k.blocks_unassigned = 600;
    return k;
}

TEST(monte_carlo, without_spread_it_is_the_plain_plan) {
    const calibration c = two_sites();
    const auto all = choices();
    const std::vector<std::vector<plan_option>> plans{{all[0].options[0], all[1].options[0]}, {all[0].options[0]}};
    const wait_distribution wait_a = wait_distribution::constant(7200), wait_b = wait_distribution::constant(600);
    const wait_model model = [&](const plan_option& o) -> const wait_distribution& {
        return o.site == "a" ? wait_a : wait_b;
    };
    monte_carlo_settings s;
    s.draws = 20;
    const auto d = monte_carlo(c, plans, all, config(), model, s);
    ASSERT_TRUE(d.has_value());
    for (std::size_t p = 0; p < plans.size(); ++p) {
        const auto plain = score_plan(c, plans[p], config());
        EXPECT_EQ((*d)[p].p10_s, plain->time_s);
        EXPECT_EQ((*d)[p].p90_s, plain->time_s);
        EXPECT_NEAR((*d)[p].node_hours, plain->node_hours, 1e-9);
    }
    EXPECT_EQ(std::min((*d)[0].regret_mean_s, (*d)[1].regret_mean_s), 0);
}

TEST(monte_carlo, regret_is_never_negative_and_zero_for_the_best_in_hindsight) {
    const calibration c = two_sites();
    const auto all = choices();
    std::vector<std::vector<plan_option>> plans{
        {all[0].options[0], all[1].options[0]}, {all[0].options[0]}, {all[1].options[0]}};
    for (const auto& b : baselines(c, all)) plans.push_back(b.options);
    const wait_distribution wide({{0, 1}, {3600, 1}, {20000, 1}, {90000, 1}});
    const wait_model model = [&](const plan_option&) -> const wait_distribution& { return wide; };
    monte_carlo_settings s;
    s.draws = 60;
    s.deadline_s = 40000;
    const auto d = monte_carlo(c, plans, all, config(), model, s);
    ASSERT_TRUE(d.has_value());
    bool differs = false;
    for (const auto& p : *d) {
        EXPECT_GE(p.regret_mean_s, 0);
        EXPECT_LE(p.p10_s, p.p50_s);
        EXPECT_LE(p.p50_s, p.p90_s);
        differs = differs || p.p10_s < p.p90_s;
    }
    EXPECT_TRUE(differs);
    EXPECT_EQ((*monte_carlo(c, plans, all, config(), model, s))[0].p50_s, (*d)[0].p50_s);
    s.seed = 2;
    EXPECT_NE((*monte_carlo(c, plans, all, config(), model, s))[0].mean_s, (*d)[0].mean_s);
}

TEST(monte_carlo, in_every_draw_the_oracle_itself_loses_nothing_and_is_not_always_the_same_plan) {
    const calibration c = two_sites();
    const auto all = choices();
    const std::vector<std::vector<plan_option>> plans{
        {all[0].options[0], all[1].options[0]}, {all[0].options[0]}, {all[1].options[0]}};
    const wait_distribution wide({{0, 1}, {3600, 1}, {20000, 1}, {90000, 1}});
    const wait_model model = [&](const plan_option&) -> const wait_distribution& { return wide; };
    std::set<std::size_t> best;
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        monte_carlo_settings s;
        s.draws = 1;
        s.seed = seed;
        const auto d = monte_carlo(c, plans, all, config(), model, s);
        ASSERT_TRUE(d.has_value());
        double least = HUGE_VAL;
        for (std::size_t p = 0; p < plans.size(); ++p) {
            if (!std::isfinite((*d)[p].p50_s)) continue;
            least = std::min(least, (*d)[p].regret_mean_s);
            if ((*d)[p].regret_mean_s == 0) best.insert(p);
        }
        EXPECT_EQ(least, 0) << "the plans are all there are: one of them is the oracle's";
    }
    EXPECT_GE(best.size(), 2U);
}

TEST(monte_carlo, plans_share_their_draws) {
    const plan_option a = choices()[0].options[0];
    plan_option later = a;
    later.begin_s = 9999;
    for (std::uint32_t k = 0; k < 5; ++k)
        EXPECT_EQ(darlcore::plan::detail::common_share(1, 3, a, k),
                  darlcore::plan::detail::common_share(1, 3, later, k));
    EXPECT_NE(darlcore::plan::detail::common_share(1, 3, a, 0), darlcore::plan::detail::common_share(1, 3, a, 1));
}

TEST(trace, like_jobs_of_the_partition_come_first_and_old_ones_fade) {
    std::vector<past_job> jobs;
    for (int i = 0; i < 60; ++i) jobs.push_back({"gpu", 1000.0 * i, 1000.0 * i + 100, 50, 3600, 1});
    for (int i = 0; i < 60; ++i) jobs.push_back({"gpu", 1000.0 * i, 1000.0 * i + 5000, 50, 86400, 16});
    for (int i = 0; i < 60; ++i) jobs.push_back({"cpu", 1000.0 * i, 1000.0 * i + 9, 50, 3600, 1});
    trace_settings t;
    t.now_s = 100000;
    EXPECT_EQ(waits_from_trace(jobs, "gpu", 1, 3600, t).at(0.99), 100);
    EXPECT_EQ(waits_from_trace(jobs, "gpu", 16, 86400, t).at(0.01), 5000);
    EXPECT_FALSE(waits_from_trace(jobs, "gpu", 1, 3600, t).pooled());
    const auto other = waits_from_trace(jobs, "none", 1, 3600, t);
    EXPECT_TRUE(other.pooled());
    EXPECT_FALSE(other.empty());
    EXPECT_TRUE(waits_from_trace(std::span(jobs).first(5), "gpu", 1, 3600, t).empty());
}

TEST(trace, a_job_weighs_half_for_every_week_of_its_age) {
    std::vector<past_job> jobs;
    constexpr double week_s = 7 * 86400.0;
    for (int i = 0; i < 40; ++i) jobs.push_back({"gpu", 4 * week_s - 500, 4 * week_s, 50, 3600, 1});  // now, 500 s
    for (int i = 0; i < 120; ++i)
        jobs.push_back({"gpu", 0, 2 * week_s, 50, 3600, 1});  // two weeks, three times as many
    trace_settings t;
    t.now_s = 4 * week_s;
    const auto d = waits_from_trace(jobs, "gpu", 1, 3600, t);
    EXPECT_EQ(d.at(40.0 / 70 - 0.001), 500) << "120 jobs of two weeks weigh as 30 of today";
    EXPECT_EQ(d.at(40.0 / 70 + 0.001), 2 * week_s);
}

TEST(trace, ratios_scale_the_live_estimate) {
    const std::vector<std::pair<double, double>> pairs{{100, 50}, {100, 150}, {0, 7}};
    const auto d = waits_from_ratios(1000, pairs);
    EXPECT_EQ(d.size(), 2U);
    EXPECT_EQ(d.at(0), 500);
    EXPECT_EQ(d.at(0.9), 1500);
}

}  // namespace
