// SPDX-License-Identifier: Apache-2.0
#include "darlcore/error.hpp"

#include <memory>
#include <stdexcept>

#include <gtest/gtest.h>

namespace {

using namespace darlcore;

[[noreturn]] void throw_assertion(const assertion& failed) {
    throw std::runtime_error(std::string(failed.expression) + "|" + failed.values);
}

struct throwing_assertions : ::testing::Test {
    assertion_handler before = set_assertion_handler(&throw_assertion);
    ~throwing_assertions() override { set_assertion_handler(before); }
};

result<int> half(int n) {
    if (n % 2 != 0) return fail(errc::invalid_argument, "odd");
    return n / 2;
}

TEST(error_codes, every_word_reads_back_to_its_code) {
    for (int i = 0; i < 256; ++i) {
        const auto code = static_cast<errc>(i);
        const auto text = word(code);
        if (text == "internal" && code != errc::internal) continue;  // past the last code
        EXPECT_EQ(errc_from_word(text), code);
    }
    EXPECT_EQ(errc_from_word("no such word"), std::nullopt);
}

TEST(result_type, carries_a_value_or_an_error) {
    EXPECT_EQ(*half(4), 2);
    ASSERT_FALSE(half(3));
    EXPECT_EQ(half(3).error().code, errc::invalid_argument);
    EXPECT_EQ(to_text(half(3).error()), "invalid_argument: odd");
    EXPECT_EQ(half(3).value_or(7), 7);
}

TEST(result_type, chains_stop_at_the_first_error) {
    EXPECT_EQ(*half(8).and_then(half).transform([](int n) { return n + 1; }), 3);
    EXPECT_EQ(half(6).and_then(half).error().context, "odd");
}

TEST(result_type, holds_move_only_values) {
    result<std::unique_ptr<int>> r(std::make_unique<int>(5));
    EXPECT_EQ(**std::move(r), 5);
}

TEST_F(throwing_assertions, reading_the_value_of_an_error_is_a_broken_precondition) {
    EXPECT_THROW((void)half(3).value(), std::runtime_error);
    EXPECT_THROW((void)half(4).error(), std::runtime_error);
    EXPECT_THROW(result<void>(fail(errc::corrupt)).value(), std::runtime_error);
}

TEST_F(throwing_assertions, a_failed_comparison_names_expression_and_values) {
    const int a = 3;
    const int b = 2;
    try {
        DARLCORE_ASSERT_CMP(a, <=, b);
        FAIL() << "did not fire";
    } catch (const std::runtime_error& e) {
        EXPECT_STREQ(e.what(), "a <= b|a = 3, b = 2");
    }
}

}  // namespace
