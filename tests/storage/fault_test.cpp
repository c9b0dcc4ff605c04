// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "toy_ledger.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::storage;
using sim::disk;
using sim::disk_fault;
using sim::fault_kind;
using sim::loss;

struct faulty_run {
    toy::state acked;
    toy::state intended;
    int refused_full = 0;  // 503 disk_full_ack
    bool stopped = false;  // exit 1
    bool did_not_start = false;
    int commits = 0;
    std::uint64_t calls = 0;
    storage_mutants mutants;
};

/// Serves as `darl serve` does: room is asked for before anything is applied, a failed commit stops it for good, a
/// failed snapshot does not.
faulty_run serve(disk& on, storage_mutants mutants = {}) {
    faulty_run run;
    run.mutants = mutants;
    auto opened = toy::server::open(on, toy::run_path, toy::options(1024, mutants));
    run.did_not_start = !opened.has_value();
    for (int i = 0; opened && i < 36 && !run.stopped; ++i) {
        if (!opened->store().has_room(1000)) {
            ++run.refused_full;
            continue;
        }
        for (int n = 0; n <= i % 3; ++n) opened->apply();
        run.intended = opened->now();
        run.stopped = !opened->commit().has_value();
        if (run.stopped) break;
        ++run.commits;
        run.acked = opened->acked();
        if (i % 10 == 9 && !opened->snapshot() && opened->store().writer().failed()) run.stopped = true;
    }
    run.calls = on.calls();
    return run;
}

/// The promise after any fault: a start without faults finds all that was acknowledged and nothing that was never
/// intended.
std::string judge(const sim::disk_image& image, const faulty_run& run) {
    disk on(image);
    const auto found = toy::start_on(on);
    if (!found.outcome) return "refused: " + to_text(found.outcome.error());
    if (!run.acked.is_prefix_of(found.found)) return "an acknowledged record is lost";
    if (!found.found.is_prefix_of(run.intended)) return "an impossible state";
    return {};
}

/// Started again without a power cut, the server works on; then the power is cut.
std::string judge_work_after_restart(const sim::disk_image& image, faulty_run run) {
    disk on(image);
    {
        auto opened = toy::server::open(on, toy::run_path, toy::options(1024, run.mutants), 77);
        if (!opened) return "refused: " + to_text(opened.error());
        opened->apply();
        run.intended = opened->now();
        if (!opened->commit()) return "cannot commit after the restart";
        run.acked = opened->acked();
    }
    for (const loss mode : {loss::dropped, loss::random_8})
        if (const auto what = judge(on.image().after_power_cut(mode, 3), run); !what.empty()) return what;
    return {};
}

std::string judge_all(const disk& on, const faulty_run& run) {
    if (const auto what = judge(on.image(), run); !what.empty()) return "killed: " + what;
    if (const auto what = judge_work_after_restart(on.image(), run); !what.empty())
        return "work after a restart: " + what;
    for (const loss mode : sim::every_loss)
        if (const auto what = judge(on.image().after_power_cut(mode, 5), run); !what.empty())
            return std::string(word(mode)) + ": " + what;
    return {};
}

std::uint64_t calls_of_an_undisturbed_run() {
    disk on;
    return serve(on).calls;
}

TEST(StorageFaults, AFullDiskAtAnyCallLosesNothingAndServingGoesOnWhenThereIsSpaceAgain) {
    const std::uint64_t calls = calls_of_an_undisturbed_run();
    int refused_full = 0;
    for (std::uint64_t n = 1; n <= calls; ++n)
        for (const bool persistent : {false, true}) {
            disk on;
            on.inject({n, fault_kind::no_space, persistent});
            const auto run = serve(on);
            refused_full += run.refused_full;
            ASSERT_EQ(judge_all(on, run), "") << "call " << n << " persistent " << persistent;
        }
    EXPECT_GT(refused_full, 100) << "most full disks must show at allocation, before anything is applied";
}

