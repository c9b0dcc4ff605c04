// SPDX-License-Identifier: Apache-2.0
#include "adapters/formats/split_pattern.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "adapters/formats/nfc.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::formats;
using pieces = std::vector<std::string>;

pieces matches(const std::string& pattern, const std::string& text) {
    const auto p = split_pattern::compile(pattern).value();
    split_scratch scratch;
    pieces out;
    for (std::size_t at = 0; at < text.size();) {
        const auto match = p.find(text, at, scratch).value();
        if (!match) break;
        out.push_back(text.substr(match->first, match->second - match->first));
        at = match->second;
    }
    return out;
}

TEST(split_patterns, look_ahead) { EXPECT_EQ(matches("\\s+(?!\\S)|\\S+", "a  b \n"), (pieces{"a", " ", "b", " \n"})); }

// U+180E has not been white space since Unicode 6.3, and PCRE2's own \s takes it: red without the translation.
TEST(split_patterns, white_space_is_that_of_unicode) {
    EXPECT_EQ(matches("\\s", "\xe1\xa0\x8e"), pieces{});
    for (const char* space : {"\x09", "\x0b", "\x0d", " ", "\xc2\x85", "\xc2\xa0", "\xe1\x9a\x80", "\xe2\x80\x80",
                              "\xe2\x80\x8a", "\xe2\x80\xa8", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80"})
        EXPECT_EQ(matches("\\s", space), pieces{space});
    EXPECT_EQ(matches("[^\\s\\p{L}]+", "a! \xe2\x80\x8b"), (pieces{"!", "\xe2\x80\x8b"}));
}

TEST(split_patterns, case_is_ignored_where_it_is_asked_for) {
    EXPECT_EQ(matches("(?i:'s|'re)|x", "'S 's 'Re X x"), (pieces{"'S", "'s", "'Re", "x"}));
}

TEST(split_patterns, that_were_not_compared_are_refused_by_name) {
    for (const auto& [pattern, named] : std::vector<std::pair<std::string, std::string>>{{"a.b", "`.`"},
                                                                                         {"^a", "`^`"},
                                                                                         {"a$", "`$`"},
                                                                                         {"\\w+", "`\\w`"},
                                                                                         {"\\ba", "`\\b`"},
                                                                                         {"(?m:a)", "`(?m:`"},
                                                                                         {"a{2}+", "`{2}+`"},
                                                                                         {"a{,3}", "`{,3}"},
                                                                                         {"[a[b]]", "`[b`"},
                                                                                         {"[a&&b]", "`&&`"},
                                                                                         {"[^\\S]", "`\\S`"},
                                                                                         {"\\p{Cn}", "`\\p{Cn}`"},
                                                                                         {"\\h", "`\\h`"},
                                                                                         {"(?P<n>a)", "`(?P<`"},
                                                                                         {"\\x41", "`\\x`"}}) {
        const auto seen = split_pattern::compile(pattern);
        ASSERT_FALSE(seen) << pattern;
        EXPECT_EQ(seen.error().code, errc::unsupported) << pattern;
        EXPECT_NE(seen.error().context.find(named), std::string::npos) << pattern << ": " << seen.error().context;
    }
    for (const char* bad : {"a*", "(", "[ab", "a\\", "", "(?=a)", "a|", "*"})
        EXPECT_EQ(split_pattern::compile(bad).error().code, errc::parse_error) << bad;
}

TEST(split_patterns, that_explode_end_with_an_error) {
    const auto p = split_pattern::compile("(a|a)+(a|a)+(?=[xy])").value();
    split_scratch scratch;
    const auto seen = p.find(std::string(200, 'a'), 0, scratch);
    EXPECT_EQ(seen.error().code, errc::too_large);
}

TEST(split_patterns, literals_match_themselves) {
    const auto p = split_pattern::literal("a.[b]").value();
    split_scratch scratch;
    EXPECT_FALSE(p.find("axxb", 0, scratch).value());
    EXPECT_EQ(p.find("xa.[b]", 0, scratch).value(), (std::pair<std::size_t, std::size_t>(1, 6)));
}

std::string nfc(const std::string& text) {
    std::string buffer;
    return std::string(to_nfc(text, buffer).value());
}

TEST(form_c, composes_orders_and_leaves_the_rest) {
    EXPECT_EQ(nfc(""), "");
    EXPECT_EQ(nfc("plain \xc3\xa9 text"), "plain \xc3\xa9 text");
    EXPECT_EQ(nfc("cafe\xcc\x81 e"), "caf\xc3\xa9 e");
    EXPECT_EQ(nfc("\xcc\x81"), "\xcc\x81");                                  // nothing to combine with
    EXPECT_EQ(nfc("xa\xcc\x88\xcc\xa3y"), "x\xe1\xba\xa1\xcc\x88y");         // marks are put in order
    EXPECT_EQ(nfc("\xe2\x84\xab \xef\xa4\x80"), "\xc3\x85 \xe8\xb1\x88");    // singletons
    EXPECT_EQ(nfc("\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab"), "\xed\x95\x9c");  // Hangul
    EXPECT_EQ(nfc("\xe0\xa4\x95\xe0\xa4\xbc"), "\xe0\xa4\x95\xe0\xa4\xbc");  // excluded from composition
    EXPECT_EQ(nfc("e\xcc\x81 and e\xcc\x81"), "\xc3\xa9 and \xc3\xa9");      // several runs
}

// Red, by the time limit of the tests, when the library orders the marks: its way takes quadratic time, hours for
// these.
TEST(form_c, orders_a_million_marks) {
    constexpr std::size_t marks = 1'000'000;
    std::string text = "e";
    std::string below, above;
    for (std::size_t i = 0; i < marks / 2; ++i) {
        text += "\xcc\x81\xcc\xa3";  // above (class 230), below (class 220)
        below += "\xcc\xa3";
        above += "\xcc\x81";
    }
    // e and the first mark below are one character, the others follow class by class
    EXPECT_EQ(nfc(text), "\xe1\xba\xb9" + below.substr(2) + above);
}

TEST(form_c, keeps_marks_of_one_class_as_they_came) {
    EXPECT_EQ(nfc("q\xcc\x81\xcc\x80\xcc\xa3\xcc\x88\xcc\xb1"), "q\xcc\xa3\xcc\xb1\xcc\x81\xcc\x80\xcc\x88");
    EXPECT_EQ(nfc("q\xcc\x81\xcc\x80 \xcc\x80\xcc\x81"), "q\xcc\x81\xcc\x80 \xcc\x80\xcc\x81");
}

TEST(form_c, is_a_fixed_point) {
    const std::string text = "a\xcc\x88\xcc\xa3 \xe1\x84\x92\xe1\x85\xa1 \xf0\x9f\x98\x80 \xe2\x80\x99s e\xcc\x81";
    EXPECT_EQ(nfc(nfc(text)), nfc(text));
}

}  // namespace
