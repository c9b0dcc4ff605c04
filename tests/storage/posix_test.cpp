// SPDX-License-Identifier: Apache-2.0
// The same code on real files: a child that is killed, a real full disk, the commit thread.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <filesystem>
#include <future>
#include <mutex>
#include <string>
#include <thread>

#include "backends/storage/commit_thread.hpp"
#include "backends/storage/crc32c.hpp"
#include "backends/storage/posix.hpp"
#include "backends/storage/sha256.hpp"
#include "darlcore/testing/budget.hpp"
#include "toy_ledger.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::storage;

class PosixStorage : public ::testing::Test {
protected:
    void SetUp() override {
        std::string pattern = (std::filesystem::temp_directory_path() / "darl-storage-XXXXXX").string();
        ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
        root = pattern;
    }
    void TearDown() override { std::filesystem::remove_all(root); }
    posix_file_system files;
    std::string root;
};

TEST_F(PosixStorage, ErrorsHaveTheirCodesAndNameThePath) {
    EXPECT_EQ(files.open(root + "/none", open_mode::read).error().code, errc::not_found);
    ASSERT_TRUE(files.open(root + "/a", open_mode::create_new).has_value());
    const auto again = files.open(root + "/a", open_mode::create_new);
    EXPECT_EQ(again.error().code, errc::already_exists);
    EXPECT_NE(again.error().context.find(root + "/a"), std::string::npos);
    EXPECT_EQ(files.mkdir(root).error().code, errc::already_exists);
    ASSERT_TRUE(files.mkdir(root + "/d").has_value());
    EXPECT_EQ(files.list(root).value(),
              (std::vector<directory_entry>{{"a", entry_kind::file}, {"d", entry_kind::directory}}));
    ASSERT_TRUE(files.open(root + "/d/inside", open_mode::create).has_value());
    EXPECT_FALSE(files.rmdir(root + "/d").has_value());
    ASSERT_TRUE(remove_tree(files, root + "/d").has_value());
    EXPECT_TRUE(remove_tree(files, root + "/d").has_value()) << "missing is success";
    EXPECT_GT(files.free_bytes(root).value(), 0U);
    EXPECT_FALSE(file_system_type(root).empty());
    EXPECT_EQ(boot_id().size(), 36U);
}

TEST_F(PosixStorage, PreallocationIsZeroAndKeepsWhatIsThere) {
    auto opened = files.open(root + "/a", open_mode::create);
    ASSERT_TRUE(opened.has_value());
    ASSERT_TRUE(pwrite_all(**opened, "abc", 0).has_value());
    ASSERT_TRUE((*opened)->preallocate(4096).has_value());
    ASSERT_TRUE((*opened)->preallocate(10).has_value());
    EXPECT_EQ(read_file(files, root + "/a").value(), "abc" + std::string(4093, '\0'));
}

TEST_F(PosixStorage, TheLockIsExclusiveAndGoesWithItsHolder) {
    auto held = files.lock(root + "/lock");
    ASSERT_TRUE(held.has_value());
    EXPECT_EQ(files.lock(root + "/lock").error().code, errc::locked);
    held->reset();
    EXPECT_TRUE(files.lock(root + "/lock").has_value());
}

TEST_F(PosixStorage, ARunSurvivesRestartsWithSnapshots) {
    toy::state expected;
    for (int session = 0; session < 3; ++session) {
        auto opened =
            toy::server::open(files, root + "/run", toy::options(1 << 16), static_cast<std::uint64_t>(session));
        ASSERT_TRUE(opened.has_value()) << to_text(opened.error());
        EXPECT_EQ(opened->now(), expected);
        EXPECT_EQ(opened->store().term(), static_cast<std::uint32_t>(session + 1));
        for (int i = 0; i < 10; ++i) opened->apply();
        ASSERT_TRUE(opened->commit().has_value());
        if (session == 1) {
            ASSERT_TRUE(opened->snapshot().has_value());
        }
        expected = opened->now();
    }
}

/// Serves until it is killed; writes each acknowledged count to the pipe.
[[noreturn]] void serve_until_killed(const std::string& path, int acks, std::uint64_t seed) {
    posix_file_system files;
    auto opened = toy::server::open(files, path, toy::options(1 << 14), seed);
    if (!opened) ::_exit(3);
    for (int i = 0;; ++i) {
        for (int n = 0; n <= i % 4; ++n) opened->apply();
        if (!opened->commit()) ::_exit(1);
        const std::uint64_t count = opened->acked().entries.size();
        if (::write(acks, &count, sizeof count) != sizeof count) ::_exit(2);
        if (i % 50 == 49 && !opened->snapshot()) ::_exit(1);
    }
}