TEST(StorageFaults, AnIoErrorAtAnyCallLosesNothing) {
    const std::uint64_t calls = calls_of_an_undisturbed_run();
    for (std::uint64_t n = 1; n <= calls; ++n)
        for (const bool persistent : {false, true}) {
            disk on;
            on.inject({n, fault_kind::io_error, persistent});
            const auto run = serve(on);
            ASSERT_EQ(judge_all(on, run), "") << "call " << n << " persistent " << persistent;
        }
}

std::string first_loss_after_failed_sync(storage_mutants mutants) {
    const std::uint64_t calls = calls_of_an_undisturbed_run();
    for (std::uint64_t n = 1; n <= calls; ++n)
        for (const bool persistent : {false, true}) {
            disk on;
            on.inject({n, fault_kind::failed_sync, persistent});
            const auto run = serve(on, mutants);
            if (const auto what = judge_all(on, run); !what.empty()) return "call " + std::to_string(n) + ": " + what;
        }
    return {};
}

TEST(StorageFaults, AFailedSyncAtAnyCallIsNeverRetriedAndNothingIsAcknowledgedOnIt) {
    EXPECT_EQ(first_loss_after_failed_sync({}), "");
}

TEST(StorageFaults, AfterAFailedSyncTheNextStartWritesTheLastBatchOnceMore) {
    EXPECT_NE(first_loss_after_failed_sync({.skip_tail_rewrite = true}).find("work after a restart"),
              std::string::npos);
}

TEST(StorageFaults, RetryingAFailedSyncLosesAcknowledgedRecords) {
    EXPECT_NE(first_loss_after_failed_sync({.retry_failed_sync = true}), "");
}

TEST(StorageFaults, ShortReadsAndWritesAreCompletedAndNobodyNotices) {
    const std::uint64_t calls = calls_of_an_undisturbed_run();
    for (std::uint64_t n = 1; n <= calls; ++n)
        for (const bool persistent : {false, true}) {
            disk on;
            on.inject({n, fault_kind::short_transfer, persistent});
            const auto run = serve(on);
            ASSERT_FALSE(run.stopped || run.did_not_start || run.refused_full > 0) << "call " << n;
            ASSERT_EQ(run.commits, 36);
            ASSERT_EQ(judge_all(on, run), "") << "call " << n << " persistent " << persistent;
        }
}

TEST(StorageFaults, AFullDiskRefusesBeforeAnythingIsAppliedAndGoesOnWhenSpaceReturns) {
    disk on({}, 5000);
    auto opened = toy::server::open(on, toy::run_path, toy::options(1024));
    ASSERT_TRUE(opened.has_value());
    while (opened->store().has_room(500)) {
        opened->apply();
        ASSERT_TRUE(opened->commit().has_value());
    }
    const auto at_full = opened->now();
    EXPECT_FALSE(opened->store().has_room(500));
    EXPECT_TRUE(opened->commit().has_value()) << "nothing is open: heartbeats and reads go on";
    EXPECT_FALSE(opened->snapshot().has_value()) << "no space for a snapshot";
    EXPECT_FALSE(opened->store().writer().failed()) << "a failed snapshot never stops requests";
    on.set_capacity(20000);
    ASSERT_TRUE(opened->store().has_room(500));
    opened->apply();
    ASSERT_TRUE(opened->commit().has_value());
    EXPECT_EQ(opened->now().entries.size(), at_full.entries.size() + 1);
    EXPECT_TRUE(opened->snapshot().has_value());
}

TEST(StorageFaults, AfterAFailedCommitTheJournalTakesNothingAnyMore) {
    disk on;
    auto opened = toy::server::open(on, toy::run_path, toy::options());
    ASSERT_TRUE(opened.has_value());
    opened->apply();
    ASSERT_TRUE(opened->commit().has_value());
    on.inject({on.calls() + 2, fault_kind::failed_sync, false});
    opened->apply();
    EXPECT_EQ(opened->commit().error().code, errc::io_error);
    opened->apply();
    EXPECT_TRUE(opened->store().writer().failed());
    EXPECT_FALSE(opened->store().batches().may_leave(opened->store().batches().last_sequence()));
}

}  // namespace
