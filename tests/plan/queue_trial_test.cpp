// SPDX-License-Identifier: Apache-2.0
#include "darlcore/plan/queue_trial.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include "darlcore/random.hpp"
#include "tests/plan/two_sites.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::plan;
using plan_test::two_sites;

constexpr double hour = 3600;

plan_option option(const std::string& site, std::uint32_t gpus) {
    plan_option o;
    o.site = site;
    o.shape = "s";
    o.gpus = gpus;
    o.nodes = 2;
    o.walltime_s = 6 * hour;
    o.startup_s = 108;
    o.links = 4;
    o.chain = chain_policy::self;
    return o;
}

campaign_config config() {
    campaign_config k;
    k.horizon_s = 400'000;
    k.blocks_unassigned = 600;
    return k;
}

// A busy cluster of 8 nodes whose jobs end after `share` of what they asked for.
trial_cluster busy(const std::string& site, std::uint64_t seed, double share) {
    trial_cluster c{site, {8, backfill::easy, {}}, {}};
    xoshiro256 rng(seed);
    double t = 0;
    for (int i = 0; i < 60; ++i) {
        t += static_cast<double>(rng() % 3600);
        const double limit = hour * static_cast<double>(1 + rng() % 8);
        c.others.push_back({t, limit * share, limit, static_cast<std::uint32_t>(1 + rng() % 6)});
    }
    return c;
}

