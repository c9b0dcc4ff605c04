// SPDX-License-Identifier: Apache-2.0
// `darl train` against a real `darl serve`: stops, failures and what the audit says afterwards.
#include <sys/resource.h>

#include <gtest/gtest.h>

#include "adapters/cli/rank_group.hpp"
#include "tests/cli/train_world.hpp"

namespace {

using namespace darlcore;
using darl::testing::first_finding;
using darl::testing::train_world;
using namespace std::chrono_literals;

class stops : public testing::TestWithParam<const char*> {};

// Seen red with the release of leases taken out of the session's end: the second process then waits for their end.
TEST_P(stops, in_this_step_ends_with_75_and_a_second_process_finishes_the_run_with_each_block_once) {
    train_world world;
    world.serve();
    ASSERT_TRUE(world.ok);
    const auto first = world.train("alpha", {"--fault", std::string("stop-at=") + GetParam()});
    EXPECT_EQ(first.status, 75) << first.err;
    EXPECT_LT(world.committed(), 24U);
    const auto second = world.train("alpha");
    EXPECT_EQ(second.status, 0) << second.err;
    const auto audit = world.audit();
    EXPECT_TRUE(audit.pass) << first_finding(audit) << second.err;
    EXPECT_EQ(audit.covered, 24U);
}

INSTANTIATE_TEST_SUITE_P(each_step_of_a_phase, stops,
                         testing::Values("adopt", "train", "reduce", "write", "upload", "poll", "settle"),
                         [](const auto& step) { return std::string(step.param); });

// The last generation, and how many processes made it.
struct trained_model {
    std::string sha256;
    std::uint64_t generation = 0;
};
trained_model model_of(train_world& world) {
    world.server.stop();
    const auto out =
        darl::testing::run_darl({"export", "--json", "--state-dir", world.path("state"), "--flavour",
                                 world.config.flavour, "--vocab-size", "512", "--out", world.path("model")});
    const auto said = json::parse(out.out);
    EXPECT_TRUE(said) << out.err;
    if (!said) return {};
    return {*said->at("sha256").as_string(), said->at("generation").as_u64().value_or(0)};
}

class kills : public testing::TestWithParam<const char*> {};

TEST_P(kills, between_two_phases_and_a_restart_give_the_bits_of_an_undisturbed_run) {
    const auto run = [](bool killed) {
        train_world world(48);
        world.config.threads = 1;
        world.config.budget = false;  // phases of equal size however busy the machine is
        world.config.min_ttl_s = world.config.default_ttl_s = world.config.live_window_s = 120;
        world.serve();
        EXPECT_TRUE(world.ok);
        if (killed) {
            EXPECT_EQ(world.train("alpha", {"--fault", std::string("kill-at=") + GetParam()}).status, 128 + SIGKILL);
        }
        const auto rest = world.train("alpha", {"--take-over"});
        EXPECT_EQ(rest.status, 0) << rest.err;
        return model_of(world);
    };
    const trained_model undisturbed = run(false);
    const trained_model restarted = run(true);
    EXPECT_GE(undisturbed.generation, 3U);
    EXPECT_EQ(restarted.generation, undisturbed.generation);
    EXPECT_EQ(restarted.sha256, undisturbed.sha256);
}

INSTANTIATE_TEST_SUITE_P(after_a_phase, kills, testing::Values("upload", "poll", "settle"),
                         [](const auto& step) { return std::string(step.param); });

TEST(train_command, the_books_of_a_phase_add_up_and_the_group_counter_goes_on_after_a_restart) {
    train_world world;
    world.serve();
    const auto stopped = world.train("alpha", {"--fault", "stop-at=settle"});
    ASSERT_EQ(stopped.status, 75) << stopped.err;
    ASSERT_EQ(world.train("alpha").status, 0);
    std::uint64_t next = 0;
    int processes = 0;
    for (const auto& line : world.lines("alpha/record.jsonl")) {
        processes += *line.at("kind").as_string() == "started" ? 1 : 0;
        if (*line.at("kind").as_string() != "read") continue;
        EXPECT_EQ(line.at("counter").as_u64(), next++);
    }
    EXPECT_EQ(processes, 2);
    const auto phases = world.metrics("alpha", "phase");
    ASSERT_GE(phases.size(), 3U);
    for (const auto& p : phases) {
        const auto s = [&](const char* key) { return p.at(key).as_double().value(); };
        const double parts = s("compute_s") + s("download_s") + s("checkpoint_s") + s("upload_s") + s("evaluate_s") +
                             s("lost_s") + s("wait_s");
        EXPECT_NEAR(parts, s("wall_s"), 0.02 * s("wall_s"));
        EXPECT_GE(s("wait_s"), -0.01 * s("wall_s"));  // nothing is counted twice
        EXPECT_GT(s("compute_s"), 0.0);
        EXPECT_GT(s("checkpoint_s"), 0.0);
        EXPECT_GT(s("upload_s"), 0.0);
        EXPECT_LE(s("data_wait_s"), 0.01 * s("compute_s"));
    }
    EXPECT_EQ(json::parse(stopped.out)->at("kind").as_string()->substr(0), "phase");  // one object per phase
}

// The promise behind `PASS`: a site that does not train what it says makes the audit fail.
TEST(train_command, the_audit_fails_when_a_block_is_trained_twice) {
    train_world world;
    world.serve();
    ASSERT_EQ(world.train("alpha", {"--fault", "train-twice"}).status, 0);
    const auto audit = world.audit();
    EXPECT_FALSE(audit.pass);
    EXPECT_EQ(audit.duplicates, 1U);
    EXPECT_EQ(audit.missing, 0U);
}

TEST(train_command, the_audit_fails_when_a_block_is_dropped) {
    train_world world;
    world.serve();
    ASSERT_EQ(world.train("alpha", {"--fault", "drop-block"}).status, 0);
    const auto audit = world.audit();
    EXPECT_FALSE(audit.pass);
    EXPECT_EQ(audit.duplicates, 0U);
    EXPECT_EQ(audit.missing, 1U);
}

TEST(train_command, phases_that_are_not_finite_are_declined_and_two_in_a_row_end_with_1) {
    train_world world;
    world.config.peak_lr = 10;
    world.config.weight_decay = 10;  // each step multiplies the weights by -99
    world.config.warmup_steps = 0;
    world.config.inner_steps = 24;
    world.serve();
    const auto run = world.train("alpha");
    EXPECT_EQ(run.status, 1) << run.err;
    EXPECT_NE(run.err.find("not finite"), std::string::npos) << run.err;
    EXPECT_NE(run.err.find("test the device"), std::string::npos) << run.err;
    EXPECT_EQ(world.committed(), 0U);
    EXPECT_EQ(world.server.get("/status")->at("quarantined").as_u64().value_or(0), 0U);
}

TEST(train_command, a_disk_that_is_full_at_a_checkpoint_ends_with_1_and_gives_the_blocks_back) {
    train_world world;
    world.serve();
    rlimit all{};
    ::getrlimit(RLIMIT_FSIZE, &all);
    rlimit small = all;
    small.rlim_cur = 6'000'000;  // the first model (4.2 MB) fits, the moments (8.4 MB) do not
    ::setrlimit(RLIMIT_FSIZE, &small);
    const auto run = world.train("alpha");
    ::setrlimit(RLIMIT_FSIZE, &all);
    EXPECT_EQ(run.status, 1) << run.err;
    EXPECT_NE(run.err.find("ckpt-"), std::string::npos) << run.err;
    EXPECT_EQ(world.committed(), 0U);
    const auto second = world.train("beta");
    EXPECT_EQ(second.status, 0) << second.err;
    const auto audit = world.audit();
    EXPECT_TRUE(audit.pass) << first_finding(audit);
}

std::vector<double> first_losses(train_world& world, const std::string& site) {
    std::vector<double> out;
    for (const auto& step : world.metrics(site, "step"))
        if (step.at("generation").as_u64() == 0U) out.push_back(step.at("loss").as_double().value());
    return out;
}

TEST(train_ranks, two_processes_give_the_losses_of_one) {
    std::vector<std::vector<double>> losses;
    for (const int ranks : {1, 2}) {
        train_world world(48);
        world.config.inner_steps = 8;
        world.config.batch = 4 / ranks;
        world.serve();
        const auto run = world.train("alpha", {"--ranks", std::to_string(ranks)});
        ASSERT_EQ(run.status, 0) << run.err;
        losses.push_back(first_losses(world, "alpha"));
        const auto audit = world.audit();
        EXPECT_TRUE(audit.pass) << first_finding(audit);
    }
    ASSERT_EQ(losses[0].size(), 8U);
    ASSERT_EQ(losses[1].size(), 8U);
    for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(losses[1][i], losses[0][i], 1e-5 * losses[0][i]) << i;
}

TEST(call_clock, a_wait_is_overdue_beyond_the_patience_and_twenty_times_the_leaders_own_part) {
    darl::call_clock clock(1'000);
    EXPECT_EQ(clock.overdue_ms(1'000'000), std::nullopt);  // in no call
    clock.begin(0, 500);
    EXPECT_EQ(clock.overdue_ms(500), std::nullopt);
    EXPECT_EQ(clock.overdue_ms(501), 501);
    clock.end(600);
    clock.begin(700);  // 100 ms of work
    EXPECT_EQ(clock.overdue_ms(3'700), std::nullopt);
    EXPECT_EQ(clock.overdue_ms(3'701), 3'001);
    clock.end(3'800);
    EXPECT_EQ(clock.overdue_ms(1'000'000), std::nullopt);
    clock.begin(3'800);
    EXPECT_EQ(clock.overdue_ms(4'801), 1'001);
}

// The leader's only child.
pid_t rank_of(const darl::child_process& leader) {
    const std::string pid = std::to_string(leader.pid());
    pid_t rank = 0;
    std::ifstream("/proc/" + pid + "/task/" + pid + "/children") >> rank;
    return rank;
}

TEST(train_ranks, one_that_hangs_is_named_and_ended_and_the_site_ends_with_1_and_gives_its_blocks_back) {
    train_world world;
    world.config.batch = 2;
    world.config.rank_patience_s = 1;
    world.serve();
    auto site = world.start("alpha", {"--ranks", "2", "--train.throttle", "4"});
    ASSERT_TRUE(site.read_line(60s));  // a phase is over, the next one is under way
    const pid_t rank = rank_of(site);
    ASSERT_GT(rank, 0);
    ASSERT_EQ(::kill(rank, SIGSTOP), 0);
    EXPECT_EQ(site.wait(120s), 1);
    const std::string log = train_world::text_of(world.path("alpha.log"));
    EXPECT_NE(log.find("rank 1 (process " + std::to_string(rank)), std::string::npos) << log;
    EXPECT_NE(log.find("did not answer for"), std::string::npos) << log;
    EXPECT_NE(::kill(rank, 0), 0) << "the rank is still there";
    world.config.batch = 4;
    const auto second = world.train("beta");
    EXPECT_EQ(second.status, 0) << second.err;
    const auto audit = world.audit();
    EXPECT_TRUE(audit.pass) << first_finding(audit);
}

TEST(train_ranks, the_end_of_one_ends_the_site_with_1_and_gives_its_blocks_back) {
    train_world world;
    world.config.batch = 2;
    world.serve();
    auto site = world.start("alpha", {"--ranks", "2", "--train.throttle", "30"});
    ASSERT_TRUE(site.read_line(60s));  // a phase is over, the next one is under way
    const pid_t rank = rank_of(site);
    ASSERT_GT(rank, 0);
    ::kill(rank, SIGKILL);
    const auto status = site.wait(30s);
    EXPECT_EQ(status, 1) << train_world::text_of(world.path("alpha.log"));
    EXPECT_NE(train_world::text_of(world.path("alpha.log")).find("rank"), std::string::npos);
    world.config.batch = 4;
    const auto second = world.train("beta");
    EXPECT_EQ(second.status, 0) << second.err;
    const auto audit = world.audit();
    EXPECT_TRUE(audit.pass) << first_finding(audit);
}

}  // namespace
