// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <ctime>
#include <limits>

#include "darlcore/plan/fluid.hpp"
#include "darlcore/plan/waterfill.hpp"
#include "darlcore/random.hpp"
#include "darlcore/testing/budget.hpp"
#include "darlcore/testing/plan_twins.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::plan;

waterfill_shape shape(double rate, double wait, double walltime = std::numeric_limits<double>::infinity()) {
    waterfill_shape s;
    s.name = "s";
    s.gpus = 1;
    s.units_per_h = rate;
    s.wait_h = wait;
    s.walltime_h = walltime;
    return s;
}

TEST(waterfill, equals_exhaustive_enumeration_on_random_small_requests) {
    xoshiro256 draw(20260807);
    const auto pick = [&](std::uint64_t n) { return draw.below(n); };
    const double rates[] = {0.5, 2, 7.5, 10, 22.5, 40};
    const double waits[] = {0, 0.2, 1, 2.5, 6, 20};
    int minima_binding = 0, infeasible = 0;
    for (int run = 0; run < darlcore::testing::property_runs(10000); ++run) {
        waterfill_request r;
        r.units = 1 + pick(45);
        r.reserve_units = pick(4) == 0 ? static_cast<double>(pick(10)) : 0;
        const bool minima = pick(3) == 0;
        const std::uint64_t sites = 1 + pick(3);
        for (std::uint64_t i = 0; i < sites; ++i) {
            waterfill_site s;
            s.site = std::string(1, static_cast<char>('a' + i));
            if (minima)
                s.min_units = pick(r.units + 1);
            else
                s.quantum = 1 + pick(4);
            for (std::uint64_t k = 0; k < 1 + pick(3); ++k) {
                waterfill_shape h = shape(rates[pick(6)], waits[pick(6)]);
                h.name = std::string("h") + static_cast<char>('0' + k);
                if (pick(2) == 0) h.walltime_h = 0.5 * static_cast<double>(1 + pick(20));
                if (pick(3) == 0) h.startup_h = 0.25;
                if (pick(3) == 0) h.jobs = 1 + static_cast<std::uint32_t>(pick(4));
                if (pick(3) == 0) {
                    h.link_h = 0.5 * static_cast<double>(1 + pick(8));
                    h.gap_h = 0.5 * static_cast<double>(pick(3));
                    h.links_max = static_cast<std::uint32_t>(pick(5));
                }
                s.shapes.push_back(h);
            }
            r.sites.push_back(s);
        }
        const auto plan = waterfill(r);
        ASSERT_TRUE(plan.has_value());
        const auto best = darlcore::testing::exhaustive_best(r);
        ASSERT_EQ(std::min(plan->assigned, r.units), std::min(best.units, r.units)) << "run " << run;
        ASSERT_NEAR(plan->makespan_h, best.makespan_h, 1e-9 * std::max(1.0, best.makespan_h)) << "run " << run;
        if (minima) {
            ASSERT_EQ(plan->assigned, best.units) << "run " << run;
        }
        minima_binding += plan->assigned > r.units ? 1 : 0;
        infeasible += plan->feasible ? 0 : 1;
    }
    EXPECT_GT(infeasible, 0);
    if (darlcore::testing::property_runs(10000) >= 10000) {
        EXPECT_GT(minima_binding, 0);
    }
}

