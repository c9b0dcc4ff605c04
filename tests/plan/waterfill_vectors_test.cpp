// SPDX-License-Identifier: Apache-2.0
#include "darlcore/plan/fluid.hpp"
#include "darlcore/plan/waterfill.hpp"
#include "tests/plan/vector_support.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::plan;
using namespace plan_test;

waterfill_request request_of(const json::value& c) {
    waterfill_request r;
    r.units = *c.at("units").as_u64();
    if (c.contains("reserve_units")) r.reserve_units = number(c, "reserve_units");
    for (const auto& s : *c.at("sites").as_array()) {
        waterfill_site site;
        site.site = text(s, "site");
        if (c.contains("min_units")) site.min_units = *c.at("min_units").as_u64();
        for (const auto& h : *s.at("shapes").as_array()) {
            waterfill_shape shape;
            shape.name = text(h, "name");
            shape.gpus = static_cast<std::uint32_t>(*h.at("gpus").as_u64());
            shape.units_per_h = number(h, "units_per_h");
            shape.wait_h = number(h, "wait_h");
            if (h.contains("walltime_h")) shape.walltime_h = number(h, "walltime_h");
            site.shapes.push_back(shape);
        }
        r.sites.push_back(site);
    }
    return r;
}

void expect_site(const waterfill_plan& plan, const std::string& name, const json::value& expected) {
    const waterfill_share* share = nullptr;
    for (const auto& s : plan.sites)
        if (s.site == name) share = &s;
    ASSERT_NE(share, nullptr) << name;
    EXPECT_EQ(share->units, *expected.at("units").as_u64()) << name;
    if (share->units == 0) return;
    EXPECT_EQ(share->shape, text(expected, "shape")) << name;
    expect_figure(share->start_h, number(expected, "start_h"), name + " start_h");
    EXPECT_NEAR(share->finish_h, number(expected, "finish_h"), 1e-9) << name;
    EXPECT_NEAR(share->walltime_h, number(expected, "walltime_h"), 1e-9) << name;
}

TEST(waterfill_vectors, every_case_gives_the_stated_split) {
    int cases = 0;
    for (const auto& c : *planner().at("waterfill").at("cases").as_array()) {
        SCOPED_TRACE(text(c, "id"));
        const auto plan = waterfill(request_of(c));
        ASSERT_TRUE(plan.has_value());
        const auto& expected = c.at("expect");
        EXPECT_EQ(plan->feasible, *expected.at("feasible").as_bool());
        EXPECT_EQ(plan->assigned, *expected.at("assigned").as_u64());
        EXPECT_NEAR(plan->makespan_h, number(expected, "makespan_h"), 1e-9);
        if (expected.contains("unassigned")) {
            EXPECT_EQ(plan->unassigned, *expected.at("unassigned").as_u64());
        }
        if (expected.contains("latest_finish_h")) {
            EXPECT_NEAR(plan->latest_finish_h, number(expected, "latest_finish_h"), 1e-9);
        }
        for (const auto& [name, site] : *expected.at("sites").as_object()) expect_site(*plan, name, site);
        ++cases;
    }
    EXPECT_EQ(cases, 11);
}

waterfill_shape fluid_shape(const json::value& s, const json::value& vectors) {
    waterfill_shape shape;
    shape.name = text(s, "site");
    shape.units_per_h = number(s, "seq_per_s") * number(vectors, "seq_len") * 3600 / 1e9;
    shape.jobs = static_cast<std::uint32_t>(*s.at("nodes").as_u64());
    shape.wait_h = number(s, "wait_h");
    shape.link_h = number(s, "link_h");
    return shape;
}

TEST(waterfill_vectors, table_4_is_reproduced_to_the_digits_printed) {
    const auto& table = planner().at("table4");
    for (const auto& c : *table.at("cases").as_array()) {
        SCOPED_TRACE(text(c, "id"));
        std::vector<std::string> names;
        std::vector<waterfill_shape> shapes;
        for (const auto& s : *c.at("sites").as_array()) {
            names.push_back(text(s, "site"));
            shapes.push_back(fluid_shape(s, table));
        }
        const auto plan = fluid_shares(number(c, "target_B"), names, shapes);
        const auto& expected = c.at("expect");
        EXPECT_NEAR(plan.level_h / number(expected, "horizon_h"), 1.0, 1e-9);
        expect_figure(plan.level_h / 24, number(expected, "horizon_days"), "horizon_days");
        EXPECT_NEAR(plan.wait_for_all_h / number(expected, "wait_for_all_h"), 1.0, 1e-9);
        expect_figure(plan.saving_pct, number(expected, "saving_pct"), "saving_pct");
        for (const auto& share : plan.sites) {
            const auto& site = expected.at("sites").at(share.site);
            expect_figure(share.active_h, number(site, "active_h"), "active_h");
            expect_figure(share.productive_h, number(site, "productive_h"), "productive_h");
            expect_figure(share.units, number(site, "tokens_B"), "tokens_B");
            expect_figure(share.rate, number(site, "rate_B_per_h"), "rate");
            EXPECT_EQ(share.jobs, *site.at("jobs").as_u64());
        }
    }
}

TEST(waterfill_vectors, a_site_that_would_join_after_the_end_does_not_join) {
    const double lumi = 38.2 * 2048 * 3600 / 1e9;
    const double snellius = 89.8 * 2048 * 3600 / 1e9;
    std::vector<waterfill_shape> shapes(2);
    shapes[0].units_per_h = lumi;
    shapes[1].units_per_h = snellius;
    shapes[0].jobs = shapes[1].jobs = 4;
    shapes[0].wait_h = 40;
    shapes[1].wait_h = 0.2;
    shapes[0].link_h = 1;
    shapes[1].link_h = 8;
    const std::vector<std::string> names{"lumi", "snellius"};
    const auto plan = fluid_shares(100, names, shapes);
    EXPECT_NEAR(plan.level_h, 37.9599, 5e-5);
    EXPECT_NEAR(plan.saving_pct, 42.91, 5e-3);
    EXPECT_EQ(plan.sites[0].units, 0);
    EXPECT_EQ(plan.sites[0].jobs, 0U);
    EXPECT_EQ(plan.sites[1].jobs, 20U);
}

}  // namespace
