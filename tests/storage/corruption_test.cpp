// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "darlcore/testing/budget.hpp"
#include "toy_ledger.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::storage;
using sim::disk;

struct directory {
    sim::disk_image image;
    toy::state final;
};

/// A small run: two sessions, a snapshot in each, everything acknowledged.
directory small_run(bool stop_cleanly, int commits = 6, std::uint64_t preallocate = 512, storage_mutants mutants = {},
                    bool with_snapshots = true) {
    disk on;
    directory made;
    for (int session = 0; session < 2; ++session) {
        auto opened = toy::server::open(on, toy::run_path, toy::options(preallocate, mutants),
                                        static_cast<std::uint64_t>(session + 1));
        EXPECT_TRUE(opened.has_value());
        for (int i = 0; i < commits; ++i) {
            for (int n = 0; n <= i % 3; ++n) opened->apply();
            EXPECT_TRUE(opened->commit().has_value());
            if (i == commits / 2 && with_snapshots) {
                EXPECT_TRUE(opened->snapshot().has_value());
            }
        }
        made.final = opened->now();
        if (stop_cleanly) {
            EXPECT_TRUE(opened->store().close().has_value());
        }
    }
    made.image = on.image();
    return made;
}

std::string journal_file(std::uint64_t first) { return join(toy::run_path + "/journal", segment_name(first)); }

/// Empty: exact state, or a refusal that names a file and an offset.
std::string judge(disk& on, const toy::state& expected, const storage_mutants& mutants = {}) {
    const auto found = toy::start_on(on, mutants);
    if (found.outcome) return found.found == expected ? "" : "recovered another state in silence";
    const auto& failure = found.outcome.error();
    const bool is_refusal =
        failure.code == errc::corrupt || failure.code == errc::refused || failure.code == errc::unsupported;
    const bool names_file = failure.context.find(toy::run_path) != std::string::npos;
    const bool names_offset = failure.context.find("offset") != std::string::npos;
    return is_refusal && names_file && names_offset ? "" : "refused without saying where: " + to_text(failure);
}

std::vector<std::string> files_under_check(const disk& on) {
    auto files = on.files_below(toy::run_path);
    std::erase(files, toy::run_path + "/lock");
    return files;
}

/// Flips every bit of every file; gives the number of silent differences and the first one.
std::pair<std::uint64_t, std::string> flip_every_bit(const directory& run, const storage_mutants& mutants = {}) {
    std::uint64_t wrong = 0;
    std::string first;
    const disk original(run.image);
    for (const auto& path : files_under_check(original)) {
        const std::uint64_t bits = original.content(path).size() * 8;
        for (std::uint64_t bit = 0; bit < bits; ++bit) {
            disk on(run.image);
            on.flip_bit(path, bit);
            const auto what = judge(on, run.final, mutants);
            if (what.empty()) continue;
            if (wrong++ == 0) first = path + " bit " + std::to_string(bit) + ": " + what;
        }
    }
    return {wrong, first};
}

TEST(JournalCorruption, EveryFlippedBitOfASmallDirectoryGivesTheExactStateOrARefusalWithItsPlace) {
    for (const bool stop_cleanly : {true, false})
        for (const bool with_snapshots : {true, false}) {
            const auto [wrong, first] = flip_every_bit(small_run(stop_cleanly, 6, 512, {}, with_snapshots));
            EXPECT_EQ(wrong, 0U) << first;
        }
}

TEST(JournalCorruption, WithoutChecksumsFlippedBitsChangeTheStateInSilence) {
    const auto [wrong, first] = flip_every_bit(small_run(true, 4, 512, {}, false), {.skip_checksum = true});
    EXPECT_GT(wrong, 0U);
}

TEST(JournalCorruption, WithoutTheAckedMarkAFlippedBitInTheLastBatchLosesIt) {
    const auto [wrong, first] = flip_every_bit(small_run(true, 4, 512, {.skip_acked = true}, false));
    EXPECT_GT(wrong, 0U);
}

TEST(JournalCorruption, WithoutTheBatchRuleADamagedRecordInTheMiddleLosesEverythingBehindIt) {
    const auto run = small_run(true, 4, 512, {}, false);
    const auto damaged = [&] {
        disk on(run.image);
        on.remove(toy::run_path + "/journal/acked");  // the mark may be missing after a power cut
        const auto files = on.files_below(toy::run_path + "/journal");
        on.flip_bit(files.back(), (segment_header_bytes + record_header_bytes + 1) * 8);
        return on.image();
    }();
    disk with(damaged);
    const auto refused = toy::start_on(with);
    ASSERT_FALSE(refused.outcome.has_value());
    EXPECT_NE(refused.outcome.error().context.find("a record of a later batch"), std::string::npos);
    disk without(damaged);
    const auto lost = toy::start_on(without, {.ignore_batch_rule = true});
    ASSERT_TRUE(lost.outcome.has_value());
    EXPECT_LT(lost.found.entries.size(), run.final.entries.size());
}

