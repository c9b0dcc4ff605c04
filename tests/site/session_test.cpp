// SPDX-License-Identifier: Apache-2.0
#include "darlcore/site/session.hpp"

#include <gtest/gtest.h>

namespace {

using namespace darlcore;
using namespace darlcore::site;

const lease::caller me{site_id{"alpha"}, incarnation{1, 2}};

/// Drives a session by hand: keeps the actions and answers calls.
struct hand {
    session s;
    std::int64_t now = 0;
    std::vector<action_t> todo;

    explicit hand(session_settings set = settings()) : s(std::move(set)) { add(s.start(now)); }

    static session_settings settings() {
        session_settings set;
        set.hello.who = me;
        set.join.who = me;
        set.windows_per_step = 4;
        set.block_size = 8;
        set.retry_ms = 100;
        return set;
    }
    void add(std::vector<action_t> more) {
        for (auto& a : more) todo.push_back(std::move(a));
    }
    void feed(const event_t& e) { add(s.on(e, now)); }
    void wait(std::int64_t ms) {
        now += ms;
        feed(event::timer{});
    }

    template <class Action>
    Action expect() {
        while (!todo.empty() && std::holds_alternative<action::note>(todo.front())) todo.erase(todo.begin());
        if (todo.empty() || !std::holds_alternative<Action>(todo.front())) {
            ADD_FAILURE() << "another action was due, index " << (todo.empty() ? 99 : todo.front().index());
            return {};
        }
        Action a = std::get<Action>(todo.front());
        todo.erase(todo.begin());
        return a;
    }
    template <class Request>
    Request expect_call() {
        const auto call = expect<action::call>();
        if (!std::holds_alternative<Request>(call.what)) {
            ADD_FAILURE() << "another call was due, index " << call.what.index();
            return {};
        }
        return std::get<Request>(call.what);
    }
    void expect_nothing() {
        while (!todo.empty() && std::holds_alternative<action::note>(todo.front())) todo.erase(todo.begin());
        EXPECT_TRUE(todo.empty()) << todo.front().index();
    }
    template <class Reply>
    void answer(Reply r) {
        feed(event::replied{std::move(r)});
    }
    void refuse(errc code, std::int64_t retry_after_ms = 0, incarnation replaced = {}) {
        feed(event::refused{{code, "said so", retry_after_ms, replaced}});
    }

