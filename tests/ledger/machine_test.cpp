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

// --- register ------------------------------------------------------------------------------------------------------

register_request registration(const world& w, const std::string& site, std::uint64_t process = 1) {
    register_request r;
    r.who = world::who(site, process);
    r.protocol = 2;
    r.digest = w.m.space_digest();
    return r;
}

TEST_F(a_ledger, refuses_another_geometry_and_names_what_differs) {
    auto r = registration(w, "a");
    r.num_samples = 81;
    EXPECT_EQ(w.handle(r).refused().code, errc::digest_mismatch);
    EXPECT_NE(w.handle(r).refused().context.find("num_samples"), std::string::npos);
    r = registration(w, "a");
    r.block_size = 5;
    EXPECT_NE(w.handle(r).refused().context.find("block_size"), std::string::npos);
    r = registration(w, "a");
    r.digest[0] = r.digest[0] == '0' ? '1' : '0';
    const auto refused = w.handle(r).refused();
    EXPECT_EQ(refused.code, errc::digest_mismatch);
    for (const std::string& part : {w.m.space_digest().substr(0, 8), r.digest.substr(0, 8), std::string("num_samples"),
                                    std::string("block_size"), std::string("seed")})
        EXPECT_NE(refused.context.find(part), std::string::npos) << part << ": " << refused.context;
    r.digest = "<script>";
    EXPECT_EQ(w.handle(r).refused().context.find("script"), std::string::npos) << "what is no digest is not repeated";
    r.digest.clear();
    EXPECT_TRUE(w.handle(r).ok()) << "a missing digest is accepted";
}

TEST_F(a_ledger, pins_the_corpus_of_the_first_site_that_tells_one) {
    EXPECT_TRUE(w.handle(registration(w, "untold")).ok());
    auto r = registration(w, "a");
    r.corpus = "corpus1";
    r.corpus_content = "content1";
    EXPECT_TRUE(w.handle(r).reply().corpus_verified);
    r = registration(w, "b");
    r.corpus = "corpus1";
    r.corpus_content = "content2";
    EXPECT_EQ(w.handle(r).refused().code, errc::corpus_mismatch) << "equal geometry, other tokens";
    r.corpus_content = "content1";
    EXPECT_TRUE(w.handle(r).ok());
    EXPECT_TRUE(w.m.kept().told.at({"untold"}).corpus.empty());
    EXPECT_EQ(w.facts_of<records::corpus_pinned>().size(), 1U);
}

TEST_F(a_ledger, refuses_a_legacy_client_where_blocks_commit_at_the_merge) {
    auto r = registration(w, "old");
    r.protocol = 1;
    EXPECT_EQ(w.handle(r).refused().code, errc::policy);
}

TEST_F(a_ledger, a_take_over_returns_blocks_and_ends_the_duty_in_one_record) {
    w.enter("a");
    w.enter("b");
    w.init();
    w.poll("a");
    w.poll("b");
    (void)w.acquire("a", 8);
    w.contribute("b", w.acquire("b", 2));
    auto r = registration(w, "a", 2);
    EXPECT_EQ(w.handle(r).refused().code, errc::cluster_busy);
    r.take_over = world::who("a").incarnation;
    EXPECT_TRUE(w.handle(r).ok());
    EXPECT_EQ(w.m.leases().counts().leased, 0U);
    ASSERT_EQ(w.facts_of<records::superseded>().size(), 1U);
    EXPECT_EQ(w.m.rounds().durable().participants.at({"a"}).status, round::duty::left);
    EXPECT_EQ(w.handle(poll_request{world::who("a"), {}, round::site_activity::idle, 0, 0}).refused().code,
              errc::fenced);
    EXPECT_EQ(w.handle(poll_request{world::who("a", 2), {}, round::site_activity::idle, 0, 0}).refused().code,
              errc::unknown_site)
        << "the new process has to join";
}

