// SPDX-License-Identifier: Apache-2.0
// The rules of the lease table, one script each.
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <thread>

#include "tests/lease/scenario.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::lease;

settings whole_grants() {
    settings s;
    s.first_grant_fraction = 1;
    return s;
}
settings checkpoints() {
    settings s = whole_grants();
    s.commit_policy = commit_policy::on_checkpoint;
    return s;
}
errc code_of(const std::variant<std::optional<events::resolved>, refusal>& v) { return std::get<refusal>(v).code; }

// --- processes of one site --------------------------------------------------------------------------------------

TEST(lease_register, a_live_process_keeps_its_id_until_it_is_named) {
    scenario s(50, whole_grants());
    s.join("a", 1);
    const auto lease = s.grant("a", 10);
    const auto busy = s.join("a", 2);
    ASSERT_FALSE(busy.ok());
    EXPECT_EQ(busy.refused().code, errc::cluster_busy);
    EXPECT_EQ(busy.refused().incarnation, (incarnation{7, 1}));
    EXPECT_GT(busy.refused().retry_after_ms, 0);
    EXPECT_EQ(s.take_over("a", 2, 99).refused().code, errc::cluster_busy)
        << "another process than the current one was named";
    EXPECT_TRUE(s.take_over("a", 2, 1).reply().superseded);
    EXPECT_FALSE(s.table.find_lease(lease.seq));
    EXPECT_EQ(s.table.counts().unassigned, 50U);
    EXPECT_EQ(s.join("a", 1).refused().code, errc::fenced) << "for ever";
    EXPECT_EQ(s.take_over("a", 1, 2).refused().code, errc::fenced);
}

TEST(lease_register, a_silent_process_is_replaced_after_the_live_window_and_history_stays) {
    scenario s(50, whole_grants());
    s.join("a", 1);
    const auto lease = s.grant("a", 10);
    s.reserve("a", lease, 10);
    s.later(10);
    s.pledge("a", "c1", {s.claim(lease, 0, 10)});
    s.later(31);
    EXPECT_TRUE(s.join("a", 2).reply().superseded);
    const auto site = s.table.site(site_number{0}, s.now);
    EXPECT_EQ(site.pledged, 10U) << "a pledge survives its process";
    EXPECT_EQ(site.counters.granted, 10U);
    EXPECT_NEAR(site.rate_blocks_per_s, 1.0, 1e-6);
    EXPECT_EQ(s.merge().reply().committed, 10U);
}

TEST(lease_register, a_release_all_ends_liveness_at_once) {
    scenario s(50);
    s.join("a", 1);
    s.grant("a", 10);
    s.release_all("a");
    EXPECT_TRUE(s.join("a", 2).ok());
}

TEST(lease_register, a_stale_process_releases_nothing) {
    scenario s(50);
    s.join("a", 1);
    s.take_over("a", 2, 1);
    const auto out = s.ask(s.who("a", 2), 10);
    EXPECT_EQ(s.release_all("a", 1).reply().released, 0U);
    EXPECT_EQ(s.table.counts().leased, out.reply().leases.at(0).at_risk().size());
    EXPECT_EQ(s.release("a", out.reply().leases.at(0)).refused().code, errc::fenced);
}

// --- refusals ---------------------------------------------------------------------------------------------------

