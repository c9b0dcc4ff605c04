// SPDX-License-Identifier: Apache-2.0
// Out of memory at every call of the allocator. A process that runs out of memory ends (nothing catches it below
// main), so the promise is that of a kill: what was acknowledged is recovered, and nothing half done is. This program
// replaces the allocator.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>

#include "backends/storage/ledger_replay.hpp"
#include "darlcore/ledger/record_codec.hpp"
#include "tests/ledger/world.hpp"
#include "toy_ledger.hpp"

namespace {

std::int64_t calls_until_failure = -1;  // < 0: never
std::uint64_t calls_made = 0;

void* allocate(std::size_t bytes) {
    ++calls_made;
    if (calls_until_failure >= 0 && calls_until_failure-- == 0) throw std::bad_alloc();
    if (void* p = std::malloc(bytes == 0 ? 1 : bytes)) return p;
    throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }

namespace {

using namespace darlcore;
using namespace darlcore::storage;
using sim::disk;

/// Runs `body` with the allocator failing at its n-th call; true when it ran out of memory.
template <class Body>
bool fails_at(std::uint64_t n, Body&& body) {
    calls_until_failure = static_cast<std::int64_t>(n);
    bool failed = false;
    try {
        body();
    } catch (const std::bad_alloc&) {
        failed = true;
    }
    calls_until_failure = -1;
    return failed;
}

struct knowledge {
    toy::state acked;
    toy::state intended;
};

/// Runs something with the allocator at peace.
template <class Body>
auto in_peace(Body&& body) {
    const auto failing = calls_until_failure;
    calls_until_failure = -1;
    auto made = body();
    calls_until_failure = failing;
    return made;
}

/// What is known is copied in peace: the process that dies takes its own copy along.
toy::state at_peace(const toy::state& s) {
    return in_peace([&] { return s; });
}

void serve(disk& on, knowledge& known) {
    auto opened = toy::server::open(on, toy::run_path, toy::options(1024));
    for (int i = 0; opened && i < 12; ++i) {
        for (int n = 0; n <= i % 3; ++n) {
            opened->apply();
            known.intended = at_peace(opened->now());
        }
        if (!opened->commit()) return;
        known.acked = at_peace(opened->acked());
        if (i == 7 && !opened->snapshot()) return;
    }
}

TEST(OutOfMemory, AtAnyAllocationOfAServerNoAcknowledgedRecordIsLost) {
    calls_made = 0;
    {
        disk on;
        knowledge known;
        serve(on, known);
    }
    const std::uint64_t calls = calls_made;
    std::uint64_t failures = 0;
    for (std::uint64_t n = 0; n < calls; ++n) {
        disk on;
        knowledge known;
        failures += fails_at(n, [&] { serve(on, known); }) ? 1 : 0;
        // an operation of the simulated disk itself may have been cut short: a kill at that call
        disk after(on.image());
        const auto found = toy::start_on(after);
        if (!found.outcome && known.acked == toy::state{}) continue;
        ASSERT_TRUE(found.outcome) << "allocation " << n << ": " << to_text(found.outcome.error());
        ASSERT_TRUE(known.acked.is_prefix_of(found.found)) << "allocation " << n << ": an acknowledged record is lost";
    }
    std::printf("%llu allocations failed one by one\n", static_cast<unsigned long long>(failures));
    EXPECT_GT(failures, 100U);
}

TEST(OutOfMemory, AtAnyAllocationOfARecoveryTheFilesStayGood) {
    disk on;
    knowledge known;
    serve(on, known);
    const auto image = on.image();
    calls_made = 0;
    toy::start_on(on);
    const std::uint64_t calls = calls_made;
    for (std::uint64_t n = 0; n < calls; ++n) {
        disk damaged(image);
        fails_at(n, [&] { toy::start_on(damaged); });
        disk after(damaged.image());
        const auto found = toy::start_on(after);
        ASSERT_TRUE(found.outcome) << "allocation " << n << ": " << to_text(found.outcome.error());
        ASSERT_TRUE(known.acked.is_prefix_of(found.found)) << "allocation " << n;
    }
    std::printf("%llu allocations of a recovery\n", static_cast<unsigned long long>(calls));
}

TEST(OutOfMemory, AtAnyAllocationOfTheRecordCodecNothingIsReadOrWrittenWrong) {
    ledger::records::pledged fact;
    fact.contribution.contribution.site = site_id{"a-site-with-a-name-that-is-long-enough"};
    fact.contribution.contribution.id = contribution_id{"a-contribution-with-a-name-that-is-long-enough"};
    fact.contribution.contribution.sha256 = std::string(64, 'a');
    fact.contribution.contribution.codec = "f32";
    fact.named = {lease_seq{1}, lease_seq{2}};
    const ledger::record record(fact);
    const std::string whole = ledger::encode(record);
    std::uint64_t failures = 0;
    for (std::uint64_t n = 0;; ++n) {
        std::string bytes;
        const bool failed = fails_at(n, [&] {
            bytes = ledger::encode(record);
            const auto read = ledger::decode(ledger::type_number(record), whole);
            if (!read || !(*read == record)) bytes = "wrong";
        });
        if (!failed) {
            EXPECT_EQ(bytes, whole);
            break;
        }
        ++failures;
    }
    EXPECT_GT(failures, 3U);
}

/// A round of the real ledger on its journal: sites come, take blocks, contribute, a merge ends it. Everything is
/// committed step by step.
class real_ledger {
public:
    explicit real_ledger(disk& on) : on_(on) {}