TEST_F(a_ledger, a_pledge_outlives_the_process_that_made_it) {
    w.enter("a");
    w.enter("b");
    w.init();
    w.poll("a");
    w.poll("b");
    const auto leases = w.acquire("a", 4);
    ASSERT_TRUE(w.contribute("a", leases).ok());
    auto r = registration(w, "a", 2);
    r.take_over = world::who("a").incarnation;
    ASSERT_TRUE(w.handle(r).ok());
    w.join("a", 2);
    EXPECT_EQ(w.poll("a", 2).reason, round::wait_reason::contributed);
    EXPECT_EQ(w.m.leases().counts().pledged, 2U);
}

// --- contributions -------------------------------------------------------------------------------------------------

struct a_round : a_ledger {
    std::vector<lease::lease_record> leases;
    void SetUp() override {
        w.enter("a");
        w.enter("b");
        w.init();
        w.poll("a");
        w.poll("b");
        leases = w.acquire("a", 4);
        for (const auto& l : leases) w.reserve("a", l, l.end);
    }
    contribute_request claim(std::uint64_t tokens = 64) {
        auto c = w.claim("a", leases, tokens);
        w.store_blob("a", c.sha256);
        return c;
    }
    errc refusal_of(const contribute_request& c) {
        const auto before = w.m.digest();
        const auto out = w.handle(c);
        EXPECT_FALSE(out.ok());
        EXPECT_EQ(w.m.digest(), before) << "a refusal changes nothing";
        return out.ok() ? errc::internal : out.refused().code;
    }
};

TEST_F(a_round, a_pledge_is_one_record_with_claim_and_blocks) {
    const auto out = w.handle(claim());
    ASSERT_TRUE(out.ok());
    const auto facts = w.facts_of<records::pledged>();
    ASSERT_EQ(facts.size(), 1U);
    ASSERT_TRUE(facts[0].leases);
    EXPECT_EQ(facts[0].leases->spans.size(), leases.size());
    EXPECT_EQ(facts[0].contribution.contribution.weight_tokens, 64U);
    EXPECT_EQ(w.m.leases().counts().pledged, 2U);
    EXPECT_TRUE(w.m.rounds().has_pledged({"a"}));
}

TEST_F(a_round, a_delta_that_was_not_uploaded_is_missing) {
    auto c = claim();
    c.sha256 = "elsewhere";
    EXPECT_EQ(refusal_of(c), errc::blob_missing);
}

TEST_F(a_round, a_stale_delta_is_refused_and_its_leases_stay) {
    auto c = claim();
    c.base = generation{7};
    EXPECT_EQ(refusal_of(c), errc::stale_generation);
    EXPECT_EQ(w.m.leases().counts().leased, 2U);
}

TEST_F(a_round, blocks_beyond_the_reservation_are_refused) {
    const auto more = w.acquire("a", 4);
    auto c = claim();
    c.leases.clear();
    for (const auto& l : more) c.leases.push_back({lease::ref_to(l), l.start, l.end});
    EXPECT_EQ(refusal_of(c), errc::beyond_reserved);
}

TEST_F(a_round, a_claim_that_does_not_start_at_the_ledgers_end_is_refused) {
    auto c = claim();
    ++c.leases[0].from.count;
    EXPECT_EQ(refusal_of(c), errc::blocks_lost);
}

TEST_F(a_round, a_claim_of_no_tokens_counts_as_declined) {
    const auto out = w.handle(claim(0));
    ASSERT_TRUE(out.ok());
    EXPECT_TRUE(out.reply().declined);
    EXPECT_EQ(w.m.rounds().durable().participants.at({"a"}).status, round::duty::declined);
}

TEST_F(a_round, a_file_of_another_layout_or_with_other_metadata_is_refused) {
    auto c = claim();
    blob_verified b{{"a"}, c.sha256, blob_purpose::delta, {}};
    b.facts.layout_digest = std::array<std::uint8_t, 16>{1, 2, 3};
    (void)w.handle(b);
    EXPECT_EQ(refusal_of(c), errc::layout_mismatch);
    b.facts.layout_digest.reset();
    b.facts.metadata = contribution_claim{"run", {"a"}, c.base, c.tokens + 1, c.steps};
    (void)w.handle(b);
    EXPECT_EQ(refusal_of(c), errc::meta_mismatch);
}

