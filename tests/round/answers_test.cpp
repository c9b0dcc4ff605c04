// SPDX-License-Identifier: Apache-2.0
// One test per row of the tables of contributions and polls of the rounds, restarts and the status.
#include "tests/round/open_round.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::round;
using namespace darlcore::round::testing;

// --- contributions --------------------------------------------------------------------------------------------------

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

// --- polls ----------------------------------------------------------------------------------------------------------

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

// --- restart, status ------------------------------------------------------------------------------------------------

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