TEST_F(PosixStorage, AServerKilledAtRandomMomentsNeverLosesAnAcknowledgedRecord) {
    sim::rng random(4);
    std::uint64_t acked = 0;
    const int rounds = darlcore::testing::property_runs(12);
    for (int round = 0; round < rounds; ++round) {
        int ends[2];
        ASSERT_EQ(::pipe(ends), 0);
        const pid_t child = ::fork();
        if (child == 0) {
            ::close(ends[0]);
            serve_until_killed(root + "/run", ends[1], static_cast<std::uint64_t>(round));
        }
        ::close(ends[1]);
        // the moment: after a random number of acknowledgements
        std::uint64_t count = 0;
        for (std::uint64_t left = 1 + random.below(200); left > 0; --left) {
            if (::read(ends[0], &count, sizeof count) != sizeof count) break;
            acked = count;
        }
        ::kill(child, SIGKILL);
        int status = 0;
        ::waitpid(child, &status, 0);
        while (::read(ends[0], &count, sizeof count) == sizeof count) acked = count;
        ::close(ends[0]);
        ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself with " << WEXITSTATUS(status);
        toy::state found;
        const auto read = read_journal(files, root + "/run/journal", toy::target_of(found));
        ASSERT_TRUE(read.has_value()) << to_text(read.error());
        ASSERT_GE(found.entries.size(), acked);
    }
    EXPECT_GT(acked, 0U);
}

TEST_F(PosixStorage, ARealFullDiskRefusesBeforeAnythingIsAppliedAndServesOnWhenThereIsSpace) {
    const std::string small = root + "/small";
    ASSERT_TRUE(files.mkdir(small).has_value());
    if (::mount("none", small.c_str(), "tmpfs", 0, "size=256k") != 0)
        GTEST_SKIP() << "mounting a tmpfs is not permitted here";
    struct unmount {
        std::string path;
        ~unmount() { ::umount2(path.c_str(), MNT_DETACH); }
    } const at_end{small};
    auto opened = toy::server::open(files, small + "/run", toy::options(1 << 15));
    ASSERT_TRUE(opened.has_value()) << to_text(opened.error());
    while (opened->store().has_room(4000)) {
        opened->apply();
        ASSERT_TRUE(opened->commit().has_value());
    }
    EXPECT_FALSE(opened->store().writer().failed());
    EXPECT_FALSE(opened->store().has_room(4000));
    ASSERT_EQ(::mount("none", small.c_str(), "tmpfs", MS_REMOUNT, "size=1m"), 0);
    ASSERT_TRUE(opened->store().has_room(4000));
    opened->apply();
    ASSERT_TRUE(opened->commit().has_value());
    const auto expected = opened->now();
    toy::state found;
    ASSERT_TRUE(read_journal(files, small + "/run/journal", toy::target_of(found)).has_value());
    EXPECT_EQ(found, expected);
}

TEST_F(PosixStorage, TheCommitThreadMakesEverythingDurableInOrderAndTellsUpToWhere) {
    toy::state into;
    auto store = ledger_store::open(files, root + "/run", {}, toy::options(1 << 16), toy::target_of(into));
    ASSERT_TRUE(store.has_value());
    std::atomic<std::uint64_t> durable{0};
    std::atomic<bool> went_back{false};
    toy::state expected;
    {
        commit_thread commits(
            *store,
            [&](std::uint64_t sequence) {
                if (sequence < durable) went_back = true;
                durable = sequence;
            },
            [](const error& e) { ADD_FAILURE() << to_text(e); });
        for (int i = 0; i < 2000; ++i) {
            const std::string payload = "record " + std::to_string(i);
            expected.apply(7, payload);
            EXPECT_EQ(commits.append(7, i, payload), static_cast<std::uint64_t>(i + 1));
            if (i % 3 == 0) commits.kick();
            if (i % 500 == 499) {
                ASSERT_TRUE(commits.flush().has_value());
            }
        }
        ASSERT_TRUE(commits.flush().has_value());
        EXPECT_EQ(commits.durable_sequence(), 2000U);
        EXPECT_TRUE(commits.has_room(1000));
        EXPECT_LE(commits.figures().batches, 2000U);
    }
    EXPECT_EQ(durable, 2000U);
    EXPECT_FALSE(went_back);
    toy::state found;
    ASSERT_TRUE(read_journal(files, root + "/run/journal", toy::target_of(found)).has_value());
    EXPECT_EQ(found, expected);
}

