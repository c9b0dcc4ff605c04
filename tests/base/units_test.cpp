// SPDX-License-Identifier: Apache-2.0
#include "darlcore/units.hpp"

#include <sstream>

#include <gtest/gtest.h>

namespace {

using namespace darlcore;

TEST(names, are_checked_against_the_wire_charset) {
    EXPECT_TRUE(is_valid_name("a"));
    EXPECT_TRUE(is_valid_name("site-r0._x"));
    EXPECT_TRUE(is_valid_name(std::string(64, 'z')));
    EXPECT_FALSE(is_valid_name(std::string(65, 'z')));
    for (const char* bad : {"", "-a", ".a", "_a", "a/b", "a b", "a\n", "\xc3\xa4"})
        EXPECT_FALSE(is_valid_name(bad)) << bad;
}

TEST(incarnations, round_trip_through_their_wire_text) {
    const incarnation value{0x0123456789abcdefULL, 0xfedcba9876543210ULL};
    EXPECT_EQ(to_text(value), "0123456789abcdeffedcba9876543210");
    EXPECT_EQ(parse_incarnation(to_text(value)), value);
    EXPECT_EQ(parse_incarnation("0123456789ABCDEFFEDCBA9876543210"), value);
    EXPECT_FALSE(parse_incarnation("0123"));
    EXPECT_FALSE(parse_incarnation(std::string(32, 'g')));
    EXPECT_TRUE(incarnation{}.is_none());
}

TEST(fencing_tokens, are_ordered_by_term_then_sequence) {
    EXPECT_LT((fencing_token{term{1}, 99}), (fencing_token{term{2}, 1}));
    EXPECT_LT((fencing_token{term{2}, 1}), (fencing_token{term{2}, 2}));
    std::ostringstream out;
    out << fencing_token{term{3}, 1234};
    EXPECT_EQ(out.str(), "3:1234");
}

TEST(spans, are_half_open) {
    const span s = make_span(2, 5);
    EXPECT_EQ(s.size(), 3U);
    EXPECT_FALSE(s.contains(position{1}));
    EXPECT_TRUE(s.contains(position{2}));
    EXPECT_FALSE(s.contains(position{5}));
    EXPECT_TRUE(make_span(4, 4).empty());
}

TEST(site_ids, are_compared_by_unsigned_bytes) { EXPECT_LT(site_id{"a"}, site_id{"\xff"}); }

}  // namespace
