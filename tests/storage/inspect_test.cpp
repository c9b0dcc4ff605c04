// SPDX-License-Identifier: Apache-2.0
#include "backends/storage/inspect.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "toy_ledger.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::storage;
using sim::disk;

struct made_run {
    sim::disk_image image;
    toy::state final;
};

made_run run_of(bool with_snapshots) {
    disk on;
    made_run made;
    for (int session = 0; session < 2; ++session) {
        auto opened = toy::server::open(on, toy::run_path, toy::options(1024), static_cast<std::uint64_t>(session + 1));
        EXPECT_TRUE(opened.has_value());
        for (int i = 0; i < 8; ++i) {
            opened->apply();
            opened->apply();
            EXPECT_TRUE(opened->commit().has_value());
            if (with_snapshots && i == 4) {
                EXPECT_TRUE(opened->snapshot().has_value());
            }
        }
        EXPECT_TRUE(opened->store().close().has_value());
        made.final = opened->now();
    }
    made.image = on.image();
    return made;
}

std::vector<std::string> segments_of(const disk& on) {
    auto files = on.files_below(toy::run_path + "/journal");
    std::erase_if(files, [](const auto& f) { return !f.ends_with(".log"); });
    return files;
}

TEST(JournalInspect, AGoodDirectoryHasNoFindings) {
    for (const bool with_snapshots : {true, false}) {
        disk on(run_of(with_snapshots).image);
        const auto seen = inspect(on, toy::run_path);
        ASSERT_TRUE(seen.has_value());
        EXPECT_TRUE(seen->findings.empty()) << seen->findings.front().what;
        EXPECT_EQ(seen->last_sequence, 32U);
        EXPECT_EQ(seen->acked_sequence, 32U);
        EXPECT_EQ(seen->snapshots.size(), with_snapshots ? 2U : 0U);
    }
}

TEST(JournalInspect, PointsAtTheDamagedRecordWhereverABitIsFlipped) {
    const auto run = run_of(false);
    const disk original(run.image);
    const auto file = segments_of(original).front();
    std::vector<std::uint64_t> starts;
    disk reading(run.image);
    ASSERT_TRUE(inspect(reading, toy::run_path, [&](const record_place& place) {
                    if (place.file == file) starts.push_back(place.offset);
                }).has_value());
    ASSERT_EQ(starts.size(), 16U);
    const std::uint64_t bytes = original.content(file).size();
    for (std::uint64_t at = segment_header_bytes; at < bytes; ++at) {
        disk on(run.image);
        on.flip_bit(file, at * 8 + at % 8);
        const auto seen = inspect(on, toy::run_path);
        ASSERT_TRUE(seen.has_value());
        ASSERT_TRUE(seen->is_damaged()) << at;
        const auto record = std::upper_bound(starts.begin(), starts.end(), at) - 1;
        const auto sequence = static_cast<std::uint64_t>(record - starts.begin()) + 1;
        const auto hit = std::find_if(seen->findings.begin(), seen->findings.end(),
                                      [&](const auto& f) { return f.file == file && f.offset == *record; });
        ASSERT_NE(hit, seen->findings.end()) << "byte " << at;
        EXPECT_EQ(hit->sequence, sequence);
    }
}

TEST(JournalInspect, ATornTailIsToldApartFromDamage) {
    disk on;
    {
        auto opened = toy::server::open(on, toy::run_path, toy::options(1024));
        ASSERT_TRUE(opened.has_value());
        opened->apply();
        ASSERT_TRUE(opened->commit().has_value());
    }
    const auto file = segments_of(on).front();
    std::string bytes = on.content(file);
    bytes[400] = 'x';
    on.set_content(file, bytes);
    const auto seen = inspect(on, toy::run_path);
    ASSERT_TRUE(seen.has_value());
    ASSERT_EQ(seen->findings.size(), 1U);
    EXPECT_FALSE(seen->is_damaged());
    EXPECT_NE(seen->findings.front().what.find("torn end"), std::string::npos);
}

TEST(JournalInspect, NoJournalIsSaid) {
    disk on;
    EXPECT_EQ(inspect(on, toy::run_path).error().code, errc::not_found);
}

TEST(JournalSalvage, OfAGoodDirectoryKeepsEverything) {
    for (const bool with_snapshots : {true, false}) {
        const auto run = run_of(with_snapshots);
        disk on(run.image);
        toy::state checked;
        const auto report = salvage(on, toy::run_path, "/rescued", toy::target_of(checked));
        ASSERT_TRUE(report.has_value()) << to_text(report.error());
        EXPECT_EQ(report->kept_through, 32U);
        EXPECT_TRUE(report->lost.empty() && report->unreadable.empty());
        toy::state found;
        const auto opened = ledger_store::open(on, "/rescued", {}, toy::options(1024), toy::target_of(found));
        ASSERT_TRUE(opened.has_value()) << to_text(opened.error());
        EXPECT_EQ(found, run.final);
        EXPECT_GT(opened->term(), 2U) << "above every term that was served";
    }
}

TEST(JournalSalvage, WritesANewDirectoryThatStartsAndListsWhatItCouldNotKeepWhateverByteIsDamaged) {
    const auto run = run_of(false);
    const disk original(run.image);
    for (const auto& file : segments_of(original))
        for (std::uint64_t at = 0; at < original.content(file).size(); at += 3) {
            disk on(run.image);
            on.flip_bit(file, at * 8 + 3);
            const auto before = on.content(file);
            toy::state checked;
            const auto report = salvage(on, toy::run_path, "/rescued", toy::target_of(checked));
            if (!report) {
                ASSERT_EQ(report.error().code, errc::corrupt) << "byte " << at;
                ASSERT_TRUE(file == segments_of(original).front()) << "byte " << at << ": " << to_text(report.error());
                continue;
            }
            EXPECT_EQ(on.content(file), before) << "the old directory is not touched";
            std::uint64_t told = report->kept_through + report->lost.size();
            for (const auto& gap : report->unreadable) told += gap.last - gap.first + 1;
            ASSERT_EQ(told, 32U) << "byte " << at << ": every sequence is kept, listed as lost or listed as unreadable";
            toy::state found;
            const auto opened = ledger_store::open(on, "/rescued", {}, toy::options(1024), toy::target_of(found));
            ASSERT_TRUE(opened.has_value()) << to_text(opened.error());
            ASSERT_EQ(found.entries.size(), report->kept_through);
            ASSERT_TRUE(found.is_prefix_of(run.final));
        }
}

TEST(JournalSalvage, NeverWritesIntoADirectoryThatExists) {
    disk on(run_of(false).image);
    ASSERT_TRUE(ensure_directory(on, "/rescued").has_value());
    toy::state checked;
    EXPECT_EQ(salvage(on, toy::run_path, "/rescued", toy::target_of(checked)).error().code, errc::already_exists);
}

TEST(JournalSalvage, UsesASnapshotWhereTheRecordsBeforeItAreGone) {
    const auto run = run_of(true);
    disk on(run.image);
    on.flip_bit(segments_of(on).front(), 8 * (segment_header_bytes + 40));
    toy::state checked;
    const auto report = salvage(on, toy::run_path, "/rescued", toy::target_of(checked));
    ASSERT_TRUE(report.has_value()) << to_text(report.error());
    EXPECT_GT(report->snapshot_sequence, 0U);
    EXPECT_EQ(checked, run.final);
}

}  // namespace