TEST(waterfill, finish_times_and_counts_agree_exactly) {
    xoshiro256 draw(7);
    for (int run = 0; run < darlcore::testing::property_runs(2000); ++run) {
        waterfill_shape s =
            shape(0.1 + static_cast<double>(draw.below(1000)) / 7.0, static_cast<double>(draw.below(100)) / 3.0);
        s.jobs = 1 + static_cast<std::uint32_t>(draw.below(4));
        if (draw.below(2) == 0) {
            s.link_h = 0.3 + static_cast<double>(draw.below(80)) / 11.0;
            s.gap_h = static_cast<double>(draw.below(9)) / 7.0;
            s.startup_h = 0.1;
        }
        const std::uint64_t quantum = 1 + draw.below(3);
        const capacity_curve c(s, 0, quantum);
        for (std::uint64_t m = 1; m <= std::min<std::uint64_t>(c.cap_quanta(), 60); ++m) {
            const double t = c.finish_h(m);
            ASSERT_LE(m, c.quanta_by(t));
            ASSERT_EQ(c.quanta_by(std::nextafter(t, 0)), m - 1) << m << " of run " << run;
            ASSERT_NEAR(t, darlcore::testing::plain_finish_h(s, 0, static_cast<double>(m * quantum)),
                        1e-9 * std::max(1.0, t));
        }
    }
}

TEST(waterfill, the_water_level_has_the_closed_form_without_caps) {
    // T_k = (D + sum a Q) / sum Q for the smallest k with T_k <= a_(k+1)
    xoshiro256 draw(11);
    for (int run = 0; run < darlcore::testing::property_runs(500); ++run) {
        std::vector<waterfill_shape> shapes;
        std::vector<std::string> names;
        for (std::uint64_t i = 0; i < 1 + draw.below(6); ++i) {
            shapes.push_back(shape(1 + static_cast<double>(draw.below(50)), static_cast<double>(draw.below(40)) / 3));
            names.push_back(std::to_string(i));
        }
        const double goal = 1 + static_cast<double>(draw.below(3000));
        auto sorted = shapes;
        std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.wait_h < b.wait_h; });
        double numerator = goal, rates = 0, level = 0;
        for (std::size_t k = 0; k < sorted.size(); ++k) {
            numerator += sorted[k].wait_h * sorted[k].units_per_h;
            rates += sorted[k].units_per_h;
            level = numerator / rates;
            if (k + 1 == sorted.size() || level <= sorted[k + 1].wait_h) break;
        }
        ASSERT_NEAR(fluid_shares(goal, names, shapes).level_h, level, 1e-9 * level);
    }
}

TEST(waterfill, every_site_is_placed_or_listed_with_a_number_and_a_fix) {
    waterfill_request r;
    r.units = 100;
    r.gpus_max = 8;
    r.reserve_units = 10;
    r.sites = {{"works", {shape(10, 1)}, 0, 1},
               {"late", {shape(10, 1000)}, 0, 1},
               {"short", {shape(10, 0, 0.5)}, 0, 1},
               {"wide", {shape(10, 0)}, 0, 1},
               {"silent", {}, 0, 1}};
    r.sites[3].shapes[0].gpus = 16;
    const auto plan = waterfill(r);
    ASSERT_TRUE(plan.has_value());
    EXPECT_EQ(plan->sites.size(), 5U);
    const auto code_of = [&](const std::string& site) {
        for (const auto& e : plan->excluded) {
            if (e.site != site) continue;
            EXPECT_TRUE(e.number.has_value()) << site;
            EXPECT_FALSE(e.fix.empty()) << site;
            return std::string(word(e.code));
        }
        return std::string();
    };
    EXPECT_EQ(code_of("works"), "");
    EXPECT_EQ(code_of("late"), "not_needed");
    EXPECT_EQ(code_of("short"), "walltime_le_startup_plus_reserve");
    EXPECT_EQ(code_of("wide"), "over_max_gpus");
    EXPECT_EQ(code_of("silent"), "no_probe");
}

TEST(waterfill, a_minimum_above_the_whole_work_leaves_the_site_out) {
    for (const bool alone : {true, false}) {
        waterfill_request r{100, 0, {}, {{"bulk", {shape(40, 0)}, 1000000, 1}}};
        if (!alone) r.sites.push_back({"plain", {shape(10, 5)}, 0, 1});
        const auto plan = waterfill(r);
        ASSERT_TRUE(plan.has_value());
        EXPECT_EQ(plan->assigned, alone ? 0U : 100U);
        ASSERT_EQ(plan->excluded.size(), 1U);
        EXPECT_EQ(plan->excluded[0].site, "bulk");
        EXPECT_EQ(plan->excluded[0].code, exclusion_code::below_min_units);
        EXPECT_EQ(plan->excluded[0].number, 100.0);
    }
}