TEST(lease_refusals, every_code_is_reached_and_says_what_to_do) {
    std::set<errc> seen;
    const auto expect = [&](const auto& out, errc code) {
        ASSERT_FALSE(out.ok()) << word(code);
        EXPECT_EQ(out.refused().code, code) << out.refused().context;
        EXPECT_GT(out.refused().context.size(), 20U) << "a sentence with the fix";
        seen.insert(out.refused().code);
    };
    settings rules = whole_grants();
    rules.max_sites = 2;
    rules.max_leases_per_site = 1;
    scenario s(50, rules);
    s.start = table::create({50, "digest"}, rules).value();
    s.table = s.start;
    register_site in;
    in.who = s.who("a");
    in.space_digest = "other";
    expect(s.call(in), errc::digest_mismatch);
    in.space_digest = "digest";
    in.corpus = "text";
    EXPECT_TRUE(s.call(in).ok());
    in.who = s.who("b");
    in.corpus = "another text";
    expect(s.call(in), errc::corpus_mismatch);
    in.corpus = "text";
    EXPECT_TRUE(s.call(in).ok());
    expect(s.join("c"), errc::overloaded);
    in.who = s.who("a", 2);
    in.mode = site_mode::legacy;
    expect(s.call(in), errc::policy);
    const auto l = s.grant("a", 10);
    expect(s.ask("a", 10), errc::overloaded);
    expect(s.join("a", 2), errc::cluster_busy);
    expect(s.ask("z", 1), errc::unknown_site);
    expect(s.ask(s.who("a", 5), 1), errc::fenced);
    expect(s.ask("a", 1, "", 65), errc::bad_request);
    expect(s.ask("a", 1, std::string(65, 'x')), errc::bad_request);
    expect(s.ask("not a name", 1), errc::bad_request);
    expect(s.reserve("b", l, 5), errc::not_owner);
    auto unknown = l;
    unknown.seq = lease_seq{77};
    expect(s.reserve("a", unknown, 5), errc::lease_gone);
    expect(s.commit("a", l, 1), errc::policy);
    s.reserve("a", l, 5);
    expect(s.pledge("a", "c", {s.claim(l, 0, 6)}), errc::beyond_reserved);
    expect(s.pledge("a", "c", {s.claim(l, 1, 5)}), errc::blocks_lost);
    expect(s.pledge("a", "c", {s.claim(l, 0, 0)}), errc::blocks_lost);
    expect(s.pledge("a", "", {s.claim(l, 0, 5)}), errc::bad_request);
    expect(s.pledge("a", "c", {s.claim(l, 0, 5), s.claim(l, 0, 5)}), errc::bad_request);
    EXPECT_TRUE(s.pledge("a", "c", {s.claim(l, 0, 3)}).ok());
    expect(s.pledge("a", "d", {s.claim(l, 3, 5)}), errc::already_contributed);
    expect(s.call(advance_epoch{}), errc::epoch_incomplete);
    pledge stale;
    stale.who = s.who("a");
    stale.id = {"e"};
    stale.base = generation{5};
    stale.claims = {s.claim(l, 3, 5)};
    expect(s.call(stale), errc::stale_generation);
    EXPECT_EQ(code_of(s.table.decide(resolve{generation{3}, {{"c"}}, {}})), errc::stale_generation);
    EXPECT_EQ(code_of(s.table.decide(resolve{generation{0}, {{"nobody's"}}, {}})), errc::bad_request);
    expect(s.call(restart{term{0}}), errc::bad_request);
    const std::set<errc> wanted{errc::bad_request,      errc::digest_mismatch,  errc::corpus_mismatch,
                                errc::policy,           errc::not_owner,        errc::lease_gone,
                                errc::fenced,           errc::unknown_site,     errc::beyond_reserved,
                                errc::epoch_incomplete, errc::stale_generation, errc::already_contributed,
                                errc::blocks_lost,      errc::cluster_busy,     errc::overloaded};
    EXPECT_EQ(seen, wanted);
    EXPECT_TRUE(s.table.verify());
    EXPECT_EQ(s.replayed().value().digest(), s.table.digest());
}

// --- idempotency and late work ----------------------------------------------------------------------------------

TEST(lease_idempotency, a_pledge_repeated_after_the_merge_is_answered_with_its_outcome_also_by_a_replayed_table) {
    scenario s(50, whole_grants());
    s.join("a");
    const auto l = s.grant("a", 50);
    s.reserve("a", l, 20);
    s.pledge("a", "c1", {s.claim(l, 0, 10)});
    s.merge();
    s.pledge("a", "c2", {s.claim(l, 10, 20)});
    s.merge({{{"c2"}, errc::growth}});
    s.table = s.replayed().value();
    const auto first = s.pledge("a", "c1", {s.claim(l, 0, 10)});
    EXPECT_EQ(first.reply().status, contribution_status::merged);
    EXPECT_TRUE(first.reply().repeated);
    EXPECT_TRUE(first.events.empty());
    const auto second = s.pledge("a", "c2", {s.claim(l, 10, 20)});
    EXPECT_EQ(second.reply().status, contribution_status::rejected);
    EXPECT_EQ(second.reply().reason, errc::growth);
}

