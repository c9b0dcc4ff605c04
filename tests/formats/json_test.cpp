// SPDX-License-Identifier: Apache-2.0
#include "adapters/formats/json.hpp"

#include <limits>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace {

using namespace darlcore;

TEST(json, reads_each_kind) {
    const auto doc = json::parse(R"({"a":[1,-2,18446744073709551615,1.5,"x\n",true,null],"b":{}})");
    ASSERT_TRUE(doc);
    const auto& a = doc->at("a");
    EXPECT_EQ(a.at(0).as_i64(), 1);
    EXPECT_EQ(a.at(1).as_u64(), std::nullopt);
    EXPECT_EQ(a.at(2).as_u64(), std::numeric_limits<std::uint64_t>::max());
    EXPECT_EQ(a.at(2).as_i64(), std::nullopt);
    EXPECT_EQ(a.at(3).as_double(), 1.5);
    EXPECT_EQ(a.at(3).as_i64(), std::nullopt);
    EXPECT_EQ(*a.at(4).as_string(), "x\n");
    EXPECT_EQ(a.at(5).as_bool(), true);
    EXPECT_TRUE(a.at(6).is_null());
    EXPECT_EQ(doc->find("c"), nullptr);
}

TEST(json, refuses_what_is_not_one_clean_document) {
    for (const char* bad : {"", " ", "{", "[1,]", "{\"a\":1,\"a\":2}", "{\"a\":{\"b\":1,\"b\":2}}", "NaN", "[Infinity]",
                            "01", "1 2", "\"\xff\"", "{'a':1}", "[1e999]", "[18446744073709551616]", "\"\x01\""})
        EXPECT_FALSE(json::parse(bad)) << bad;
    EXPECT_FALSE(json::parse(std::string(40, '[') + std::string(40, ']')));
    EXPECT_TRUE(json::parse(std::string(20, '[') + std::string(20, ']')));
    EXPECT_EQ(json::parse("[1,2,3]", {.bytes_max = 3}).error().code, errc::too_large);
}

TEST(json, non_finite_numbers_are_written_as_null) {
    EXPECT_EQ(json::dump(json::value(std::numeric_limits<double>::quiet_NaN())), "null");
    EXPECT_EQ(json::dump(json::make_object({{"a", 1}, {"b", 2.0}, {"c", "\"\n"}})), R"({"a":1,"b":2.0,"c":"\"\n"})");
}

RC_GTEST_PROP(json, what_is_written_reads_back_equal,
              (const std::vector<std::string>& keys, std::int64_t i, std::uint64_t u)) {
    const double d = static_cast<double>(i) / 1024.0;
    json::value doc{json::object{}};
    for (const auto& key : keys) {
        std::string ascii;
        for (const char c : key) ascii += static_cast<char>(c & 0x7f);
        doc.set(ascii, json::value(json::array{i, u, d, ascii, true, nullptr}));
    }
    const auto back = json::parse(json::dump(doc));
    RC_ASSERT(back.has_value());
    RC_ASSERT(*back == doc);
}

}  // namespace
