// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>

#include <gtest/gtest.h>
#include <zlib.h>

#include "adapters/cli/chart_png.hpp"
#include "adapters/cli/demo_report.hpp"
#include "adapters/cli/demo_run.hpp"
#include "darlcore/error.hpp"

namespace {

using namespace darlcore;
namespace page = darlcore::page;

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
    const std::string html = darl::demo_report_html(f);
    EXPECT_EQ(html.find("<script"), std::string::npos);
    EXPECT_EQ(html.find("http"), std::string::npos);
    EXPECT_NE(html.find("a &amp; b"), std::string::npos);
    EXPECT_NE(html.find("site &lt;x&gt;"), std::string::npos);
    EXPECT_NE(html.find("<td>&lt;1 s</td>"), std::string::npos);
    for (const char* outside : {"src=", "href=", "url(", "@import", "<link"})
        EXPECT_EQ(html.find(outside), std::string::npos) << outside;
    EXPECT_EQ(html.find("nan"), std::string::npos);
    EXPECT_EQ(html.find(">empty<"), std::string::npos);
}

TEST(demo_report, a_chart_without_points_is_left_out) {
    EXPECT_EQ(page::line_chart({"t", "x", "y", {{"none", {}}}}), "");
    EXPECT_NE(page::line_chart({"t", "x", "y", {{"one", {{1, 1}}}}}), "");
    EXPECT_EQ(darl::chart_png({"t", "x", "y", {{"none", {}}}}), "");
}

std::uint32_t big_endian(const std::string& text, std::size_t at) {
    std::uint32_t out = 0;
    for (std::size_t i = 0; i < 4; ++i) out = out << 8U | static_cast<unsigned char>(text[at + i]);
    return out;
}

// The pixels of a PNG of one IDAT chunk; every length and checksum of a chunk is looked at.
std::string pixels_of(const std::string& png, std::uint32_t& width, std::uint32_t& height) {
    EXPECT_EQ(png.substr(0, 8), "\x89PNG\r\n\x1a\n");
    std::string kinds;
    std::string rows;
    for (std::size_t at = 8; at + 12 <= png.size();) {
        const std::uint32_t size = big_endian(png, at);
        const std::string body = png.substr(at + 4, 4 + size);
        EXPECT_EQ(::crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size())),
                  big_endian(png, at + 8 + size));
        kinds += body.substr(0, 4);
        if (body.starts_with("IHDR")) {
            width = big_endian(body, 4);
            height = big_endian(body, 8);
            EXPECT_EQ(body.substr(12), std::string("\x08\x02\0\0\0", 5));
        }
        if (body.starts_with("IDAT")) {
            uLongf room = std::size_t{height} * (1 + 3 * std::size_t{width});
            rows.resize(room);
            EXPECT_EQ(::uncompress(reinterpret_cast<Bytef*>(rows.data()), &room,
                                   reinterpret_cast<const Bytef*>(body.data()) + 4, static_cast<uLong>(size)),
                      Z_OK);
            EXPECT_EQ(room, rows.size());
        }
        at += 12 + size;
    }
    EXPECT_EQ(kinds, "IHDRIDATIEND");
    return rows;
}

TEST(chart_png, is_a_picture_with_the_lines_in_their_places_and_colours) {
    std::uint32_t width = 0;
    std::uint32_t height = 0;
    const std::string rows = pixels_of(
        darl::chart_png({"T", "x", "y", {{"flat", {{0, 0}, {10, 0}}}, {"up", {{0, 0}, {10, 4}}}}}), width, height);
    ASSERT_EQ(width, 1720U);
    ASSERT_EQ(height, 620U);
    const auto pixel = [&](std::size_t x, std::size_t y) {
        const char* p = rows.data() + y * (1 + 3 * width) + 1 + 3 * x;
        return std::array<int, 3>{static_cast<unsigned char>(p[0]), static_cast<unsigned char>(p[1]),
                                  static_cast<unsigned char>(p[2])};
    };
    EXPECT_EQ(pixel(1719, 619), (std::array<int, 3>{255, 255, 255}));
    EXPECT_EQ(pixel(760, 290), (std::array<int, 3>{0xd5, 0x5e, 0x00}));   // the middle of the rising line
    EXPECT_EQ(pixel(1440, 80), (std::array<int, 3>{0x00, 0x72, 0xb2}));   // the first name's stroke
    EXPECT_EQ(pixel(1440, 120), (std::array<int, 3>{0xd5, 0x5e, 0x00}));  // the second one's
    int ink = 0;                                                          // of the title's one letter, 10 x 14 pixels
    for (std::size_t y = 22; y < 36; ++y)
        for (std::size_t x = 120; x < 132; ++x) ink += pixel(x, y)[0] == 34 ? 1 : 0;
    EXPECT_EQ(ink, 2 * 11 + 6 * 6);
}

}  // namespace
