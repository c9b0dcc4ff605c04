// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "darlcore/plan/campaign_report.hpp"
#include "darlcore/plan/campaign_run.hpp"
#include "darlcore/random.hpp"
#include "darlcore/testing/budget.hpp"
#include "darlcore/testing/campaign_twin.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::plan;

calibration three_sites() {
    calibration c;
    c.merge_s = 17;
    c.transfer_s = {{"a", 33.5}, {"b", 64.2}, {"c", 10}};
    c.eval_fixed_s = {{"a", 23.6}, {"b", 34.7}, {"c", 5}};
    c.join_stall_s = 378;
    c.seq_len = 2048;
    c.block_windows = 1024;
    c.geometries = {{"a@4", {89.8, 32}}, {"b@8", {38.2, 64}}, {"c@2", {50, 16}}};
    return c;
}

plan_option option(const std::string& site, double wait_s, double walltime_s) {
    plan_option o;
    o.site = site;
    o.gpus = site == "a" ? 4 : site == "b" ? 8 : 2;
    o.wait_s = wait_s;
    o.walltime_s = walltime_s;
    o.startup_s = 108;
    return o;
}

campaign_config config(double blocks, double horizon_s = 172800) {
    campaign_config c;
    c.horizon_s = horizon_s;
    c.blocks_unassigned = blocks;
    return c;
}

TEST(campaign, equals_its_plain_twin_on_random_plans) {
    xoshiro256 draw(41);
    const calibration c = three_sites();
    std::uint64_t federated = 0, with_leavers = 0;
    for (int run = 0; run < darlcore::testing::property_runs(600); ++run) {
        std::vector<plan_option> options;
        const char* names[] = {"a", "b", "c"};
        for (std::uint64_t k = 0; k < 1 + draw.below(3); ++k) {
            plan_option o = option(names[k], static_cast<double>(draw.below(40)) * 433.0,
                                   1800 + static_cast<double>(draw.below(30)) * 700.0);
            o.lanes = 1 + static_cast<std::uint32_t>(draw.below(3));
            o.links = 1 + static_cast<std::uint32_t>(draw.below(6));
            o.chain = static_cast<chain_policy>(draw.below(3));
            o.lead_s = draw.below(4) == 0 ? 600 : 0;
            o.has_checkpoint = draw.below(4) == 0;
            options.push_back(o);
        }
        campaign_config k = config(1 + static_cast<double>(draw.below(1500)), 100000);
        k.balance = draw.below(2) == 0;
        k.inner_steps = static_cast<std::uint32_t>(1 + draw.below(300));
        k.leave_margin_s = draw.below(2) == 0 ? 0 : 60;
        if (draw.below(4) == 0) k.num_rounds = draw.below(100);
        const auto m = make_campaign(c, options, k);
        ASSERT_TRUE(m.has_value()) << m.error().context;
        const auto fast = simulate(*m, k);
        const auto plain = darlcore::testing::plain_campaign(*m, k).run();
        ASSERT_EQ(fast.federated_rounds, plain.federated) << "run " << run;
        ASSERT_EQ(fast.solo_rounds, plain.solo) << "run " << run;
        ASSERT_EQ(fast.windows, plain.windows) << "run " << run;
        ASSERT_NEAR(fast.run_end_s, plain.end_s, 1e-6) << "run " << run;
        std::uint64_t by_lane = 0;
        for (const auto& lane : fast.lanes) by_lane += lane.windows;
        ASSERT_EQ(by_lane, fast.windows) << "run " << run;
        federated += fast.federated_rounds;
        with_leavers += fast.short_rounds;
    }
    EXPECT_GT(federated, 0U);
    EXPECT_GT(with_leavers, 0U);
}

TEST(campaign, the_last_blocks_are_all_trained) {
    const calibration c = three_sites();
    const std::vector<plan_option> options{option("a", 0, 80000), option("b", 0, 80000)};
    campaign_config k = config(10.01);
    const auto m = make_campaign(c, options, k);
    const auto out = simulate(*m, k);
    EXPECT_EQ(out.windows, 10250U);
    EXPECT_EQ(out.ended_by, end_reason::corpus_exhausted);
    k.rules = rule_set::reference;
    EXPECT_LT(simulate(*m, k).windows, 10250U);
}

TEST(campaign, two_lanes_of_one_site_are_solo) {
    const calibration c = three_sites();
    std::vector<plan_option> options{option("a", 0, 80000)};
    options[0].lanes = 2;
    const campaign_config k = config(100);
    const auto out = simulate(*make_campaign(c, options, k), k);
    EXPECT_EQ(out.federated_rounds, 0U);
    EXPECT_GT(out.solo_rounds, 0U);
}

