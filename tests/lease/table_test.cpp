// SPDX-License-Identifier: Apache-2.0
#include "darlcore/lease/table.hpp"

#include <gtest/gtest.h>

#include "tests/lease/scenario.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::lease;

TEST(lease_table, a_block_goes_from_the_pool_over_lease_and_pledge_into_the_model) {
    scenario s(1000);
    s.join("a");
    EXPECT_EQ(s.table.state_of(position{0}), block_state::unassigned);
    const auto lease = s.grant("a", 100);
    EXPECT_EQ(lease.end.count - lease.start.count, 50U) << "half of it for a site of unknown speed";
    EXPECT_EQ(s.table.state_of(lease.start), block_state::leased);
    EXPECT_EQ(s.reserve("a", lease, 10).reply().reserved_end, position{10});
    EXPECT_TRUE(s.pledge("a", "c1", {s.claim(lease, 0, 10)}).ok());
    EXPECT_EQ(s.table.state_of(position{9}), block_state::pledged);
    EXPECT_EQ(s.table.state_of(position{10}), block_state::leased);
    EXPECT_EQ(s.merge().reply().committed, 10U);
    EXPECT_EQ(s.table.state_of(position{9}), block_state::committed);
    EXPECT_EQ(s.table.generation(), generation{1});
    EXPECT_TRUE(s.table.verify()) << to_text(s.table.verify().error());
}

TEST(lease_table, replaying_the_events_gives_an_equal_state) {
    scenario s(100);
    s.join("a");
    s.join("b");
    const auto lease = s.grant("a", 60);
    s.reserve("a", lease, 10);
    s.beat("a", {lease});
    s.later(5);
    s.call(tick{});
    s.pledge("a", "c1", {s.claim(lease, 0, 10)});
    s.ask("b", 100);
    s.later(100000);
    s.call(expire{});
    s.merge();
    const auto copy = s.replayed();
    ASSERT_TRUE(copy) << to_text(copy.error());
    EXPECT_EQ(copy.value().digest(), s.table.digest());
    const auto imported = table::import_state(s.table.export_state());
    ASSERT_TRUE(imported) << to_text(imported.error());
    EXPECT_EQ(imported.value().digest(), s.table.digest());
}

}  // namespace
