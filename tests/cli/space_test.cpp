// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "adapters/formats/json.hpp"
#include "tests/cli/run_darl.hpp"
#include "tests/formats/temp_folder.hpp"

namespace {

using namespace darlcore;
using darl::testing::run_darl;

std::vector<std::string> arguments_of(const json::value& c) {
    std::vector<std::string> arguments = {"space", "--json"};
    const auto add = [&](const char* option, const char* key) {
        arguments.push_back(std::string("--") + option);
        arguments.push_back(json::dump(c.at(key)));
    };
    add("num-samples", "num_samples");
    add("block-size", "block_size");
    add("seed", "seed");
    add("epoch", "epoch");
    if (c.contains("scheme")) {
        arguments.emplace_back("--scheme");
        arguments.push_back(*c.at("scheme").as_string());
    }
    if (c.contains("shuffle") && c.at("shuffle").as_bool() == false) arguments.emplace_back("--no-shuffle");
    return arguments;
}

TEST(darl_space, prints_every_case_of_the_vectors) {
    const auto vectors =
        json::parse(darlcore::testing::file_text(std::string(DARLCORE_TEST_DATA) + "/block_space.json")).value();
    for (const char* section : {"permutation", "feistel"}) {
        for (const auto& c : *vectors.at(section).as_array()) {
            const auto seen = run_darl(arguments_of(c));
            ASSERT_EQ(seen.status, 0) << seen.err;
            const auto doc = json::parse(seen.out).value();
            for (const char* key : {"num_blocks", "first", "last", "digest"})
                EXPECT_EQ(doc.at(key), c.at(key)) << seen.out;
        }
    }
}

TEST(darl, an_unknown_command_is_named_with_the_nearest_one) {
    const auto seen = run_darl({"spice", "--num-samples", "1"});
    EXPECT_EQ(seen.status, 2);
    EXPECT_NE(seen.err.find("unknown command 'spice', did you mean 'space'?"), std::string::npos) << seen.err;
}

TEST(darl_space, has_a_text_form) {
    const auto seen =
        run_darl({"space", "--num-samples", "1001", "--block-size", "10", "--seed", "42", "--first", "3"});
    EXPECT_EQ(seen.status, 0);
    EXPECT_EQ(seen.out,
              "blocks 101 (10 windows each; the short one, of 1, at position 99)\n"
              "order  mt-shuffle-1\n"
              "digest 1e0a4168faa1b2cc9fc016c3eea082ff\n"
              "first  70 76 9\n"
              "last   37 100 79\n");
}

TEST(darl_space, bad_parameters_are_named_and_exit_with_2) {
    struct bad_call {
        std::vector<std::string> arguments;
        const char* named;
    };
    const std::string too_big = "18446744073709551616";
    for (const auto& [arguments, named] : std::vector<bad_call>{
             {{"--num-samples", "0", "--block-size", "1"}, "num_samples is 0"},
             {{"--num-samples", "1", "--block-size", "0"}, "block_size is 0"},
             {{"--num-samples", "2147483648", "--block-size", "1"}, "feistel-1"},
             {{"--num-samples", too_big, "--block-size", "1"}, "--num-samples"},
             {{"--num-samples", "1", "--block-size", too_big}, "--block-size"},
             {{"--num-samples", "ten", "--block-size", "1"}, "--num-samples: `ten` is not a whole number"},
             {{"--num-samples", "10x", "--block-size", "1"}, "--num-samples"},
             {{"--num-samples", "0x10", "--block-size", "1"}, "--num-samples"},
             {{"--num-samples=-5", "--block-size", "1"}, "--num-samples"},
             {{"--num-samples", "1.5", "--block-size", "1"}, "--num-samples"},
             {{"--num-samples", "1", "--block-size", "1", "--seed", "9223372036854775808"}, "--seed"},
             {{"--num-samples", "1", "--block-size", "1", "--seed", "x"}, "--seed"},
             {{"--num-samples", "1", "--block-size", "1", "--epoch", "4294967296"}, "--epoch"},
             {{"--num-samples", "1", "--block-size", "1", "--first=-1"}, "--first"},
             {{"--num-samples", "1", "--block-size", "1", "--scheme", "other"}, "--scheme"},
             {{"--num-samples", "1", "--block-size", "1", "--scheme", "feistel-1", "--no-shuffle"}, "feistel-1"},
             {{"--num-samples", "18446744073709551615", "--block-size", "1", "--scheme", "feistel-1"}, "2^62"},
             {{"--block-size", "1"}, "--num-samples"},
             {{"--num-samples", "1"}, "--block-size"},
             {{"--num-samples", "1", "--block-size", "1", "--inner-steps", "0"}, "inner_steps"},
             {{"--num-samples", "1", "--block-size", "1", "--inner-steps", "1", "--ranks", "0"}, "ranks"},
             {{"--num-samples", "1", "--block-size", "1", "--inner-steps", "1", "--batch", "four"}, "--batch"},
             // 2^33 x 2^31 x 1 x 1: a 64-bit product wraps to 0, a 32-bit one already at batch x ranks
             {{"--num-samples", "1", "--block-size", "1", "--inner-steps", "8589934592", "--batch", "2147483648"},
              "inner_steps x global batch"},
             {{"--num-samples", "1", "--block-size", "1", "--inner-steps", "1", "--batch", "4294967296", "--ranks",
               "4294967296"},
              "batch x ranks"},
             {{"--num-samples", "1", "--block-size", "1", "--inner-steps", "1", "--batch", "4294967296", "--ranks", "2",
               "--accumulate", "4294967296"},
              "accumulate"},
             {{"--num-samples", "1", "--block-size", "1", "--sed", "1"}, "--sed"}}) {
        auto call = arguments;
        call.insert(call.begin(), "space");
        const auto seen = run_darl(call);
        EXPECT_EQ(seen.status, 2) << named << ": " << seen.err;
        EXPECT_EQ(seen.out, "") << named;
        EXPECT_NE(seen.err.find(named), std::string::npos) << named << ": " << seen.err;
    }
}

TEST(darl_space, sizes_a_phase) {
    const auto seen = run_darl({"space", "--num-samples", "1001", "--block-size", "10", "--inner-steps", "7", "--batch",
                                "4", "--ranks", "2", "--accumulate", "2", "--first", "1"});
    EXPECT_EQ(seen.status, 0) << seen.err;
    EXPECT_NE(seen.out.find("\nphase  11 blocks (7 steps of 16 windows)\n"), std::string::npos)
        << "112 windows are 11.2 blocks; 110 windows are 6.9 steps: " << seen.out;
}

TEST(darl_space, accepts_negative_seeds) {
    const auto seen = run_darl({"space", "--json", "--num-samples", "1001", "--block-size", "10", "--seed", "-1",
                                "--epoch", "2", "--scheme", "feistel-1"});
    EXPECT_EQ(seen.status, 0) << seen.err;
    EXPECT_NE(seen.out.find("bb5e4b7625e083c9309853dd92be45da"), std::string::npos);
}

}  // namespace