TEST_F(a_round, a_bad_delta_returns_its_blocks_and_is_not_waited_for) {
    auto c = claim();
    blob_verified b{{"a"}, c.sha256, blob_purpose::delta, {}};
    b.facts.scan = delta_scan{false, 0, 0};
    (void)w.handle(b);
    const auto out = w.handle(c);
    EXPECT_EQ(out.refused().code, errc::not_finite);
    EXPECT_EQ(w.m.leases().counts().leased, 0U);
    ASSERT_EQ(w.facts_of<records::contribution_rejected>().size(), 1U);
    EXPECT_EQ(w.effects_of<effects::delete_blob>().back().sha256, c.sha256);
    const auto again = w.handle(c);
    ASSERT_TRUE(again.ok()) << "the same id gets its outcome";
    EXPECT_EQ(again.reply().status, round::contribution_status::rejected);
    EXPECT_EQ(again.reply().reason, errc::not_finite);
    w.contribute("b", w.acquire("b", 2));
    EXPECT_TRUE(w.merging());
}

TEST_F(a_round, an_absurd_but_finite_delta_is_rejected_for_growth) {
    auto c = claim();
    w.store_blob("a", c.sha256, 1001.0F);
    EXPECT_EQ(w.handle(c).refused().code, errc::growth);
}

TEST_F(a_round, tokens_and_steps_are_capped_by_what_the_ledger_knows) {
    auto c = claim(1'000'000);
    c.steps = 1'000'000'000;
    const auto out = w.handle(c);
    ASSERT_TRUE(out.ok());
    EXPECT_EQ(out.reply().weight_tokens, 2U * 4 * 8) << "blocks x windows x seq_len";
    EXPECT_EQ(w.m.rounds().durable().pledges.at({"a"}).steps, 500U + 4U);
    std::set<std::string> kinds;
    for (const auto& n : w.effects_of<effects::notice>()) kinds.insert(n.kind);
    EXPECT_EQ(kinds, (std::set<std::string>{"token_claim_capped", "step_claim_capped"}));
}

TEST_F(a_round, the_same_contribution_is_answered_again_after_a_restart) {
    const auto c = claim();
    ASSERT_TRUE(w.handle(c).ok());
    auto copy = w.replayed();
    ASSERT_TRUE(copy);
    w.m = std::move(*copy);
    w.start(2);
    const auto again = w.handle(c);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(again.reply().status, round::contribution_status::pledged);
    EXPECT_EQ(again.reply().pledged_blocks, 2U);
    EXPECT_EQ(w.facts_of<records::pledged>().size(), 1U);
}

TEST_F(a_round, the_same_acquire_is_answered_again_after_a_restart) {
    acquire_request r;
    r.who = world::who("b");
    r.want = 4;
    r.request_id = "once";
    const auto first = w.handle(r).reply().leases.leases;
    auto copy = w.replayed();
    ASSERT_TRUE(copy);
    w.m = std::move(*copy);
    w.start(2);
    const auto again = w.handle(r).reply().leases.leases;
    ASSERT_EQ(again.size(), first.size());
    EXPECT_EQ(again[0].seq, first[0].seq);
}

// --- merges --------------------------------------------------------------------------------------------------------

