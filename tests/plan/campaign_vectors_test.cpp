// SPDX-License-Identifier: Apache-2.0
#include "darlcore/plan/campaign_report.hpp"
#include "darlcore/plan/campaign_run.hpp"
#include "tests/plan/calibration_support.hpp"
#include "tests/plan/vector_support.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::plan;
using namespace plan_test;

struct scenario {
    std::vector<plan_option> options;
    campaign_config config;
};

scenario scenario_of(const json::value& c, rule_set rules) {
    scenario s;
    s.config.horizon_s = number(c.at("config"), "horizon_s");
    s.config.num_rounds = *c.at("config").at("num_rounds").as_u64();
    s.config.inner_steps = static_cast<std::uint32_t>(*c.at("config").at("inner_steps").as_u64());
    s.config.balance = *c.at("balance").as_bool();
    s.config.blocks_unassigned = number(c, "blocks_unassigned");
    s.config.rules = rules;
    if (rules == rule_set::strict) s.config.leave_margin_s = number(c.at("expect_strict"), "leave_margin_s");
    for (const auto& o : *c.at("options").as_array()) {
        plan_option p;
        p.site = text(o, "site");
        p.gpus = static_cast<std::uint32_t>(*o.at("gpus").as_u64());
        p.wait_s = number(o, "wait_s");
        p.walltime_s = number(o, "walltime_s");
        p.startup_s = number(o, "startup_s");
        p.lanes = static_cast<std::uint32_t>(*o.at("lanes").as_u64());
        p.links = static_cast<std::uint32_t>(*o.at("links").as_u64());
        p.chain = *chain_from_word(text(o, "chain"));
        p.begin_s = number(o, "begin_s");
        s.options.push_back(p);
    }
    return s;
}

void expect_close(double computed, double expected, const std::string& what) {
    EXPECT_NEAR(computed, expected, 1e-9 * std::max(1.0, std::abs(expected))) << what;
}

void expect_optional(const std::optional<double>& computed, const json::value& expected, const std::string& what) {
    ASSERT_EQ(computed.has_value(), !expected.is_null()) << what;
    if (computed) expect_close(*computed, *expected.as_double(), what);
}

void expect_headline(const campaign_outcome& out, const campaign_model& m, const json::value& e) {
    EXPECT_EQ(out.federated_rounds, *e.at("federated_rounds").as_u64());
    EXPECT_EQ(out.solo_rounds, *e.at("solo_rounds").as_u64());
    EXPECT_EQ(out.windows * m.seq_len, *e.at("tokens").as_u64());
    expect_close(static_cast<double>(out.windows) / m.block_windows, number(e, "blocks_used"), "blocks_used");
    expect_close(out.run_end_s, number(e, "run_end_s"), "run_end_s");
    expect_optional(out.corpus_exhausted_s, e.at("corpus_exhausted_s"), "corpus_exhausted_s");
    expect_optional(out.attempts_exhausted_s, e.at("attempts_exhausted_s"), "attempts_exhausted_s");
}

void expect_sites(const campaign_report& report, const json::value& expected) {
    ASSERT_EQ(report.sites.size(), expected.size());
    for (std::size_t i = 0; i < report.sites.size(); ++i) {
        const site_report& s = report.sites[i];
        const json::value& e = expected.at(i);
        EXPECT_EQ(s.site, text(e, "site"));
        expect_close(s.queued_s, number(e, "queued_s"), "queued_s");
        expect_close(s.startup_s, number(e, "startup_s"), "startup_s");
        expect_close(s.head_s, number(e, "head_s"), "head_s");
        expect_close(s.between_s, number(e, "between_s"), "between_s");
        expect_close(s.coresident_s, number(e, "coresident_s"), "coresident_s");
        expect_close(s.tail_s, number(e, "tail_s"), "tail_s");
        expect_close(s.gap_s, number(e, "gap_s"), "gap_s");
        expect_close(s.compute_s, number(e, "compute_s"), "compute_s");
        EXPECT_EQ(s.merges, *e.at("merges").as_u64());
        EXPECT_EQ(s.federated, *e.at("federated").as_u64());
        EXPECT_EQ(s.tokens, *e.at("tokens").as_u64());
        expect_close(s.blocks, number(e, "blocks"), "blocks");
        expect_close(s.billed_gpu_s, number(e, "billed_gpu_s"), "billed_gpu_s");
        ASSERT_EQ(s.accumulation.size(), e.at("accumulation").size());
        for (std::size_t k = 0; k < s.accumulation.size(); ++k)
            EXPECT_EQ(s.accumulation[k], *e.at("accumulation").at(k).as_u64());
    }
}

