// SPDX-License-Identifier: Apache-2.0
// What a site writes the server reads, and the other way round: the two directions live in different backends.
#include "backends/curl/site_protocol.hpp"

#include <gtest/gtest.h>

#include "backends/asio/wire_replies.hpp"
#include "backends/asio/wire_requests.hpp"

namespace {

using namespace darlcore;
using client::decode;
using client::encode;

const lease::caller me{site_id{"alpha"}, incarnation{0x1234, 0x5678}};
const lease::lease_ref ref{epoch_index{1}, position{40}, lease_seq{9}, fencing_token{term{3}, 9}};

lease::lease_record record() {
    lease::lease_record r;
    r.seq = lease_seq{9};
    r.term = term{3};
    r.epoch = epoch_index{1};
    r.start = position{40};
    r.done_end = position{41};
    r.reserved_end = position{42};
    r.end = position{48};
    r.deadline = ledger_time{31'000};
    r.ttl_ms = 30'000;
    return r;
}

wire::reply_context context() {
    wire::reply_context c;
    c.epoch = epoch_index{1};
    c.term = term{3};
    c.now = ledger_time{1'000};
    return c;
}

TEST(site_protocol, every_request_arrives_as_it_was_meant) {
    ledger::register_request hello;
    hello.who = me;
    hello.protocol = 2;
    hello.digest = std::string(32, 'a');
    hello.ranks = 4;
    hello.num_samples = 1000;
    hello.block_size = 10;
    hello.take_over = incarnation{7, 8};
    hello.corpus = std::string(32, 'b');
    const auto registered = wire::read_register(encode(hello, "q1").body);
    ASSERT_TRUE(registered) << to_text(registered.error());
    EXPECT_EQ(registered->who, me);
    EXPECT_EQ(registered->protocol, 2U);
    EXPECT_EQ(registered->take_over, hello.take_over);
    EXPECT_EQ(registered->num_samples, hello.num_samples);
    EXPECT_EQ(registered->corpus, hello.corpus);

    ledger::acquire_request acquire{me, 12, 5, {0, 2.5, 0.25}, "q2"};
    const auto acquired = wire::read_acquire(encode(site::request(acquire), "q2").body);
    ASSERT_TRUE(acquired) << to_text(acquired.error());
    EXPECT_EQ(acquired->want, 12U);
    EXPECT_EQ(acquired->max_spans, 5U);
    EXPECT_EQ(acquired->request_id, "q2");
    EXPECT_EQ(acquired->report.macro_step_s, 2.5);

    const auto reserved = wire::read_reserve(encode(ledger::reserve_request{me, ref, position{44}}, "q3").body);
    ASSERT_TRUE(reserved) << to_text(reserved.error());
    EXPECT_EQ(reserved->lease, ref);
    EXPECT_EQ(reserved->through, position{44});

    for (const bool all : {false, true}) {
        const ledger::release_request release{me, all ? std::nullopt : std::optional(ref), true};
        const auto released = wire::read_release(encode(release, "q4").body);
        ASSERT_TRUE(released) << to_text(released.error());
        EXPECT_EQ(released->lease, release.lease);
        EXPECT_TRUE(released->keep_reserved);
    }

    ledger::heartbeat_request beat{me, {{ref, position{43}, std::nullopt}}, {0, 1.5, 0}};
    const auto beaten = wire::read_heartbeat(encode(beat, "b1").body);
    ASSERT_TRUE(beaten) << to_text(beaten.error());
    ASSERT_EQ(beaten->request.leases.size(), 1U);
    EXPECT_EQ(beaten->request.leases[0].lease, ref);
    EXPECT_EQ(beaten->request.leases[0].trained, position{43});
}

TEST(site_protocol, every_request_of_a_round_arrives_as_it_was_meant) {
    const auto joined = wire::read_join(
        encode(ledger::join_request{me, "run", {"lay", "sched", 128, {"bf16", "f32"}}, "darl 1"}, "q").body);
    ASSERT_TRUE(joined) << to_text(joined.error());
    EXPECT_EQ(joined->pins, (round::pins{"lay", "sched", 128, {"bf16", "f32"}}));
    EXPECT_EQ(joined->run_id, "run");

    const auto polled = wire::read_poll(
        encode(ledger::poll_request{me, generation{5}, round::site_activity::waiting, 7, 1'500}, "q").body);
    ASSERT_TRUE(polled) << to_text(polled.error());
    EXPECT_EQ(polled->have, generation{5});
    EXPECT_EQ(polled->activity, round::site_activity::waiting);
    EXPECT_EQ(polled->eta_ms, 1'500);

    ledger::contribute_request claim;
    claim.who = me;
    claim.id = contribution_id{"alpha-p1"};
    claim.base = generation{5};
    claim.sha256 = std::string(64, 'c');
    claim.codec = "bf16";
    claim.tokens = 1'000'000;
    claim.steps = 20;
    claim.loss_sum = 12.5;
    claim.loss_count = 4;
    claim.leases = {{ref, position{41}, position{44}}};
    claim.phase_ms = 4'000;
    claim.transfer_ms = 250;
    const auto claimed = wire::read_contribute(encode(claim, "q").body);
    ASSERT_TRUE(claimed) << to_text(claimed.error());
    EXPECT_EQ(claimed->id, claim.id);
    EXPECT_EQ(claimed->base, claim.base);
    EXPECT_EQ(claimed->sha256, claim.sha256);
    EXPECT_EQ(claimed->tokens, claim.tokens);
    EXPECT_EQ(claimed->loss_sum, claim.loss_sum);
    EXPECT_EQ(claimed->phase_ms, claim.phase_ms);
    EXPECT_EQ(claimed->transfer_ms, claim.transfer_ms);
    ASSERT_EQ(claimed->leases.size(), 1U);
    EXPECT_EQ(claimed->leases[0].lease, ref);
    EXPECT_EQ(claimed->leases[0].from, position{41});
    EXPECT_EQ(claimed->leases[0].through, position{44});

    const auto declined = wire::read_decline(
        encode(ledger::decline_request{me, generation{5}, round::decline_reason::not_finite, "step 3"}, "q").body);
    ASSERT_TRUE(declined) << to_text(declined.error());
    EXPECT_EQ(declined->reason, round::decline_reason::not_finite);
    const auto scored =
        wire::read_evaluation(encode(ledger::evaluation_request{me, generation{5}, 3.5, 100, 4}, "q").body);
    ASSERT_TRUE(scored) << to_text(scored.error());
    EXPECT_EQ(scored->windows, 4U);
    EXPECT_TRUE(wire::read_leave(encode(ledger::leave_request{me, "done"}, "q").body));
}

template <class Reply>
Reply through_the_wire(const site::request& asked, const json::value& sent) {
    // through text, as it travels
    const auto body = json::parse(json::dump(sent));
    EXPECT_TRUE(body.has_value());
    auto read = decode(asked, *body);
    EXPECT_TRUE(read) << to_text(read.error());
    return read ? std::get<Reply>(*read) : Reply{};
}

TEST(site_protocol, every_reply_is_read_as_it_was_meant) {
    ledger::acquire_reply grant;
    grant.leases.status = lease::acquire_status::granted;
    grant.leases.leases = {record()};
    const auto granted =
        through_the_wire<ledger::acquire_reply>(ledger::acquire_request{}, wire::to_json(grant, me.site, context()));
    ASSERT_EQ(granted.leases.leases.size(), 1U);
    EXPECT_EQ(lease::ref_to(granted.leases.leases[0]), lease::ref_to(record()));
    EXPECT_EQ(granted.leases.leases[0].done_end, position{41});
    EXPECT_EQ(granted.leases.leases[0].reserved_end, position{42});
    EXPECT_EQ(granted.leases.leases[0].ttl_ms, 30'000);

    const auto reserved = through_the_wire<ledger::reserve_reply>(
        ledger::reserve_request{}, wire::to_json(ledger::reserve_reply{position{44}, position{46}}, context()));
    EXPECT_EQ(reserved, (ledger::reserve_reply{position{44}, position{46}}));

    ledger::poll_reply duty;
    duty.action = round::poll_action::train;
    duty.current = generation{5};
    duty.wire = {std::string(64, 'd'), 12'345};
    duty.global_step = 99;
    duty.inner_steps = 20;
    duty.budget_ms = 2'500;
    duty.evaluate = true;
    duty.last = {contribution_id{"c"}, round::contribution_status::rejected, errc::norm_outlier, generation{4}};
    const auto polled = through_the_wire<ledger::poll_reply>(ledger::poll_request{}, wire::to_json(duty, context()));
    EXPECT_EQ(polled.action, duty.action);
    EXPECT_EQ(polled.wire, duty.wire);
    EXPECT_EQ(polled.budget_ms, duty.budget_ms);
    EXPECT_EQ(polled.last, duty.last);
    EXPECT_EQ(polled.inner_steps, 20U);
    for (const auto action : {round::poll_action::init, round::poll_action::wait, round::poll_action::stop}) {
        ledger::poll_reply other;
        other.action = action;
        other.stopped_by = round::stop_reason::exhausted;
        EXPECT_EQ(through_the_wire<ledger::poll_reply>(ledger::poll_request{}, wire::to_json(other, context())).action,
                  action);
    }

    ledger::contribute_reply pledged;
    pledged.id = contribution_id{"c"};
    pledged.pledged_blocks = 3;
    const auto contributed =
        through_the_wire<ledger::contribute_reply>(ledger::contribute_request{}, wire::to_json(pledged, context()));
    EXPECT_EQ(contributed.status, round::contribution_status::pledged);
    EXPECT_EQ(contributed.pledged_blocks, 3U);
    EXPECT_EQ(through_the_wire<ledger::release_reply>(ledger::release_request{},
                                                      wire::to_json(ledger::release_reply{7}, context()))
                  .released,
              7U);
    ledger::join_reply in;
    in.generation = generation{2};
    in.run_id = "r1";
    in.keepalive_ms = 20'000;
    in.inner_steps = 50;
    const auto joined = through_the_wire<ledger::join_reply>(ledger::join_request{}, wire::to_json(in, context()));
    EXPECT_EQ(joined.run_id, "r1");
    EXPECT_EQ(joined.keepalive_ms, 20'000);
    EXPECT_EQ(joined.inner_steps, 50U);
}

TEST(site_protocol, a_heartbeat_reply_keeps_each_leases_verdict) {
    ledger::heartbeat_request asked{me, {{ref, std::nullopt, std::nullopt}}, {}};
    lease::lease_ref lost = ref;
    lost.seq = lease_seq{10};
    asked.leases.push_back({lost, std::nullopt, std::nullopt});
    ledger::heartbeat_reply said;
    said.leases.ttl_ms = 30'000;
    said.generation = generation{6};
    said.leases.leases = {{ref, true, errc::lease_gone, position{48}, position{41}, position{44}},
                          {lost, false, errc::fenced, {}, {}, {}}};
    const auto body = json::parse(json::dump(wire::to_json(said, {}, context())));
    ASSERT_TRUE(body);
    const auto read = client::decode_heartbeat(asked, *body);
    ASSERT_TRUE(read) << to_text(read.error());
    EXPECT_EQ(read->generation, generation{6});
    EXPECT_EQ(read->leases.ttl_ms, 30'000);
    ASSERT_EQ(read->leases.leases.size(), 2U);
    EXPECT_EQ(read->leases.leases[0], said.leases.leases[0]);
    EXPECT_FALSE(read->leases.leases[1].valid);
    EXPECT_EQ(read->leases.leases[1].reason, errc::fenced);
}

TEST(site_protocol, an_answer_without_a_needed_field_is_named_not_guessed) {
    const auto read = decode(ledger::reserve_request{}, json::make_object({{"end", 4}}));
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().code, errc::parse_error);
    EXPECT_NE(read.error().context.find("reserved_end"), std::string::npos);
    EXPECT_FALSE(decode(ledger::poll_request{}, json::make_object({{"action", "dance"}})));
    EXPECT_FALSE(decode(ledger::poll_request{}, json::make_object({{"action", "train"}, {"generation", 1}})));
}

}  // namespace