TEST_F(a_round, model_and_blocks_move_in_one_record) {
    ASSERT_TRUE(w.handle(claim()).ok());
    w.contribute("b", w.acquire("b", 4));
    ASSERT_TRUE(w.merging());
    const auto merge = w.effects_of<effects::start_merge>().back();
    EXPECT_EQ(merge.next, generation{1});
    ASSERT_EQ(merge.inputs.size(), 2U);
    EXPECT_EQ(merge.inputs[0].site.name, "a");
    const auto before = w.journal.size();
    w.finish_merge();
    const auto commits = w.facts_of<records::merge_commit>();
    ASSERT_EQ(commits.size(), 1U);
    EXPECT_TRUE(std::holds_alternative<records::merge_commit>(w.journal[before].first));
    EXPECT_EQ(commits[0].leases->merged.size(), 2U);
    EXPECT_EQ(w.m.leases().counts().pledged, 0U);
    EXPECT_EQ(w.m.leases().counts().committed, 4U);
}

TEST_F(a_round, an_answer_to_another_merge_is_ignored) {
    ASSERT_TRUE(w.handle(claim()).ok());
    merge_done in;
    in.next = generation{1};
    (void)w.handle(in);
    EXPECT_EQ(w.m.rounds().current(), generation{0}) << "no merge is running";
    w.contribute("b", w.acquire("b", 4));
    in.next = generation{2};
    (void)w.handle(in);
    EXPECT_EQ(w.m.rounds().current(), generation{0});
    EXPECT_TRUE(w.merging());
}

TEST_F(a_round, a_file_found_damaged_by_the_merge_is_rejected_alone) {
    const auto c = claim();
    ASSERT_TRUE(w.handle(c).ok());
    w.contribute("b", w.acquire("b", 4));
    w.finish_merge({{c.id, {"a"}, errc::not_finite}});
    EXPECT_EQ(w.m.rounds().current(), generation{1});
    EXPECT_EQ(w.m.leases().counts().committed, 2U) << "b's";
    EXPECT_EQ(w.poll("a").last.status, round::contribution_status::rejected);
}

TEST_F(a_round, a_merge_that_finds_only_damaged_files_rejects_them_and_keeps_the_generation) {
    const auto c = claim();
    ASSERT_TRUE(w.handle(c).ok());
    w.contribute("b", w.acquire("b", 4));
    std::vector<round::rejected_at_merge> bad;
    for (const auto& [site, p] : w.m.rounds().durable().pledges) bad.push_back({p.id, site, errc::not_finite});
    w.finish_merge(bad);
    EXPECT_EQ(w.m.rounds().current(), generation{0});
    EXPECT_EQ(w.m.leases().counts().pledged, 0U);
    EXPECT_EQ(w.m.rounds().state(), round::phase::open);
    ASSERT_EQ(w.facts_of<records::pledges_rejected>().size(), 1U);
    EXPECT_EQ(w.facts_of<records::pledges_rejected>()[0].contributions.size(), 2U);
    EXPECT_EQ(w.poll("a").action, round::poll_action::train);
}

