// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "darlcore/plan/argument.hpp"
#include "darlcore/plan/chain.hpp"
#include "darlcore/plan/estimate.hpp"
#include "darlcore/plan/round_cost.hpp"
#include "darlcore/plan/schedule.hpp"
#include "darlcore/plan/usage.hpp"
#include "tests/plan/calibration_support.hpp"
#include "tests/plan/vector_support.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::plan;
using namespace plan_test;

TEST(planner_vectors, discounts_and_their_refusals) {
    for (const auto& c : *planner().at("discount").as_array()) {
        std::optional<double> gamma;
        if (!c.at("gamma").is_null()) gamma = number(c, "gamma");
        const auto wait = discounted_wait_s(number(c, "wait_s"), gamma, number(c, "strength"));
        if (c.at("expect").is_string()) {
            EXPECT_FALSE(wait.has_value());
            continue;
        }
        ASSERT_TRUE(wait.has_value());
        expect_figure(*wait, number(c, "expect"), "discount");
    }
    for (const double bad : {-1.0, -1e-9, std::nan(""), HUGE_VAL})
        EXPECT_FALSE(discounted_wait_s(bad, 0.5, 0.5).has_value()) << bad << ": no wait known is not a wait of 0";
}

// Seen red: a throughput of 1e-320 made steps without end, which balancing does not take.
TEST(costs, a_step_or_an_overhead_beyond_any_run_is_refused_by_its_key) {
    for (const double seq_per_s : {1e-320, 1e-9, 1e300, 0.0, -1.0, std::nan("")}) {
        calibration c = calibration_of_vectors();
        c.geometries["snellius@4"].seq_per_s = seq_per_s;
        const auto cost = cost_of(c, "snellius", 4);
        ASSERT_FALSE(cost.has_value()) << seq_per_s;
        EXPECT_NE(cost.error().context.find("snellius"), std::string::npos);
    }
    calibration c = calibration_of_vectors();
    EXPECT_TRUE(cost_of(c, "snellius", 4).has_value());
    c.eval_windows = 1e12;
    EXPECT_FALSE(cost_of(c, "snellius", 4).has_value());
}

TEST(arguments, only_listed_characters_pass) {
    const std::string plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.,:=+@%/[]-";
    EXPECT_TRUE(is_plain_argument(plain));
    EXPECT_TRUE(is_plain_argument(""));
    for (int c = 0; c < 256; ++c) {
        const char byte = static_cast<char>(c);
        EXPECT_EQ(is_plain_argument("-p" + std::string(1, byte) + "x"), plain.find(byte) != std::string::npos) << c;
    }
}

TEST(planner_vectors, gamma_is_weighted_by_requested_node_time) {
    for (const auto& c : *planner().at("gamma").as_array()) {
        SCOPED_TRACE(text(c, "id"));
        std::vector<used_job> jobs;
        for (const auto& j : *c.at("jobs").as_array()) {
            if (j.contains("started") && !*j.at("started").as_bool()) continue;
            jobs.push_back({*j.at("nodes").as_u64(), number(j, "elapsed_s"), number(j, "limit_s")});
        }
        const auto u = usage_of(jobs, *c.at("min_jobs").as_u64());
        ASSERT_TRUE(u.gamma.has_value());
        expect_figure(*u.gamma, number(c.at("expect"), "gamma"), "gamma");
        EXPECT_EQ(u.jobs, *c.at("expect").at("n").as_u64());
    }
}

TEST(planner_vectors, percentiles_interpolate) {
    for (const auto& c : *planner().at("percentile").as_array()) {
        std::vector<double> values;
        for (const auto& v : *c.at("values").as_array()) values.push_back(*v.as_double());
        EXPECT_NEAR(percentile(values, number(c, "q")), number(c, "expect"), 1e-12);
    }
}

TEST(planner_vectors, accumulation_balances_the_steps) {
    for (const auto& c : *planner().at("balance").as_array()) {
        std::vector<double> steps;
        for (const auto& v : *c.at("step_s").as_array()) steps.push_back(*v.as_double());
        const auto made = balanced_accumulation(steps, static_cast<std::uint32_t>(*c.at("cap").as_u64()));
        for (std::size_t i = 0; i < made.size(); ++i) EXPECT_EQ(made[i], *c.at("expect").at(i).as_u64());
    }
}

TEST(planner_vectors, chain_break_even_and_duty) {
    for (const auto& c : *planner().at("chain_breakeven").as_array()) {
        const double t = number(c, "short_h"), T = number(c, "long_h");
        const double wt = number(c, "wait_short_h"), wT = number(c, "wait_long_h");
        const auto& expected = c.at("expect");
        expect_figure(3600 * chain_breakeven(t, T, wt, wT), number(expected, "c_star_s"), "c_star_s");
        expect_figure(chain_duty(T, 108.0 / 3600, wT), number(expected, "duty_long_at_108s"), "duty_long");
        expect_figure(chain_duty(t, 108.0 / 3600, wt), number(expected, "duty_short_at_108s"), "duty_short");
    }
}