void expect_intervals(const campaign_outcome& out, const campaign_model& m, const json::value& expected) {
    ASSERT_EQ(out.intervals.size(), expected.size());
    for (std::size_t i = 0; i < out.intervals.size(); ++i) {
        const campaign_interval& v = out.intervals[i];
        const json::value& e = expected.at(i);
        EXPECT_NEAR(v.start_s, number(e, "start_s"), 0.00051);
        EXPECT_NEAR(v.end_s, number(e, "end_s"), 0.00051);
        EXPECT_EQ(v.rounds, *e.at("rounds").as_u64());
        EXPECT_EQ(v.federated, *e.at("federated").as_u64());
        EXPECT_NEAR((v.end_s - v.start_s) / static_cast<double>(v.rounds), number(e, "mean_period_s"), 0.00051);
        EXPECT_EQ(static_cast<double>(v.windows_left) / m.block_windows, number(e, "blocks_left"));
        EXPECT_EQ(word(v.stop, rule_set::reference), text(e, "stop"));
        std::vector<std::string> members;
        for (std::size_t k = 0; k < m.lanes.size(); ++k)
            if ((v.members >> k & 1U) != 0) members.push_back(m.lanes[k].label);
        ASSERT_EQ(members.size(), e.at("members").size());
        for (std::size_t k = 0; k < members.size(); ++k) EXPECT_EQ(members[k], *e.at("members").at(k).as_string());
    }
}

TEST(campaign_vectors, the_reference_rules_reproduce_every_scenario) {
    const calibration c = calibration_of_vectors();
    int cases = 0;
    for (const auto& v : *planner().at("simulate").as_array()) {
        SCOPED_TRACE(text(v, "id"));
        const scenario s = scenario_of(v, rule_set::reference);
        const auto m = make_campaign(c, s.options, s.config);
        ASSERT_TRUE(m.has_value()) << m.error().context;
        const auto out = simulate(*m, s.config);
        const auto& e = v.at("expect_reference");
        expect_headline(out, *m, e);
        expect_optional(out.first_federated_start_s, e.at("first_federated_start_s"), "first_federated_start_s");
        expect_optional(out.last_federated_start_s, e.at("last_federated_start_s"), "last_federated_start_s");
        const auto report = report_of(*m, s.options, s.config, c, out);
        expect_close(report.billed_gpu_s, number(e, "billed_gpu_s"), "billed_gpu_s");
        expect_close(report.compute_s, number(e, "compute_s"), "compute_s");
        EXPECT_EQ(word(report.grade), text(e, "quality"));
        ASSERT_EQ(report.traps.size(), e.at("traps").size());
        for (std::size_t k = 0; k < report.traps.size(); ++k)
            EXPECT_EQ(report.traps[k], *e.at("traps").at(k).as_string());
        expect_sites(report, e.at("sites"));
        expect_intervals(out, *m, e.at("intervals"));
        ++cases;
    }
    EXPECT_EQ(cases, 8);
}

TEST(campaign_vectors, the_strict_rules_repair_every_scenario) {
    const calibration c = calibration_of_vectors();
    for (const auto& v : *planner().at("simulate").as_array()) {
        SCOPED_TRACE(text(v, "id"));
        const scenario s = scenario_of(v, rule_set::strict);
        const auto m = make_campaign(c, s.options, s.config);
        ASSERT_TRUE(m.has_value());
        const auto out = simulate(*m, s.config);
        const auto& e = v.at("expect_strict");
        expect_headline(out, *m, e);
        EXPECT_EQ(out.short_rounds, *e.at("short_rounds").as_u64());
    }
}

TEST(campaign_vectors, table_4_with_the_barrier) {
    const calibration c = calibration_of_vectors();
    const auto& table = planner().at("table4");
    int cases = 0;
    for (const auto& row : *planner().at("table4_barrier").at("cases").as_array()) {
        const bool re_wait = text(row, "chaining") == "re_wait";
        SCOPED_TRACE(text(row, "case") + " " + text(row, "chaining") + " H " +
                     std::to_string(*row.at("inner_steps").as_u64()) + (*row.at("balance").as_bool() ? " on" : " off"));
        const json::value* sites = nullptr;
        for (const auto& v : *table.at("cases").as_array())
            if (text(v, "id") == text(row, "case")) sites = &v.at("sites");
        ASSERT_NE(sites, nullptr);
        campaign_config config;
        config.horizon_s = 400 * 3600;
        config.inner_steps = static_cast<std::uint32_t>(*row.at("inner_steps").as_u64());
        config.balance = *row.at("balance").as_bool();
        config.blocks_unassigned = 47684;
        config.rules = rule_set::reference;
        std::vector<plan_option> options;
        for (const auto& s : *sites->as_array()) {
            plan_option o;
            o.site = text(s, "site");
            o.gpus = static_cast<std::uint32_t>(*s.at("gpus_per_node").as_u64());
            o.walltime_s = 3600 * number(s, "link_h");
            o.startup_s = o.site == "lumi" ? 216 : 108;
            o.lanes = static_cast<std::uint32_t>(*row.at("lanes_per_site").as_u64());
            o.links = 1000;
            o.chain = chain_policy::self;
            (re_wait ? o.wait_s : o.begin_s) = 3600 * number(s, "wait_h");
            options.push_back(o);
        }
        const auto m = make_campaign(c, options, config);
        ASSERT_TRUE(m.has_value());
        const auto out = simulate(*m, config);
        const auto& e = row.at("expect");
        EXPECT_NEAR(out.run_end_s / 86400, number(e, "days"), 0.00005001);
        EXPECT_EQ(out.federated_rounds, *e.at("federated_rounds").as_u64());
        EXPECT_EQ(out.solo_rounds, *e.at("solo_rounds").as_u64());
        ++cases;
    }
    EXPECT_EQ(cases, 16);
}

}  // namespace
