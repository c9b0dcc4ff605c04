// SPDX-License-Identifier: Apache-2.0
// Probes against a real Slurm on this machine (tests/slurm/cluster). Skipped with the reason where its packages are
// missing.
#include <gtest/gtest.h>
#include <pwd.h>

#include <unistd.h>
#include <algorithm>

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>

#include "backends/slurm/collector.hpp"
#include "backends/slurm/queue_text.hpp"
#include "darlcore/plan/estimate.hpp"
#include "darlcore/plan/queue_sim.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::slurm;

run_answer call(std::vector<std::string> argv, const std::string& conf = {}, double limit_s = 60) {
    run_request r;
    r.argv = std::move(argv);
    r.limit_s = limit_s;
    std::vector<std::string> environment = scrubbed_environment(own_environment());
    std::erase_if(environment, [](const std::string& e) { return e.rfind("SLURM_CONF=", 0) == 0; });
    if (!conf.empty()) environment.push_back("SLURM_CONF=" + conf);
    return run_command(r, environment);
}

// One cluster below a folder of its own; gone with this object.
struct local_cluster {
    std::string root, why_not, broken;

    explicit local_cluster(const std::vector<std::string>& more) {
        const run_answer check = call({DARL_CLUSTER, "check"});
        if (check.rc != 0) {
            why_not = check.out;
            return;
        }
        std::string pattern = (std::filesystem::temp_directory_path() / "darl-cluster-XXXXXX").string();
        root = ::mkdtemp(pattern.data());
        std::vector<std::string> argv{DARL_CLUSTER, "up", root, "sitea:2"};
        argv.insert(argv.end(), more.begin(), more.end());
        const run_answer up = call(argv, {}, 120);
        if (up.rc != 0) broken = up.out + up.err;
    }
    local_cluster(const local_cluster&) = delete;
    local_cluster& operator=(const local_cluster&) = delete;
    ~local_cluster() {
        if (root.empty()) return;
        call({DARL_CLUSTER, "down", root}, {}, 60);
        std::error_code ignored;
        std::filesystem::remove_all(root, ignored);
    }
};

class real_slurm : public ::testing::Test {
protected:
    static void SetUpTestSuite() { cluster_.emplace(std::vector<std::string>{}); }
    static void TearDownTestSuite() { cluster_.reset(); }
    void SetUp() override {
        if (!cluster_->why_not.empty()) GTEST_SKIP() << cluster_->why_not;
        ASSERT_EQ(cluster_->broken, "");
    }
    void TearDown() override {
        if (cluster_->root.empty() || !cluster_->broken.empty()) return;
        slurm({"scancel", "--full", "-u", std::to_string(::getuid())});
        wait_for([&] { return slurm({"squeue", "-h"}).out.empty(); });
    }

    static std::string conf() { return cluster_->root + "/sitea/slurm.conf"; }
    static run_answer slurm(std::vector<std::string> argv) { return call(std::move(argv), conf()); }

    // The scheduler works in rounds of two seconds; the condition, not the time, decides.
    template <class Condition>
    static bool wait_for(Condition holds) {
        for (int i = 0; i < 200; ++i) {
            if (holds()) return true;
            std::this_thread::sleep_for(std::chrono::milliseconds(100));  // tidy: sleep, another process is asked again
        }
        return false;
    }

    static json::value probe(std::vector<std::string> args) {
        collector_config c;
        c.site = "sitea";
        c.shapes.push_back({"shape", std::move(args)});
        return probe_cycle(c, [](const run_request& r) { return call(r.argv, conf(), r.limit_s); }, {}).at(0);
    }
    static std::optional<double> wait_of(const json::value& record) { return record.at("wait_s").as_double(); }
    static std::string class_of(const json::value& record) { return *record.at("class").as_string(); }

    static std::optional<local_cluster> cluster_;
};

std::optional<local_cluster> real_slurm::cluster_;

const std::vector<std::string> one_node{"-p", "gpu", "-N", "1", "--exclusive", "-t", "60"};

TEST_F(real_slurm, the_estimate_follows_the_queue) {
    auto idle = probe(one_node);
    ASSERT_EQ(class_of(idle), "accepted") << json::dump(idle);
    EXPECT_LE(*wait_of(idle), 5);
    for (int i = 0; i < 2; ++i) {
        const auto job = parse_submit(slurm({"sbatch", "-p", "gpu", "-N", "1", "--exclusive", "-t", "120", "-o",
                                             "/dev/null", "--wrap", "sleep 600"})
                                          .out);
        ASSERT_TRUE(job.has_value());
    }
    ASSERT_TRUE(wait_for([&] {
        const auto rows = parse_squeue(slurm({"squeue", "-h", "-o", "%i|%T|%M|%D|%R"}).out).rows;
        return rows.size() == 2 &&
               std::all_of(rows.begin(), rows.end(), [](const auto& r) { return r.state == "RUNNING"; });
    }));
    json::value busy;
    EXPECT_TRUE(wait_for([&] {
        busy = probe(one_node);
        return class_of(busy) == "accepted" && *wait_of(busy) > 7000;
    })) << json::dump(busy);
    EXPECT_NEAR(*wait_of(busy), 7200, 120);
    slurm({"scancel", "-u", std::to_string(::getuid())});
    EXPECT_TRUE(wait_for([&] {
        const auto again = probe(one_node);
        return class_of(again) == "accepted" && *wait_of(again) <= 5;
    }));
}

