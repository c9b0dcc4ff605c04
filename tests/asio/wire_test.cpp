// SPDX-License-Identifier: Apache-2.0
// What the site writes, the server reads; what the server writes, the site reads.
#include "backends/asio/wire_requests.hpp"

#include <gtest/gtest.h>

#include "backends/asio/scan_text.hpp"
#include "backends/asio/wire_replies.hpp"
#include "backends/curl/site_protocol.hpp"

namespace {

using namespace darlcore;

const lease::caller caller{{"alpha"}, {0x0123456789abcdefULL, 0xfedcba9876543210ULL}};
const lease::lease_ref lease_7{epoch_index{1}, position{12}, lease_seq{7}, fencing_token{term{3}, 7}};

wire::reply_context context() {
    wire::reply_context c;
    c.epoch = epoch_index{1};
    c.term = term{3};
    c.now = ledger_time{1000};
    c.wall_s = 1.8e9;
    return c;
}

TEST(wire, a_register_arrives_as_it_was_sent) {
    ledger::register_request r;
    r.who = caller;
    r.protocol = 2;
    r.digest = "d";
    r.ranks = 4;
    r.num_samples = 1000;
    r.block_size = 10;
    r.take_over = incarnation{1, 2};
    r.corpus = "c";
    r.corpus_content = "cc";
    const auto got = wire::read_register(client::encode(site::request{r}, "id").body);
    ASSERT_TRUE(got) << got.error().context;
    EXPECT_EQ(got->who, r.who);
    EXPECT_EQ(got->protocol, 2U);
    EXPECT_EQ(got->ranks, 4U);
    EXPECT_EQ(got->num_samples, r.num_samples);
    EXPECT_EQ(got->take_over, r.take_over);
    EXPECT_EQ(got->corpus_content, "cc");
}

TEST(wire, a_heartbeat_names_every_lease_once) {
    ledger::heartbeat_request r;
    r.who = caller;
    r.leases.push_back({lease_7, position{13}, position{15}});
    lease::lease_ref other = lease_7;
    other.seq = lease_seq{8};
    r.leases.push_back({other, std::nullopt, std::nullopt});
    const auto got = wire::read_heartbeat(client::encode(r, "id").body);
    ASSERT_TRUE(got);
    ASSERT_EQ(got->request.leases.size(), 2U);
    EXPECT_EQ(got->request.leases[0].lease, lease_7);
    EXPECT_EQ(got->request.leases[0].trained, position{13});
    EXPECT_EQ(got->request.leases[0].reserve_through, position{15});
    EXPECT_EQ(got->request.leases[1].lease, other);
}

TEST(wire, a_contribution_arrives_as_it_was_sent) {
    ledger::contribute_request r;
    r.who = caller;
    r.id = {"phase-1"};
    r.base = generation{5};
    r.sha256 = std::string(64, 'a');
    r.codec = "bf16";
    r.tokens = 4096;
    r.steps = 20;
    r.loss_sum = 12.25;
    r.loss_count = 3;
    r.leases.push_back({lease_7, position{12}, position{15}});
    r.phase_ms = 1500;
    r.transfer_ms = 250;
    const auto got = wire::read_contribute(client::encode(site::request{r}, "id").body);
    ASSERT_TRUE(got) << got.error().context;
    EXPECT_EQ(got->id, r.id);
    EXPECT_EQ(got->base, r.base);
    EXPECT_EQ(got->sha256, r.sha256);
    EXPECT_EQ(got->loss_sum, r.loss_sum);
    EXPECT_EQ(got->phase_ms, 1500);
    ASSERT_EQ(got->leases.size(), 1U);
    EXPECT_EQ(got->leases[0].lease, lease_7);
    EXPECT_EQ(got->leases[0].through, position{15});
}

TEST(wire, a_grant_arrives_as_it_was_given) {
    ledger::acquire_reply r;
    r.leases.status = lease::acquire_status::granted;
    lease::lease_record l;
    l.seq = lease_seq{7};
    l.term = term{3};
    l.epoch = epoch_index{1};
    l.start = l.done_end = l.reserved_end = position{12};
    l.end = position{20};
    l.granted_at = ledger_time{900};
    l.deadline = ledger_time{31000};
    r.leases.leases.push_back(l);
    r.leases.epoch = epoch_index{1};
    ledger::acquire_request asked;
    asked.who = caller;
    const auto got = client::decode(site::request{asked}, wire::to_json(r, caller.site, context()));
    ASSERT_TRUE(got) << got.error().context;
    const auto& back = std::get<ledger::acquire_reply>(*got);
    ASSERT_EQ(back.leases.leases.size(), 1U);
    EXPECT_EQ(back.leases.leases[0].end, position{20});
    EXPECT_EQ(back.leases.leases[0].token(), l.token());
    EXPECT_EQ(back.leases.leases[0].ttl_ms, 30'000);
}

TEST(wire, each_poll_answer_arrives_as_it_was_given) {
    ledger::poll_request asked;
    asked.who = caller;
    ledger::poll_reply r;
    r.action = round::poll_action::train;
    r.current = generation{4};
    r.wire = {std::string(64, 'b'), 12345};
    r.global_step = 80;
    r.inner_steps = 20;
    r.budget_ms = 90'000;
    r.last = {{"c"}, round::contribution_status::merged, std::nullopt, generation{3}};
    auto got = client::decode(site::request{asked}, wire::to_json(r, context()));
    ASSERT_TRUE(got) << got.error().context;
    const auto train = std::get<ledger::poll_reply>(*got);
    EXPECT_EQ(train.wire, r.wire);
    EXPECT_EQ(train.budget_ms, r.budget_ms);
    EXPECT_EQ(train.last.status, round::contribution_status::merged);
    r.action = round::poll_action::stop;
    r.stopped_by = round::stop_reason::exhausted;
    got = client::decode(site::request{asked}, wire::to_json(r, context()));
    ASSERT_TRUE(got);
    EXPECT_EQ(std::get<ledger::poll_reply>(*got).stopped_by, round::stop_reason::exhausted);
}

TEST(wire, findings_about_a_blob_come_back_bit_for_bit) {
    ledger::blob_facts f;
    f.bytes = 1U << 20U;
    f.layout_digest = std::array<std::uint8_t, 16>{1, 2, 3, 255};
    f.scan = delta_scan{true, 0.1F, 1.0 / 3.0};
    f.metadata = contribution_claim{"run", {"alpha"}, generation{2}, 4096, 20};
    const auto back = http::parse_scan_text(http::scan_text(f));
    ASSERT_TRUE(back);
    EXPECT_EQ(back->bytes, f.bytes);
    EXPECT_EQ(back->layout_digest, f.layout_digest);
    EXPECT_EQ(back->scan, f.scan);
    EXPECT_EQ(back->metadata, f.metadata);
    EXPECT_FALSE(http::parse_scan_text("{\"finite\":1}"));
}

TEST(wire, numbers_beyond_2_53_are_texts) {
    ledger::reserve_reply r{position{(std::uint64_t{1} << 53U) + 1}, position{5}};
    EXPECT_EQ(*wire::to_json(r, context()).at("reserved_end").as_string(), "9007199254740993");
    EXPECT_TRUE(wire::to_json(r, context()).at("end").is_integer());
}

TEST(wire, every_code_has_a_status_and_only_internal_ones_are_500) {
    for (const errc c : {errc::bad_request,
                         errc::digest_mismatch,
                         errc::token,
                         errc::wrong_scope,
                         errc::not_owner,
                         errc::no_route,
                         errc::method,
                         errc::gone,
                         errc::lease_gone,
                         errc::fenced,
                         errc::unknown_site,
                         errc::beyond_reserved,
                         errc::epoch_incomplete,
                         errc::stale_generation,
                         errc::round_closed,
                         errc::already_contributed,
                         errc::blob_missing,
                         errc::blocks_lost,
                         errc::offset_mismatch,
                         errc::too_large,
                         errc::meta_mismatch,
                         errc::growth,
                         errc::norm_outlier,
                         errc::quota,
                         errc::checksum_mismatch,
                         errc::no_room,
                         errc::cluster_busy,
                         errc::restarting,
                         errc::disk_full_ack,
                         errc::overloaded,
                         errc::degraded,
                         errc::policy,
                         errc::corpus_mismatch,
                         errc::schedule_mismatch,
                         errc::codec_unsupported,
                         errc::layout_mismatch,
                         errc::not_finite})
        EXPECT_NE(wire::http_status(c), 500) << word(c);
    EXPECT_EQ(wire::http_status(errc::digest_mismatch, true), 422);
    EXPECT_EQ(wire::http_status(errc::internal), 500);
}

}  // namespace
