// SPDX-License-Identifier: Apache-2.0
#include "backends/storage/ledger_replay.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backends/sim/disk.hpp"
#include "darlcore/ledger/record_codec.hpp"
#include "tests/ledger/world.hpp"
#include "toy_ledger.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::storage;
using ledger::testing::world;

/// Sites that come, train, commit and leave; what the ledger records of it.
std::vector<std::pair<ledger::record, ledger_time>> busy_hour() {
    world w;
    for (const char* site : {"hpc-a", "hpc-b", "hpc-c"}) w.enter(site);
    w.init();
    for (int turn = 0; turn < 12; ++turn)
        for (const char* site : {"hpc-a", "hpc-b", "hpc-c"}) {
            (void)w.poll(site);
            const auto leases = w.acquire(site, 2);
            w.now = w.now + 20'000;
            (void)w.handle(ledger::tick_input{});
            if (turn % 3 == 2) {
                ledger::release_request release;
                release.who = world::who(site);
                (void)w.handle(release);
            }
        }
    return w.journal;
}

std::vector<digest16> digests_of(const std::vector<std::pair<ledger::record, ledger_time>>& journal) {
    std::vector<digest16> digests;
    ledger::machine m(world::small_run());
    for (const auto& [r, at] : journal) {
        EXPECT_TRUE(m.replay(r, at).has_value());
        digests.push_back(m.digest());
    }
    return digests;
}

store_options options_of(const ledger::machine& m) {
    auto o = toy::options(2048);
    o.identity = identity_of(m);
    return o;
}

TEST(LedgerReplay, TheRealLedgerRecoversTheExactStateOfItsSequenceWhereverThePowerIsCut) {
    const auto journal = busy_hour();
    ASSERT_GT(journal.size(), 60U);
    const auto digests = digests_of(journal);
    const ledger::machine first(world::small_run());
    sim::disk on;
    std::uint64_t acked = 0;
    std::uint64_t cuts = 0;
    std::string violation;
    on.on_call([&](const sim::io_call& call) {
        for (const auto mode : {sim::loss::dropped, sim::loss::random_8}) {
            sim::disk after(on.image().after_power_cut(mode, call.number));
            ledger_replay replay;
            const auto opened = ledger_store::open(after, toy::run_path, {}, options_of(first), replay.target());
            ++cuts;
            std::string what;
            if (!opened)
                what = to_text(opened.error());
            else if (opened->recovered().position.sequence < acked)
                what = "an acknowledged record is lost";
            else if (opened->is_new() != (replay.machine() == nullptr))
                what = "no machine for a journal";
            else if (!opened->is_new() &&
                     replay.machine()->digest() != digests.at(opened->recovered().position.sequence - 1))
                what = "another state";
            if (!what.empty() && violation.empty()) violation = "call " + std::to_string(call.number) + ": " + what;
        }
    });
    ledger_replay replay;
    auto store = ledger_store::open(on, toy::run_path, {}, options_of(first), replay.target());
    ASSERT_TRUE(store.has_value());
    ledger::machine follower(world::small_run());
    for (std::size_t i = 0; i < journal.size(); ++i) {
        const auto& [r, at] = journal[i];
        ASSERT_TRUE(follower.replay(r, at).has_value());
        store->append(ledger::type_number(r), at.ms, ledger::encode(r));
        if (i % 3 != 0) continue;
        ASSERT_TRUE(store->commit().has_value());
        acked = i + 1;
        if (i % 30 == 0) {
            ASSERT_TRUE(store->snapshot(follower.snapshot()).has_value());
        }
    }
    EXPECT_EQ(violation, "");
    EXPECT_GT(cuts, 500U);
}

TEST(LedgerReplay, AStateDigestThatDiffersRefusesTheStart) {
    ledger::machine m(world::small_run());
    sim::disk on;
    {
        ledger_replay replay;
        auto store = ledger_store::open(on, toy::run_path, {}, options_of(m), replay.target());
        ASSERT_TRUE(store.has_value());
        store->append(ledger::type_number(m.first_record()), 0, ledger::encode(m.first_record()));
        digest16 wrong{};
        const ledger::record told = ledger::records::state_digest{wrong};
        store->append(ledger::type_number(told), 0, ledger::encode(told));
        ASSERT_TRUE(store->commit().has_value());
    }
    ledger_replay replay;
    const auto store = ledger_store::open(on, toy::run_path, {}, options_of(m), replay.target());
    ASSERT_FALSE(store.has_value());
    EXPECT_NE(store.error().context.find("sequence 2"), std::string::npos) << store.error().context;
}

}  // namespace