TEST(JournalCorruption, EveryFileTruncatedAtEveryLengthGivesTheExactStateOrARefusal) {
    for (const bool stop_cleanly : {true, false}) {
        const auto run = small_run(stop_cleanly);
        const disk original(run.image);
        for (const auto& path : files_under_check(original)) {
            const auto& content = original.content(path);
            for (std::size_t length = 0; length < content.size(); ++length) {
                disk on(run.image);
                on.set_content(path, content.substr(0, length));
                EXPECT_EQ(judge(on, run.final), "") << path << " cut to " << length;
            }
        }
    }
}

TEST(JournalCorruption, EveryMissingFileGivesTheExactStateOrARefusal) {
    const auto run = small_run(true);
    const disk original(run.image);
    for (const auto& path : files_under_check(original)) {
        disk on(run.image);
        on.remove(path);
        const auto found = toy::start_on(on);
        if (found.outcome) {
            EXPECT_EQ(found.found, run.final) << path;
        }
    }
}

TEST(JournalCorruption, RandomFlippedBitsOfALargeJournalNeverChangeTheStateInSilence) {
    disk on;
    toy::state final;
    {
        auto opened = toy::server::open(on, toy::run_path, toy::options(std::uint64_t{1} << 20U));
        ASSERT_TRUE(opened.has_value());
        while (opened->store().writer().segment_bytes() < (std::uint64_t{1} << 20U) - 1000) {
            for (int n = 0; n < 8; ++n) opened->apply();
            ASSERT_TRUE(opened->commit().has_value());
        }
        final = opened->now();
        ASSERT_TRUE(opened->store().close().has_value());
    }
    const auto path = journal_file(1);
    const std::uint64_t bits = on.content(path).size() * 8;
    EXPECT_GT(bits, 8000000U);
    sim::rng random(2026);
    const int runs = darlcore::testing::property_runs(2000);
    sim::disk_image image = on.image();
    disk damaged(std::move(image));
    for (int i = 0; i < runs; ++i) {
        const std::uint64_t bit = random.below(bits);
        damaged.flip_bit(path, bit);
        toy::state found;
        const auto read = read_journal(damaged, toy::run_path + "/journal", toy::target_of(found));
        ASSERT_TRUE(!read || found == final) << "bit " << bit;
        if (!read) {
            ASSERT_EQ(read.error().code, errc::corrupt);
        }
        damaged.flip_bit(path, bit);
    }
}

TEST(JournalRecovery, ABatchTornBetweenItsSectorsIsNoCorruptionAndKeepsItsValidPrefix) {
    disk on;
    toy::state before;
    std::uint64_t torn_at = 0;
    {
        auto opened = toy::server::open(on, toy::run_path, toy::options());
        ASSERT_TRUE(opened.has_value());
        opened->apply();
        ASSERT_TRUE(opened->commit().has_value());
        opened->apply();
        before = opened->now();
        torn_at = opened->store().writer().segment_bytes();
        const auto first_size = opened->store().batches().pending_bytes();
        opened->apply();
        opened->apply();
        const auto sealed = opened->store().batches().seal(opened->store().writer().salt());
        std::string bytes = on.content(journal_file(1));
        bytes.replace(torn_at, sealed.bytes.size(), sealed.bytes);
        bytes[torn_at + first_size + 10] = 'x';  // second of three records torn, the third is whole
        on.set_content(journal_file(1), bytes);
    }
    const auto found = toy::start_on(on);
    ASSERT_TRUE(found.outcome.has_value()) << to_text(found.outcome.error());
    EXPECT_EQ(found.found, before);
    ASSERT_EQ(found.warnings.size(), 1U);
    EXPECT_NE(found.warnings.front().find("torn end of the last batch dropped"), std::string::npos);
    const auto again = toy::start_on(on);
    EXPECT_TRUE(again.outcome.has_value() && again.found == before && again.warnings.empty());
}