TEST(campaign, attempts_bound_solo_rounds_too) {
    const calibration c = three_sites();
    const std::vector<plan_option> options{option("a", 0, 80000)};
    campaign_config k = config(1000);
    k.num_rounds = 7;
    const auto out = simulate(*make_campaign(c, options, k), k);
    EXPECT_EQ(out.solo_rounds, 7U);
    EXPECT_EQ(out.ended_by, end_reason::attempts_exhausted);
    EXPECT_TRUE(out.attempts_exhausted_s.has_value());
}

TEST(campaign, a_trace_of_inner_steps_is_drawn_once_per_round) {
    const calibration c = three_sites();
    const std::vector<plan_option> options{option("a", 0, 80000)};
    campaign_config k = config(1e6);
    k.inner_steps = h_trace{{10, 20, 30}};
    k.num_rounds = 4;
    k.collect_rounds = true;
    const auto out = simulate(*make_campaign(c, options, k), k);
    ASSERT_EQ(out.rounds.size(), 4U);
    EXPECT_EQ(out.rounds[0].inner_steps, 10U);
    EXPECT_EQ(out.rounds[1].inner_steps, 20U);
    EXPECT_EQ(out.rounds[2].inner_steps, 30U);
    EXPECT_EQ(out.rounds[3].inner_steps, 30U);
}

TEST(campaign, the_time_to_a_target_lies_at_the_end_of_the_round_that_reaches_it) {
    const calibration c = three_sites();
    const std::vector<plan_option> options{option("a", 0, 80000)};
    campaign_config k = config(1000);
    k.collect_rounds = true;
    k.target_tokens = 5ULL * 3200 * 2048 - 1;
    const auto out = simulate(*make_campaign(c, options, k), k);
    ASSERT_TRUE(out.target_s.has_value());
    EXPECT_NEAR(*out.target_s, out.rounds[4].start_s + out.rounds[4].period_s, 1e-6);
    k.target_tokens = 1ULL << 60U;
    EXPECT_FALSE(simulate(*make_campaign(c, options, k), k).target_s.has_value());
}

TEST(campaign, a_job_that_leaves_bills_to_its_end_and_a_drained_run_stops_billing) {
    const calibration c = three_sites();
    std::vector<plan_option> options{option("a", 0, 80000)};
    options[0].nodes = 2;
    campaign_config k = config(20);
    auto m = make_campaign(c, options, k);
    auto out = simulate(*m, k);
    auto report = report_of(*m, options, k, c, out);
    EXPECT_NEAR(report.billed_gpu_s, 4 * out.run_end_s, 1e-6);
    EXPECT_NEAR(report.node_hours, 2 * out.run_end_s / 3600, 1e-9);
    k.rules = rule_set::reference;
    m = make_campaign(c, options, k);
    out = simulate(*m, k);
    report = report_of(*m, options, k, c, out);
    EXPECT_NEAR(report.billed_gpu_s, 4 * (80000 - 108.0), 1e-6);
}

TEST(campaign, bad_options_are_refused_by_row) {
    const calibration c = three_sites();
    const auto refused = [&](plan_option o, const char* word) {
        const std::vector<plan_option> options{option("a", 0, 1000), o};
        const auto m = make_campaign(c, options, config(10));
        return !m.has_value() && m.error().context.find(word) != std::string::npos;
    };
    EXPECT_TRUE(refused(option("b", -1, 1000), "wait_s"));
    EXPECT_TRUE(refused(option("b", std::nan(""), 1000), "wait_s"));
    EXPECT_TRUE(refused(option("b", 0, 0), "walltime_s"));
    EXPECT_TRUE(refused(option("b", 0, 100), "startup_s"));
    plan_option unknown = option("b", 0, 1000);
    unknown.gpus = 3;
    EXPECT_TRUE(refused(unknown, "b@3"));
    plan_option many = option("b", 0, 1000);
    many.lanes = 70;
    EXPECT_TRUE(refused(many, "64 lanes"));
}

TEST(campaign, a_successor_before_its_predecessors_end_is_warned_of) {
    const calibration c = three_sites();
    std::vector<plan_option> options{option("a", 0, 8000)};
    options[0].links = 3;
    options[0].chain = chain_policy::self;
    options[0].lead_s = 900;
    EXPECT_FALSE(make_campaign(c, options, config(10))->warnings.empty());
}

}  // namespace
