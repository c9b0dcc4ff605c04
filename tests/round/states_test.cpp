// SPDX-License-Identifier: Apache-2.0
// One test per row of the tables of states and events of the rounds.
#include "tests/round/open_round.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::round;
using namespace darlcore::round::testing;

// --- states ---------------------------------------------------------------------------------------------------------

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

// --- events ---------------------------------------------------------------------------------------------------------

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

}  // namespace
