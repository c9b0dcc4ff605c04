// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>

#include <gtest/gtest.h>

#include "adapters/cli/demo_report.hpp"
#include "adapters/cli/demo_run.hpp"
#include "darlcore/error.hpp"

namespace {

using namespace darlcore;

TEST(demo_corpus, the_last_document_is_held_out_and_the_others_are_cut_evenly) {
    const auto split = darl::split_documents(
        {std::string(50'000, 'a'), std::string(50'000, 'b'), std::string(50'000, 'c')}, 40'000, 5'000);
    ASSERT_TRUE(split) << to_text(split.error());
    ASSERT_EQ(split->train.size(), 2U);
    EXPECT_EQ(split->train[0], std::string(20'000, 'a'));
    EXPECT_EQ(split->train[1], std::string(20'000, 'b'));
    EXPECT_EQ(split->held_out, std::string(5'000, 'c'));
}

TEST(demo_corpus, of_a_single_document_the_last_tenth_is_held_out_and_never_trained_on) {
    std::string text;
    for (int i = 0; text.size() < 100'000; ++i) text += std::to_string(i) + " ";
    const auto split = darl::split_documents({text}, 90'000, 9'000);
    ASSERT_TRUE(split) << to_text(split.error());
    EXPECT_EQ(split->train[0].find(split->held_out.substr(0, 100)), std::string::npos);
}

TEST(demo_corpus, too_little_text_is_an_error_that_says_how_much_is_needed) {
    EXPECT_EQ(darl::split_documents({}, 1'000, 100).error().code, errc::invalid_argument);
    const auto small = darl::split_documents({"tiny", "text"}, 1'000, 100);
    ASSERT_FALSE(small);
    EXPECT_NE(small.error().context.find("20000"), std::string::npos);
}

TEST(demo_corpus, the_synthetic_text_has_the_entropy_rate_that_it_promises) {
    const auto text = darl::synthetic_corpus(200'000, 2'000);
    // conditional entropy of a letter given the one before it, from counts
    std::array<std::array<double, 26>, 26> pairs{};
    std::array<double, 26> firsts{};
    const std::string& t = text.train[0];
    for (std::size_t i = 1; i < t.size(); ++i) {
        pairs[static_cast<std::size_t>(t[i - 1] - 'a')][static_cast<std::size_t>(t[i] - 'a')] += 1;
        firsts[static_cast<std::size_t>(t[i - 1] - 'a')] += 1;
    }
    double nats = 0;
    for (std::size_t a = 0; a < 26; ++a)
        for (std::size_t b = 0; b < 26; ++b)
            if (pairs[a][b] > 0)
                nats -= pairs[a][b] / static_cast<double>(t.size() - 1) * std::log(pairs[a][b] / firsts[a]);
    EXPECT_NEAR(std::exp(nats), *text.floor, 0.02);
}

TEST(demo_report, escapes_what_it_shows_and_needs_nothing_from_outside) {
    darl::demo_figures f;
    f.verdict = "PASS";
    f.headline = "<script>alert(1)</script>";
    f.num_blocks = 2;
    f.blocks = {{0, "a\"b"}, {1, "c"}};
    f.loss_by_tokens = {{"site <x>", {{0, 3}, {1, 2}, {2, std::nan("")}}}, {"empty", {}}};
    f.findings = {"a & b"};
    f.times_head = {"site", "wait"};
    f.times = {{{"c", "<1 s"}}};
    const std::string page = darl::demo_report_html(f);
    EXPECT_EQ(page.find("<script"), std::string::npos);
    EXPECT_EQ(page.find("http"), std::string::npos);
    EXPECT_NE(page.find("a &amp; b"), std::string::npos);
    EXPECT_NE(page.find("site &lt;x&gt;"), std::string::npos);
    EXPECT_NE(page.find("<td>&lt;1 s</td>"), std::string::npos);
    for (const char* outside : {"src=", "href=", "url(", "@import", "<link"})
        EXPECT_EQ(page.find(outside), std::string::npos) << outside;
    EXPECT_EQ(page.find("nan"), std::string::npos);
    EXPECT_EQ(page.find(">empty<"), std::string::npos);
}

TEST(demo_report, a_chart_without_points_is_left_out) {
    EXPECT_EQ(darlcore::page::line_chart("t", "x", "y", {{"none", {}}}), "");
    EXPECT_NE(darlcore::page::line_chart("t", "x", "y", {{"one", {{1, 1}}}}), "");
}

}  // namespace
