// SPDX-License-Identifier: Apache-2.0
// ResNet-18 through the same server, sessions, merges and audit as the language models.
#include <gtest/gtest.h>

#include "tests/cli/train_world.hpp"

namespace {

using namespace darlcore;
using darl::testing::first_finding;
using darl::testing::run_darl;
using darl::testing::train_world;

TEST(train_images, resnet18_trains_each_picture_into_the_model_once_and_is_scored_from_its_generation) {
    train_world world;
    world.config.flavour = "resnet18";
    world.config.manifest = "patterns:60,1";
    world.config.held_out = "patterns:20,2";
    world.config.eval_windows = 20;
    world.config.block_size = 10;
    world.config.inner_steps = 3;
    world.config.batch = 10;
    world.config.peak_lr = 0.256;
    world.config.weight_decay = 5e-4;
    world.config.eta = 1;
    world.config.beta = 0;  // running statistics are averaged like weights
    world.serve({"--num-samples", "60"});
    ASSERT_TRUE(world.ok);
    const auto run = world.train("alpha");
    ASSERT_EQ(run.status, 0) << run.err;
    const std::string config = world.path("alpha.toml");
    const auto wire = darl::current_generation(world.path("state")).value() + "/wire.safetensors";
    const auto scored = run_darl({"train", "--json", "--config", config, "--centralised", "--score", wire});
    ASSERT_EQ(scored.status, 0) << scored.err;
    const auto losses = world.metrics("alpha", "step");
    EXPECT_EQ(losses.size(), 6U);
    for (const auto& step : losses) EXPECT_NEAR(step.at("loss").as_double().value(), 2.3, 1.5);
    const auto score = json::parse(scored.out)->at("loss").as_double();
    ASSERT_TRUE(score) << scored.out;
    EXPECT_LT(*score, 10.0);
    EXPECT_EQ(json::parse(scored.out)->at("steps").as_u64(), 0U);
    const auto audit = world.audit_of(60);
    EXPECT_TRUE(audit.pass) << first_finding(audit);
}

TEST(train_images, what_pictures_are_called_is_explained_when_it_is_wrong) {
    train_world world;
    const auto run = world.train("alpha", {"--model.flavour", "resnet18"});
    EXPECT_EQ(run.status, 2);
    EXPECT_NE(run.err.find("idx:IMAGES,LABELS"), std::string::npos) << run.err;
    const auto missing = world.train("alpha", {"--model.flavour", "resnet18", "--data.manifest", "idx:none,none"});
    EXPECT_EQ(missing.status, 2);
    EXPECT_NE(missing.err.find("none"), std::string::npos) << missing.err;
}

}  // namespace