TEST(queue_trial, an_idle_cluster_starts_every_link_when_it_may) {
    const trial_cluster idle{"a", {8, backfill::easy, {}}, {}};
    plan_option o = option("a", 4);
    o.lead_s = 600;
    const auto self = meet_queue(o, idle, 400'000);
    ASSERT_TRUE(self.has_value());
    EXPECT_EQ(self->link_waits_s, (std::vector<double>{0, 6 * hour - 600, 6 * hour - 600, 6 * hour - 600}))
        << "a link is held until its begin time";
    o.chain = chain_policy::singleton;
    EXPECT_EQ(meet_queue(o, idle, 400'000)->link_waits_s, (std::vector<double>{0, 0, 0, 0}));
    EXPECT_EQ(meet_queue(o, idle, 7 * hour)->link_waits_s.size(), 2U)
        << "what lies behind the horizon is not submitted";
}

TEST(queue_trial, a_first_link_waits_as_long_as_the_queue_really_takes) {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        const trial_cluster c = busy("a", seed, 0.5);
        plan_option o = option("a", 4);
        o.links = 1;
        o.begin_s = hour * static_cast<double>(seed % 12);
        const auto met = meet_queue(o, c, 400'000);
        const auto truth = true_start_s(c.others, c.queue, {0, o.walltime_s, o.walltime_s, o.nodes}, o.begin_s);
        ASSERT_TRUE(met.has_value() && truth.has_value());
        EXPECT_EQ(met->link_waits_s.front(), *truth - o.begin_s) << "seed " << seed;
        o.lanes = 3;
        EXPECT_GE(meet_queue(o, c, 400'000)->link_waits_s.front(), met->link_waits_s.front()) << "its last lane";
    }
}

TEST(queue_trial, regret_is_never_negative_and_zero_for_the_plan_that_hindsight_takes) {
    const calibration c = two_sites();
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        const std::vector<trial_cluster> clusters{busy("a", seed, 0.4), busy("b", seed + 100, 0.9)};
        const std::vector<site_choices> choices{{"a", {option("a", 4)}}, {"b", {option("b", 8)}}};
        auto plans = baselines(c, choices);
        plans.push_back({"both", {choices[0].options[0], choices[1].options[0]}});
        plans.push_back({"a", {choices[0].options[0]}});
        plans.push_back({"b", {choices[1].options[0]}});
        const auto tried = try_plans(c, plans, choices, clusters, config());
        ASSERT_TRUE(tried.has_value()) << tried.error().context;
        double least = HUGE_VAL;
        for (const plan_trial& t : *tried) {
            EXPECT_GE(t.regret_s, 0) << t.name;
            if (t.expected.options.size() == 1) {
                EXPECT_LE(t.expected.time_s, t.realised.time_s) << t.name << " expected to wait for nothing";
            }
            least = std::min(least, t.regret_s);
        }
        EXPECT_EQ(least, 0) << "all plans of the choices were tried";
    }
}

TEST(queue_trial, lanes_wait_for_the_last_of_them) {
    const trial_cluster small{"a", {4, backfill::easy, {}}, {}};
    plan_option o = option("a", 4);  // two nodes each
    o.links = 1;
    o.lanes = 3;
    EXPECT_EQ(meet_queue(o, small, 400'000)->link_waits_s, std::vector<double>{6 * hour});
}

TEST(queue_trial, regret_is_against_plans_that_nobody_tried_too) {
    const calibration c = two_sites();
    const std::vector<trial_cluster> idle{{"a", {8, backfill::easy, {}}, {}}, {"b", {8, backfill::easy, {}}, {}}};
    const std::vector<site_choices> choices{{"a", {option("a", 4)}}, {"b", {option("b", 8)}}};
    const std::vector<baseline> slower{{"b", {choices[1].options[0]}}};
    const auto tried = try_plans(c, slower, choices, idle, config());
    ASSERT_TRUE(tried.has_value());
    EXPECT_EQ(tried->front().regret_s,
              tried->front().realised.time_s - score_plan(c, choices[0].options, config())->time_s);
    EXPECT_GT(tried->front().regret_s, 0);
}

TEST(queue_trial, planning_once_is_the_plan_itself) {
    const calibration c = two_sites();
    const std::vector<trial_cluster> clusters{{"a", {8, backfill::easy, {}}, {}}, {"b", {8, backfill::easy, {}}, {}}};
    const std::vector<site_choices> choices{{"a", {option("a", 4)}}, {"b", {option("b", 8)}}};
    const auto once = try_replanning(c, choices, clusters, config(), 1e9);
    ASSERT_TRUE(once.has_value()) << once.error().context;
    EXPECT_EQ(once->plans, 1U);
    double best = HUGE_VAL;
    for (const auto& plan : std::vector<std::vector<plan_option>>{
             {choices[0].options[0], choices[1].options[0]}, {choices[0].options[0]}, {choices[1].options[0]}})
        best = std::min(best, score_plan(c, plan, config())->time_s);
    EXPECT_EQ(once->realised.time_s, best) << "with idle clusters what is expected is what comes";
}

// Everybody at a asked for days and leaves after three hours: at first only b is worth a submission.
TEST(queue_trial, planning_again_finds_the_site_that_became_free) {
    const calibration c = two_sites();
    trial_cluster full{"a", {8, backfill::easy, {}}, {}};
    for (int i = 0; i < 8; ++i) full.others.push_back({0, 3 * hour, 400 * hour, 1});
    const std::vector<trial_cluster> clusters{full, {"b", {8, backfill::easy, {}}, {}}};
    std::vector<site_choices> choices{{"a", {option("a", 4)}}, {"b", {option("b", 8)}}};
    for (site_choices& s : choices) s.options.front().links = 20;
    campaign_config k = config();
    k.blocks_unassigned = 2'000;
    k.balance = true;
    const auto once = try_replanning(c, choices, clusters, k, 1e9);
    const auto hourly = try_replanning(c, choices, clusters, k, hour);
    ASSERT_TRUE(once.has_value() && hourly.has_value());
    EXPECT_EQ(once->realised.options.size(), 1U);
    EXPECT_EQ(hourly->realised.options.size(), 2U);
    EXPECT_LT(hourly->realised.time_s, once->realised.time_s);
    EXPECT_GT(hourly->plans, 3U);
}

// b waits two hours, as its scheduler says; a becomes free after one, and alone it is faster than the two together.
TEST(queue_trial, planning_again_withdraws_what_only_slows_the_others) {
    const calibration c = two_sites();
    trial_cluster leaving{"a", {8, backfill::easy, {}}, {}}, full{"b", {8, backfill::easy, {}}, {}};
    for (int i = 0; i < 8; ++i) {
        leaving.others.push_back({0, hour, 100 * hour, 1});
        full.others.push_back({0, 2 * hour, 2 * hour, 1});
    }
    const std::vector<trial_cluster> clusters{leaving, full};
    std::vector<site_choices> choices{{"a", {option("a", 4)}}, {"b", {option("b", 8)}}};
    for (site_choices& s : choices) s.options.front().links = 20;
    campaign_config k = config();
    k.blocks_unassigned = 2'000;
    const auto tried = try_replanning(c, choices, clusters, k, hour);
    ASSERT_TRUE(tried.has_value());
    EXPECT_EQ(tried->submitted, 2U);
    EXPECT_EQ(tried->withdrawn, 1U);
    ASSERT_EQ(tried->realised.options.size(), 1U);
    EXPECT_EQ(tried->realised.options.front().site, "a");
}

TEST(queue_trial, what_cannot_be_tried_is_named) {
    const calibration c = two_sites();
    const std::vector<site_choices> choices{{"a", {option("a", 4)}}};
    const std::vector<baseline> plans{{"a", choices[0].options}};
    EXPECT_EQ(try_plans(c, plans, choices, {}, config()).error().code, errc::not_found);
    EXPECT_EQ(try_replanning(c, choices, {}, config(), hour).error().code, errc::not_found);
    const std::vector<trial_cluster> small{{"a", {1, backfill::easy, {}}, {}}};
    const auto refused = try_plans(c, plans, choices, small, config());
    ASSERT_FALSE(refused.has_value());
    EXPECT_NE(refused.error().context.find("a, shape s"), std::string::npos) << refused.error().context;
    EXPECT_EQ(try_replanning(c, choices, small, config(), 0).error().code, errc::invalid_argument);
    const std::vector<trial_cluster> idle{{"a", {8, backfill::easy, {}}, {}}};
    std::vector<site_choices> many{{"a", std::vector<plan_option>(5'000, option("a", 4))}};
    EXPECT_EQ(try_replanning(c, many, idle, config(), hour).error().code, errc::too_large);
}

}  // namespace