TEST(planner_vectors, links_of_a_self_submitting_chain) {
    const auto& o = planner().at("chain_links").at("option");
    chain_spec spec;
    spec.wait_s = number(o, "wait_s");
    spec.walltime_s = number(o, "walltime_s");
    spec.startup_s = number(o, "startup_s");
    spec.lead_s = number(o, "lead_s");
    spec.links = static_cast<std::uint32_t>(*o.at("links").as_u64());
    spec.chain = *chain_from_word(text(o, "chain"));
    const auto links = chain_links(spec, 1e9);
    const auto& expected = *planner().at("chain_links").at("expect").as_array();
    ASSERT_EQ(links.size(), expected.size());
    for (std::size_t i = 0; i < links.size(); ++i) {
        EXPECT_EQ(links[i].submit_s, number(expected[i], "submit_s"));
        EXPECT_EQ(links[i].arrival_s, number(expected[i], "arrival_s"));
        EXPECT_EQ(links[i].productive_s, number(expected[i], "productive_s"));
        EXPECT_EQ(links[i].end_s, number(expected[i], "end_s"));
        EXPECT_EQ(links[i].cold, *expected[i].at("cold").as_bool());
        EXPECT_FALSE(links[i].refused);
    }
}

TEST(planner_vectors, inner_steps_follow_the_learning_rate) {
    const auto& c = planner().at("qsr").at("config");
    qsr_schedule q;
    q.h0 = static_cast<std::uint32_t>(*c.at("h0").as_u64());
    q.h_max = static_cast<std::uint32_t>(*c.at("max_h").as_u64());
    q.lr = {*c.at("warmup").as_u64(), *c.at("total_steps").as_u64(), number(c, "peak_lr"), number(c, "decay_ratio"),
            number(c, "min_factor")};
    for (const auto& row : *planner().at("qsr").at("lr").as_array())
        EXPECT_NEAR(lr_at(q.lr, *row.at("step").as_u64()) / number(row, "lr"), 1.0, 1e-9);
    for (const auto& row : *planner().at("qsr").at("h").as_array())
        EXPECT_EQ(qsr_inner_steps(q, *row.at("step").as_u64()), *row.at("h").as_u64()) << *row.at("step").as_u64();
}

TEST(planner_vectors, overhead_of_every_site) {
    const auto c = calibration_of_vectors();
    for (const auto& [key, expected] : *planner().at("site_overhead_s").as_object()) {
        const auto cost = member_of(c, key);
        EXPECT_NEAR(cost.overhead_s / *expected.as_double(), 1.0, 1e-9) << key;
    }
}

TEST(planner_vectors, every_round_has_the_stated_price) {
    const auto c = calibration_of_vectors();
    for (const auto& row : *planner().at("round_cost").as_array()) {
        std::vector<member_cost> members, eval_only;
        std::vector<double> steps;
        for (const auto& m : *row.at("members").as_array()) members.push_back(member_of(c, *m.as_string()));
        for (const auto& m : *row.at("eval_only").as_array()) eval_only.push_back(member_of(c, *m.as_string()));
        for (const auto& m : members) steps.push_back(m.step_s);
        if (*row.at("balance").as_bool()) {
            const auto accumulation = balanced_accumulation(steps);
            for (std::size_t i = 0; i < members.size(); ++i) members[i].accumulation = accumulation[i];
        }
        const auto& e = row.at("expect");
        const auto p = price_round(c, members, eval_only, static_cast<std::uint32_t>(*row.at("inner_steps").as_u64()),
                                   number(row, "stall_s"));
        EXPECT_NEAR(p.period_s / number(e, "period_s"), 1.0, 1e-9);
        EXPECT_NEAR(p.phase_s / number(e, "phase_s"), 1.0, 1e-9);
        EXPECT_NEAR(p.overhead_s / number(e, "overhead_s"), 1.0, 1e-9);
        EXPECT_EQ(p.tokens, *e.at("tokens").as_u64());
        EXPECT_EQ(p.blocks, number(e, "blocks"));
        for (std::size_t i = 0; i < members.size(); ++i)
            EXPECT_EQ(members[i].accumulation, *e.at("accumulation").at(i).as_u64());
    }
}

TEST(planner_vectors, predicted_merge_to_merge_times_lie_near_the_measured_ones) {
    const auto c = calibration_of_vectors();
    const auto period = [&](std::vector<std::pair<std::string, std::uint32_t>> lanes) {
        std::vector<member_cost> members;
        for (const auto& [key, accumulation] : lanes) {
            members.push_back(member_of(c, key));
            members.back().accumulation = accumulation;
        }
        return price_round(c, members, {}, 100, 0).period_s;
    };
    const std::vector<double> predicted{period({{"snellius@4", 1}}), period({{"snellius@4", 1}, {"lumi@8", 1}}),
                                        period({{"snellius@1", 5}}), period({{"snellius@1", 1}, {"lumi@1", 1}})};
    const auto& rows = *planner().at("residuals").as_array();
    ASSERT_EQ(rows.size(), predicted.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
        EXPECT_NEAR(predicted[i] / number(rows[i], "predicted_s"), 1.0, 1e-9) << text(rows[i], "regime");
        const double measured = number(rows[i], "measured_s");
        EXPECT_EQ(std::abs(predicted[i] - measured) <= 0.05 * measured, *rows[i].at("within_5_percent").as_bool());
    }
}

}  // namespace