TEST(lease_idempotency, an_acquire_repeated_after_a_restart_gives_the_leases_as_they_are_now) {
    scenario s(50, whole_grants());
    s.join("a");
    const auto first = s.ask("a", 50, "r1").reply().leases.at(0);
    s.reserve("a", first, 10);
    s.join("b");
    s.ask("b", 50);  // steals half of what is unread
    s.table = table::import_state(s.table.export_state()).value();
    s.restart();
    const auto again = s.ask("a", 50, "r1");
    ASSERT_EQ(again.reply().leases.size(), 1U);
    EXPECT_EQ(again.reply().leases[0].seq, first.seq);
    EXPECT_EQ(again.reply().leases[0].end, position{30});
    EXPECT_EQ(again.reply().leases[0].reserved_end, position{10});
}

TEST(lease_idempotency, the_ring_of_requests_is_bounded) {
    settings rules = whole_grants();
    rules.request_ring = 2;
    scenario s(50, rules);
    s.join("a");
    for (const char* id : {"r1", "r2", "r3"}) s.ask("a", 1, id);
    EXPECT_EQ(s.ask("a", 1, "r3").events.size(), 0U);
    EXPECT_EQ(s.ask("a", 1, "r1").events.size(), 1U) << "forgotten: a new question";
}

TEST(lease_late_work, a_restarted_process_commits_the_prefix_that_nobody_took) {
    scenario s(50, checkpoints());
    s.join("a", 1);
    const auto l = s.grant("a", 50);
    s.reserve("a", l, 20);
    s.later(10000);
    s.join("b");
    s.join("a", 2);
    s.release("b", s.grant("b", 5));  // half of the suspect run would be 10
    EXPECT_EQ(s.grant("b", 5).start, position{5});
    const auto out = s.commit("a", l, 20, 2);
    ASSERT_TRUE(out.ok()) << to_text(error{out.refused().code, out.refused().context});
    EXPECT_TRUE(out.reply().late);
    EXPECT_TRUE(out.reply().lease_closed);
    EXPECT_EQ(out.reply().committed_end, position{5});
    EXPECT_EQ(s.table.counts().committed, 5U);
    EXPECT_EQ(s.commit("a", l, out.reply().committed_end.count, 2).reply().committed_end, out.reply().committed_end);
    EXPECT_TRUE(s.table.verify());
}

TEST(lease_late_work, a_late_pledge_clears_the_attempts_of_its_blocks) {
    scenario s(50, whole_grants());
    s.join("a");
    const auto l = s.grant("a", 50);
    s.reserve("a", l, 20);
    s.later(10000);
    s.call(expire{});
    EXPECT_FALSE(s.table.suspect_runs().empty());
    EXPECT_TRUE(s.pledge("a", "c1", {s.claim(l, 0, 20)}).ok());
    EXPECT_TRUE(s.table.suspect_runs().empty());
    EXPECT_EQ(s.merge().reply().committed, 20U);
}

TEST(lease_late_work, released_leases_are_never_revived) {
    scenario s(50, whole_grants());
    s.join("a");
    const auto l = s.grant("a", 50);
    s.reserve("a", l, 20);
    s.release("a", l);
    EXPECT_EQ(s.pledge("a", "c1", {s.claim(l, 0, 20)}).refused().code, errc::lease_gone);
}

TEST(lease_late_work, closed_leases_are_remembered_up_to_the_bound) {
    settings rules = checkpoints();
    rules.closed_leases = 2;
    scenario s(50, rules);
    s.join("a");
    std::vector<lease_record> leases;
    for (int i = 0; i < 3; ++i) {
        leases.push_back(s.grant("a", 1));
        s.reserve("a", leases.back(), leases.back().end.count);
        s.commit("a", leases.back(), leases.back().end.count);
    }
    EXPECT_EQ(s.commit("a", leases[0], 1).refused().code, errc::lease_gone);
    EXPECT_TRUE(s.commit("a", leases[1], 2).ok());
    EXPECT_TRUE(s.table.verify());
    EXPECT_EQ(table::import_state(s.table.export_state()).value().digest(), s.table.digest());
}

