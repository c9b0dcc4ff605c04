// SPDX-License-Identifier: Apache-2.0
#include "backends/slurm/accounting.hpp"
#include "backends/slurm/parse_json.hpp"
#include "backends/slurm/shape.hpp"
#include "backends/slurm/test_only.hpp"
#include "darlcore/plan/estimate.hpp"
#include "tests/plan/vector_support.hpp"
#include "tests/slurm/same_json.hpp"

namespace {

using namespace darlcore;
using plan_test::json::value;

const value& cases() {
    static const value vectors = plan_test::read_vectors("slurm_cases.json");
    return vectors;
}

std::vector<std::string> args_of(const value& c) {
    std::vector<std::string> args;
    if (const value* argv = c.find("argv"))
        for (const auto& a : *argv->as_array()) args.push_back(*a.as_string());
    return args;
}

TEST(slurm_cases, every_text_is_read_as_stated) {
    int seen = 0;
    for (const auto& c : *cases().at("cases").as_array()) {
        const std::string kind = plan_test::text(c, "kind");
        if (kind == "estimate" || kind == "limits") continue;
        const std::string* input = c.at("input").as_string();
        const value* options = c.find("options");
        const auto got = slurm::parse_as_json(kind, input == nullptr ? "" : *input,
                                              options == nullptr ? value() : *options, args_of(c));
        ASSERT_TRUE(got.has_value()) << plan_test::text(c, "id");
        EXPECT_TRUE(slurm_test::same(*got, c.at("expect")))
            << plan_test::text(c, "id") << ": " << plan_test::text(c, "why") << "\n"
            << plan_test::json::dump(*got) << "\nexpected " << plan_test::json::dump(c.at("expect"));
        ++seen;
    }
    EXPECT_EQ(seen + 3, static_cast<int>(cases().at("cases").size()));
    EXPECT_GE(seen, 75);
}

const value& case_of(std::string_view id) {
    for (const auto& c : *cases().at("cases").as_array())
        if (plan_test::text(c, "id") == id) return c;
    ADD_FAILURE() << "no case " << id;
    return cases();
}

TEST(slurm_cases, shapes_are_never_interpolated) {
    const auto& c = case_of("c21");
    for (const auto& p : *c.at("options").at("probes").as_array()) {
        plan::reading r;
        r.shape = plan_test::text(p, "shape");
        r.gpus = static_cast<std::uint32_t>(*p.at("gpus").as_u64());
        r.wait_s = plan_test::number(p, "wait_s");
        const std::vector<plan::reading> series{r};
        const auto e = plan::estimate_wait(series, {});
        ASSERT_TRUE(e.has_value());
        EXPECT_EQ(*e->wait_s, *c.at("expect").at("by_shape").at(r.shape).as_double());
    }
}

TEST(slurm_cases, a_reservation_is_not_discounted) {
    const auto& c = case_of("c60");
    std::vector<plan::reading> cycle;
    for (const auto& p : *c.at("options").at("probes").as_array()) {
        plan::reading r;
        r.shape = plan_test::text(p, "shape");
        r.partition = "gpu";
        r.nodes = static_cast<std::uint32_t>(*p.at("nodes").as_u64());
        r.start_s = plan_test::number(p, "start_s");
        r.collected_s = plan_test::number(p, "now_s");
        r.wait_s = *r.start_s - r.collected_s;
        cycle.push_back(r);
    }
    const auto bound = plan::reservation_bound_partitions(cycle);
    ASSERT_EQ(bound, std::vector<std::string>{"gpu"});
    plan::estimate_options o;
    o.now_s = cycle[0].collected_s;
    o.gamma = plan_test::number(c.at("options"), "gamma");
    o.strength = plan_test::number(c.at("options"), "strength");
    o.reservation_bound = true;
    const auto e = plan::estimate_wait(std::span(cycle).first(1), o);
    ASSERT_TRUE(e.has_value());
    EXPECT_EQ(e->discounted, *c.at("expect").at("discount_applied").as_bool());
    EXPECT_EQ(*e->wait_s, 50000);
    EXPECT_EQ(e->flags, std::vector<std::string>{"reservation_bound"});
    o.reservation_bound = false;
    EXPECT_TRUE(plan::estimate_wait(std::span(cycle).first(1), o)->discounted);
}

TEST(slurm_cases, limits_of_a_group_are_checked_by_us) {
    const auto& c = case_of("c61");
    const auto shape = slurm::read_shape(args_of(c));
    ASSERT_TRUE(shape.key.has_value());
    const auto verdict = slurm::check_limits(*c.at("input").as_string(), *shape.key);
    EXPECT_EQ(verdict.admissible, *c.at("expect").at("admissible").as_bool());
    EXPECT_EQ(verdict.reason, plan_test::text(c.at("expect"), "reason"));
}

TEST(test_only, of_two_undecorated_verdicts_the_last_one_counts) {
    slurm::test_only_options o;
    o.now_s = 1788000000;
    const auto a = slurm::parse_test_only(
        "sbatch: Job 5 to start at 1788007200 using 4 processors on nodes n1 in partition a\n"
        "sbatch: Job 6 to start at 1788003600 using 8 processors on nodes n2 in partition b\n"
        "sbatch: debug: Job 7 to start at 1788000600 using 2 processors on nodes n3 in partition c\n",
        o);
    EXPECT_EQ(a.job_id, 6);
    EXPECT_EQ(a.wait_s, 3600);
    EXPECT_EQ(a.processors, 8);
    EXPECT_EQ(a.partition, "b");
}

TEST(sacct, jobs_count_by_their_end_and_both_ends_of_the_window_are_in) {
    slurm::sacct_options o;
    o.window_start_s = 1788000000;
    o.window_end_s = 1788100000;
    o.jobs_min = 1;
    std::string rows = "JobIDRaw|Partition|State|Start|End|Elapsed|Timelimit|NNodes\n";
    const auto row = [&](int end_offset, const std::string& elapsed) {
        rows +=
            "1|gpu|COMPLETED|1787990000|" + std::to_string(1788000000 + end_offset) + "|" + elapsed + "|01:00:00|1\n";
    };
    row(0, "01:00:00");
    row(100000, "01:00:00");
    row(-1, "00:00:01");  // began before the window too, and weighs nothing
    row(100001, "00:00:01");
    const auto a = slurm::parse_sacct(rows, o);
    EXPECT_EQ(a.jobs.size(), 2U);
    EXPECT_EQ(a.skipped.at("outside_window"), 2U);
    EXPECT_EQ(a.all.gamma, 1.0);
}

}  // namespace
