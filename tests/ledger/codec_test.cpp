// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>

#include "darlcore/ledger/clock.hpp"
#include "darlcore/testing/budget.hpp"
#include "tests/ledger/random_value.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::ledger;
using ledger::testing::random_filler;

constexpr std::size_t types = std::variant_size_v<record>;

TEST(record_codec, reads_back_what_it_wrote_for_every_type) {
    random_filler random(1);
    const int runs = darlcore::testing::property_runs(300);
    for (std::size_t type = 0; type < types; ++type)
        for (int i = 0; i < runs; ++i) {
            const record r = random.make(type);
            const auto bytes = encode(r);
            ASSERT_FALSE(bytes.empty());
            const auto read = decode(type_number(r), bytes);
            ASSERT_TRUE(read) << type_name(r) << ": " << to_text(read.error());
            ASSERT_EQ(*read, r) << type_name(r);
            ASSERT_EQ(encode(*read), bytes) << type_name(r);
        }
}

TEST(record_codec, whatever_it_reads_it_would_have_written_so) {
    random_filler random(2);
    xoshiro256 choose(3);
    std::uint64_t accepted = 0;
    std::uint64_t refused = 0;
    const int runs = darlcore::testing::property_runs(20'000);
    for (int i = 0; i < runs; ++i) {
        const record r = random.make(choose.below(types));
        auto bytes = encode(r);
        const auto at = choose.below(bytes.size());
        switch (choose.below(4)) {
            case 0:
                bytes[at] = static_cast<char>(choose.below(256));
                break;
            case 1:
                bytes.insert(at, 1, static_cast<char>(choose.below(256)));
                break;
            case 2:
                bytes.erase(at, 1);
                break;
            default:
                bytes.resize(at);
                break;
        }
        const auto read = decode(type_number(r), bytes);
        if (!read) {
            ++refused;
            continue;
        }
        ++accepted;
        ASSERT_EQ(encode(*read), bytes) << type_name(r);
    }
    EXPECT_GT(accepted, 0U);
    EXPECT_GT(refused, 0U);
}

TEST(record_codec, refuses_long_forms_and_values_out_of_range) {
    const auto reads = [](std::string_view bytes, auto value) {
        return decode_value<decltype(value)>(bytes).has_value();
    };
    EXPECT_TRUE(reads(std::string_view("\x7f", 1), std::uint64_t{}));
    EXPECT_FALSE(reads(std::string_view("\xff\x00", 2), std::uint64_t{})) << "a long form of 127";
    EXPECT_FALSE(reads(std::string_view("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 10), std::uint64_t{}));
    EXPECT_TRUE(reads(std::string_view("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10), std::uint64_t{}));
    EXPECT_FALSE(reads(std::string_view("\x80\x80\x80\x80\x10", 5), std::uint32_t{})) << "2^32 in a u32";
    EXPECT_FALSE(reads(std::string_view("\x02", 1), bool{}));
    EXPECT_FALSE(reads(std::string_view("\x05", 1), round::stop_reason{}));
    EXPECT_FALSE(reads(std::string_view("\x05"
                                        "abc",
                                        4),
                       std::string{}))
        << "longer than what is there";
    EXPECT_FALSE(reads(std::string_view("\x00\x00", 2), bool{})) << "something behind it";
    using map = std::map<std::uint64_t, bool>;
    EXPECT_TRUE(reads(std::string_view("\x02\x01\x00\x02\x00", 5), map{}));
    EXPECT_FALSE(reads(std::string_view("\x02\x02\x00\x01\x00", 5), map{})) << "out of order";
    EXPECT_FALSE(reads(std::string_view("\x02\x01\x00\x01\x00", 5), map{})) << "twice";
    EXPECT_FALSE(reads(std::string_view("\x00\x00\x00\x00\x00\x00\xf8\x7f", 8), double{})) << "not a number";
}

TEST(record_codec, refuses_types_and_formats_of_later_versions) {
    const auto bytes = encode(record{round::resumed{}});
    EXPECT_EQ(decode(0, bytes).error().code, errc::unsupported);
    EXPECT_EQ(decode(types + 1, bytes).error().code, errc::unsupported);
    EXPECT_EQ(decode(13, std::string(1, '\x02')).error().code, errc::unsupported);
    EXPECT_EQ(decode(13, "").error().code, errc::unsupported);
}

TEST(record_types, have_one_number_and_one_name_each) {
    std::set<std::string_view> names;
    random_filler random(4);
    for (std::size_t type = 0; type < types; ++type) {
        const record r = random.make(type);
        EXPECT_EQ(type_number(r), type + 1);
        names.insert(type_name(type_number(r)));
    }
    EXPECT_EQ(names.size(), types);
    EXPECT_EQ(type_name(std::uint16_t{26}), "merge_commit") << "numbers in journals never change";
    EXPECT_EQ(type_name(std::uint16_t{22}), "pledged");
    EXPECT_EQ(type_name(std::uint16_t{99}), "unknown");
}

TEST(ledger_time_clock, adds_at_most_two_seconds_per_turn) {
    ledger::clock c(ledger_time{5'000});
    EXPECT_EQ(c.turn(100).ms, 5'000) << "the first turn only looks";
    EXPECT_EQ(c.turn(350).ms, 5'250);
    EXPECT_EQ(c.turn(100'350).ms, 7'250) << "a stopped server does not age leases";
    EXPECT_EQ(c.lag_ms(), 98'000);
}

TEST(ledger_time_clock, never_goes_back_and_stands_still_while_held) {
    ledger::clock c;
    c.turn(1'000);
    EXPECT_EQ(c.turn(500).ms, 0);
    EXPECT_EQ(c.turn(600).ms, 100);
    c.hold(true);
    EXPECT_EQ(c.turn(1'600).ms, 100);
    c.hold(false);
    EXPECT_EQ(c.turn(1'700).ms, 200) << "what passed while held is not made up for";
}

}  // namespace