    void run() {
        // a ledger that cannot even be made ends its process by an assertion
        auto w = in_peace([] { return ledger::testing::world(); });
        auto options = toy::options(2048);
        options.identity = identity_of(w.m);
        ledger_replay replay;
        auto store = ledger_store::open(on_, toy::run_path, {}, options, replay.target());
        if (!store) return;
        const auto commit = [&] {
            for (std::size_t i = acked; i < w.journal.size(); ++i) {
                const auto& [r, at] = w.journal[i];
                store->append(ledger::type_number(r), at.ms, ledger::encode(r));
            }
            if (store->commit()) acked = w.journal.size();
        };
        for (const char* site : {"hpc-a", "hpc-b"}) w.enter(site);
        w.init();
        commit();
        std::vector<std::vector<lease::lease_record>> leases;
        for (const char* site : {"hpc-a", "hpc-b"}) {
            (void)w.poll(site);
            leases.push_back(w.acquire(site, 3));
            w.heartbeat(site, leases.back());
            commit();
        }
        if (!store->snapshot(w.m.snapshot())) return;
        (void)w.contribute("hpc-a", leases[0]);
        commit();
        (void)w.contribute("hpc-b", leases[1]);
        w.pass(1'000);
        commit();
        if (w.merging()) (void)w.finish_merge();
        commit();
        w.pass(1'000'000);
        commit();
        journal = std::move(w.journal);
    }

    std::size_t acked = 0;
    std::vector<std::pair<ledger::record, ledger_time>> journal;

private:
    disk& on_;
};

TEST(OutOfMemory, AtAnyAllocationOfTheRealLedgerItsJournalHoldsWhatWasAcknowledgedAndAWholeState) {
    disk first;
    real_ledger whole(first);
    calls_made = 0;
    whole.run();
    const std::uint64_t calls = calls_made;
    ASSERT_EQ(whole.acked, whole.journal.size());
    std::vector<digest16> digests;
    ledger::machine follower(ledger::testing::world::small_run());
    for (const auto& [r, at] : whole.journal) {
        ASSERT_TRUE(follower.replay(r, at));
        digests.push_back(follower.digest());
    }
    std::uint64_t failures = 0;
    for (std::uint64_t n = 0; n < calls; ++n) {
        disk on;
        real_ledger dying(on);
        failures += fails_at(n, [&] { dying.run(); }) ? 1 : 0;
        disk after(on.image());
        ledger_replay replay;
        auto options = toy::options(2048);
        options.identity = identity_of(follower);
        const auto opened = ledger_store::open(after, toy::run_path, {}, options, replay.target());
        ASSERT_TRUE(opened) << "allocation " << n << ": " << to_text(opened.error());
        const std::uint64_t found = opened->is_new() ? 0 : opened->recovered().position.sequence;
        ASSERT_GE(found, dying.acked) << "allocation " << n << ": an acknowledged record is lost";
        if (found == 0) continue;
        ASSERT_EQ(replay.machine()->digest(), digests.at(found - 1)) << "allocation " << n;
    }
    std::printf("%llu allocations of a round failed one by one\n", static_cast<unsigned long long>(failures));
    EXPECT_GT(failures, 500U);
}

}  // namespace
