// SPDX-License-Identifier: Apache-2.0
// ResNet-18 through the same server, sessions, merges and audit as the language models.
#include <gtest/gtest.h>

#include "tests/cli/train_world.hpp"

namespace {

using namespace darlcore;
using darl::testing::first_finding;
using darl::testing::run_darl;
using darl::testing::train_world;

TEST(train_images, resnet18_learns_class_patterns_at_one_site_and_is_scored_by_accuracy) {
    train_world world;
    world.config.flavour = "resnet18";
    world.config.manifest = "patterns:60,1";
    world.config.held_out = "patterns:20,2";
    world.config.eval_windows = 20;
    world.config.block_size = 10;
    world.config.inner_steps = 3;
    world.config.batch = 10;
    world.config.peak_lr = 0.02;
    world.config.weight_decay = 5e-4;
    world.config.eta = 1;
    world.config.beta = 0;  // running statistics are averaged like weights
    world.serve();
    const auto run = world.train("alpha");
    ASSERT_EQ(run.status, 0) << run.err;
    const std::string config = world.path("alpha.toml");
    const auto wire = darl::current_generation(world.path("state")).value() + "/wire.safetensors";
    const auto scored = run_darl({"train", "--json", "--config", config, "--centralised", "--score", wire});
    ASSERT_EQ(scored.status, 0) << scored.err;
    const auto untrained = world.metrics("alpha", "step").front().at("loss").as_double().value();
    EXPECT_LT(world.metrics("alpha", "step").back().at("loss").as_double().value(), 0.8 * untrained);
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
