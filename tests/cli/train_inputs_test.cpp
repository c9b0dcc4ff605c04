// SPDX-License-Identifier: Apache-2.0
// What `darl train` and `darl serve` say to bad input: the input, the reason, the fix; and the exit code.
#include <gtest/gtest.h>

#include "adapters/formats/manifest.hpp"
#include "tests/cli/train_world.hpp"

namespace {

using namespace darlcore;
using darl::testing::run_darl;
using darl::testing::train_world;

bool says(const std::string& text, std::initializer_list<const char*> parts) {
    for (const char* part : parts)
        if (text.find(part) == std::string::npos) return false;
    return true;
}

TEST(train_inputs, other_text_at_one_site_is_refused_by_the_server) {
    train_world world;
    world.serve();
    ASSERT_EQ(world.train("alpha", {"--fault", "stop-at=settle"}).status, 75);
    world.make_corpus("other", 96, 2);
    const auto run = world.train("beta", {"--data.manifest", world.path("other/manifest.json")});
    EXPECT_EQ(run.status, 2) << run.err;
    EXPECT_TRUE(says(run.err, {"tokens of the run"})) << run.err;
}

TEST(train_inputs, another_tokenizer_at_one_site_is_refused_by_the_server) {
    train_world world;
    world.serve();
    ASSERT_EQ(world.train("alpha", {"--fault", "stop-at=settle"}).status, 75);
    world.make_corpus("other", 96, 1);
    auto manifest = formats::parse_manifest(train_world::text_of(world.path("other/manifest.json")));
    ASSERT_TRUE(manifest);
    manifest->tokenizer_sha256 = std::string(64, '7');
    std::ofstream(world.path("other/manifest.json")) << formats::manifest_text(*manifest);
    const auto run = world.train("beta", {"--data.manifest", world.path("other/manifest.json")});
    EXPECT_EQ(run.status, 2) << run.err;
    EXPECT_TRUE(says(run.err, {"corpus"})) << run.err;
}

TEST(train_inputs, shards_that_are_missing_cut_or_beyond_the_vocabulary_are_named) {
    train_world world;
    const std::string shard = world.path("train/tokens-00000.bin");
    const std::string whole = train_world::text_of(shard);
    const auto run = [&] { return world.train("alpha"); };
    std::filesystem::remove(shard);
    EXPECT_EQ(run().status, 2);
    EXPECT_TRUE(says(run().err, {"tokens-00000.bin"})) << run().err;
    std::ofstream(shard, std::ios::binary) << whole.substr(0, whole.size() - 2);
    EXPECT_TRUE(says(run().err, {"tokens-00000.bin", "bytes"})) << run().err;
    std::ofstream(shard, std::ios::binary) << std::string(whole.size(), '\x0f');
    const auto beyond = run();
    EXPECT_EQ(beyond.status, 3);  // damaged data is refused
    EXPECT_TRUE(says(beyond.err, {"tokens-00000.bin", "vocabulary"})) << beyond.err;
}

TEST(train_inputs, a_misspelt_setting_is_named_with_the_one_that_was_meant) {
    train_world world;
    const auto run = world.train("alpha", {"--train.bacth", "4"});
    EXPECT_EQ(run.status, 2);
    EXPECT_TRUE(says(run.err, {"train.bacth", "did you mean train.batch"})) << run.err;
}

TEST(train_inputs, a_port_that_is_taken_is_named) {
    train_world world;
    world.serve();
    const std::string listen = world.server.url().substr(7);
    const auto run = run_darl(
        {"serve", "--state-dir", world.path("second"), "--num-samples", "8", "--block-size", "4", "--listen", listen});
    EXPECT_NE(run.status, 0);
    EXPECT_TRUE(says(run.err, {listen.c_str(), "in use"})) << run.err;
}

TEST(train_inputs, a_token_that_is_missing_empty_or_readable_by_others_is_named_before_anything_is_asked) {
    train_world world;
    const auto run = [&](const std::string& file) { return world.train("alpha", {"--token-file", file}); };
    EXPECT_EQ(run(world.path("none")).status, 2);
    EXPECT_TRUE(says(run(world.path("none")).err, {"none", "token file"}));
    std::ofstream(world.path("open")) << "secret";
    std::filesystem::permissions(world.path("open"), std::filesystem::perms(0644));
    EXPECT_TRUE(says(run(world.path("open")).err, {"chmod 600"}));
    EXPECT_FALSE(says(run(world.path("open")).err, {"secret"}));
}

TEST(train_inputs, a_site_without_its_token_is_turned_away_at_once_and_told_which_file_it_needs) {
    train_world world;
    const auto made = run_darl({"token", "new", "--site", "alpha", "--out", world.path("alpha.token")});
    ASSERT_EQ(made.status, 0) << made.err;
    std::ofstream(world.path("tokens")) << made.out;
    std::filesystem::permissions(world.path("tokens"), std::filesystem::perms(0600));
    world.serve({"--token-file", world.path("tokens")});
    ASSERT_TRUE(world.ok);
    const auto without = world.train("alpha");
    EXPECT_EQ(without.status, 2) << without.err;
    EXPECT_TRUE(says(without.err, {"token"})) << without.err;
    const auto as_another = world.train("beta", {"--token-file", world.path("alpha.token")});
    EXPECT_EQ(as_another.status, 2) << as_another.err;
    const auto with = world.train("alpha", {"--token-file", world.path("alpha.token")});
    EXPECT_EQ(with.status, 0) << with.err;
}

TEST(train_inputs, a_baseline_batch_that_its_ranks_cannot_share_is_an_error) {
    train_world world;
    const auto run = run_darl({"train", "--config", world.site_arguments("a", {})[3], "--centralised", "--global-batch",
                               "3", "--ranks", "2"});
    EXPECT_EQ(run.status, 2);
    EXPECT_TRUE(says(run.err, {"3 windows", "2 ranks"})) << run.err;
}

}  // namespace