TEST(lease_late_work, two_closed_leases_that_held_the_same_blocks_cannot_claim_them_twice) {
    settings rules = whole_grants();
    rules.max_attempts = 0;
    scenario s(1, rules);
    s.join("a");
    std::vector<lease_record> leases;
    for (int i = 0; i < 2; ++i) {
        leases.push_back(s.grant("a", 1));
        s.reserve("a", leases.back(), 1);
        s.later(10000);
        s.call(expire{});
    }
    EXPECT_EQ(s.pledge("a", "c1", {s.claim(leases[0], 0, 1), s.claim(leases[1], 0, 1)}).refused().code,
              errc::blocks_lost);
}

// --- time -------------------------------------------------------------------------------------------------------

TEST(lease_time, two_restarts_without_a_sign_of_life_between_extend_once) {
    scenario s(50, whole_grants());
    s.join("a");
    s.beat("a", {}, 1, 10);
    const auto l = s.grant("a", 10);  // 30 s
    EXPECT_EQ(s.restart().reply().extended, 1U);
    const auto extended = s.table.find_lease(l.seq)->deadline;
    EXPECT_EQ(extended, s.now + 300000);
    s.later(200);
    EXPECT_EQ(s.restart().reply().extended, 0U);
    EXPECT_EQ(s.table.find_lease(l.seq)->deadline, extended);
}

TEST(lease_time, a_tick_writes_renewals_down_and_says_nothing_when_there_is_nothing) {
    scenario s(50, whole_grants());
    EXPECT_TRUE(s.call(tick{}).events.empty());
    s.join("a");
    const auto l = s.grant("a", 10);
    s.call(tick{});
    s.later(100);
    s.beat("a", {l});
    const auto out = s.call(tick{});
    ASSERT_EQ(out.events.size(), 1U);
    const auto& e = std::get<events::tick>(out.events[0]);
    ASSERT_EQ(e.leases.size(), 1U);
    EXPECT_EQ(e.leases[0].deadline, s.now + 900000);
    EXPECT_EQ(s.replayed().value().find_lease(l.seq)->deadline, s.now + 900000);
    s.restart();
    EXPECT_EQ(s.table.find_lease(l.seq)->deadline, s.now + 900000);
}

TEST(lease_time, a_renewal_that_no_tick_wrote_down_is_lost_by_a_restart_but_the_grace_covers_it) {
    scenario s(50, whole_grants());
    s.join("a");
    const auto l = s.grant("a", 10);
    s.later(800);
    s.beat("a", {l});
    s.restart();
    EXPECT_EQ(s.table.find_lease(l.seq)->deadline, s.now + 300000);
}

// --- who gets how much ------------------------------------------------------------------------------------------

TEST(lease_grants, a_newcomer_without_a_rate_gets_a_fair_part_of_the_tail) {
    scenario s(100, whole_grants());
    s.join("fast");
    const auto l = s.grant("fast", 60);
    s.reserve("fast", l, 60);
    s.later(1);
    s.pledge("fast", "c1", {s.claim(l, 0, 60)});  // 60 blocks per second
    s.join("new");
    const auto out = s.ask("new", 40);
    EXPECT_GE(out.reply().leases.at(0).at_risk().size(), 5U) << "a quarter of an equal share";
}

TEST(lease_grants, the_victim_is_the_lease_that_would_finish_last) {
    scenario s(40, whole_grants());
    s.join("slow");
    const auto w = s.grant("slow", 20);
    s.join("quick");
    const auto q = s.grant("quick", 20);
    while (s.table.counts().unassigned > 0) s.ask("quick", 20);
    s.reserve("quick", q, q.start.count + 2);
    s.reserve("slow", w, w.start.count + 2);
    s.later(2);
    s.pledge("quick", "c1", {s.claim(q, q.start.count, q.start.count + 2)});
    s.later(8);
    s.pledge("slow", "c2", {s.claim(w, w.start.count, w.start.count + 2)});
    s.merge();
    s.join("thief");
    const auto stolen = s.ask("thief", 4);
    ASSERT_EQ(stolen.reply().leases.size(), 1U);
    EXPECT_EQ(stolen.reply().leases[0].end, w.end);
    EXPECT_TRUE(stolen.reply().leases[0].stolen);
    EXPECT_EQ(s.beat("slow", {w}).reply().leases.at(0).end, stolen.reply().leases[0].start)
        << "told with the next beat";
}

