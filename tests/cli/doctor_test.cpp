// SPDX-License-Identifier: Apache-2.0
#include "adapters/cli/doctor_checks.hpp"

#include <gtest/gtest.h>

#include <map>

#include "tests/cli/train_world.hpp"

namespace {

using namespace darl;
using darl::testing::run_darl;
using darl::testing::train_world;

const health_check* find(const health_report& all, const std::string& name) {
    for (const auto& check : all)
        if (check.name == name) return &check;
    return nullptr;
}

verdict outcome_of(const health_report& all, const std::string& name) {
    const auto* check = find(all, name);
    EXPECT_NE(check, nullptr) << name;
    return check != nullptr ? check->outcome : verdict::fail;
}

variable_lookup variables(std::map<std::string, std::string> values) {
    return [values = std::move(values)](const char* name) {
        const auto found = values.find(name);
        return found == values.end() ? std::string() : found->second;
    };
}

TEST(doctor, a_run_folder_is_written_synced_and_renamed_in_and_left_empty) {
    train_world world;
    EXPECT_EQ(outcome_of(check_run_folder(world.path("new/folder")), "run folder"), verdict::pass);
    EXPECT_TRUE(std::filesystem::is_empty(world.path("new/folder")));
    std::ofstream(world.path("file")) << "x";
    const auto all = check_run_folder(world.path("file/below"));
    EXPECT_EQ(outcome_of(all, "run folder"), verdict::fail);
    EXPECT_NE(all[0].fix.find("run.work_dir"), std::string::npos);
    EXPECT_EQ(outcome_of(check_run_folder("/proc"), "run folder"), verdict::fail);  // exists, takes no files
}

TEST(doctor, free_space_is_compared_with_what_a_run_folder_holds) {
    EXPECT_EQ(outcome_of(check_disk_space("/tmp/not/there/yet", 1), "free space"), verdict::pass);
    EXPECT_EQ(outcome_of(check_disk_space("/tmp", std::uint64_t{1} << 62U), "free space"), verdict::fail);
}

TEST(doctor, a_clock_that_is_two_minutes_off_fails_in_both_directions) {
    EXPECT_EQ(check_clock(3).outcome, verdict::pass);
    EXPECT_EQ(check_clock(-60).outcome, verdict::warn);
    EXPECT_EQ(check_clock(121).outcome, verdict::fail);
    EXPECT_EQ(check_clock(-121).outcome, verdict::fail);
}

TEST(doctor, a_token_file_is_there_private_and_not_empty) {
    train_world world;
    const auto none = variables({});
    EXPECT_EQ(check_token_file("", none)[0].outcome, verdict::warn);
    EXPECT_EQ(check_token_file("", variables({{"DARL_TOKEN", "t"}}))[0].outcome, verdict::pass);
    EXPECT_EQ(check_token_file(world.path("none"), none)[0].outcome, verdict::fail);
    const std::string file = world.path("token");
    std::ofstream(file) << "";
    std::filesystem::permissions(file, std::filesystem::perms(0600));
    EXPECT_EQ(check_token_file(file, none)[0].outcome, verdict::fail);
    std::ofstream(file) << "secret";
    EXPECT_EQ(check_token_file(file, none)[0].outcome, verdict::pass);
    std::filesystem::permissions(file, std::filesystem::perms(0640));
    const auto open = check_token_file(file, none);
    EXPECT_EQ(open[0].outcome, verdict::fail);
    EXPECT_EQ(open[0].fix, "chmod 600 " + file);
}

TEST(doctor, proxies_and_thread_variables_of_the_environment_are_pointed_out) {
    run_config c;
    EXPECT_EQ(outcome_of(check_environment(c, variables({})), "proxy variables"), verdict::pass);
    const auto set = variables({{"https_proxy", "http://p:3128"}, {"OMP_NUM_THREADS", "64"}});
    EXPECT_EQ(outcome_of(check_environment(c, set), "proxy variables"), verdict::warn);
    EXPECT_EQ(outcome_of(check_environment(c, set), "OMP_NUM_THREADS"), verdict::warn);
    c.proxy = "env";
    EXPECT_EQ(outcome_of(check_environment(c, set), "proxy variables"), verdict::pass);
    EXPECT_EQ(outcome_of(check_environment(c, variables({})), "proxy variables"), verdict::warn);
}

TEST(doctor, a_phase_that_is_not_its_inner_steps_gets_a_block_size_that_makes_it) {
    run_config c;
    c.inner_steps = 20;
    c.batch = 8;
    c.block_size = 32;
    EXPECT_EQ(check_phase(c, 1)[0].outcome, verdict::pass);
    c.block_size = 48;  // 160 windows are 3.33 blocks
    const auto odd = check_phase(c, 1);
    EXPECT_EQ(odd[0].outcome, verdict::warn);
    EXPECT_NE(odd[0].value.find("18 steps"), std::string::npos) << odd[0].value;
    EXPECT_NE(odd[0].fix.find("data.block_size = 40 "), std::string::npos) << odd[0].fix;
}

TEST(doctor, a_port_is_free_or_taken) {
    train_world world;
    world.serve();
    ASSERT_TRUE(world.ok);
    EXPECT_EQ(check_listen(world.server.url().substr(7)).outcome, verdict::fail);
    EXPECT_EQ(check_listen("127.0.0.1:0").outcome, verdict::pass);
    EXPECT_EQ(check_listen("not an address:1").outcome, verdict::fail);
}

TEST(doctor, the_command_passes_on_a_run_that_starts_and_fails_with_the_fix_on_one_that_does_not) {
    train_world world;
    world.serve();
    const auto arguments = world.site_arguments("alpha", {});
    const std::string config = arguments[3];
    const auto good = run_darl({"doctor", "--json", "--config", config, "--server", world.server.url(), "--deep"});
    ASSERT_EQ(good.status, 0) << good.out << good.err;
    const auto report = darlcore::json::parse(good.out);
    ASSERT_TRUE(report) << good.out;
    EXPECT_NE(*report->at("verdict").as_string(), "FAIL");
    EXPECT_NE(good.out.find("\"reach\""), std::string::npos);
    EXPECT_NE(good.out.find("every byte checked"), std::string::npos);
    std::filesystem::remove(world.path("train/tokens-00000.bin"));
    world.server.stop();
    const auto bad = run_darl({"doctor", "--config", config, "--server", world.server.url()});
    EXPECT_EQ(bad.status, 1) << bad.out;
    EXPECT_NE(bad.out.find("FAIL  corpus   data.manifest"), std::string::npos) << bad.out;
    EXPECT_NE(bad.out.find("FAIL  server   reach"), std::string::npos) << bad.out;
    EXPECT_NE(bad.out.find("fix: "), std::string::npos);
    EXPECT_EQ(run_darl({"doctor", "--config", world.path("none.toml")}).status, 2);
    EXPECT_EQ(run_darl({"doctor", "--config", config, "--train.bacth", "1"}).status, 2);
}

}  // namespace