// Two nodes: one job of 60 and one of 120 minutes run, one of 30 minutes on both waits.
TEST_F(real_slurm, the_own_queue_estimates_what_the_real_one_does) {
    const auto submit = [](const std::string& tasks, const std::string& minutes) {
        return slurm({"sbatch", "-p", "gpu", "-n", tasks, "--ntasks-per-node=16", "--mem=10", "-t", minutes, "-o",
                      "/dev/null", "--wrap", "sleep 600"})
            .rc;
    };
    ASSERT_EQ(submit("16", "60") + submit("16", "120"), 0);
    const auto states = [](const std::string& state) {
        const auto rows = parse_squeue(slurm({"squeue", "-h", "-o", "%i|%T|%M|%D|%R"}).out).rows;
        return std::count_if(rows.begin(), rows.end(), [&](const auto& r) { return r.state == state; });
    };
    ASSERT_TRUE(wait_for([&] { return states("RUNNING") == 2; }));
    ASSERT_EQ(submit("32", "30"), 0);
    ASSERT_TRUE(wait_for([&] { return states("PENDING") == 1; }));
    const std::vector<plan::queued_job> jobs{{0, 1e6, 3600, 1}, {0, 1e6, 7200, 1}, {10, 1e6, 1800, 2}};
    const plan::queue_config two{2, plan::backfill::easy, {}};
    for (const auto& [tasks, nodes] : {std::pair{"16", 1U}, {"32", 2U}}) {
        const auto real = probe({"-p", "gpu", "-n", tasks, "--ntasks-per-node=16", "--mem=10", "-t", "20"});
        ASSERT_EQ(class_of(real), "accepted") << json::dump(real);
        const double own =
            plan::estimate_start_s(jobs, two, *plan::simulate_queue(jobs, two), {20, 1200, 1200, nodes}, 20) - 20;
        EXPECT_NEAR(*wait_of(real), own, 120) << tasks << ": " << json::dump(real);
    }
}

TEST_F(real_slurm, refusals_have_their_classes) {
    EXPECT_EQ(class_of(probe({"-p", "gpu", "-N", "5", "-t", "60"})), "permanent_limit");
    EXPECT_EQ(class_of(probe({"-p", "gpu", "-N", "1", "--gpus-per-node=9", "-t", "60"})), "permanent_limit");
    EXPECT_EQ(class_of(probe({"-p", "gpu", "-N", "1", "-t", "9-00:00:00"})), "permanent_limit");
    const auto nowhere = probe({"-p", "nowhere", "-N", "1", "-t", "60"});
    EXPECT_EQ(class_of(nowhere), "denied") << json::dump(nowhere);
    EXPECT_EQ(class_of(probe({"-p", "gpu", "-N", "2", "--gpus-per-node=4", "-t", "60"})), "accepted");
}

TEST_F(real_slurm, two_sizes_behind_one_maintenance_are_bound_by_it) {
    ASSERT_EQ(slurm({"scontrol", "create", "reservation", "reservationname=m", "starttime=now", "duration=90",
                     "users=" + std::string(::getpwuid(::getuid())->pw_name), "flags=maint,ignore_jobs", "nodes=ALL"})
                  .rc,
              0);
    std::vector<plan::reading> cycle;
    ASSERT_TRUE(wait_for([&] {
        cycle.clear();
        for (const char* nodes : {"1", "2"}) {
            const auto r = probe({"-p", "gpu", "-N", nodes, "--exclusive", "-t", "60"});
            plan::reading reading;
            reading.partition = "gpu";
            reading.nodes = nodes[0] == '1' ? 1 : 2;
            reading.wait_s = wait_of(r);
            reading.start_s = r.at("start_s").as_double();
            cycle.push_back(reading);
        }
        return cycle[0].wait_s.value_or(0) > 1000 && cycle[0].start_s == cycle[1].start_s;
    }));
    EXPECT_EQ(plan::reservation_bound_partitions(cycle), std::vector<std::string>{"gpu"});
    EXPECT_EQ(slurm({"scontrol", "delete", "reservationname=m"}).rc, 0);
}

