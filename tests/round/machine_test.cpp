// SPDX-License-Identifier: Apache-2.0
// One test per row of the event, limit, contribution and poll tables of the rounds.
#include <gtest/gtest.h>

#include "tests/round/world.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::round;
using round::testing::world;

struct open_round : ::testing::Test {
    world w;
    void with(const std::vector<std::string>& sites) {
        for (const auto& s : sites) w.join(s);
        w.init();
    }
    void TearDown() override { EXPECT_EQ(w.replayed(), w.m.durable()) << "replay gives another state"; }
};

// --- states ----------------------------------------------------------------------------------------------------------

TEST_F(open_round, is_uninitialised_until_the_first_model_is_there) {
    EXPECT_EQ(w.m.state(), phase::uninitialised);
    with({"a"});
    EXPECT_EQ(w.m.state(), phase::open);
    EXPECT_EQ(w.m.current(), generation{0});
}

TEST_F(open_round, with_no_member_waits_without_limit) {
    w.init();
    w.pass(1'000'000'000);
    EXPECT_EQ(w.m.state(), phase::open);
    EXPECT_TRUE(w.effects.size() == 1) << "nothing but the first wake";
    EXPECT_EQ(w.m.next_tick(w.facts, w.now), std::nullopt) << "an idle server needs no wake-up";
}

TEST_F(open_round, with_one_member_merges_its_contribution_alone) {
    with({"a"});
    EXPECT_EQ(w.poll("a").action, poll_action::train);
    w.pass(5'000);
    EXPECT_FALSE(w.contribute("a"));
    ASSERT_TRUE(w.merging());
    w.finish_merge();
    EXPECT_EQ(w.m.current(), generation{1});
    EXPECT_EQ(w.m.durable().global_step, 500U);
}

TEST_F(open_round, a_merge_freezes_its_inputs_in_ascending_site_order) {
    with({"b", "a"});
    w.poll("a");
    w.poll("b");
    w.contribute("b");
    EXPECT_FALSE(w.merging());
    w.contribute("a");
    ASSERT_TRUE(w.merging());
    const auto& merge = std::get<start_merge>(w.effects.back());
    ASSERT_EQ(merge.inputs.size(), 2U);
    EXPECT_EQ(merge.inputs[0].site.name, "a");
    EXPECT_EQ(merge.next, generation{1});
    w.finish_merge();
}

TEST_F(open_round, a_failed_merge_keeps_its_pledges_and_is_tried_again_later_and_later) {
    with({"a"});
    w.poll("a");
    w.contribute("a");
    for (const std::int64_t wait_ms : {5'000, 10'000, 20'000, 40'000}) {
        ASSERT_TRUE(w.merging());
        w.take(w.m.merge_failed("EIO", w.now));
        w.settle();
        EXPECT_FALSE(w.merging());
        EXPECT_EQ(w.m.durable().pledges.size(), 1U);
        w.pass(wait_ms - 1);
        EXPECT_FALSE(w.merging());
        w.pass(1);
    }
    ASSERT_TRUE(w.merging());
    w.take(w.m.merge_failed("EIO", w.now));
    w.settle();
    EXPECT_EQ(w.m.state(), phase::paused) << "after five failures the operator is asked";
    w.take(w.m.resume(w.now));
    w.settle();
    EXPECT_TRUE(w.merging());
}

TEST_F(open_round, finished_serves_stop_for_ever) {
    with({"a"});
    w.take(w.m.stop(stop_reason::site_operator, w.now));
    for (int i = 0; i < 3; ++i) {
        const auto answer = w.poll("a");
        EXPECT_EQ(answer.action, poll_action::stop);
        EXPECT_EQ(answer.stopped_by, stop_reason::site_operator);
        w.pass(1'000'000);
    }
    EXPECT_EQ(w.contribute("a"), errc::round_closed);
}

// --- events ----------------------------------------------------------------------------------------------------------

TEST_F(open_round, join_compares_what_the_first_join_pinned_and_names_both_values) {
    with({"a"});
    auto told = world::run_pins();
    told.layout_digest = "other";
    auto refused = w.m.join({"b"}, world::who("b"), told, "", w.now);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, errc::layout_mismatch);
    EXPECT_NE(refused.error().context.find("layout"), std::string::npos);
    EXPECT_NE(refused.error().context.find("other"), std::string::npos);
    told = world::run_pins();
    told.schedule_digest = "other";
    EXPECT_EQ(w.m.join({"b"}, world::who("b"), told, "", w.now).error().code, errc::schedule_mismatch);
    told = world::run_pins();
    told.seq_len = 64;
    EXPECT_EQ(w.m.join({"b"}, world::who("b"), told, "", w.now).error().code, errc::layout_mismatch);
    told = world::run_pins();
    told.codecs = {"int8_block"};
    EXPECT_EQ(w.m.join({"b"}, world::who("b"), told, "", w.now).error().code, errc::codec_unsupported);
    EXPECT_FALSE(w.m.has_member({"b"}));
}

TEST_F(open_round, joining_again_with_the_same_incarnation_changes_nothing) {
    with({"a"});
    const auto before = w.m.durable();
    w.join("a");
    EXPECT_EQ(w.m.durable(), before);
}

TEST_F(open_round, a_new_incarnation_ends_the_duty_of_the_old_one_and_its_pledge_stands) {
    with({"a", "b", "c"});
    for (const char* s : {"a", "b", "c"}) w.poll(s);
    w.contribute("b");
    w.join("a", 2);
    w.join("b", 2);
    EXPECT_TRUE(w.m.has_pledged({"b"}));
    EXPECT_EQ(w.poll("b").reason, wait_reason::contributed);
    w.contribute("c");
    EXPECT_FALSE(w.merging()) << "the new process of a has not polled yet";
    EXPECT_EQ(w.poll("a").action, poll_action::train);
    w.contribute("a");
    EXPECT_TRUE(w.merging());
}

TEST_F(open_round, a_declining_participant_is_not_waited_for) {
    with({"a", "b"});
    w.poll("a");
    w.poll("b");
    w.contribute("a");
    EXPECT_FALSE(w.merging());
    w.take(w.m.decline({"b"}, w.m.current(), decline_reason::local_error, "disk", w.now));
    w.settle();
    EXPECT_TRUE(w.merging());
}

TEST_F(open_round, a_leaving_participant_is_not_waited_for) {
    with({"a", "b"});
    w.poll("a");
    w.poll("b");
    w.contribute("a");
    w.take(w.m.leave({"b"}, "done", w.now));
    w.settle();
    EXPECT_TRUE(w.merging());
    EXPECT_FALSE(w.m.has_member({"b"}));
}

TEST_F(open_round, an_evaluation_is_stored_while_its_generation_is_kept_and_never_changes_the_round) {
    with({"a"});
    for (int i = 0; i < 3; ++i) w.full_round({"a"});
    ASSERT_EQ(w.m.current(), generation{3});
    step out;
    EXPECT_TRUE(w.m.evaluate({{"a"}, generation{3}, 20, 10, 1}, w.now, out));
    EXPECT_TRUE(w.m.evaluate({{"a"}, generation{2}, 30, 10, 1}, w.now, out));
    EXPECT_FALSE(w.m.evaluate({{"a"}, generation{1}, 10, 10, 1}, w.now, out)) << "too old";
    EXPECT_FALSE(w.m.evaluate({{"a"}, generation{4}, 10, 10, 1}, w.now, out)) << "not there yet";
    w.take(std::move(out));
    EXPECT_EQ(pooled_loss(w.m.durable(), generation{3}), 2.0);
    EXPECT_EQ(w.m.durable().best, generation{3});
    EXPECT_EQ(w.m.state(), phase::open);
}

TEST_F(open_round, evaluations_of_one_generation_are_pooled_by_tokens) {
    with({"a", "b"});
    step out;
    w.m.evaluate({{"a"}, generation{0}, 2.0 * 100, 100, 1}, w.now, out);
    w.m.evaluate({{"b"}, generation{0}, 4.0 * 300, 300, 1}, w.now, out);
    w.take(std::move(out));
    EXPECT_DOUBLE_EQ(*pooled_loss(w.m.durable(), generation{0}), 3.5);
}

TEST_F(open_round, stop_merges_what_is_pledged_first_and_answers_no_train) {
    with({"a", "b"});
    w.poll("a");
    w.poll("b");
    w.contribute("a");
    EXPECT_FALSE(w.merging());
    w.take(w.m.stop(stop_reason::site_operator, w.now));
    w.settle();
    ASSERT_TRUE(w.merging());
    EXPECT_EQ(w.poll("b").reason, wait_reason::stopping);
    w.finish_merge();
    EXPECT_EQ(w.m.state(), phase::finished);
    EXPECT_EQ(w.m.current(), generation{1});
    EXPECT_EQ(w.poll("a").action, poll_action::stop);
    EXPECT_EQ(w.poll("a").last.status, contribution_status::merged);
}

TEST_F(open_round, a_stop_survives_failed_merges_and_restarts) {
    with({"a"});
    w.poll("a");
    w.contribute("a");
    w.take(w.m.stop(stop_reason::site_operator, w.now));
    w.take(w.m.merge_failed("EIO", w.now));
    w.settle();
    w.m = machine(w.m.limits(), w.replayed(), w.now);
    w.settle();
    EXPECT_TRUE(w.merging()) << "done again after the restart";
    w.finish_merge();
    EXPECT_EQ(w.m.state(), phase::finished);
}

TEST_F(open_round, pausing_stops_training_and_merging_and_all_clocks) {
    with({"a", "b"});
    w.poll("a");
    w.contribute("a");
    w.take(w.m.pause("disk full", w.now));
    EXPECT_EQ(w.m.state(), phase::paused);
    EXPECT_EQ(w.poll("b").reason, wait_reason::paused);
    EXPECT_FALSE(w.contribute("b")) << "contributions go on";
    w.pass(10 * w.m.limits().round_limit_ms);
    EXPECT_FALSE(w.merging());
    w.take(w.m.resume(w.now));
    EXPECT_TRUE(is_live(w.m.durable(), w.m.passing(), w.m.limits(), {"b"}, w.m.time(w.now)))
        << "the live window stood still";
    w.settle();
    EXPECT_TRUE(w.merging());
}

TEST_F(open_round, the_end_of_the_data_finishes_the_run) {
    with({"a"});
    w.facts = {0, false, false, true, false};
    w.settle();
    EXPECT_EQ(w.m.state(), phase::finished);
    EXPECT_EQ(w.poll("a").stopped_by, stop_reason::exhausted);
}

TEST_F(open_round, the_end_of_the_data_waits_for_who_still_trains) {
    with({"a"});
    w.poll("a");
    w.facts = {0, false, false, true, false};
    w.settle();
    EXPECT_EQ(w.m.state(), phase::open) << "a committed its last blocks and will contribute";
    w.contribute("a");
    ASSERT_TRUE(w.merging());
    w.finish_merge();
    EXPECT_EQ(w.m.state(), phase::finished);
}

TEST(round_stop, conditions_on_rounds_steps_and_target_end_the_run) {
    settings by_rounds;
    by_rounds.stop_rounds = 2;
    world r(by_rounds);
    r.join("a");
    r.init();
    r.full_round({"a"});
    EXPECT_EQ(r.m.state(), phase::open);
    r.full_round({"a"});
    EXPECT_EQ(r.m.durable().stop, stop_reason::rounds);

    settings by_steps;
    by_steps.stop_steps = 600;
    world s(by_steps);
    s.join("a");
    s.init();
    s.full_round({"a"});
    EXPECT_FALSE(s.m.durable().stop);
    s.full_round({"a"});
    EXPECT_EQ(s.m.durable().stop, stop_reason::steps);

    settings by_loss;
    by_loss.stop_loss = 2;
    world t(by_loss);
    t.join("a");
    t.init();
    step out;
    t.m.evaluate({{"a"}, generation{0}, 210, 100, 1}, t.now, out);
    EXPECT_FALSE(t.m.durable().stop);
    t.m.evaluate({{"a"}, generation{0}, 190, 100, 1}, t.now, out);
    EXPECT_EQ(t.m.durable().stop, stop_reason::target);
}

// --- close rule
// --------------------------------------------------------------------------------------------------------

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

// --- estimates and budgets
// -----------------------------------------------------------------------------------------------

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

// --- contributions
// -------------------------------------------------------------------------------------------------------

TEST_F(open_round, the_same_contribution_gets_its_first_answer_again_also_after_the_merge_and_a_restart) {
    with({"a", "b"});
    w.poll("a");
    w.poll("b");
    w.contribute("a", 10'000, 500, {}, "first");
    const auto again = [&] { return w.m.check_standing({"a"}, {"first"}, generation{0}).answered_before; };
    ASSERT_TRUE(again());
    EXPECT_EQ(again()->status, contribution_status::pledged);
    EXPECT_EQ(again()->weight_tokens, 1'000U);
    w.contribute("b");
    w.finish_merge();
    EXPECT_EQ(again()->status, contribution_status::merged);
    w.m = machine(w.m.limits(), w.replayed(), w.now);
    EXPECT_EQ(again()->status, contribution_status::merged);
    for (int i = 0; i < 9; ++i) w.full_round({"a", "b"});
    EXPECT_TRUE(again()) << "kept for keep_generations + 8 generations";
    w.full_round({"a", "b"});
    EXPECT_FALSE(again());
}

TEST_F(open_round, another_contribution_of_the_same_site_is_refused) {
    with({"a", "b"});
    w.poll("a");
    w.poll("b");
    w.contribute("a");
    EXPECT_EQ(w.contribute("a"), errc::already_contributed);
}

TEST_F(open_round, a_contribution_from_an_older_or_future_generation_is_stale) {
    with({"a"});
    w.full_round({"a"});
    EXPECT_EQ(w.contribute("a", 1, 1, generation{0}), errc::stale_generation);
    EXPECT_EQ(w.contribute("a", 1, 1, generation{2}), errc::stale_generation);
    EXPECT_FALSE(w.contribute("a", 1, 1, generation{1}));
}

TEST_F(open_round, a_contribution_while_merging_finds_the_round_closed) {
    with({"a", "b"});
    w.poll("a");
    w.pass_alive(30'000, {"a", "b"});
    w.contribute("a");
    ASSERT_TRUE(w.merging());
    EXPECT_EQ(w.contribute("b"), errc::round_closed);
}

TEST_F(open_round, a_member_that_was_not_answered_train_may_contribute_late_work) {
    with({"a", "b"});
    w.poll("b");
    EXPECT_FALSE(w.contribute("a"));
    EXPECT_TRUE(w.m.has_pledged({"a"}));
}

TEST_F(open_round, a_site_that_has_not_joined_may_not_contribute) {
    with({"a"});
    EXPECT_EQ(w.contribute("stranger"), errc::unknown_site);
}

TEST_F(open_round, a_rejected_contribution_ends_the_duty_and_a_second_try_is_not_waited_for) {
    with({"a", "b"});
    w.poll("a");
    w.poll("b");
    step out;
    out.records.emplace_back(w.m.reject({"a"}, {"bad"}, generation{0}, errc::not_finite));
    w.m.apply(out.records.back(), w.now);
    w.take(std::move(out));
    EXPECT_EQ(w.m.check_standing({"a"}, {"bad"}, generation{0}).answered_before->status, contribution_status::rejected);
    const auto again = w.poll("a");
    EXPECT_EQ(again.action, poll_action::train);
    EXPECT_EQ(again.last.status, contribution_status::rejected);
    EXPECT_EQ(again.last.reason, errc::not_finite);
    w.contribute("b");
    EXPECT_TRUE(w.merging()) << "not waited for";
}

TEST_F(open_round, a_contribution_found_damaged_by_the_merge_is_rejected_alone) {
    with({"a", "b"});
    w.poll("a");
    w.poll("b");
    w.contribute("a", 10'000, 500, {}, "good");
    w.contribute("b", 10'000, 900, {}, "bad");
    w.finish_merge({{{"bad"}, {"b"}, errc::digest_mismatch}});
    EXPECT_EQ(w.m.durable().global_step, 500U) << "steps of the used ones only";
    EXPECT_EQ(w.poll("b").last.status, contribution_status::rejected);
    EXPECT_EQ(w.poll("a").last.status, contribution_status::merged);
    EXPECT_EQ(w.m.durable().members.at({"b"}).rejected, 1U);
    EXPECT_EQ(w.m.durable().history.back().rejected_ids.size(), 1U);
}

TEST_F(open_round, the_global_step_grows_by_the_largest_number_of_steps_merged) {
    with({"a", "b"});
    w.poll("a");
    w.poll("b");
    w.contribute("a", 10'000, 500);
    w.contribute("b", 10'000, 120);
    w.finish_merge();
    EXPECT_EQ(w.m.durable().global_step, 500U);
    EXPECT_EQ(w.m.durable().tokens_total, 2'000U);
}

// --- poll
// ----------------------------------------------------------------------------------------------------------------

TEST_F(open_round, one_member_at_a_time_is_asked_for_the_first_weights) {
    w.join("a");
    w.join("b");
    EXPECT_EQ(w.poll("a").action, poll_action::init);
    EXPECT_EQ(w.poll("b").reason, wait_reason::initialising);
    EXPECT_EQ(w.poll("a").action, poll_action::init) << "a lost reply is given again";
    w.pass_alive(w.m.limits().init_rechoose_ms + 1'000, {"a", "b"});
    EXPECT_EQ(w.poll("b").action, poll_action::init) << "chosen again after 600 s";
    EXPECT_EQ(w.poll("a").reason, wait_reason::initialising);
    w.pass_alive(w.m.limits().live_window_ms + 1'000, {"a"});
    EXPECT_EQ(w.poll("a").action, poll_action::init) << "chosen again after silence";
}

TEST_F(open_round, the_first_verified_init_upload_counts) {
    w.join("a");
    EXPECT_TRUE(w.m.start_initialising());
    EXPECT_FALSE(w.m.start_initialising());
    w.m.initialising_failed();
    EXPECT_TRUE(w.m.start_initialising());
    w.init();
    EXPECT_FALSE(w.m.start_initialising());
}

TEST_F(open_round, train_carries_generation_blob_step_and_budget) {
    with({"a"});
    w.full_round({"a"});
    const auto answer = w.poll("a");
    EXPECT_EQ(answer.action, poll_action::train);
    EXPECT_EQ(answer.current, generation{1});
    EXPECT_EQ(answer.wire.sha256, "wire1");
    EXPECT_EQ(answer.global_step, 500U);
    EXPECT_EQ(answer.inner_steps, w.m.limits().inner_steps);
    EXPECT_EQ(answer.budget_ms, 12'500);
}

TEST_F(open_round, a_lost_train_answer_is_given_again_with_the_same_terms) {
    with({"a"});
    const auto first = w.poll("a");
    const auto records = w.journal.size();
    w.pass(3'000);
    const auto again = w.poll("a");
    EXPECT_EQ(again.action, poll_action::train);
    EXPECT_EQ(again.due_in_ms, first.due_in_ms - 3'000);
    EXPECT_EQ(w.journal.size(), records) << "no new duty";
}

TEST_F(open_round, a_site_in_its_phase_is_told_to_go_on) {
    with({"a"});
    w.poll("a");
    EXPECT_EQ(w.poll("a", site_activity::training).reason, wait_reason::in_phase);
    EXPECT_EQ(w.poll("a", site_activity::uploading).reason, wait_reason::in_phase);
}

TEST_F(open_round, a_member_without_data_waits) {
    with({"a"});
    w.facts = {0, false, true, false, false};
    EXPECT_EQ(w.poll("a").reason, wait_reason::no_data);
    w.facts.stealable = true;
    EXPECT_EQ(w.poll("a").action, poll_action::train) << "there is something to steal";
}

TEST_F(open_round, who_declined_for_lack_of_data_trains_in_the_same_round_when_blocks_come_back) {
    with({"a", "b"});
    w.facts = {0, true, true, false, false};
    w.poll("a");
    w.take(w.m.decline({"a"}, w.m.current(), decline_reason::no_data, "", w.now));
    EXPECT_EQ(w.poll("a").reason, wait_reason::no_data);
    w.pass_alive(10'000, {"a", "b"});
    EXPECT_EQ(w.poll("a").reason, wait_reason::no_data);
    w.facts.unassigned = 3;
    EXPECT_EQ(w.poll("a").action, poll_action::train);
}

TEST_F(open_round, a_failed_phase_is_tried_again_after_a_while_and_not_waited_for) {
    with({"a", "b"});
    w.poll("a");
    w.poll("b");
    w.take(w.m.decline({"a"}, w.m.current(), decline_reason::not_finite, "", w.now));
    EXPECT_EQ(w.poll("a").reason, wait_reason::failed_phase);
    w.pass_alive(w.m.limits().failed_retry_ms, {"a", "b"});
    EXPECT_EQ(w.poll("a").action, poll_action::train);
    w.contribute("b");
    EXPECT_TRUE(w.merging());
}

TEST_F(open_round, a_joiner_gets_what_is_left_of_the_round_or_waits_for_the_next) {
    with({"a"});
    w.full_round({"a"}, 100'000);
    w.poll("a");
    w.pass_alive(40'000, {"a"});
    w.join("b");
    auto answer = w.poll("b");
    EXPECT_EQ(answer.action, poll_action::train);
    EXPECT_EQ(answer.budget_ms, 60'000) << "nobody waits longer for a joiner than for its budget";
    w.pass_alive(40'000, {"a", "b"});
    w.join("c");
    answer = w.poll("c");
    EXPECT_EQ(answer.action, poll_action::wait);
    EXPECT_EQ(answer.reason, wait_reason::next_round) << "less than a quarter of a phase is left";
    w.pass_alive(20'000, {"a", "b", "c"});
    w.contribute("a", 100'000);
    w.contribute("b", 60'000);
    EXPECT_TRUE(w.merging()) << "the round does not wait for c";
    w.finish_merge();
    EXPECT_EQ(w.poll("c").action, poll_action::train);
    EXPECT_EQ(w.poll("c").global_step, w.m.durable().global_step) << "its schedule is set to the run's step";
}

TEST_F(open_round, a_waiting_site_is_asked_to_score_once_and_the_round_does_not_wait_for_it) {
    with({"a", "b"});
    w.poll("a");
    w.poll("b");
    w.contribute("a");
    EXPECT_TRUE(w.poll("a").evaluate);
    step out;
    EXPECT_TRUE(w.m.evaluate({{"a"}, generation{0}, 20, 10, 1}, w.now, out));
    w.take(std::move(out));
    EXPECT_FALSE(w.poll("a").evaluate);
    w.contribute("b");
    EXPECT_TRUE(w.merging());
}

TEST_F(open_round, if_nobody_waited_for_some_generations_the_fastest_scores_before_its_phase) {
    with({"a", "b"});
    for (std::uint32_t i = 0; i < w.m.limits().eval_every; ++i) {
        EXPECT_FALSE(w.poll("a").evaluate);
        w.poll("b");
        w.contribute("a", 10'000);
        w.contribute("b", 20'000);
        w.finish_merge();
    }
    EXPECT_FALSE(w.poll("b").evaluate) << "not the fastest";
    const auto answer = w.poll("a");
    EXPECT_TRUE(answer.evaluate);
    EXPECT_EQ(answer.due_in_ms, 71'000 + w.m.limits().evaluate_ms) << "its due is extended";
}

// --- restart, status
// -------------------------------------------------------------------------------------------------------

TEST_F(open_round, after_a_restart_everybody_counts_as_just_seen_and_dues_go_on) {
    with({"a", "b"});
    w.full_round({"a", "b"});
    w.poll("a");
    w.poll("b");
    w.pass_alive(10'000, {"a"});
    w.contribute("a");
    const auto due = w.m.durable().participants.at({"b"}).due;
    w.m = machine(w.m.limits(), w.replayed(), w.now);
    EXPECT_EQ(w.m.durable().participants.at({"b"}).due, due);
    EXPECT_TRUE(is_live(w.m.durable(), w.m.passing(), w.m.limits(), {"b"}, w.m.time(w.now)));
    w.settle();
    EXPECT_FALSE(w.merging());
    const auto restarted = w.now;
    while (!w.merging()) w.pass_alive(1'000, {"a"});
    EXPECT_LE(w.now - restarted, w.m.limits().live_window_ms + 1'000);
}

TEST_F(open_round, waiting_for_names_the_straggler_and_until_when) {
    EXPECT_NE(waiting_for(w.m, w.facts, w.now).find("a site to join"), std::string::npos);
    with({"fast", "slow"});
    w.full_round({"fast", "slow"});
    w.poll("fast");
    w.poll("slow");
    w.pass_alive(10'000, {"fast", "slow"});
    w.contribute("fast");
    const auto text = waiting_for(w.m, w.facts, w.now);
    EXPECT_NE(text.find("waiting for slow (training, until 61 s from now)"), std::string::npos) << text;
    EXPECT_EQ(text.find("fast"), std::string::npos) << text;
    EXPECT_NE(text.find("at the latest"), std::string::npos) << text;
    w.pass_alive(30'000, {"fast"});
    const auto silent = waiting_for(w.m, w.facts, w.now);
    EXPECT_NE(silent.find("waiting for slow"), std::string::npos) << silent;
    w.contribute("slow");
    EXPECT_NE(waiting_for(w.m, w.facts, w.now).find("the merge of generation 2"), std::string::npos);
    w.finish_merge();
    w.take(w.m.pause("disk full", w.now));
    EXPECT_NE(waiting_for(w.m, w.facts, w.now).find("disk full"), std::string::npos);
    w.take(w.m.resume(w.now));
}

TEST_F(open_round, the_status_report_lists_participants_members_and_the_last_merge) {
    with({"a", "b"});
    w.full_round({"a", "b"});
    w.poll("a");
    w.m.note_refusal({"b"}, errc::stale_generation);
    const auto r = report(w.m, w.facts, w.now);
    EXPECT_EQ(r.state, phase::open);
    ASSERT_EQ(r.participants.size(), 1U);
    EXPECT_EQ(r.participants[0].status, "training");
    ASSERT_EQ(r.members.size(), 2U);
    EXPECT_EQ(r.members[1].refused, 1U);
    EXPECT_EQ(r.members[0].tokens_total, 1'000U);
    ASSERT_TRUE(r.last_merge);
    EXPECT_EQ(r.last_merge->used.size(), 2U);
    EXPECT_EQ(history(w.m, generation{1}, 100).size(), 1U);
    EXPECT_EQ(history(w.m, generation{2}, 100).size(), 0U);
}

TEST_F(open_round, settling_twice_at_the_same_time_does_nothing_the_second_time) {
    with({"a", "b"});
    w.poll("a");
    w.contribute("a");
    w.pass(w.m.limits().live_window_ms + 5'000);
    const auto again = w.m.settle(w.facts, w.now);
    EXPECT_TRUE(again.records.empty());
    EXPECT_TRUE(again.effects.empty());
}

}  // namespace