TEST(JournalRecovery, ADamagedNewestSnapshotIsPassedOverAndNamed) {
    auto run = small_run(true);
    disk on(run.image);
    auto files = on.files_below(toy::run_path + "/journal");
    const auto newest = std::find_if(files.rbegin(), files.rend(), [](const auto& f) { return f.ends_with(".bin"); });
    ASSERT_NE(newest, files.rend());
    on.flip_bit(*newest, 8 * 200);
    const auto found = toy::start_on(on);
    ASSERT_TRUE(found.outcome.has_value()) << to_text(found.outcome.error());
    EXPECT_EQ(found.found, run.final);
    ASSERT_FALSE(found.warnings.empty());
    EXPECT_NE(found.warnings.front().find("using the one before"), std::string::npos);
}

TEST(JournalRecovery, FilesOfAnotherRunAreRefused) {
    const auto ours = small_run(true);
    disk other;
    {
        auto with = toy::options(512);
        with.identity = toy::identity(50);
        auto opened = toy::server::open(other, toy::run_path, with, 1);
        ASSERT_TRUE(opened.has_value());
        for (int i = 0; i < 6; ++i) {
            opened->apply();
            ASSERT_TRUE(opened->commit().has_value());
        }
    }
    disk on(ours.image);
    const auto newest = on.files_below(toy::run_path + "/journal");
    on.set_content(*std::find_if(newest.rbegin(), newest.rend(), [](const auto& f) { return f.ends_with(".log"); }),
                   other.content(journal_file(1)));
    EXPECT_FALSE(toy::start_on(on).outcome.has_value());
}

TEST(JournalRecovery, AnotherBlockSpaceIsRefusedAndAWrongPathNeverStartsASecondRun) {
    const auto run = small_run(true);
    disk on(run.image);
    auto with = toy::options();
    with.identity->block_space_digest.fill(9);
    toy::state into;
    EXPECT_EQ(ledger_store::open(on, toy::run_path, {}, with, toy::target_of(into)).error().code, errc::refused);
    with = toy::options();
    with.resume_only = true;
    disk empty;
    EXPECT_EQ(ledger_store::open(empty, toy::run_path, {}, with, toy::target_of(into)).error().code, errc::not_found);
    with = toy::options();
    with.identity.reset();
    EXPECT_EQ(ledger_store::open(empty, toy::run_path, {}, with, toy::target_of(into)).error().code,
              errc::invalid_argument);
    EXPECT_TRUE(ledger_store::open(on, toy::run_path, {}, with, toy::target_of(into)).has_value())
        << "a restart needs only the directory";
}

TEST(JournalRecovery, ATermOlderThanTheJournalsIsRefused) {
    const auto run = small_run(true);
    disk on(run.image);
    on.set_content(toy::run_path + "/term", encode_term(0));
    const auto found = toy::start_on(on);
    ASSERT_FALSE(found.outcome.has_value());
    EXPECT_NE(found.outcome.error().context.find("restored from a backup"), std::string::npos);
}

TEST(JournalRecovery, ARecordThatTheLedgerRefusesIsNamedWithItsPlace) {
    const auto run = small_run(true, 4, 512, {}, false);
    disk on(run.image);
    toy::state into;
    auto target = toy::target_of(into);
    target.replay = [](const record& r) -> result<void> {
        if (r.sequence == 3) return fail(errc::corrupt, "state digest differs");
        return {};
    };
    const auto opened = ledger_store::open(on, toy::run_path, {}, toy::options(), target);
    ASSERT_FALSE(opened.has_value());
    EXPECT_NE(opened.error().context.find("sequence 3: corrupt: state digest differs"), std::string::npos)
        << opened.error().context;
}

TEST(JournalRecovery, SegmentsAreDeletedOnlyWhenTwoSnapshotsCoverThem) {
    disk on;
    auto opened = toy::server::open(on, toy::run_path, toy::options(512));
    ASSERT_TRUE(opened.has_value());
    const auto count = [&](std::string_view ending) {
        const auto files = on.files_below(toy::run_path + "/journal");
        return std::count_if(files.begin(), files.end(), [&](const auto& f) { return f.ends_with(ending); });
    };
    for (int i = 1; i <= 5; ++i) {
        opened->apply();
        ASSERT_TRUE(opened->commit().has_value());
        ASSERT_TRUE(opened->snapshot().has_value());
        EXPECT_EQ(count(".bin"), std::min(i, 2));
        EXPECT_EQ(count(".log"), i == 1 ? 2 : 2) << "the segment between the snapshots and the one in use";
    }
}

}  // namespace