// What a slow site's minimum makes superfluous elsewhere goes in one step, not unit by unit.
TEST(waterfill, a_slow_minimum_beside_a_fast_site_is_solved_at_once) {
    const auto started = std::clock();
    waterfill_request r{1000000000000, 0, {}, {}};
    for (int i = 0; i < 6; ++i)
        r.sites.push_back({std::string("slow") + static_cast<char>('a' + i), {shape(0.001, 0)}, 1000, 1});
    r.sites.push_back({"fast", {shape(1e12, 1)}, 0, 1});
    const auto plan = waterfill(r);
    ASSERT_TRUE(plan.has_value());
    EXPECT_EQ(plan->assigned, r.units);
    EXPECT_EQ(plan->makespan_h, 2);
    r.sites.pop_back();  // nobody else: the slow ones do what they can, in times that are coarse by now
    r.sites[0].shapes[0].link_h = 1;
    r.sites[0].shapes[0].gap_h = 1e6;
    EXPECT_EQ(waterfill(r)->assigned, r.units);
    EXPECT_LT(static_cast<double>(std::clock() - started) / CLOCKS_PER_SEC, 20);
}

TEST(waterfill, bad_numbers_are_refused_by_row) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const double inf = std::numeric_limits<double>::infinity();
    const auto refused = [](const waterfill_shape& s) {
        const auto plan = waterfill({10, 0, {}, {{"site9", {s}, 0, 1}}});
        return !plan.has_value() && plan.error().context.find("site9") != std::string::npos;
    };
    for (const double bad : {nan, -1.0, inf}) {
        EXPECT_TRUE(refused(shape(bad, 0)));
        EXPECT_TRUE(refused(shape(1, bad)));
    }
    EXPECT_TRUE(refused(shape(0, 0)));
    EXPECT_TRUE(refused(shape(1, 0, nan)));
    EXPECT_TRUE(refused(shape(1, 0, -3)));
    EXPECT_FALSE(refused(shape(1, 0, 3)));
    EXPECT_TRUE(refused(shape(1e300, 0)));
    EXPECT_TRUE(refused(shape(5e-324, 0)));
    EXPECT_TRUE(refused(shape(1, 2e6)));
    for (double waterfill_shape::*hours :
         {&waterfill_shape::gap_h, &waterfill_shape::link_h, &waterfill_shape::startup_h}) {
        waterfill_shape far = shape(1, 0);
        far.*hours = 1e308;
        EXPECT_TRUE(refused(far));
    }
}

TEST(waterfill, many_minima_fall_back_with_a_note) {
    waterfill_request r;
    r.units = 1000;
    for (int i = 0; i < 13; ++i)
        r.sites.push_back({std::string("s") + static_cast<char>('a' + i), {shape(10, i)}, 50, 1});
    const auto plan = waterfill(r);
    ASSERT_TRUE(plan.has_value());
    EXPECT_FALSE(plan->exact);
    EXPECT_EQ(plan->assigned, 1000U);
    for (const auto& s : plan->sites) EXPECT_TRUE(s.units == 0 || s.units >= 50) << s.site;
}

TEST(waterfill, a_hundred_sites_and_a_million_units_are_solved) {
    waterfill_request r;
    r.units = 1000000;
    for (int i = 0; i < 100; ++i) r.sites.push_back({std::to_string(i), {shape(1 + i % 17, 0.37 * i)}, 0, 1});
    const auto plan = waterfill(r);
    ASSERT_TRUE(plan.has_value());
    EXPECT_EQ(plan->assigned, 1000000U);
}

}  // namespace