    /// Registered, joined, weights of generation 3 loaded, asked to acquire.
    ledger::acquire_request to_building(std::uint64_t inner_steps = 8) {
        expect_call<ledger::register_request>();
        answer(ledger::register_reply{});
        expect_call<ledger::join_request>();
        answer(ledger::join_reply{});
        expect_call<ledger::poll_request>();
        return served(inner_steps);
    }
    ledger::acquire_request served(std::uint64_t inner_steps = 8, std::uint64_t current = 3) {
        round::poll_answer duty;
        duty.action = round::poll_action::train;
        duty.current = generation{current};
        duty.inner_steps = inner_steps;
        answer(duty);
        expect<action::fetch>();
        feed(event::adopted{generation{current}, 5});
        return expect_call<ledger::acquire_request>();
    }
    static lease::lease_record record(std::uint64_t seq, std::uint64_t start, std::uint64_t end) {
        lease::lease_record r;
        r.seq = lease_seq{seq};
        r.start = r.done_end = r.reserved_end = position{start};
        r.end = position{end};
        r.ttl_ms = 30'000;
        return r;
    }
    void grant(std::vector<lease::lease_record> leases) {
        ledger::acquire_reply r;
        r.leases.status = leases.empty() ? lease::acquire_status::drain : lease::acquire_status::granted;
        r.leases.leases = std::move(leases);
        answer(r);
    }
    void reserve_as_asked() {
        const auto asked = expect_call<ledger::reserve_request>();
        answer(ledger::reserve_reply{asked.through, position{1'000}});
    }
    static phase_done done(std::uint64_t groups) {
        phase_done d;
        d.groups = groups;
        d.id = contribution_id{"c1"};
        d.tokens = 100;
        d.steps = 2;
        d.compute_ms = 1'000;
        return d;
    }
};

TEST(session, a_whole_phase_goes_from_poll_to_pledge_and_claims_exactly_what_was_trained) {
    hand h;
    EXPECT_EQ(h.to_building().want, 4U);  // 8 steps x 4 windows / 8 per block
    h.grant({h.record(1, 10, 12), h.record(2, 40, 42)});
    h.reserve_as_asked();
    h.reserve_as_asked();
    const auto group = h.expect<action::train_group>();
    EXPECT_EQ(group.spans, (std::vector<span>{make_span(10, 12), make_span(40, 42)}));
    h.expect<action::end_phase>();
    h.feed(event::group_trained{0});
    h.feed(event::phase_finished{h.done(1)});
    h.expect<action::upload>();
    h.feed(event::uploaded{});
    const auto claim = h.expect_call<ledger::contribute_request>();
    EXPECT_EQ(claim.base, generation{3});
    ASSERT_EQ(claim.leases.size(), 2U);
    EXPECT_EQ(claim.leases[0].from, position{10});
    EXPECT_EQ(claim.leases[0].through, position{12});
    EXPECT_EQ(claim.leases[1].through, position{42});
    h.answer(ledger::contribute_reply{});
    EXPECT_TRUE(h.s.held().empty());
    EXPECT_EQ(h.expect_call<ledger::poll_request>().activity, round::site_activity::waiting);
}

// A trainer that lacks windows for a step cannot finish the group before: it needs the group after next.
TEST(session, groups_are_given_out_until_a_step_that_straddles_them_has_its_windows) {
    auto set = hand::settings();
    set.windows_per_step = 20;
    set.groups = 8;
    hand h(set);
    h.to_building(3);  // 8 blocks of 8 windows
    h.grant({h.record(1, 0, 8)});
    const auto expect_group = [&](std::uint64_t at) {
        h.reserve_as_asked();
        EXPECT_EQ(h.expect<action::train_group>().spans, (std::vector<span>{make_span(at, at + 1)}));
    };
    // behind the first group 19 windows may be needed; three blocks, one of them short, might have 17
    for (std::uint64_t at = 0; at <= 4; ++at) expect_group(at);
    h.expect_nothing();
    h.feed(event::group_trained{0});
    expect_group(5);
    h.expect_nothing();
}

TEST(session, a_group_holds_only_what_the_reply_reserved) {
    hand h;
    h.to_building();
    h.grant({h.record(1, 0, 4)});
    h.expect_call<ledger::reserve_request>();
    h.answer(ledger::reserve_reply{position{3}, position{3}});  // a thief took the last block
    EXPECT_EQ(h.expect<action::train_group>().spans, (std::vector<span>{make_span(0, 3)}));
}

TEST(session, anything_held_at_a_drain_is_trained_at_once_and_never_waited_with) {
    hand h;
    h.to_building();
    h.grant({h.record(1, 0, 1)});
    h.expect_call<ledger::acquire_request>();
    h.grant({});
    h.reserve_as_asked();
    EXPECT_EQ(h.expect<action::train_group>().spans, (std::vector<span>{make_span(0, 1)}));
    h.expect<action::end_phase>();
}

TEST(session, nothing_held_at_a_drain_is_declined_for_lack_of_data) {
    hand h;
    h.to_building();
    h.grant({});
    EXPECT_EQ(h.expect_call<ledger::decline_request>().reason, round::decline_reason::no_data);
    h.answer(ledger::ok_reply{});
    h.expect_nothing();
    h.wait(200);
    h.expect_call<ledger::poll_request>();
}

TEST(session, the_next_group_is_reserved_while_the_first_one_trains_and_not_earlier) {
    auto set = hand::settings();
    set.groups = 4;
    hand h(set);
    h.to_building(16);
    h.grant({h.record(1, 0, 8)});
    h.reserve_as_asked();
    h.expect<action::train_group>();
    h.reserve_as_asked();
    EXPECT_EQ(h.expect<action::train_group>().group, 1U);
    h.wait(100);
    h.expect_nothing();
    h.feed(event::group_trained{0});
    h.reserve_as_asked();
    EXPECT_EQ(h.expect<action::train_group>().spans, (std::vector<span>{make_span(4, 6)}));
}

TEST(session, an_unknown_outcome_is_asked_again_with_the_same_request_id) {
    hand h;
    const auto first = h.to_building();
    h.refuse(errc::timeout);
    h.expect_nothing();
    h.wait(150);
    EXPECT_EQ(h.expect_call<ledger::acquire_request>().request_id, first.request_id);
    h.grant({h.record(1, 0, 1)});
    EXPECT_NE(h.expect_call<ledger::acquire_request>().request_id, first.request_id);
}

TEST(session, a_lost_lease_drops_the_phase_and_the_rest_is_trained_again_from_the_ledgers_mark) {
    hand h;
    h.to_building();
    h.grant({h.record(1, 0, 2), h.record(2, 8, 10)});
    h.reserve_as_asked();
    h.reserve_as_asked();
    h.expect<action::train_group>();
    h.expect<action::end_phase>();
    ledger::heartbeat_reply beat;
    beat.leases.leases = {{lease::ref_to(h.record(1, 0, 2)), false, errc::lease_gone, {}, {}, {}}};
    h.feed(event::beat_replied{beat, 0});
    h.expect<action::drop_phase>();
    h.feed(event::phase_dropped{});
    h.expect_call<ledger::poll_request>();
    ASSERT_EQ(h.s.held().all().size(), 1U);
    EXPECT_EQ(h.s.held().all()[0].planned, position{8});
}

TEST(session, a_newer_generation_in_a_heartbeat_drops_the_phase) {
    hand h;
    h.to_building();
    h.grant({h.record(1, 0, 4)});
    h.reserve_as_asked();
    h.expect<action::train_group>();
    h.expect<action::end_phase>();
    ledger::heartbeat_reply beat;
    beat.generation = generation{4};
    h.feed(event::beat_replied{beat, 0});
    h.expect<action::drop_phase>();
}

TEST(session, a_stale_contribution_keeps_its_leases_and_lost_blocks_give_them_back) {
    for (const bool lost : {false, true}) {
        hand h;
        h.to_building();
        h.grant({h.record(1, 0, 4)});
        h.reserve_as_asked();
        h.expect<action::train_group>();
        h.expect<action::end_phase>();
        h.feed(event::phase_finished{h.done(1)});
        h.expect<action::upload>();
        h.feed(event::uploaded{});
        h.expect_call<ledger::contribute_request>();
        h.refuse(lost ? errc::blocks_lost : errc::stale_generation);
        EXPECT_FALSE(h.expect<action::settle>().merged);
        if (lost) {
            EXPECT_EQ(h.expect_call<ledger::release_request>().lease->seq, lease_seq{1});
            h.answer(ledger::release_reply{4});
        } else {
            EXPECT_EQ(h.s.held().all().size(), 1U);
        }
        h.expect_call<ledger::poll_request>();
    }
}

TEST(session, a_non_finite_phase_gives_everything_back_and_the_second_in_a_row_ends_the_process) {
    hand h;
    h.to_building();
    for (int time = 0; time < 2; ++time) {
        h.grant({h.record(static_cast<std::uint64_t>(time) + 1, 0, 4)});
        h.reserve_as_asked();
        h.expect<action::train_group>();
        h.expect<action::end_phase>();
        h.feed(event::phase_failed{round::decline_reason::not_finite, "step 3"});
        EXPECT_FALSE(h.expect_call<ledger::release_request>().lease.has_value());
        h.answer(ledger::release_reply{4});
        EXPECT_EQ(h.expect_call<ledger::decline_request>().reason, round::decline_reason::not_finite);
        h.answer(ledger::ok_reply{});
        if (time == 1) break;
        h.wait(200);
        h.expect_call<ledger::poll_request>();
        round::poll_answer duty;
        duty.action = round::poll_action::train;
        duty.current = generation{3};
        duty.inner_steps = 8;
        h.answer(duty);
        h.expect_call<ledger::acquire_request>();
    }
    h.expect_call<ledger::leave_request>();
    h.answer(ledger::ok_reply{});
    EXPECT_EQ(h.expect<action::finish>().exit_code, 1);
}

TEST(session, a_stop_in_mid_phase_contributes_what_is_trained_then_releases_and_leaves_with_75) {
    auto set = hand::settings();
    set.groups = 4;
    hand h(set);
    h.to_building(16);
    h.grant({h.record(1, 0, 8)});
    h.reserve_as_asked();
    h.expect<action::train_group>();
    h.reserve_as_asked();
    h.expect<action::train_group>();
    h.feed(event::stop_requested{"SIGTERM"});
    h.expect<action::end_phase>();
    h.feed(event::phase_finished{h.done(1)});  // ended after the first group
    h.expect<action::upload>();
    h.feed(event::uploaded{});
    const auto claim = h.expect_call<ledger::contribute_request>();
    ASSERT_EQ(claim.leases.size(), 1U);
    EXPECT_EQ(claim.leases[0].through, position{2});
    h.answer(ledger::contribute_reply{});
    EXPECT_FALSE(h.expect_call<ledger::release_request>().lease.has_value());
    h.answer(ledger::release_reply{6});
    h.expect_call<ledger::leave_request>();
    h.answer(ledger::ok_reply{});
    EXPECT_EQ(h.expect<action::finish>().exit_code, 75);
}

TEST(session, fenced_ends_it_and_is_never_retried) {
    hand h;
    h.to_building();
    h.refuse(errc::fenced);
    EXPECT_EQ(h.expect<action::finish>().exit_code, 1);
    h.wait(100'000);
    h.expect_nothing();
    EXPECT_TRUE(h.s.finished());
}

TEST(session, a_busy_name_is_taken_over_once_and_only_from_the_process_that_was_named) {
    auto set = hand::settings();
    set.take_over = true;
    hand h(set);
    EXPECT_FALSE(h.expect_call<ledger::register_request>().take_over.has_value());
    h.refuse(errc::cluster_busy, 0, incarnation{7, 7});
    EXPECT_EQ(h.expect_call<ledger::register_request>().take_over, (incarnation{7, 7}));
    h.refuse(errc::cluster_busy, 0, incarnation{8, 8});
    h.expect_nothing();
    h.wait(200);
    EXPECT_FALSE(h.expect_call<ledger::register_request>().take_over.has_value()) << "another was quicker: wait for it";
    h.refuse(errc::cluster_busy, 0, incarnation{8, 8});
    h.wait(200);
    EXPECT_FALSE(h.expect_call<ledger::register_request>().take_over.has_value()) << "once";
}

TEST(session, a_wrong_token_ends_it_at_once_and_an_unreachable_server_after_the_time_to_give_up) {
    hand wrong;
    wrong.expect_call<ledger::register_request>();
    wrong.refuse(errc::token);
    EXPECT_EQ(wrong.expect<action::finish>().exit_code, 2);

    auto set = hand::settings();
    set.give_up_ms = 1'000;
    hand gone(set);
    for (int i = 0; i < 20 && !gone.s.finished(); ++i) {
        gone.expect_call<ledger::register_request>();
        gone.refuse(errc::unreachable);
        gone.wait(110);
    }
    EXPECT_EQ(gone.expect<action::finish>().exit_code, 75);
}

TEST(session, an_unsent_contribution_is_offered_first_if_its_generation_is_still_current) {
    for (const bool current : {true, false}) {
        session s(hand::settings());
        unsent_contribution unsent{
            hand::done(1), generation{3}, {{lease::ref_to(hand::record(1, 0, 4)), position{0}, position{4}}}};
        hand h;
        h.s = std::move(s);
        h.todo = h.s.start(0, unsent);
        h.expect_call<ledger::register_request>();
        h.answer(ledger::register_reply{});
        h.expect_call<ledger::join_request>();
        ledger::join_reply joined;
        joined.generation = generation{current ? 3U : 4U};
        h.answer(joined);
        if (!current) {
            EXPECT_FALSE(h.expect<action::settle>().merged);
            h.expect_call<ledger::poll_request>();
            continue;
        }
        h.expect<action::upload>();
        h.feed(event::uploaded{});
        EXPECT_EQ(h.expect_call<ledger::contribute_request>().leases.size(), 1U);
    }
}

// A phase begun here would be trained from a generation whose merge is under way.
TEST(session, a_site_that_scores_while_it_waits_goes_on_waiting_and_does_not_train_on_its_last_duty) {
    hand h;
    h.to_building();
    h.grant({h.record(1, 0, 4)});
    h.reserve_as_asked();
    h.expect<action::train_group>();
    h.expect<action::end_phase>();
    h.feed(event::phase_finished{h.done(1)});
    h.expect<action::upload>();
    h.feed(event::uploaded{});
    h.expect_call<ledger::contribute_request>();
    h.answer(ledger::contribute_reply{});
    h.expect_call<ledger::poll_request>();
    round::poll_answer wait;
    wait.action = round::poll_action::wait;
    wait.reason = round::wait_reason::contributed;
    wait.current = generation{3};
    wait.evaluate = true;
    h.answer(wait);
    EXPECT_EQ(h.expect<action::evaluate>().current, generation{3});
    h.feed(event::evaluated{1.0, 10, 1});
    h.expect_call<ledger::evaluation_request>();
    h.answer(ledger::evaluation_reply{});
    h.wait(1);
    h.expect_call<ledger::poll_request>();
}

TEST(session, a_merged_contribution_may_be_forgotten_and_stop_ends_the_run_with_0) {
    hand h;
    h.to_building();
    h.grant({h.record(1, 0, 4)});
    h.reserve_as_asked();
    h.expect<action::train_group>();
    h.expect<action::end_phase>();
    h.feed(event::phase_finished{h.done(1)});
    h.expect<action::upload>();
    h.feed(event::uploaded{});
    h.expect_call<ledger::contribute_request>();
    h.answer(ledger::contribute_reply{});
    h.expect_call<ledger::poll_request>();
    round::poll_answer stop;
    stop.action = round::poll_action::stop;
    stop.stopped_by = round::stop_reason::exhausted;
    stop.last = {contribution_id{"c1"}, round::contribution_status::merged, std::nullopt, generation{3}};
    h.answer(stop);
    EXPECT_TRUE(h.expect<action::settle>().merged);
    h.expect_call<ledger::leave_request>();
    h.answer(ledger::ok_reply{});
    EXPECT_EQ(h.expect<action::finish>().exit_code, 0);
}

TEST(session, past_its_local_deadline_nothing_new_is_read_until_a_heartbeat_answers) {
    auto set = hand::settings();
    set.groups = 4;
    hand h(set);
    h.to_building(16);
    h.grant({h.record(1, 0, 8)});
    h.reserve_as_asked();
    h.expect<action::train_group>();
    h.reserve_as_asked();
    h.expect<action::train_group>();
    h.now += 40'000;  // the lease was good for 30 s
    h.feed(event::group_trained{0});
    h.expect_nothing();
    ledger::heartbeat_reply beat;
    beat.leases.ttl_ms = 30'000;
    beat.generation = generation{3};
    beat.leases.leases = {
        {lease::ref_to(h.record(1, 0, 8)), true, errc::lease_gone, position{8}, position{0}, position{4}}};
    h.feed(event::beat_replied{beat, h.now});
    h.reserve_as_asked();
    h.expect<action::train_group>();
}

TEST(session, the_budget_sizes_the_next_phase_by_the_rate_of_the_last) {
    hand h;
    h.to_building();
    h.grant({h.record(1, 0, 4)});
    h.reserve_as_asked();
    h.expect<action::train_group>();
    h.expect<action::end_phase>();
    h.feed(event::phase_finished{h.done(1)});  // 4 blocks in 1000 ms
    h.expect<action::upload>();
    h.feed(event::uploaded{});
    h.expect_call<ledger::contribute_request>();
    h.answer(ledger::contribute_reply{});
    h.expect_call<ledger::poll_request>();
    round::poll_answer duty;
    duty.action = round::poll_action::train;
    duty.current = generation{4};
    duty.inner_steps = 80;
    duty.budget_ms = 2'500;
    h.answer(duty);
    h.expect<action::fetch>();
    h.feed(event::adopted{generation{4}});
    EXPECT_EQ(h.expect_call<ledger::acquire_request>().want, 10U);
}

}  // namespace
