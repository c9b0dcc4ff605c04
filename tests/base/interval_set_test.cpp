// SPDX-License-Identifier: Apache-2.0
#include "darlcore/interval_set.hpp"

#include <set>

#include <gtest/gtest.h>

#include "darlcore/clock.hpp"
#include "darlcore/testing/property.hpp"

namespace {

using namespace darlcore;

interval any_interval() {
    const auto begin = *rc::gen::inRange<std::uint64_t>(0, 60);
    return {begin, begin + *rc::gen::inRange<std::uint64_t>(0, 12)};
}

DARLCORE_PROPERTY(interval_sets, behave_like_sets_of_numbers, 2000, ()) {
    interval_set runs;
    std::set<std::uint64_t> plain;
    const auto operations = *rc::gen::inRange(0, 30);
    for (int k = 0; k < operations; ++k) {
        const interval i = any_interval();
        const auto before = plain.size();
        if (*rc::gen::inRange(0, 3) != 0) {
            for (auto x = i.begin; x < i.end; ++x) plain.insert(x);
            RC_ASSERT(runs.insert(i) == plain.size() - before);
        } else {
            for (auto x = i.begin; x < i.end; ++x) plain.erase(x);
            RC_ASSERT(runs.erase(i) == before - plain.size());
        }
        RC_ASSERT(runs.count() == plain.size());
        const interval asked = any_interval();
        std::uint64_t inside = 0;
        for (auto x = asked.begin; x < asked.end; ++x) inside += plain.count(x);
        RC_ASSERT(runs.covers(asked) == (inside == asked.size()));
        RC_ASSERT(runs.intersects(asked) == (inside > 0));
        RC_ASSERT(runs.contains(asked.begin) == (plain.count(asked.begin) == 1));
        std::uint64_t missing = 0;
        for (const interval gap : runs.gaps(asked)) missing += gap.size();
        RC_ASSERT(missing == asked.size() - inside);
    }
    std::uint64_t previous_end = 0;
    bool first = true;
    for (const interval run : runs.intervals()) {
        RC_ASSERT(!run.empty());
        RC_ASSERT(first || run.begin > previous_end);  // neighbours are joined
        previous_end = run.end;
        first = false;
    }
}

DARLCORE_PROPERTY(coverage_audits, count_like_a_table, 2000, ()) {
    coverage_audit audit;
    std::vector<std::uint64_t> seen(80, 0);
    const auto pieces = *rc::gen::inRange(0, 12);
    for (int k = 0; k < pieces; ++k) {
        const interval i = any_interval();
        audit.add(i);
        for (auto x = i.begin; x < i.end; ++x) ++seen[static_cast<std::size_t>(x)];
    }
    const interval range = any_interval();
    const auto report = audit.report(range);
    coverage_report plain;
    for (std::uint64_t x = 0; x < seen.size(); ++x) {
        const auto times = seen[static_cast<std::size_t>(x)];
        if (x < range.begin || x >= range.end)
            plain.outside_count += times;
        else if (times == 0)
            ++plain.missing_count;
        else
            plain.duplicate_count += times - 1, ++plain.covered;
    }
    RC_ASSERT(report.covered == plain.covered);
    RC_ASSERT(report.missing_count == plain.missing_count);
    RC_ASSERT(report.duplicate_count == plain.duplicate_count);
    RC_ASSERT(report.outside_count == plain.outside_count);
    std::uint64_t listed = 0;
    for (const interval i : report.missing) listed += i.size();
    RC_ASSERT(listed == plain.missing_count);
    for (const interval i : report.duplicated)
        for (auto x = i.begin; x < i.end; ++x) RC_ASSERT(seen[static_cast<std::size_t>(x)] > 1);
}

TEST(coverage_audits, name_what_is_missing_and_what_is_doubled) {
    coverage_audit audit;
    audit.add({0, 4});
    audit.add({3, 6});
    audit.add({8, 12});
    const auto report = audit.report({0, 10});
    EXPECT_EQ(report.missing, (std::vector<interval>{{6, 8}}));
    EXPECT_EQ(report.duplicated, (std::vector<interval>{{3, 4}}));
    EXPECT_EQ(report.outside_count, 2U);
    EXPECT_FALSE(report.exactly_once());
}

TEST(interval_sets, hold_the_ends_of_the_number_range) {
    interval_set s;
    EXPECT_EQ(s.insert({0, UINT64_MAX}), UINT64_MAX);
    EXPECT_EQ(s.erase({1, UINT64_MAX - 1}), UINT64_MAX - 2);
    EXPECT_EQ(s.intervals(), (std::vector<interval>{{0, 1}, {UINT64_MAX - 1, UINT64_MAX}}));
    EXPECT_FALSE(s.contains(UINT64_MAX));
    s.clear();
    EXPECT_TRUE(s.empty());
}

TEST(manual_clocks, stand_until_they_are_moved) {
    manual_clock clock;
    EXPECT_EQ(clock.now(), ledger_time{0});
    clock.advance(1500);
    EXPECT_EQ(clock.now(), ledger_time{1500});
}

}  // namespace
