// SPDX-License-Identifier: Apache-2.0
// One test per row of the close rule, the estimates and the budgets of the rounds.
#include "tests/round/open_round.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::round;
using namespace darlcore::round::testing;

// --- close rule -----------------------------------------------------------------------------------------------------

TEST_F(open_round, does_not_close_without_a_pledge) {
    with({"a"});
    w.poll("a");
    w.take(w.m.decline({"a"}, w.m.current(), decline_reason::no_data, "", w.now));
    w.pass(100 * w.m.limits().round_limit_ms);
    EXPECT_FALSE(w.merging());
    EXPECT_EQ(w.m.state(), phase::open);
}

TEST_F(open_round, waits_one_keepalive_for_members_that_have_not_polled) {
    with({"a", "b"});
    w.full_round({"a", "b"});
    w.poll("a");
    w.contribute("a", 1'000);
    EXPECT_FALSE(w.merging()) << "a fast site must not merge alone while b fetches its answer";
    const auto waits = waits_of(w.m.durable(), w.m.passing(), w.m.limits(), {}, w.m.time(w.now));
    ASSERT_EQ(waits.size(), 1U);
    EXPECT_EQ(waits[0].kind, wait_kind::has_not_polled);
    w.pass_alive(w.m.limits().keepalive_ms, {"a", "b"});
    EXPECT_FALSE(w.merging());
    w.pass_alive(1, {"a", "b"});
    EXPECT_TRUE(w.merging());
}

TEST_F(open_round, the_round_limit_closes_with_what_is_there_whatever_sites_do) {
    with({"a", "b"});
    w.poll("a");
    w.poll("b");
    w.contribute("a");
    // b beats for ever and has a due far away
    auto& limit = w.m.limits().round_limit_ms;
    while (!w.merging() && w.now.ms < 10 * limit) w.pass_alive(60'000, {"a", "b"});
    EXPECT_LE(w.now.ms, 1'000 + limit + 60'000);
    EXPECT_TRUE(w.merging());
}

TEST(round_quorum, is_needed_and_waived_when_nobody_else_can_contribute) {
    settings two;
    two.quorum = 2;
    world w(two);
    w.join("a");
    w.init();
    w.poll("a");
    w.contribute("a");
    w.pass_alive(60'000, {"a"});
    EXPECT_FALSE(w.merging()) << "quorum 2";
    w.facts = {0, false, true, false, false};
    w.settle();
    EXPECT_FALSE(w.merging()) << "somebody still holds a block";
    w.facts = {0, false, false, false, false};
    w.settle();
    EXPECT_TRUE(w.merging());
}

TEST(round_silent, participants_fall_out_a_live_window_after_their_last_call) {
    world w;
    for (const char* s : {"a", "b", "c"}) w.join(s);
    w.init();
    for (const char* s : {"a", "b", "c"}) w.poll(s);
    w.contribute("a");
    const auto died = w.now;
    while (!w.merging()) {
        w.pass_alive(500, {"a"});
        ASSERT_LE(w.now - died, w.m.limits().live_window_ms + 1'000);
    }
    EXPECT_GT(w.now - died, w.m.limits().live_window_ms - 1'000);
}

TEST_F(open_round, an_overdue_participant_is_not_waited_for_after_its_due_and_a_gap) {
    with({"a", "b"});
    w.full_round({"a", "b"});  // estimates 10 s each
    const auto polled = w.poll("b");
    ASSERT_EQ(polled.action, poll_action::train);
    // p = 10 s -> max(20 s, 70 s) + transfer 2 kB at 2 kB/s = 1 s
    EXPECT_EQ(polled.due_in_ms, 71'000);
    w.poll("a");
    w.pass_alive(10'000, {"a", "b"});
    w.contribute("a");
    w.pass_alive(60'000, {"a", "b"});
    EXPECT_FALSE(w.merging()) << "70 s: before the due of 71 s";
    w.pass_alive(2'000, {"a", "b"});
    EXPECT_TRUE(w.merging());
    EXPECT_TRUE(w.m.durable().participants.at({"b"}).late);
}

TEST_F(open_round, the_gap_after_the_last_other_contribution_counts_too) {
    with({"a", "b"});
    w.full_round({"a", "b"});
    w.poll("a");
    w.poll("b");
    w.pass_alive(65'000, {"a", "b"});
    w.contribute("a");
    w.pass_alive(59'000, {"a", "b"});
    EXPECT_FALSE(w.merging()) << "124 s: past the due, within 60 s of the other contribution";
    w.pass_alive(2'000, {"a", "b"});
    EXPECT_TRUE(w.merging());
}

TEST_F(open_round, a_hung_but_beating_site_costs_two_dues_and_then_nothing) {
    with({"a", "b"});
    w.full_round({"a", "b"});
    for (int r = 0; r < 2; ++r) {
        w.poll("a");
        w.poll("b");
        w.pass_alive(10'000, {"a", "b"});
        w.contribute("a");
        EXPECT_FALSE(w.merging());
        while (!w.merging()) w.pass_alive(1'000, {"a", "b"});
        w.finish_merge();
    }
    EXPECT_TRUE(is_lagging(w.m.limits(), w.m.durable().members.at({"b"})));
    w.poll("a");
    w.poll("b");
    w.pass_alive(10'000, {"a", "b"});
    w.contribute("a");
    EXPECT_TRUE(w.merging()) << "nobody waits for a lagging site";
    w.finish_merge();
    // until it contributes in time again
    w.poll("b");
    w.poll("a");
    w.contribute("b");
    w.contribute("a");
    w.finish_merge();
    EXPECT_FALSE(is_lagging(w.m.limits(), w.m.durable().members.at({"b"})));
}

TEST_F(open_round, a_hung_site_that_does_not_even_poll_again_becomes_lagging_too) {
    with({"a", "b"});
    w.full_round({"a", "b"});
    w.poll("b");  // and hangs
    for (int r = 0; r < 2; ++r) {
        w.poll("a");
        w.pass_alive(10'000, {"a", "b"});
        w.contribute("a");
        while (!w.merging()) w.pass_alive(1'000, {"a", "b"});
        w.finish_merge();
    }
    EXPECT_TRUE(is_lagging(w.m.limits(), w.m.durable().members.at({"b"})));
}

TEST_F(open_round, a_new_process_of_a_lagging_site_is_waited_for_again) {
    with({"a", "b"});
    w.full_round({"a", "b"});
    w.poll("b");
    for (int r = 0; r < 2; ++r) {
        w.poll("a");
        w.pass_alive(10'000, {"a", "b"});
        w.contribute("a");
        while (!w.merging()) w.pass_alive(1'000, {"a", "b"});
        w.finish_merge();
    }
    ASSERT_TRUE(is_lagging(w.m.limits(), w.m.durable().members.at({"b"})));
    w.join("b", 2);
    EXPECT_FALSE(is_lagging(w.m.limits(), w.m.durable().members.at({"b"})));
}

// --- estimates and budgets ------------------------------------------------------------------------------------------

TEST(round_estimates, are_smoothed_and_scaled_to_a_full_phase) {
    EXPECT_EQ(full_phase_ms(10'000, 250, 500), 20'000);
    EXPECT_EQ(full_phase_ms(10'000, 0, 500), std::nullopt);
    EXPECT_EQ(full_phase_ms(0, 500, 500), std::nullopt);
    EXPECT_EQ(smoothed_ms(std::nullopt, 10'000), 10'000);
    EXPECT_EQ(smoothed_ms(10'000, 20'000), 13'000);
    EXPECT_EQ(lower_median({4, 1, 3, 2}), 2);
    EXPECT_EQ(lower_median({3, 1, 2}), 2);
    EXPECT_EQ(lower_median({}), std::nullopt);
}

TEST(round_estimates, due_is_twice_the_phase_or_a_minute_more_plus_the_transfer) {
    const settings s;
    EXPECT_EQ(due_at(s, {0}, 10'000, 5'000, 0).ms, 75'000);
    EXPECT_EQ(due_at(s, {0}, 100'000, 5'000, 0).ms, 205'000);
    EXPECT_EQ(due_at(s, {0}, std::nullopt, s.unknown_transfer_ms, 0).ms, 6'000'000);
    EXPECT_EQ(transfer_ms(s, 1'000, 0), 600'000);
    EXPECT_EQ(transfer_ms(s, 10'000, 2'000), 5'000);
}

TEST_F(open_round, the_budget_is_a_quarter_above_the_faster_of_two_sites) {
    with({"a", "b"});
    EXPECT_EQ(w.poll("a").budget_ms, std::nullopt) << "nothing is known yet";
    w.poll("b");
    w.pass_alive(10'000, {"a", "b"});
    w.contribute("a", 10'000);
    w.pass_alive(30'000, {"a", "b"});
    w.contribute("b", 40'000);
    w.finish_merge();
    EXPECT_EQ(w.poll("a").budget_ms, 12'500);
    EXPECT_EQ(w.poll("b").budget_ms, 12'500);
}

TEST(round_budget, can_be_switched_off) {
    settings off;
    off.budget = false;
    world w(off);
    w.join("a");
    w.init();
    w.full_round({"a"});
    EXPECT_EQ(w.poll("a").budget_ms, std::nullopt);
}

TEST(round_settings, are_checked_at_the_door) {
    settings s;
    EXPECT_TRUE(check(s));
    s.round_limit_ms = 0;
    EXPECT_EQ(check(s).error().code, errc::invalid_argument);
    s = {};
    s.quorum = 0;
    EXPECT_FALSE(check(s));
    s = {};
    s.keepalive_ms = s.live_window_ms + 1;
    EXPECT_FALSE(check(s));
    s = {};
    s.stop_loss = std::numeric_limits<double>::quiet_NaN();
    EXPECT_FALSE(check(s));
}

}  // namespace