TEST_F(a_round, a_failed_merge_is_tried_again_with_the_same_inputs) {
    ASSERT_TRUE(w.handle(claim()).ok());
    w.contribute("b", w.acquire("b", 4));
    (void)w.handle(merge_failed{generation{1}, "EIO", {}});
    EXPECT_EQ(w.m.leases().counts().pledged, 4U);
    w.pass(5'000);
    const auto merges = w.effects_of<effects::start_merge>();
    ASSERT_EQ(merges.size(), 2U);
    EXPECT_EQ(merges[0], merges[1]);
    w.finish_merge();
}

TEST_F(a_round, pledged_blocks_are_safe_however_long_the_merge_takes) {
    for (const bool in_order : {true, false}) {
        world x;
        order_switches switches;
        switches.pledge_before_merge = in_order;
        x.m.set_switches_for_testing(switches);
        x.enter("a");
        x.enter("b");
        x.init();
        x.poll("a");
        const auto held = x.acquire("a", 40);
        ASSERT_TRUE(x.contribute("a", held, 40).ok());
        for (int i = 0; i < 200; ++i) {
            x.heartbeat("b");
            x.pass(20'000);
        }
        std::uint64_t twice = 0;
        for (const auto& l : x.acquire("b", 40))
            for (const auto& mine : held) twice += std::max(l.start, mine.start) < std::min(l.end, mine.end) ? 1U : 0U;
        EXPECT_EQ(twice == 0, in_order) << "blocks of an accepted delta went to another site";
    }
}

TEST_F(a_round, publishing_tells_what_may_be_collected_and_drops_stale_uploads) {
    const auto c = claim();
    ASSERT_TRUE(w.handle(c).ok());
    w.contribute("b", w.acquire("b", 4));
    w.finish_merge();
    const auto keep = w.effects_of<effects::collect_garbage>().back();
    EXPECT_EQ(keep.oldest_kept, generation{0});
    EXPECT_TRUE(std::binary_search(keep.blobs.begin(), keep.blobs.end(), c.sha256)) << "inputs of the last merge";
    EXPECT_EQ(w.effects_of<effects::drop_stale_uploads>().back().current, generation{1});
    EXPECT_EQ(w.handle(announce_upload{world::who("a"), blob_purpose::delta, generation{0}}).refused().code,
              errc::stale_generation)
        << "no bytes are wasted on a stale delta";
    EXPECT_TRUE(w.handle(announce_upload{world::who("a"), blob_purpose::delta, generation{1}}).ok());
}

TEST_F(a_round, the_norms_of_accepted_deltas_are_remembered_over_restarts) {
    ASSERT_TRUE(w.handle(claim()).ok());
    EXPECT_EQ(w.m.kept().norms, std::vector<double>{1.0});
    EXPECT_EQ(w.replayed()->kept().norms, std::vector<double>{1.0});
}

// --- the rest ------------------------------------------------------------------------------------------------------

TEST_F(a_ledger, the_first_verified_init_upload_becomes_generation_0) {
    w.enter("a");
    w.enter("b");
    EXPECT_EQ(w.poll("a").action, round::poll_action::init);
    EXPECT_TRUE(w.handle(announce_upload{world::who("a"), blob_purpose::init, {}}).ok());
    (void)w.handle(blob_verified{{"a"}, "init-a", blob_purpose::init, {}});
    (void)w.handle(blob_verified{{"b"}, "init-b", blob_purpose::init, {}});
    const auto starts = w.effects_of<effects::initialise_model>();
    ASSERT_EQ(starts.size(), 1U);
    EXPECT_EQ(starts[0].sha256, "init-a");
    EXPECT_EQ(w.effects_of<effects::delete_blob>().back().sha256, "init-b");
    w.init();
    w.init();
    EXPECT_EQ(w.facts_of<records::model_initialised>().size(), 1U);
    EXPECT_EQ(w.handle(announce_upload{world::who("b"), blob_purpose::init, {}}).refused().code,
              errc::stale_generation);
}

TEST_F(a_ledger, rounds_need_a_registered_and_joined_process) {
    w.init();
    EXPECT_EQ(w.handle(join_request{world::who("a"), {}, world::pins(), ""}).refused().code, errc::unknown_site);
    ASSERT_TRUE(w.handle(registration(w, "a")).ok());
    EXPECT_EQ(w.handle(poll_request{world::who("a"), {}, round::site_activity::idle, 0, 0}).refused().code,
              errc::unknown_site);
    auto other_run = join_request{world::who("a"), "another", world::pins(), ""};
    EXPECT_EQ(w.handle(other_run).refused().code, errc::bad_request);
    auto other_length = join_request{world::who("a"), {}, world::pins(), ""};
    other_length.pins.seq_len = 9;
    EXPECT_EQ(w.handle(other_length).refused().code, errc::layout_mismatch);
    w.join("a");
    EXPECT_EQ(w.poll("a").action, round::poll_action::train);
}

TEST_F(a_ledger, leaving_gives_the_leases_back) {
    w.enter("a");
    w.init();
    w.poll("a");
    (void)w.acquire("a", 8);
    EXPECT_TRUE(w.handle(leave_request{world::who("a"), "done"}).ok());
    EXPECT_EQ(w.m.leases().counts().leased, 0U);
    EXPECT_FALSE(w.m.rounds().has_member({"a"}));
    const auto before = w.m.digest();
    EXPECT_TRUE(w.handle(leave_request{world::who("a"), "done"}).ok()) << "told again it says the same";
    EXPECT_EQ(w.m.digest(), before);
    w.enter("a", 2);
    EXPECT_EQ(w.handle(leave_request{world::who("a"), "done"}).refused().code, errc::fenced);
    EXPECT_EQ(w.handle(leave_request{world::who("never-joined"), "done"}).refused().code, errc::unknown_site);
}

TEST_F(a_ledger, a_silent_sites_leases_expire_at_a_tick_and_the_round_goes_on) {
    w.enter("a");
    w.enter("b");
    w.init();
    w.poll("a");
    w.poll("b");
    (void)w.acquire("b", 8);
    w.contribute("a", w.acquire("a", 4));
    EXPECT_FALSE(w.merging());
    for (int i = 0; i < 13; ++i) {
        w.heartbeat("a");
        w.pass(10'000);
    }
    EXPECT_TRUE(w.merging()) << "b is silent";
    for (int i = 0; i < 100; ++i) w.pass(10'000);
    EXPECT_EQ(w.m.leases().counts().leased, 0U) << "b's leases expired";
}

TEST_F(a_ledger, waiting_for_names_the_straggler_of_a_scripted_scenario) {
    w.enter("fast");
    w.enter("slow");
    w.init();
    w.poll("fast");
    w.poll("slow");
    (void)w.acquire("slow", 4);
    w.contribute("fast", w.acquire("fast", 4));
    const auto text = w.m.round_status(w.now).waiting_for;
    EXPECT_NE(text.find("waiting for slow (training, until "), std::string::npos) << text;
    EXPECT_EQ(text.find("fast"), std::string::npos) << text;
}

TEST_F(a_ledger, the_outer_policy_changes_only_by_its_own_record) {
    outer_policy other;
    other.eta = 0.5;
    EXPECT_TRUE(w.handle(change_outer_policy{other}).ok());
    EXPECT_EQ(w.replayed()->kept().outer, other);
    other.eta = -1;
    EXPECT_EQ(w.handle(change_outer_policy{other}).refused().code, errc::bad_request);
}

TEST_F(a_ledger, snapshots_come_back_equal_and_damaged_ones_are_refused) {
    w.enter("a");
    w.init();
    w.poll("a");
    w.contribute("a", w.acquire("a", 8));
    w.finish_merge();
    (void)w.acquire("a", 3);
    const auto bytes = w.m.snapshot();
    const auto copy = machine::from_snapshot(bytes, w.now);
    ASSERT_TRUE(copy) << to_text(copy.error());
    EXPECT_EQ(copy->digest(), w.m.digest());
    EXPECT_EQ(copy->snapshot(), bytes);
    EXPECT_EQ(encode(freeze(w.m)), bytes);
    for (std::size_t n = 0; n < bytes.size(); n += 7) EXPECT_FALSE(machine::from_snapshot(bytes.substr(0, n), w.now));
    EXPECT_FALSE(machine::from_snapshot(bytes + '\0', w.now));
}

TEST_F(a_ledger, every_thousand_records_a_digest_of_the_state_is_recorded_and_compared) {
    w.enter("a");
    w.init();
    for (int i = 0; i < 1'200; ++i) {
        w.poll("a");
        const auto leases = w.acquire("a", 1);
        (void)w.handle(release_request{world::who("a"), std::nullopt, false});
        w.pass(10);
    }
    const auto digests = w.facts_of<records::state_digest>();
    ASSERT_FALSE(digests.empty());
    machine other(w.m.settings());
    bool refused = false;
    for (const auto& [r, at] : w.journal) {
        if (std::holds_alternative<round::joined>(r)) continue;  // a record was lost
        if (!other.replay(r, at)) refused = true;
    }
    EXPECT_TRUE(refused) << "replay without one record must not pass the digest";
}

TEST(an_epoch, advances_by_itself_and_the_run_ends_after_the_last) {
    auto settings = world::small_run(4, 2);
    settings.lease.max_epochs = 2;
    settings.lease.first_grant_fraction = 1;
    world w(settings);
    w.enter("a");
    w.init();
    for (std::uint32_t epoch = 0; epoch < 2; ++epoch) {
        EXPECT_EQ(w.m.epoch().count, epoch);
        EXPECT_EQ(w.poll("a").action, round::poll_action::train);
        ASSERT_TRUE(w.contribute("a", w.acquire("a", 4), 16).ok());
        ASSERT_TRUE(w.merging());
        w.finish_merge();
    }
    EXPECT_EQ(w.poll("a").action, round::poll_action::stop);
    EXPECT_EQ(w.m.rounds().durable().stop, round::stop_reason::exhausted);
    EXPECT_EQ(w.effects_of<effects::prepare_epoch>().size(), 1U);
    a_ledger::check(w);
}

TEST(an_on_checkpoint_run, pledges_no_blocks_and_caps_tokens_by_what_was_committed) {
    auto settings = world::small_run();
    settings.lease.commit_policy = lease::commit_policy::on_checkpoint;
    world w(settings);
    w.enter("a");
    w.init();
    w.poll("a");
    const auto leases = w.acquire("a", 4);
    for (const auto& l : leases) {
        w.reserve("a", l, l.end);
        ASSERT_TRUE(w.handle(commit_request{world::who("a"), lease::ref_to(l), l.end}).ok());
    }
    auto c = w.claim("a", leases, 1'000'000);
    w.store_blob("a", c.sha256);
    const auto out = w.handle(c);
    ASSERT_TRUE(out.ok());
    EXPECT_EQ(out.reply().pledged_blocks, 0U);
    EXPECT_EQ(out.reply().weight_tokens, 2U * 4 * 8);
    EXPECT_TRUE(w.m.kept().windows.empty()) << "counted once";
    w.finish_merge();
    EXPECT_EQ(w.m.rounds().current(), generation{1});
    a_ledger::check(w);
}

TEST(an_on_checkpoint_run, keeps_nothing_for_legacy_sites_since_they_never_contribute) {
    auto settings = world::small_run();
    settings.lease.commit_policy = lease::commit_policy::on_checkpoint;
    world w(settings);
    auto legacy = registration(w, "a");
    legacy.protocol = 1;
    ASSERT_TRUE(w.handle(legacy).ok());
    const auto leases = w.acquire("a", 4);
    ASSERT_FALSE(leases.empty());
    for (const auto& l : leases) ASSERT_TRUE(w.handle(commit_request{world::who("a"), lease::ref_to(l), l.end}).ok());
    EXPECT_GT(w.m.leases().counts().committed, 0U);
    EXPECT_TRUE(w.m.kept().windows.empty());
}

TEST(a_ledger_for_leases_only, has_no_rounds) {
    auto settings = world::small_run();
    settings.rounds = false;
    world w(settings);
    ASSERT_TRUE(w.handle(registration(w, "a")).ok());
    EXPECT_EQ(w.handle(join_request{world::who("a"), {}, world::pins(), ""}).refused().code, errc::policy);
    EXPECT_EQ(w.acquire("a", 4).size(), 1U);
}

TEST(run_settings_check, names_the_setting) {
    auto s = world::small_run();
    EXPECT_TRUE(check(s));
    s.outer.beta = 1;
    EXPECT_NE(check(s).error().context.find("outer.beta"), std::string::npos);
    s = world::small_run();
    s.lease.answer_generations = 3;
    EXPECT_FALSE(check(s));
    s = world::small_run();
    s.run_id = "no/slash";
    EXPECT_FALSE(check(s));
}

}  // namespace