TEST(lease_grants, suspects_come_alone_and_in_halves) {
    settings rules = whole_grants();
    scenario s(100, rules);
    s.join("a");
    const auto l = s.grant("a", 100);
    s.reserve("a", l, 40);
    s.later(10000);
    s.join("b");
    const auto out = s.ask("b", 100, "", 4);
    for (const auto& piece : out.reply().leases) {
        EXPECT_LE(piece.end.count, 40U) << "the first block met was lost before: only such ones";
        EXPECT_LE(piece.at_risk().size(), 20U);
    }
}

TEST(lease_grants, a_site_that_keeps_giving_back_stands_behind_one_that_waits) {
    scenario s(4, whole_grants());
    s.join("good");
    s.join("bad");
    for (int i = 0; i < 3; ++i) {
        s.ask("bad", 4);
        s.release_all("bad");
    }
    const auto reply = s.ask("bad", 4).reply();
    ASSERT_EQ(reply.status, acquire_status::granted);
    EXPECT_EQ(reply.leases.at(0).at_risk().size(), 1U) << "the least";
    EXPECT_EQ(reply.retry_after_ms, 30000);
    while (s.table.counts().unassigned > 0) s.ask("good", 4);
    EXPECT_EQ(s.ask("good", 1).reply().status, acquire_status::drain);
    s.release_all("bad");
    const auto behind = s.ask("bad", 4).reply();
    EXPECT_EQ(behind.status, acquire_status::drain);
    EXPECT_EQ(behind.reason, acquire_reason::after_others);
    EXPECT_GE(behind.retry_after_ms, 30000);
    EXPECT_EQ(s.ask("good", 1).reply().status, acquire_status::granted);
}

// --- quarantine -------------------------------------------------------------------------------------------------

TEST(lease_quarantine, three_distinct_sites_retire_a_block_and_three_clean_releases_never_do) {
    settings rules = whole_grants();
    rules.quarantine_second_chance = false;
    scenario s(1, rules);
    for (const char* name : {"a", "b", "c"}) {
        s.join(name);
        for (int i = 0; i < 2; ++i) {
            s.reserve(name, s.grant(name, 1), 1);
            s.release_all(name);
        }
    }
    EXPECT_TRUE(s.table.suspect_runs().empty());
    std::vector<events::quarantined_run> found;
    for (const char* name : {"a", "b", "c"}) {
        s.later(100);
        s.join(name);
        s.reserve(name, s.grant(name, 1), 1);
        s.later(10000);
        const auto out = s.call(expire{});
        found = std::get<events::expired>(out.events.at(0)).quarantined;
    }
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].sites.size(), 3U);
    EXPECT_EQ(s.table.state_of(position{0}), block_state::quarantined);
    EXPECT_TRUE(s.table.epoch_complete());
}

TEST(lease_quarantine, the_second_chance_gives_one_block_at_a_time) {
    settings rules = whole_grants();
    rules.max_attempts = 1;
    scenario s(4, rules);
    s.join("a");
    s.reserve("a", s.grant("a", 4), 4);
    s.later(10000);
    s.call(expire{});
    EXPECT_EQ(s.table.counts().quarantined, 4U);
    const auto reply = s.ask("a", 4).reply();
    ASSERT_EQ(reply.leases.size(), 1U);
    EXPECT_EQ(reply.leases[0].at_risk().size(), 1U);
    EXPECT_EQ(s.table.counts().unassigned, 3U);
}

TEST(lease_quarantine, without_a_limit_nothing_is_ever_set_aside) {
    settings rules = whole_grants();
    rules.max_attempts = 0;
    scenario s(1, rules);
    s.join("a");
    for (int i = 0; i < 20; ++i) {
        s.reserve("a", s.grant("a", 1), 1);
        s.later(10000);
        s.call(expire{});
    }
    EXPECT_EQ(s.table.counts().quarantined, 0U);
    EXPECT_EQ(s.table.suspect_runs().at(0).losses, 20U);
}

// --- legacy clients ---------------------------------------------------------------------------------------------

