// SPDX-License-Identifier: Apache-2.0
// scripts/vision: two sites train pictures and are compared with one process; a run that goes wrong ends with 1.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>

#include "adapters/cli/child_process.hpp"
#include "darlcore/testing/budget.hpp"

namespace {

using namespace std::chrono_literals;

struct vision_end {
    int status = -1;
    std::string said;
};

vision_end run_vision(const std::vector<std::string>& more) {
    darl::child_process::options o;
    o.argv = {"/usr/bin/env", "python3", DARL_VISION_SCRIPT, DARL_PROGRAM};
    o.argv.insert(o.argv.end(), more.begin(), more.end());
    o.read_stdout = true;
    auto run = darl::child_process::start(o);
    EXPECT_TRUE(run);
    vision_end out;
    while (const auto line = run->read_line(1h)) out.said += *line + "\n";
    out.status = run->wait(60s).value_or(-1);
    return out;
}

bool has(const vision_end& v, const char* text) { return v.said.find(text) != std::string::npos; }

TEST(vision, data_that_are_not_there_end_with_77_and_the_package) {
    const auto run = run_vision({"--fashion-mnist", "/nowhere"});
    EXPECT_EQ(run.status, 77);
    EXPECT_TRUE(has(run, "dataset-fashion-mnist")) << run.said;
}

TEST(vision, the_verdict_lets_its_borders_pass_and_nothing_beyond) {
    darl::child_process::options o;
    o.argv = {"/usr/bin/env", "python3", DARL_VISION_SCRIPT, "--self-test"};
    EXPECT_EQ(darl::child_process::start(o)->wait(60s), 0);
}

TEST(vision, sites_that_train_a_block_twice_and_miss_the_mark_make_it_fail) {
    const auto run = run_vision({"--train", "patterns:64,1", "--held-out", "patterns:40,2", "--pictures", "64",
                                 "--scored", "40", "--batch", "8", "--inner-steps", "2", "--margin", "-100",
                                 "--site-option=--fault", "--site-option", "train-twice"});
    EXPECT_EQ(run.status, 1) << run.said;
    EXPECT_TRUE(has(run, "is in the model 2 times")) << run.said;
    EXPECT_TRUE(has(run, "more than -100.0 points below")) << run.said;
    EXPECT_TRUE(has(run, "\nFAIL\n")) << run.said;
}

TEST(vision, two_sites_on_fashion_mnist_come_within_two_points_of_one_process) {
    if (darlcore::testing::property_runs(10) <= 10)
        GTEST_SKIP() << "takes some minutes of two cores; set DARLCORE_PROPERTY_BUDGET=nightly";
    const auto run = run_vision({});
    if (run.status == 77) GTEST_SKIP() << run.said;
    EXPECT_EQ(run.status, 0) << run.said;
    std::fputs(run.said.c_str(), stderr);
}

}  // namespace
