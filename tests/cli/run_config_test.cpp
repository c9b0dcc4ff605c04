// SPDX-License-Identifier: Apache-2.0
#include "adapters/cli/run_config.hpp"

#include <gtest/gtest.h>

#include "adapters/cli/did_you_mean.hpp"

namespace {

using darl::parse_run_config;
using darlcore::errc;

TEST(run_file, the_text_that_init_writes_reads_back_to_the_defaults) {
    const auto read = parse_run_config(darl::run_config_text(), "run.toml");
    ASSERT_TRUE(read) << to_text(read.error());
    EXPECT_EQ(darl::run_config_text(*read), darl::run_config_text());
}

TEST(run_file, every_key_changed_in_the_text_arrives_in_the_struct) {
    darl::run_config changed;
    changed.seed = -9007199254740993;  // would not survive a way through a double
    changed.flavour = "debug-3m";
    changed.eta = 0.25;
    changed.budget = false;
    changed.inner_steps = 77;
    const auto read = parse_run_config(darl::run_config_text(changed), "run.toml");
    ASSERT_TRUE(read) << to_text(read.error());
    EXPECT_EQ(read->seed, changed.seed);
    EXPECT_EQ(darl::run_config_text(*read), darl::run_config_text(changed));
}

TEST(run_file, a_misspelt_key_is_an_error_that_suggests_the_right_one) {
    const auto read = parse_run_config("[train]\n\ninner_stepss = 5\n", "my.toml");
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().code, errc::unknown_key);
    EXPECT_EQ(read.error().context, "my.toml:3: unknown key train.inner_stepss; did you mean train.inner_steps?");
}

TEST(run_file, each_wrong_value_names_file_line_key_and_what_is_legal) {
    struct bad {
        const char* text;
        errc code;
        const char* says;
    };
    for (const bad& b :
         {bad{"[train]\nbatch = 0\n", errc::invalid_argument, "between 1 and"},
          bad{"[train]\nbatch = 1.5\n", errc::invalid_argument, "whole number"},
          bad{"[train]\nbatch = \"8\"\n", errc::invalid_argument, "must be a number"},
          bad{"[train]\npeak_lr = nan\n", errc::invalid_argument, "between"},
          bad{"[outer]\nbeta = 1.0\n", errc::invalid_argument, "between"},
          bad{"[outer]\nsolo = \"half\"\n", errc::invalid_argument, "full|outer|adopt"},
          bad{"[outer]\nsolo = \"full|outer\"\n", errc::invalid_argument, "one of"},
          bad{"[round]\nbudget = 1\n", errc::invalid_argument, "true or false"},
          bad{"[model]\nflavour = 3\n", errc::invalid_argument, "text in quotes"},
          bad{"[train]\ninner_steps = 1000000000\nbatch = 1000000\naccumulate = 1000000\n", errc::overflow,
              "train.inner_steps"},
          bad{"seed = 3\n", errc::unknown_key, "seed"}, bad{"[trian]\nbatch = 1\n", errc::unknown_key, "train.batch"},
          bad{"[train\n", errc::parse_error, "r.toml:"}}) {
        const auto read = parse_run_config(b.text, "r.toml");
        ASSERT_FALSE(read) << b.text;
        EXPECT_EQ(read.error().code, b.code) << b.text;
        EXPECT_NE(read.error().context.find(b.says), std::string::npos) << read.error().context;
    }
}

TEST(overrides, win_over_the_file_and_are_checked_the_same) {
    const auto pairs =
        darl::config_overrides({"--train.batch", "4", "--model.flavour=debug-3m", "--round.budget", "false"});
    ASSERT_TRUE(pairs);
    const auto read = parse_run_config("[train]\nbatch = 2\n", "r.toml", *pairs);
    ASSERT_TRUE(read) << to_text(read.error());
    EXPECT_EQ(read->batch, 4);
    EXPECT_EQ(read->flavour, "debug-3m");
    EXPECT_FALSE(read->budget);
    EXPECT_EQ(parse_run_config("", "r", {{"train.batch", "0"}}).error().code, errc::invalid_argument);
    EXPECT_EQ(parse_run_config("", "r", {{"train.batch", "1\nx = 2"}}).error().code, errc::invalid_argument);
    EXPECT_EQ(parse_run_config("", "r", {{"train.bach", "1"}}).error().code, errc::unknown_key);
    EXPECT_FALSE(darl::config_overrides({"--verbose"}));
    EXPECT_FALSE(darl::config_overrides({"--train.batch"}));
    EXPECT_FALSE(darl::config_overrides({"extra"}));
}

TEST(did_you_mean, suggests_only_what_is_near) {
    const std::vector<std::string> known = {"lease.min_ttl_s", "train.batch"};
    EXPECT_EQ(darl::did_you_mean("lease.min_ttl", known), "lease.min_ttl_s");
    EXPECT_EQ(darl::did_you_mean("something.else", known), "");
    EXPECT_EQ(darl::edit_distance("kitten", "sitting"), 3U);
    EXPECT_EQ(darl::edit_distance("", "abc"), 3U);
}

}  // namespace