TEST(lease_legacy, everything_granted_counts_as_reserved_and_a_long_drain_ends_with_complete) {
    scenario s(10, checkpoints());
    s.join_legacy("old");
    const caller old{site_id{"old"}, {}};
    const auto l = s.ask(old, 10).reply().leases.at(0);
    EXPECT_EQ(l.reserved_end, l.end);
    s.join("thief");
    EXPECT_EQ(s.ask("thief", 5).reply().status, acquire_status::drain) << "never stolen from";
    EXPECT_EQ(s.ask(old, 10).reply().status, acquire_status::drain);
    s.later(59);
    EXPECT_EQ(s.ask(old, 10).reply().status, acquire_status::drain);
    s.later(2);
    const auto reply = s.ask(old, 10).reply();
    EXPECT_EQ(reply.status, acquire_status::epoch_complete);
    EXPECT_EQ(reply.reason, acquire_reason::finish_phase);
    lease_ref bare = ref_to(l);
    bare.token.reset();
    EXPECT_TRUE(s.call(commit{old, bare, position{100}}).reply().epoch_complete) << "beyond the end: clamped";
}

// --- snapshots and replay ---------------------------------------------------------------------------------------

TEST(lease_snapshots, a_copy_is_checked_and_exported_by_another_thread_while_the_table_goes_on) {
    scenario s(100000, whole_grants());
    for (const char* name : {"a", "b", "c"}) s.join(name);
    for (int i = 0; i < 50; ++i) s.ask("a", 100);
    const std::uint64_t before = s.table.digest();
    std::uint64_t seen = 0;
    bool good = false;
    std::thread background([copy = s.table.snapshot(), &seen, &good] {
        good = verify(copy).has_value() && import_book(export_state(copy)).has_value();
        seen = digest(copy);
    });
    for (int i = 0; i < 200; ++i) {
        const auto l = s.ask("b", 50);
        if (l.ok() && !l.reply().leases.empty()) s.reserve("b", l.reply().leases[0], l.reply().leases[0].end.count);
        s.release_all("c");
    }
    background.join();
    EXPECT_TRUE(good);
    EXPECT_EQ(seen, before);
    EXPECT_NE(s.table.digest(), before);
}

TEST(lease_replay, an_event_that_does_not_fit_is_refused_and_changes_nothing) {
    scenario s(50, whole_grants());
    s.join("a");
    s.join("b");
    const auto l = s.grant("a", 20);
    s.reserve("a", l, 10);
    s.pledge("a", "c1", {s.claim(l, 0, 5)});
    const lease_seq seq = l.seq;
    const site_number a{0};
    const ledger_time t = s.now;
    auto twice = l;
    twice.seq = lease_seq{50};
    auto beyond = twice;
    beyond.start = beyond.done_end = beyond.reserved_end = position{40};
    beyond.end = position{60};
    const std::vector<event> bad{
        events::registered{site_number{5}, site_id{"x"}, {1, 1}, site_mode::full, 0},
        events::registered{site_number{2}, site_id{"a"}, {1, 1}, site_mode::full, 0},
        events::registered{site_number{2}, site_id{"no name"}, {1, 1}, site_mode::full, 0},
        events::superseded{a, {9, 9}, {1, 1}, site_mode::full, 0, {}, {}},
        events::superseded{a, {7, 1}, {1, 1}, site_mode::full, 0, {}, {}},
        events::granted{a, "", {twice}, {}, position{0}},
        events::granted{a, "", {beyond}, {}, position{0}},
        events::granted{a, "", {}, {}, position{0}},
        events::granted{a, "", {l}, {{seq, position{20}, position{5}}}, position{0}},
        events::reserved{a, seq, position{10}, position{21}, t},
        events::reserved{a, seq, position{9}, position{12}, t},
        events::reserved{site_number{1}, seq, position{10}, position{12}, t},
        events::committed{a, seq, position{5}, position{6}, false, t},
        events::pledged{a, {"c2"}, generation{0}, {{seq, make_span(5, 6), false}}, t},
        events::pledged{site_number{1}, {"c2"}, generation{0}, {{seq, make_span(5, 6), false}}, t},
        events::contribution_rejected{a, {"c2"}, generation{0}, errc::growth, {{seq, make_span(4, 6), false}}, {}, t},
        events::contribution_rejected{a, {"c2"}, generation{0}, errc::growth, {{seq, make_span(5, 6), true}}, {}, t},
        events::resolved{generation{1}, {{"c1"}}, {}, {}},
        events::resolved{generation{0}, {{"c9"}}, {}, {}},
        events::resolved{generation{0}, {{"c1"}}, {{{"c1"}, errc::growth}}, {}},
        events::resolved{generation{0}, {{"c1"}}, {}, {{make_span(0, 1), 3, {}}}},
        events::released{a, {{seq, position{7}, position{20}}}, false},
        events::released{a, {{seq, position{5}, position{19}}}, false},
        events::expired{{{seq, a, position{5}, position{10}, position{21}}}, {}},
        events::expired{{{lease_seq{9}, a, position{5}, position{10}, position{20}}}, {}},
        events::requeued{{make_span(0, 1)}},
        events::requeued{{}},
        events::epoch_advanced{epoch_index{0}, epoch_index{1}, true, {seq}},
        events::epoch_advanced{epoch_index{0}, epoch_index{2}, true, {seq}},
        events::tick{{{lease_seq{9}, t, 0}}, {}},
        events::tick{{}, {{site_number{7}, t, 0, 0}}},
        events::term_started{term{0}, {}},
        events::corpus_pinned{""},
    };
    const std::uint64_t before = s.table.digest();
    for (std::size_t i = 0; i < bad.size(); ++i) {
        const auto ok = s.table.replay(bad[i], t);
        ASSERT_FALSE(ok) << "event " << i;
        EXPECT_EQ(ok.error().code, errc::corrupt);
        EXPECT_EQ(s.table.digest(), before) << "event " << i;
    }
    EXPECT_TRUE(s.table.verify());
}

