// SPDX-License-Identifier: Apache-2.0
#include "adapters/formats/tokenizer.hpp"

#include <gtest/gtest.h>

#include "adapters/formats/utf8.hpp"
#include "darlcore/testing/property.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::formats;

DARLCORE_PROPERTY(bytes_tokenizer, gives_back_any_bytes, 1000, (const std::string& text)) {
    const auto bytes = make_bytes_tokenizer();
    std::vector<std::uint32_t> ids;
    RC_ASSERT(bytes->encode(text, ids).has_value());
    RC_ASSERT(ids.size() == text.size());
    ids.insert(ids.begin(), *bytes->bos_id());
    ids.push_back(*bytes->eos_id());
    RC_ASSERT(bytes->decode(ids).value() == text);
}

TEST(bytes_tokenizer, has_the_documented_ids) {
    const auto bytes = open_tokenizer("bytes").value();
    EXPECT_EQ(bytes->vocab_size(), 512U);
    EXPECT_EQ(bytes->bos_id(), 256U);
    EXPECT_EQ(bytes->eos_id(), 257U);
    EXPECT_EQ(bytes->sha256(), "");
    EXPECT_EQ(bytes->decode(std::vector<std::uint32_t>{512}).error().code, errc::invalid_argument);
}

TEST(tokenizers, that_are_not_there_are_named) {
    const auto seen = open_tokenizer("no-such-file.json");
    EXPECT_EQ(seen.error().code, errc::not_found);
    EXPECT_NE(seen.error().context.find("no-such-file.json"), std::string::npos);
}

TEST(utf8, well_formed_text_is_accepted) {
    EXPECT_FALSE(first_invalid_utf8(""));
    EXPECT_FALSE(first_invalid_utf8("a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf\xed\x9f\xbf\xee\x80\x80"));
}

TEST(utf8, ill_formed_text_is_found_at_its_first_byte) {
    for (const char* bad : {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
                            "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "\xc3", "\xe2\x82", "\xf0\x9f\x98"}) {
        EXPECT_EQ(first_invalid_utf8(std::string("ab") + bad), 2U) << bad;
        EXPECT_EQ(first_invalid_utf8(bad), 0U) << bad;
    }
}

// The example of the Unicode standard (table 3-8): 61 F1 80 80 E1 80 C2 62 80 63 80 BF 64.
TEST(utf8, each_maximal_ill_formed_part_becomes_one_replacement) {
    std::uint64_t replaced = 0;
    const std::string fffd = "\xef\xbf\xbd";
    EXPECT_EQ(replace_invalid_utf8("a\xf1\x80\x80\xe1\x80\xc2"
                                   "b\x80"
                                   "c\x80\xbf"
                                   "d",
                                   replaced),
              "a" + fffd + fffd + fffd + "b" + fffd + "c" + fffd + fffd + "d");
    EXPECT_EQ(replaced, 6U);
}

DARLCORE_PROPERTY(utf8, replaced_text_is_well_formed, 1000, (const std::string& text)) {
    std::uint64_t replaced = 0;
    const std::string clean = replace_invalid_utf8(text, replaced);
    RC_ASSERT(!first_invalid_utf8(clean));
    RC_ASSERT((replaced == 0) == !first_invalid_utf8(text));
    RC_ASSERT(replaced > 0 || clean == text);
}

}  // namespace