TEST_F(PosixStorage, TheCommitThreadEndsTheSegmentExactlyWhereTheSnapshotWasTaken) {
    toy::state state;
    auto store = ledger_store::open(files, root + "/run", {}, toy::options(1 << 16), toy::target_of(state));
    ASSERT_TRUE(store.has_value());
    std::promise<result<snapshot_info>> head;
    {
        commit_thread commits(
            *store, [](std::uint64_t) {}, [](const error& e) { ADD_FAILURE() << to_text(e); });
        const auto append = [&](int i) {
            state.apply(7, std::to_string(i));
            commits.append(7, i, std::to_string(i));
        };
        for (int i = 0; i < 100; ++i) append(i);
        const toy::state copy = state;
        commits.snapshot_after_this([&](result<snapshot_info> info) { head.set_value(std::move(info)); });
        for (int i = 100; i < 150; ++i) append(i);
        commits.kick();
        const auto info = head.get_future().get();
        ASSERT_TRUE(info.has_value()) << to_text(info.error());
        EXPECT_EQ(info->sequence, 100U);
        ASSERT_TRUE(write_snapshot(store->state(), *info, copy.encode()).has_value());
        ASSERT_TRUE(commits.flush().has_value());
    }
    EXPECT_EQ(store->writer().segment_first(), 101U);
    toy::state found;
    const auto read = read_journal(files, root + "/run/journal", toy::target_of(found));
    ASSERT_TRUE(read.has_value());
    EXPECT_EQ(read->snapshot_sequence, 100U);
    EXPECT_EQ(read->records_replayed, 50U);
    EXPECT_EQ(found, state);
}

TEST(CommitThread, AFailedSyncIsToldOnceAndNothingBecomesDurableAfterIt) {
    sim::disk on;
    toy::state into;
    auto store = ledger_store::open(on, toy::run_path, {}, toy::options(), toy::target_of(into));
    ASSERT_TRUE(store.has_value());
    std::atomic<int> failures{0};
    std::atomic<std::uint64_t> durable{0};
    {
        commit_thread commits(
            *store, [&](std::uint64_t sequence) { durable = sequence; }, [&](const error&) { ++failures; });
        commits.append(1, 0, "one");
        ASSERT_TRUE(commits.flush().has_value());
        on.inject({on.calls() + 2, sim::fault_kind::failed_sync, false});
        commits.append(1, 0, "two");
        EXPECT_FALSE(commits.flush().has_value());
        commits.append(1, 0, "three");
        EXPECT_FALSE(commits.flush().has_value());
        std::promise<bool> told;
        commits.snapshot_after_this([&](const result<snapshot_info>& info) { told.set_value(info.has_value()); });
        EXPECT_FALSE(told.get_future().get());
    }
    EXPECT_EQ(failures, 1);
    EXPECT_EQ(durable, 1U);
}

TEST(Crc32c, HasThePublishedValueAndTheInstructionAgreesWithTheTable) {
    EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
    EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);
    sim::rng random(3);
    for (std::size_t size = 0; size < 70; ++size) {
        std::string bytes;
        for (std::size_t i = 0; i < size; ++i) bytes.push_back(static_cast<char>(random.next()));
        EXPECT_EQ(crc32c(bytes), crc32c_by_table(bytes)) << size;
        EXPECT_EQ(crc32c(bytes.substr(size / 3), crc32c(bytes.substr(0, size / 3))), crc32c(bytes));
    }
}

TEST(Sha256, HasThePublishedValuesAndContinuesFromACopy) {
    EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    sha256 hash;
    hash.update("a");
    const sha256 copy(hash);
    hash.update("bc");
    EXPECT_EQ(hash.hex(), sha256_hex("abc"));
    EXPECT_EQ(copy.hex(), sha256_hex("a"));
    EXPECT_FALSE(is_sha256_hex(sha256_hex("abc") + "0"));
    EXPECT_FALSE(is_sha256_hex("BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD"));
}

}  // namespace