TEST(lease_replay, a_merge_is_decided_first_and_done_with_its_record) {
    scenario s(50, whole_grants());
    s.join("a");
    const auto l = s.grant("a", 20);
    s.reserve("a", l, 10);
    s.pledge("a", "c1", {s.claim(l, 0, 10)});
    const resolve in{generation{0}, {{"c1"}}, {}};
    const std::uint64_t before = s.table.digest();
    const auto decided = s.table.decide(in);
    EXPECT_EQ(s.table.digest(), before) << "deciding changes nothing";
    const auto& e = std::get<0>(decided);
    ASSERT_TRUE(e);
    ASSERT_TRUE(s.table.replay(event{*e}, s.now));
    EXPECT_EQ(s.table.counts().committed, 10U);
    EXPECT_EQ(std::get<0>(s.table.decide(in)), std::nullopt) << "the second time there is nothing to do";
}

TEST(lease_state, an_export_that_contradicts_itself_is_refused) {
    scenario s(130, whole_grants());
    s.join("a");
    s.join("b");
    const auto l = s.grant("a", 20);
    s.reserve("a", l, 10);
    s.pledge("a", "c1", {s.claim(l, 0, 5)});
    s.ask("b", 5, "r1");
    const exported_state good = s.table.export_state();
    ASSERT_TRUE(table::import_state(good));
    const std::vector<std::function<void(exported_state&)>> breaks{
        [](exported_state& x) { x.free_words[0] |= 1U; },
        [](exported_state& x) { x.free_words[1] = 0; },
        [](exported_state& x) { x.free_words.back() |= std::uint64_t{1} << 63U; },
        [](exported_state& x) { x.free_words.pop_back(); },
        [](exported_state& x) { x.committed_words[0] |= 1U; },
        [](exported_state& x) { x.leases[0].end.count += 1; },
        [](exported_state& x) { x.leases[0].done_end.count += 1; },
        [](exported_state& x) { x.leases[0].site.count = 9; },
        [](exported_state& x) { x.leases[0].seq.count = 999; },
        [](exported_state& x) { x.leases.pop_back(); },
        [](exported_state& x) { x.leases.push_back(x.leases[0]); },
        [](exported_state& x) { x.sites[0].book.held += 1; },
        [](exported_state& x) { x.sites[0].book.cursor.count = 130; },
        [](exported_state& x) { x.sites[0].pledge.clear(); },
        [](exported_state& x) { x.sites[0].pledge[0].base.count = 4; },
        [](exported_state& x) { x.sites[0].identity.id.name = "b"; },
        [](exported_state& x) { x.sites[1].requests[0].place = 64; },
        [](exported_state& x) { x.geometry.num_blocks = 131; },
        [](exported_state& x) { x.settings.min_ttl_s = -1; },
    };
    for (std::size_t i = 0; i < breaks.size(); ++i) {
        exported_state bad = good;
        breaks[i](bad);
        EXPECT_FALSE(table::import_state(bad)) << "change " << i;
    }
}

}  // namespace
