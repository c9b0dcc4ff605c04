// SPDX-License-Identifier: Apache-2.0
#include "backends/slurm/collector.hpp"

#include <gtest/gtest.h>

#include "tests/slurm/stub_command.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::slurm;

collector_config three_shapes(double limit_s = 20) {
    collector_config c;
    c.site = "here";
    c.limit_s = limit_s;
    for (const char* name : {"a", "b", "c"})
        c.shapes.push_back({name, {"-p", "gpu", "-N", "1", "-t", "60", "-J", name}});
    return c;
}

command_runner stubbed(const slurm_test::stub_folder& stubs) {
    return [&stubs](const run_request& given) {
        run_request r = given;
        r.grace_s = 0.2;
        return run_command(r, scrubbed_environment(stubs.environment()));
    };
}

std::string text(const json::value& v, std::string_view key) { return *v.at(key).as_string(); }

constexpr const char* verdict =
    "echo \"sbatch: Job 5 to start at $(( $(date +%s) + 3600 )) using 1 processors on nodes n1 in partition gpu\" >&2";

TEST(collector, one_shape_that_hangs_costs_itself_only) {
    const slurm_test::stub_folder stubs;
    stubs.program("sbatch", std::string("case \"$*\" in *' b '*) sleep 100;; esac; ") + verdict);
    const auto records = probe_cycle(three_shapes(0.5), stubbed(stubs), {});
    ASSERT_EQ(records.size(), 3U);
    EXPECT_EQ(text(records[0], "class"), "accepted");
    EXPECT_EQ(text(records[1], "class"), "outage");
    EXPECT_EQ(text(records[2], "class"), "accepted");
    EXPECT_NEAR(*records[2].at("wait_s").as_double(), 3600, 2);
}

TEST(collector, a_missing_command_is_an_outage_not_a_refusal) {
    const slurm_test::stub_folder stubs;
    collector_config c = three_shapes();
    c.sbatch = "sbatch-is-not-here";
    for (const auto& r : probe_cycle(c, stubbed(stubs), {})) {
        EXPECT_EQ(text(r, "class"), "outage");
        EXPECT_NE(text(r, "reason").find("not found"), std::string::npos);
    }
}

TEST(collector, text_on_the_wrong_stream_is_not_believed) {
    const slurm_test::stub_folder stubs;
    stubs.program("sbatch",
                  "echo 'sbatch: Job 5 to start at 1788003600 using 1 processors on nodes n1 in partition gpu'");
    EXPECT_EQ(text(probe_cycle(three_shapes(), stubbed(stubs), {})[0], "class"), "outage");
}

TEST(collector, a_flood_of_messages_is_cut_and_the_cycle_goes_on) {
    const slurm_test::stub_folder stubs;
    stubs.program("sbatch", "head -c 3000000 /dev/zero | tr '\\0' 'x' >&2");
    const auto records = probe_cycle(three_shapes(), stubbed(stubs), {});
    ASSERT_EQ(records.size(), 3U);
    for (const auto& r : records) EXPECT_LT(json::dump(r).size(), 16384U);
}

TEST(collector, waits_do_not_drift_over_a_slow_cycle) {
    // each answer says "in one hour" when it is given; a clock read once per cycle would make the last waits too long
    collector_config c = three_shapes();
    for (int i = 3; i < 12; ++i) c.shapes.push_back({"s" + std::to_string(i), c.shapes[0].args});
    std::int64_t now = 1788000000;
    const auto records = probe_cycle(c,
                                     [&now](const run_request&) {
                                         now += 2;
                                         run_answer a;
                                         a.end = run_end::exited;
                                         a.rc = 0;
                                         a.now_s = now;
                                         a.err = "sbatch: Job 5 to start at " + std::to_string(now + 3600) +
                                                 " using 1 processors on nodes n1 in partition gpu\n";
                                         return a;
                                     },
                                     {});
    ASSERT_EQ(records.size(), 12U);
    for (const auto& r : records) EXPECT_EQ(*r.at("wait_s").as_i64(), 3600);
}

TEST(collector, the_probed_arguments_are_the_shapes_arguments) {
    const slurm_test::stub_folder stubs;
    stubs.program("sbatch", "for a in \"$@\"; do printf '%s\\n' \"$a\"; done > " + stubs.file("argv"));
    collector_config c = three_shapes();
    c.shapes.resize(1);
    probe_cycle(c, stubbed(stubs), {});
    EXPECT_EQ(stubs.read("argv"), "--test-only\n-p\ngpu\n-N\n1\n-t\n60\n-J\na\n--wrap\ntrue\n");
}

TEST(collector, a_stop_ends_after_the_shape_in_hand) {
    const slurm_test::stub_folder stubs;
    stubs.program("sbatch", verdict);
    int asked = 0;
    EXPECT_EQ(probe_cycle(three_shapes(), stubbed(stubs), [&] { return ++asked > 2; }).size(), 2U);
}

