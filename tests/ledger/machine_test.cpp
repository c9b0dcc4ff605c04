// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/ledger/world.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::ledger;
using ledger::testing::world;

struct a_ledger : ::testing::Test {
    world w;
    void TearDown() override { check(w); }
    static void check(const world& w) {
        const auto copy = w.replayed();
        ASSERT_TRUE(copy) << to_text(copy.error());
        EXPECT_EQ(copy->digest(), w.m.digest()) << "replay gives another state";
        const auto ok = w.m.verify();
        EXPECT_TRUE(ok) << to_text(ok.error());
    }
};

TEST_F(a_ledger, runs_a_round_from_register_to_the_published_generation) {
    w.enter("a");
    w.init();
    EXPECT_EQ(w.poll("a").action, round::poll_action::train);
    const auto leases = w.acquire("a", 4);
    ASSERT_FALSE(leases.empty());
    const auto out = w.contribute("a", leases);
    ASSERT_TRUE(out.ok()) << to_text({out.refused().code, out.refused().context});
    EXPECT_EQ(out.reply().pledged_blocks, 2U) << "a newcomer gets half";
    ASSERT_TRUE(w.merging());
    EXPECT_EQ(w.m.leases().counts().pledged, 2U);
    w.finish_merge();
    EXPECT_EQ(w.m.leases().counts().committed, 2U);
    EXPECT_EQ(w.m.rounds().current(), generation{1});
    EXPECT_EQ(w.effects_of<effects::publish_generation>().back().published, generation{1});
}

}  // namespace
