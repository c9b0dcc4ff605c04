// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/round/world.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::round;
using round::testing::world;

TEST(round_machine, one_member_trains_contributes_and_the_next_generation_opens) {
    world w;
    w.join("a");
    EXPECT_EQ(w.poll("a").action, poll_action::init);
    w.init();
    EXPECT_EQ(w.m.state(), phase::open);
    EXPECT_EQ(w.poll("a").action, poll_action::train);
    w.pass(5'000);
    EXPECT_FALSE(w.contribute("a"));
    ASSERT_TRUE(w.merging());
    w.finish_merge();
    EXPECT_EQ(w.m.current(), generation{1});
    EXPECT_EQ(w.m.durable().global_step, 500U);
    EXPECT_EQ(w.replayed(), w.m.durable());
}

}  // namespace
