// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "toy_ledger.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::storage;
using sim::disk;
using sim::loss;

/// What the outside world may rely on at an instant, and everything the server ever intended.
struct knowledge {
    toy::state acked;
    toy::state intended;
};

/// Judges one start after a crash. Empty: as promised.
std::string judge(disk& on, const knowledge& known, const storage_mutants& mutants) {
    const auto found = toy::start_on(on, mutants);
    if (!found.outcome) return "refused: " + to_text(found.outcome.error());
    if (!known.acked.is_prefix_of(found.found))
        return "acknowledged " + std::to_string(known.acked.entries.size()) + " records, recovered " +
               std::to_string(found.found.entries.size());
    if (!found.found.is_prefix_of(known.intended)) return "recovered a state that the log does not allow";
    return {};
}

/// Runs a script of calls, commits, snapshots and restarts; at every I/O call the power is cut in every way.
class scripted_run {
public:
    scripted_run(storage_mutants mutants, int commits) : mutants_(mutants), commits_(commits) {}

    /// First violation, or nothing.
    std::string violation;
    std::uint64_t crashes = 0;

    void go(bool with_second_crash) {
        second_crash_ = with_second_crash;
        disk_.on_call([this](const sim::io_call& call) { cut_power(call); });
        for (int session = 0; session < 3 && violation.empty(); ++session) run_session(session);
    }

private:
    void run_session(int session) {
        auto opened = toy::server::open(disk_, toy::run_path, toy::options(2048, mutants_),
                                        10 + static_cast<std::uint64_t>(session));
        ASSERT_TRUE(opened.has_value()) << to_text(opened.error());
        server_ = &*opened;
        sim::rng random(static_cast<std::uint64_t>(session));
        for (int i = 0; i < commits_ && violation.empty(); ++i) {
            for (std::uint64_t n = 1 + random.below(4); n > 0; --n) server_->apply();
            known_.intended = server_->now();
            ASSERT_TRUE(server_->commit().has_value());
            known_.acked = server_->acked();
            if (i % 17 == 16) {
                ASSERT_TRUE(server_->snapshot().has_value());
            }
        }
        // the first session stops cleanly, the second is killed, the third is cut off
        if (session == 0) {
            ASSERT_TRUE(server_->store().close().has_value());
        }
        if (session == 1) {
            server_->apply();
            known_.intended = server_->now();
            const auto sealed = server_->store().batches().seal(server_->store().writer().salt());
            auto& files = server_->store().state().files();
            const auto newest =
                join(server_->store().state().journal_path(), segment_name(server_->store().writer().segment_first()));
            auto segment = files.open(newest, open_mode::read_write);
            ASSERT_TRUE(segment.has_value());
            ASSERT_TRUE(pwrite_all(**segment, sealed.bytes, server_->store().writer().segment_bytes()).has_value());
        }
        server_ = nullptr;
    }

    void cut_power(const sim::io_call& call) {
        if (!violation.empty()) return;
        for (const loss mode : sim::every_loss) {
            disk after(disk_.image().after_power_cut(mode, call.number));
            if (second_crash_) after.on_call([&](const sim::io_call& inner) { cut_again(after, call, mode, inner); });
            const auto what = judge(after, known_, mutants_);
            ++crashes;
            if (!what.empty() && violation.empty()) violation = place(call, mode) + what;
        }
    }

    void cut_again(disk& first, const sim::io_call& call, loss mode, const sim::io_call& inner) {
        for (const loss again : {loss::dropped, loss::kept, loss::random_8}) {
            disk after(first.image().after_power_cut(again, inner.number));
            const auto what = judge(after, known_, mutants_);
            ++crashes;
            if (!what.empty() && violation.empty())
                violation = place(call, mode) + "then at call " + std::to_string(inner.number) + " (" +
                            std::string(word(inner.kind)) + ", " + std::string(word(again)) + "): " + what;
        }
    }

    static std::string place(const sim::io_call& call, loss mode) {
        return "cut after call " + std::to_string(call.number) + " (" + std::string(word(call.kind)) + " " + call.path +
               ", " + std::string(word(mode)) + "): ";
    }

    storage_mutants mutants_;
    int commits_;
    bool second_crash_ = false;
    disk disk_;
    toy::server* server_ = nullptr;
    knowledge known_;
};

std::string first_violation(storage_mutants mutants) {
    scripted_run run(mutants, 20);
    run.go(false);
    return run.violation;
}

TEST(JournalCrash, NoAcknowledgedRecordIsLostWhereverThePowerIsCut) {
    scripted_run run({}, 75);  // 225 commits of 1 to 4 records, 12 snapshots, 2 restarts
    run.go(false);
    EXPECT_EQ(run.violation, "");
    EXPECT_GT(run.crashes, 10000U);
    RecordProperty("crashes", static_cast<int>(run.crashes));
}

TEST(JournalCrash, ASecondCrashAtAnyCallOfTheRestartLosesNothingEither) {
    scripted_run run({}, 6);
    run.go(true);
    EXPECT_EQ(run.violation, "");
    EXPECT_GT(run.crashes, 10000U);
}

TEST(JournalCrash, WithoutTheSyncOfABatchAcknowledgedRecordsAreLost) {
    const std::string found = first_violation({.skip_fsync = true});
    EXPECT_NE(found, "");
    // with the mark of what was acknowledged gone as well, the loss would even be silent
    EXPECT_NE(first_violation({.skip_fsync = true, .skip_acked = true}).find("recovered"), std::string::npos) << found;
}

TEST(JournalCrash, WithoutTheSyncOfANewSegmentOrSnapshotTheNextStartRefuses) {
    EXPECT_NE(first_violation({.skip_file_fsync = true}), "");
}

TEST(JournalCrash, WithoutTheSyncOfTheDirectoryAcknowledgedRecordsAreLost) {
    EXPECT_NE(first_violation({.skip_dir_fsync = true}), "");
}

TEST(JournalCrash, WithoutTheSyncOfARepairedTailASecondCrashLosesRecords) {
    // killed (not cut off): the page cache still shows what never reached the disk, and the next session builds on it
    EXPECT_NE(first_violation({.skip_repair_fsync = true}), "");
}

}  // namespace
