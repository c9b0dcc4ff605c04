// SPDX-License-Identifier: Apache-2.0
#include "darlcore/ledger/rollback.hpp"

#include <gtest/gtest.h>

#include "darlcore/testing/budget.hpp"
#include "tests/ledger/simulation.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::ledger;
using ledger::testing::sim_options;
using ledger::testing::simulation;
using ledger::testing::world;

/// Sites a and b train two rounds; a holds a lease of the third and an unsent contribution, b has pledged.
struct long_run : world {
    std::vector<lease::lease_record> first, second, third;
    contribute_request late;

    long_run() : world(small_run(20)) {
        enter("a");
        enter("b");
        init();
        first = round();
        second = round();
        third = acquire("a", 3);
        for (const auto& l : third) reserve("a", l, l.end);
        late = claim("a", third);
        DARLCORE_ASSERT(contribute("b", acquire("b", 3)).ok());
        store_blob("a", late.sha256);
    }
    std::vector<lease::lease_record> round() {
        (void)poll("a");
        const auto leases = acquire("a", 3);
        DARLCORE_ASSERT(!leases.empty() && contribute("a", leases).ok());
        pass(200'000);  // b is not waited for
        (void)handle(tick_input{});
        DARLCORE_ASSERT(merging());
        DARLCORE_ASSERT(finish_merge().ok());
        return leases;
    }
    /// A second process of a that replaces the first.
    [[nodiscard]] register_request successor_of_a() const {
        register_request hello;
        hello.who = who("a", 2);
        hello.protocol = 2;
        hello.digest = m.space_digest();
        hello.take_over = who("a", 1).incarnation;
        return hello;
    }
    /// The ledger of a journal that is cut behind the record that made `target`, and the record that follows.
    std::pair<machine, records::rolled_back> cut(generation target) const {
        machine kept(m.settings());
        std::size_t i = 0;
        for (; !has_reached(kept, target); ++i) DARLCORE_ASSERT(kept.replay(journal[i].first, journal[i].second));
        left_out gone(kept);
        for (; i < journal.size(); ++i) gone.add(journal[i].first);
        auto record = ledger::go_back(kept, gone, {{"g", 1}, {"v", 2}, {"w", 3}, {"m", 4}});
        return {std::move(kept), std::move(record)};
    }
    /// Goes on from there; the sites keep what they hold.
    void back_to(generation target) {
        auto [kept, record] = cut(target);
        DARLCORE_ASSERT(kept.replay(record, now));
        DARLCORE_ASSERT(kept.verify());
        const auto number = m.term().count + 1;
        m = std::move(kept);
        start(number);
        store_blob("a", late.sha256);
    }
};

std::uint64_t blocks_of(const std::vector<lease::lease_record>& leases) {
    std::uint64_t sum = 0;
    for (const auto& l : leases) sum += l.end.count - l.start.count;
    return sum;
}

errc code_of(const auto& out) { return out.ok() ? errc::internal : out.refused().code; }

TEST(a_way_back, says_what_it_leaves_behind) {
    const long_run run;
    const auto [kept, record] = run.cut(generation{1});
    EXPECT_EQ(kept.rounds().current(), generation{1});
    EXPECT_EQ(record.model.target, generation{1});
    EXPECT_EQ(record.model.next, generation{3}) << "2 was used";
    EXPECT_EQ(record.leases.to, generation{3});
    EXPECT_EQ(record.leases.next_seq, run.m.leases().next_seq());
    EXPECT_GT(record.leases.next_seq, kept.leases().next_seq());
    ASSERT_EQ(record.undone.size(), 1U);
    EXPECT_EQ(record.undone.front().epoch, epoch_index{0});
    std::vector<span> trained;
    for (const auto& l : run.second) trained.push_back({l.start, l.end});
    EXPECT_EQ(record.undone.front().spans, trained) << "of generation 2; the pledge of b was in no model";
}

TEST(a_way_back, gives_the_old_model_a_new_number_and_every_later_block_to_the_pool) {
    long_run run;
    const auto files = run.cut(generation{1}).second.model.files;
    run.back_to(generation{1});
    const auto& rounds = run.m.rounds().durable();
    EXPECT_EQ(rounds.current, generation{3});
    EXPECT_EQ(rounds.files, files);
    EXPECT_EQ(round::rounds_done(rounds), 1U);
    EXPECT_TRUE(rounds.pledges.empty() && rounds.participants.empty() && !rounds.first_pledge_at);
    const auto counts = run.m.leases().counts();
    EXPECT_EQ(counts.committed, blocks_of(run.first)) << "what generation 1 held";
    EXPECT_EQ(counts.unassigned, 20 - blocks_of(run.first));
    EXPECT_EQ(run.m.leases().open_leases(), 0U);
}

TEST(a_way_back, from_a_snapshot_in_the_middle_of_a_round_returns_pledges_and_leases_of_the_target) {
    long_run run;
    (void)run.handle(stop_request{});
    left_out gone(run.m);
    const auto record = ledger::go_back(run.m, gone, {});
    const auto id = run.m.rounds().durable().pledges.at({"b"}).id;
    ASSERT_TRUE(run.m.replay(record, run.now));
    ASSERT_TRUE(run.m.verify());
    const std::uint64_t merged = blocks_of(run.first) + blocks_of(run.second);
    EXPECT_EQ(run.m.leases().counts().unassigned, 20 - merged);
    EXPECT_EQ(run.m.leases().counts().committed, merged);
    const auto& answer = run.m.rounds().durable().answers.at({"b"}).at(id);
    EXPECT_EQ(answer.status, round::contribution_status::rejected);
    EXPECT_EQ(answer.reason, errc::stale_generation);
    const auto known = run.m.leases().answer_of(*run.m.leases().find_site("b"), id);
    ASSERT_TRUE(known.has_value());
    EXPECT_EQ(known->status, lease::contribution_status::rejected);
    EXPECT_TRUE(record.undone.empty());
    EXPECT_FALSE(run.m.rounds().durable().stop) << "whoever goes back wants to go on";
}

TEST(a_way_back, survives_journal_and_snapshot_with_the_same_digest) {
    long_run run;
    auto [kept, record] = run.cut(generation{1});
    const auto read = decode(type_number(ledger::record(record)), encode(ledger::record(record)));
    ASSERT_TRUE(read) << to_text(read.error());
    ASSERT_EQ(*read, ledger::record(record));
    EXPECT_EQ(type_number(*read), 30U) << "numbers in journals never change";
    ASSERT_TRUE(kept.replay(*read, run.now));
    const auto copy = machine::from_snapshot(kept.snapshot(), run.now);
    ASSERT_TRUE(copy) << to_text(copy.error());
    EXPECT_EQ(copy->digest(), kept.digest());
    EXPECT_EQ(kept.replay(*read, run.now).error().code, errc::corrupt) << "a way back leads to a new number";
    auto low = record;
    low.model.next = low.leases.to = generation{9};
    low.leases.next_seq = 1;
    EXPECT_EQ(kept.replay(low, run.now).error().code, errc::corrupt) << "sequences never go down";
}

TEST(a_way_back, leaves_nobody_who_speaks_for_a_site) {
    long_run run;
    run.back_to(generation{1});
    const auto who = world::who("a");
    const auto wanted = run.third.front();
    EXPECT_EQ(code_of(run.handle(run.late)), errc::unknown_site);
    EXPECT_EQ(code_of(run.handle(heartbeat_request{who, {}, {}})), errc::unknown_site);
    EXPECT_EQ(code_of(run.handle(reserve_request{who, lease::ref_to(wanted), wanted.end})), errc::unknown_site);
    EXPECT_TRUE(run.acquire("a", 1).empty());
    EXPECT_EQ(code_of(run.handle(poll_request{who, generation{2}, round::site_activity::idle, 0, 0})),
              errc::unknown_site);
    EXPECT_EQ(code_of(run.handle(announce_upload{who, blob_purpose::delta, generation{2}})), errc::unknown_site);
    EXPECT_EQ(code_of(run.handle(heartbeat_request{{{"a"}, {}}, {}, {}})), errc::unknown_site)
        << "a caller without a name is nobody either";
    EXPECT_EQ(run.m.leases().counts().committed, blocks_of(run.first));
    EXPECT_EQ(run.m.leases().open_leases(), 0U);
}

TEST(a_way_back, makes_stale_what_a_process_from_before_still_sends_after_it_registered_again) {
    long_run run;
    run.back_to(generation{1});
    run.enter("a");
    const auto& held = run.third.front();
    const auto fresh = run.acquire("a", 10);
    for (const auto& l : fresh) {
        EXPECT_GT(l.seq, run.third.back().seq) << "a lease id never names two leases";
        EXPECT_EQ(run.reserve("a", l, l.end), l.end);
    }
    EXPECT_EQ(code_of(run.handle(run.late)), errc::stale_generation);
    EXPECT_EQ(code_of(run.handle(announce_upload{world::who("a"), blob_purpose::delta, generation{2}})),
              errc::stale_generation);
    auto moved = run.late;
    moved.base = run.m.rounds().current();
    EXPECT_EQ(code_of(run.handle(moved)), errc::lease_gone) << "also with the new number on it";
    EXPECT_EQ(code_of(run.handle(reserve_request{world::who("a"), lease::ref_to(held), held.end})), errc::lease_gone);
    EXPECT_TRUE(run.m.rounds().durable().pledges.empty());
    const auto scored = run.handle(evaluation_request{world::who("a"), generation{2}, 0.5, 100, 10});
    EXPECT_EQ(scored.reply().reason, "too_old") << "a score of the model that was left behind";
    EXPECT_FALSE(run.m.rounds().durable().best);
    EXPECT_TRUE(run.handle(evaluation_request{world::who("a"), generation{3}, 0.5, 100, 10}).reply().used);
}

TEST(a_way_back, ends_leases_too_that_were_closed_and_could_have_been_claimed_late) {
    long_run run;
    ASSERT_TRUE(run.handle(run.successor_of_a()).ok());
    ASSERT_TRUE(run.m.replay(ledger::go_back(run.m, left_out(run.m), {}), run.now));
    ASSERT_TRUE(run.m.verify());
    run.start(run.m.term().count + 1);
    run.enter("a", 2);
    auto late = run.late;
    late.who = world::who("a", 2);
    late.base = run.m.rounds().current();
    run.store_blob("a", late.sha256);
    EXPECT_EQ(code_of(run.handle(late)), errc::lease_gone);
}

TEST(a_way_back, lets_a_new_process_in_at_once_whoever_it_thinks_it_replaces) {
    long_run run;
    run.back_to(generation{1});
    EXPECT_TRUE(run.handle(run.successor_of_a()).ok());
    EXPECT_EQ(code_of(run.handle(heartbeat_request{world::who("a", 1), {}, {}})), errc::fenced)
        << "from then on the one from before is replaced";
}

TEST(a_way_back, to_before_a_second_one_knows_every_number_of_both) {
    long_run run;
    auto [once, first] = run.cut(generation{1});
    left_out gone(once);
    gone.add(first);
    gone.add_generation(generation{7});
    gone.add_unreadable(2);
    const auto second = ledger::go_back(once, gone, {});
    EXPECT_EQ(second.model.next, generation{8}) << "files of generation 7 were seen";
    EXPECT_EQ(second.leases.next_seq, first.leases.next_seq + 128) << "64 leases in each record that cannot be read";
}

TEST(a_way_back, counts_rounds_of_the_model_not_numbers_against_the_limit) {
    auto set = world::small_run(20);
    set.round.stop_rounds = 3;
    sim_options o;
    o.run = set;
    o.ms_per_block = {1'000};
    o.target_blocks = 2;
    simulation run(o, 1);
    EXPECT_NE(run.run(), "") << "it ends by its limit of rounds, not as exhausted";
    ASSERT_EQ(run.server().m.rounds().current(), generation{3});
    ASSERT_EQ(run.go_back(generation{1}), generation{4});
    (void)run.run();
    EXPECT_EQ(run.server().m.rounds().current(), generation{6}) << "two more rounds";
}

/// Small runs of up to three sites and two epochs; half of them with kills, restarts and failed merges.
sim_options small_geometry(std::uint64_t seed) {
    xoshiro256 random(seed * 104'729);
    sim_options o;
    o.run = world::small_run(4 + random.below(20), 1 + random.below(3));
    o.run.lease.max_epochs = static_cast<std::uint32_t>(1 + random.below(2));
    o.run.round.unknown_phase_ms = 600'000;
    o.run.round.unknown_transfer_ms = 60'000;
    o.target_blocks = 1 + random.below(5);
    const auto sites = 1 + random.below(3);
    for (std::uint64_t i = 0; i < sites; ++i)
        o.ms_per_block.push_back(static_cast<std::int64_t>(500 + random.below(20'000)));
    if (random.below(2) == 0) {
        o.kills = random.below(4);
        o.server_restarts = random.below(3);
        o.merge_failures = random.below(4);
    }
    o.check_replay = random.below(4) == 0;
    return o;
}

TEST(a_way_back, to_every_generation_of_random_runs_still_trains_every_block_into_the_model_exactly_once) {
    const int seeds = darlcore::testing::property_runs(200);
    std::uint64_t ways = 0;
    std::uint64_t blocks = 0;
    for (int seed = 1; seed <= seeds; ++seed) {
        const auto number = static_cast<std::uint64_t>(seed);
        const std::uint64_t rounds = 1 + number % 7;
        std::uint64_t reached = rounds;
        for (std::uint64_t target = 0; target <= reached; ++target) {
            simulation run(small_geometry(number), number);
            run.stop_after_rounds = rounds;
            ASSERT_EQ(run.run(), "") << "seed " << seed;
            reached = run.server().m.rounds().current().count;
            const auto next = run.go_back(generation{target});
            ASSERT_EQ(next, generation{reached + 1});
            if (number % 3 == 0) {  // a little further, then back once more: also to before the first way back
                run.stop_after_rounds = next.count + 2;
                ASSERT_EQ(run.run(), "") << "seed " << seed << ", back to " << target;
                run.go_back(generation{target % 2 == 0 ? target : next.count});
            }
            run.stop_after_rounds = 0;
            ASSERT_EQ(run.run(), "") << "seed " << seed << ", back to " << target;
            ++ways;
            for (const auto& undone : run.server().facts_of<records::rolled_back>())
                for (const auto& part : undone.undone)
                    for (const auto& s : part.spans) blocks += s.size();
        }
    }
    std::cout << ways << " ways back, " << blocks << " blocks trained again\n";
    EXPECT_GT(blocks, 0U);
}

}  // namespace
