// SPDX-License-Identifier: Apache-2.0
// `darl demo` on a text of a few blocks: its verdict, its files, and what it says when a site trains other than it
// says.
#include <gtest/gtest.h>

#include "tests/cli/train_world.hpp"

namespace {

using namespace darlcore;
using darl::testing::run_darl;

struct demo_end {
    int status = -1;
    json::value said;
    std::string err;
};

demo_end run_demo(const std::string& fault) {
    std::vector<std::string> words = {"demo", "--json", "--quick", "--synthetic", "--bytes", "40000"};
    if (!fault.empty()) words.insert(words.end(), {"--fault", fault});
    const auto run = run_darl(words);
    auto said = json::parse(run.out);
    EXPECT_TRUE(said) << run.out << run.err;
    return {run.status, said ? *std::move(said) : json::make_object({}), run.err};
}

std::uint64_t covered(const demo_end& d, const char* what) {
    const auto* coverage = d.said.find("coverage");
    return coverage != nullptr ? coverage->at(what).as_u64().value_or(99) : 99;
}

std::string file_of(const demo_end& d, const char* what) {
    return darl::testing::train_world::text_of(*d.said.at(what).as_string());
}

void remove_folder(const demo_end& d) {
    std::filesystem::remove_all(std::filesystem::path(*d.said.at("report").as_string()).parent_path());
}

TEST(demo_command, covers_each_block_once_and_leaves_a_report_and_a_picture) {
    const demo_end d = run_demo("");
    ASSERT_NE(d.said.find("report"), nullptr);
    EXPECT_EQ(covered(d, "blocks"), covered(d, "covered"));
    EXPECT_EQ(covered(d, "duplicates"), 0U);
    EXPECT_EQ(covered(d, "missing"), 0U);
    EXPECT_LT(d.said.at("perplexity").at("federated").as_double(), d.said.at("perplexity").at("untrained").as_double());
    EXPECT_FALSE(d.said.at("sample").as_string()->empty());
    EXPECT_NE(file_of(d, "report").find("</svg>"), std::string::npos);
    EXPECT_EQ(file_of(d, "picture").substr(1, 3), "PNG");
    EXPECT_NE(d.err.find("blocks in the model\n"), std::string::npos) << d.err;
    EXPECT_EQ(d.err.find('\r'), std::string::npos) << "a bar in a log";
    remove_folder(d);
}

TEST(demo_command, a_block_that_is_trained_twice_makes_it_fail) {
    const demo_end d = run_demo("train-twice");
    EXPECT_EQ(d.status, 1);
    EXPECT_EQ(*d.said.at("verdict").as_string(), "FAIL");
    EXPECT_EQ(covered(d, "duplicates"), 1U);
    EXPECT_EQ(covered(d, "missing"), 0U);
    remove_folder(d);
}

TEST(demo_command, a_block_that_is_dropped_makes_it_fail) {
    const demo_end d = run_demo("drop-block");
    EXPECT_EQ(d.status, 1);
    EXPECT_EQ(*d.said.at("verdict").as_string(), "FAIL");
    EXPECT_EQ(covered(d, "duplicates"), 0U);
    EXPECT_EQ(covered(d, "missing"), 1U);
    remove_folder(d);
}

}  // namespace