TEST(collector, usage_halves_a_window_that_is_too_wide) {
    int calls = 0;
    std::string first, second;
    const auto made = collect_usage(
        three_shapes(),
        [&](const run_request& r) {
            run_answer a;
            a.end = run_end::exited;
            (calls == 0 ? first : second) = r.argv[5];
            if (calls++ == 0) {
                a.rc = 1;
                a.err = "sacct: error: Too wide of a date range in query\n";
                return a;
            }
            a.rc = 0;
            a.out = "JobIDRaw|Partition|State|Start|End|Elapsed|Timelimit|NNodes|User\n";
            for (int i = 0; i < 40; ++i)
                a.out += std::to_string(i + 1) + "|gpu|COMPLETED|1787990000|1787993600|00:30:00|01:00:00|1|u" +
                         std::to_string(i % 3) + "\n";
            return a;
        },
        1788000000);
    EXPECT_EQ(calls, 2);
    EXPECT_EQ(first, "2026-08-22T10:40:00");
    EXPECT_EQ(second, "2026-08-25T22:40:00");
    ASSERT_EQ(made.records.size(), 1U);
    EXPECT_EQ(made.status, "ok");
    EXPECT_NEAR(*made.records[0].at("gamma").as_double(), 0.5, 1e-12);
    EXPECT_EQ(*made.records[0].at("users").as_u64(), 3U);
    EXPECT_FALSE(made.records[0].contains("user"));
}

TEST(collector, usage_without_accounting_says_what_sacct_said) {
    const auto made = collect_usage(
        three_shapes(),
        [](const run_request&) {
            run_answer a;
            a.end = run_end::exited;
            a.rc = 1;
            a.err = "sacct: error: a\nsacct: error: Connection refused\n\n";
            return a;
        },
        1788000000);
    EXPECT_EQ(made.status, "outage");
    EXPECT_EQ(made.reason, "sacct: error: Connection refused");
}

TEST(collector, shapes_that_are_not_one_shape_are_refused_by_name) {
    const auto refusal = [](const std::string& args, const std::string& more = "") {
        const auto doc =
            json::parse("{\"site\":\"x\",\"shapes\":[{\"name\":\"g4\",\"args\":" + args + "}]" + more + "}");
        const auto c = read_collector_config(*doc);
        return c ? std::string() : c.error().context;
    };
    EXPECT_EQ(refusal(R"(["-p","gpu","-t","60"])"), "");
    EXPECT_NE(refusal(R"(["-p","a,b","-t","60"])").find("(g4): partition_list"), std::string::npos);
    EXPECT_NE(refusal(R"(["-p","gpu;rm","-t","60"])").find("hostile_argument"), std::string::npos);
    EXPECT_NE(refusal(R"x(["-p","$(id)","-t","60"])x").find("hostile_argument"), std::string::npos);
    EXPECT_NE(refusal(R"(["-p","gpu\n","-t","60"])").find("hostile_argument"), std::string::npos);
    for (const char* quoted :
         {R"(["-p","it's","-t","60"])", R"(["-p","\"q\"","-t","60"])", R"(["-p","`id`","-t","60"])"})
        EXPECT_NE(refusal(quoted).find("hostile_argument"), std::string::npos) << quoted;
    EXPECT_NE(refusal(R"(["-p","gpu","-t","60"])", ",\"shapess\":1").find("unknown key 'shapess'"), std::string::npos);
}

TEST(collector, a_started_job_tells_how_long_it_waited_since_it_might_start) {
    collector_config c;
    c.site = "here";
    c.shapes = {{"g1", {"-p", "gpu", "-N", "1", "-t", "1:00:00"}}};
    std::string text =
        "JobId=7 JobName=x Partition=gpu JobState=RUNNING SubmitTime=1788000000 EligibleTime=1788000600 "
        "StartTime=1788001000\n";
    std::vector<std::string> asked;
    const auto stub = [&](const run_request& r) {
        asked = r.argv;
        run_answer a;
        a.end = run_end::exited;
        a.rc = 0;
        a.out = text;
        a.now_s = 1788001010;
        return a;
    };
    const auto record = start_record(c, "g1", "7", stub);
    ASSERT_TRUE(record.has_value()) << record.error().context;
    EXPECT_EQ(*record->at("realised_s").as_i64(), 400);
    EXPECT_EQ(*record->at("submit_s").as_i64(), 1788000600);
    EXPECT_EQ(asked, (std::vector<std::string>{"scontrol", "-o", "show", "job", "7"}));
    EXPECT_FALSE(start_record(c, "g2", "7", stub).has_value());
    EXPECT_FALSE(start_record(c, "g1", "7; rm", stub).has_value());
    text = "JobId=7 Partition=gpu SubmitTime=1788000000 EligibleTime=1788000600 StartTime=1788009000\n";
    EXPECT_EQ(start_record(c, "g1", "7", stub).error().code, errc::not_found) << "it is only expected to start";
}

}  // namespace