TEST_F(real_slurm, job_records_are_read_as_they_are_printed) {
    const auto job = parse_submit(slurm({"sbatch", "--parsable", "-J", "two words", "-p", "gpu", "-t", "30", "-o",
                                         "/dev/null", "--wrap", "sleep 100"})
                                      .out);
    ASSERT_TRUE(job.has_value());
    const auto records = parse_scontrol(slurm({"scontrol", "-o", "show", "job", std::to_string(job->job)}).out);
    ASSERT_EQ(records.rows.size(), 1U);
    EXPECT_EQ(records.rows[0].limit_s, 1800);
    const auto& fields = records.rows[0].fields;
    EXPECT_NE(std::find(fields.begin(), fields.end(), std::pair<std::string, std::string>("JobName", "two words")),
              fields.end());
    const auto partitions = parse_sinfo(slurm({"sinfo", "-h", "-o", "%P|%a|%l|%D|%t|%N"}).out);
    ASSERT_FALSE(partitions.rows.empty());
    EXPECT_EQ(partitions.malformed, 0U);
    EXPECT_EQ(partitions.rows[0].partition, "gpu");
    EXPECT_EQ(partitions.rows[0].limit_s, 2 * 86400);
}

TEST_F(real_slurm, no_controller_is_an_outage) {
    collector_config c;
    c.site = "sitea";
    c.shapes.push_back({"shape", one_node});
    const std::string nowhere = cluster_->root + "/nowhere.conf";
    const auto r = probe_cycle(c, [&](const run_request& request) { return call(request.argv, nowhere, 3); }, {}).at(0);
    EXPECT_EQ(class_of(r), "outage");
}

TEST_F(real_slurm, a_job_that_started_tells_its_wait) {
    const auto job = parse_submit(slurm({"sbatch", "--parsable", "-p", "gpu", "-N", "1", "--exclusive", "-t", "60",
                                         "-o", "/dev/null", "--wrap", "sleep 100"})
                                      .out);
    ASSERT_TRUE(job.has_value());
    collector_config c;
    c.site = "sitea";
    c.shapes.push_back({"shape", one_node});
    const auto run = [](const run_request& r) { return call(r.argv, conf(), r.limit_s); };
    result<json::value> record = fail(errc::not_found, "not asked");
    ASSERT_TRUE(wait_for([&] {
        record = start_record(c, "shape", std::to_string(job->job), run);
        return record.has_value();
    })) << record.error().context;
    EXPECT_GE(*record->at("realised_s").as_double(), 0);
    EXPECT_LE(*record->at("realised_s").as_double(), 60);
    EXPECT_EQ(*record->at("partition").as_string(), "gpu");
}

// The walltime that jobs really used, from a real slurmdbd: one that ends early, one cancelled before it began.
TEST(real_accounting, usage_is_what_the_jobs_used_of_their_limits) {
    const local_cluster cluster({"acct"});
    if (!cluster.why_not.empty()) GTEST_SKIP() << cluster.why_not;
    ASSERT_EQ(cluster.broken, "");
    const std::string conf = cluster.root + "/sitea/slurm.conf";
    const auto submit = [&](std::vector<std::string> more) {
        std::vector<std::string> argv{"sbatch", "-p", "gpu", "-n", "1", "--mem=10", "-t", "10", "-o", "/dev/null"};
        argv.insert(argv.end(), more.begin(), more.end());
        const run_answer a = call(std::move(argv), conf);
        EXPECT_EQ(a.rc, 0) << a.err;
    };
    const auto nodes = [&](const std::string& state) {
        const run_answer a = call({"scontrol", "update", "nodename=sitea-n[1-2]", "state=" + state, "reason=x"}, conf);
        EXPECT_EQ(a.rc, 0) << a.err;
    };
    nodes("drain");
    submit({"-J", "never", "--wrap", "true"});
    EXPECT_EQ(call({"scancel", "-n", "never"}, conf).rc, 0);
    nodes("resume");
    submit({"--array=1-32", "--wrap", "sleep 2"});
    collector_config c;
    c.site = "sitea";
    c.shapes.push_back({"shape", one_node});
    const auto run = [&](const run_request& r) { return call(r.argv, conf, r.limit_s); };
    json::value record;
    std::string seen;
    for (int i = 0; i < 300 && record.is_null(); ++i) {
        const auto cycle = collect_usage(c, run, static_cast<std::int64_t>(std::time(nullptr)) + 1);
        seen = cycle.status + " " + cycle.reason + (cycle.records.empty() ? "" : " " + json::dump(cycle.records[0]));
        if (cycle.records.size() == 1 && *cycle.records[0].at("jobs").as_u64() == 32) record = cycle.records[0];
        std::this_thread::sleep_for(std::chrono::milliseconds(100));  // tidy: sleep, another process is asked again
    }
    ASSERT_FALSE(record.is_null()) << seen;
    EXPECT_EQ(*record.at("partition").as_string(), "gpu");
    EXPECT_EQ(*record.at("users").as_u64(), 1U);
    EXPECT_EQ(json::dump(record.at("skipped")), R"({"never_started":1})") << seen;
    EXPECT_EQ(*record.at("node_s_limit").as_double(), 32 * 600) << seen;
    const double gamma = *record.at("gamma").as_double();
    EXPECT_GE(gamma, 2.0 / 600) << seen;
    EXPECT_LT(gamma, 0.5) << seen;
    EXPECT_NEAR(gamma, *record.at("node_s_used").as_double() / (32 * 600), 1e-12);
}

}  // namespace
