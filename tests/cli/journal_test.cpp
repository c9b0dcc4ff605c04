// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "adapters/formats/json.hpp"
#include "backends/storage/inspect.hpp"
#include "backends/storage/ledger_replay.hpp"
#include "backends/storage/ledger_store.hpp"
#include "backends/storage/posix.hpp"
#include "darlcore/ledger/record_codec.hpp"
#include "run_darl.hpp"
#include "tests/ledger/world.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::storage;
using darl::testing::run_darl;

/// A state directory with a few records of a real ledger.
class JournalCommand : public ::testing::Test {
protected:
    void SetUp() override {
        std::string pattern = (std::filesystem::temp_directory_path() / "darl-journal-XXXXXX").string();
        ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
        root = pattern;
        directory = root + "/run";
        ledger::testing::world w;
        for (const char* site : {"hpc-a", "hpc-b"}) w.enter(site);
        ASSERT_FALSE(w.acquire("hpc-a", 2).empty());
        store_options options;
        options.journal.preallocate_bytes = 1 << 16;
        options.identity = identity_of(w.m);
        ledger_replay replay;
        auto store = ledger_store::open(files, directory, {}, options, replay.target());
        ASSERT_TRUE(store.has_value()) << to_text(store.error());
        for (const auto& [r, at] : w.journal) {
            store->append(ledger::type_number(r), at.ms, ledger::encode(r));
            ASSERT_TRUE(store->commit().has_value());
        }
        records = w.journal.size();
        ASSERT_TRUE(store->close().has_value());
    }
    void TearDown() override { std::filesystem::remove_all(root); }

    [[nodiscard]] std::string segment() const { return directory + "/journal/" + segment_name(1); }
    /// Offset of the record with this sequence.
    std::uint64_t offset_of(std::uint64_t sequence) {
        std::uint64_t offset = 0;
        const auto seen = inspect(files, directory, [&](const record_place& place) {
            if (place.record.sequence == sequence) offset = place.offset;
        });
        EXPECT_TRUE(seen.has_value());
        return offset;
    }
    void damage(std::uint64_t sequence) {
        const auto offset = offset_of(sequence) + record_header_bytes;
        std::fstream file(segment(), std::ios::in | std::ios::out | std::ios::binary);
        file.seekg(static_cast<std::streamoff>(offset));
        const char byte = static_cast<char>(file.get() ^ 0x10);
        file.seekp(static_cast<std::streamoff>(offset));
        file.put(byte);
    }

    posix_file_system files;
    std::string root;
    std::string directory;
    std::uint64_t records = 0;
};

TEST_F(JournalCommand, VerifyAndInspectOfAGoodDirectorySayGood) {
    const auto verified = run_darl({"--json", "journal", "verify", directory});
    EXPECT_EQ(verified.status, 0) << verified.err;
    EXPECT_EQ(json::parse(verified.out).value().at("sequence").as_u64(), records);
    const auto inspected = run_darl({"--json", "journal", "inspect", "--records", directory});
    EXPECT_EQ(inspected.status, 0);
    const auto document = json::parse(inspected.out).value();
    EXPECT_EQ(*document.at("verdict").as_string(), "good");
    EXPECT_EQ(document.at("records").size(), records);
    EXPECT_EQ(*document.at("records").at(std::size_t{0}).at("type").as_string(), "run_created");
}

TEST_F(JournalCommand, ADamagedRecordIsPointedAtRefusedByVerifyAndLeftOutBySalvage) {
    const auto offset = offset_of(3);
    damage(3);
    const auto verified = run_darl({"journal", "verify", directory});
    EXPECT_EQ(verified.status, 3);
    EXPECT_NE(verified.err.find("offset " + std::to_string(offset) + ", sequence 3"), std::string::npos)
        << verified.err;

    const auto inspected = run_darl({"--json", "journal", "inspect", directory});
    EXPECT_EQ(inspected.status, 0);
    const auto document = json::parse(inspected.out).value();
    EXPECT_EQ(*document.at("verdict").as_string(), "damaged");
    const auto& finding = document.at("findings").at(std::size_t{0});
    EXPECT_EQ(*finding.at("file").as_string(), segment());
    EXPECT_EQ(finding.at("offset").as_u64(), offset);
    EXPECT_EQ(finding.at("sequence").as_u64(), 3U);

    const auto salvaged = run_darl({"--json", "journal", "salvage", directory, "--out", root + "/rescued"});
    EXPECT_EQ(salvaged.status, 0) << salvaged.err;
    const auto report = json::parse(salvaged.out).value();
    EXPECT_EQ(report.at("kept_through").as_u64(), 2U);
    EXPECT_EQ(report.at("lost").size(), records - 3);
    EXPECT_EQ(report.at("unreadable").at(std::size_t{0}).at("first").as_u64(), 3U);
    EXPECT_EQ(run_darl({"journal", "verify", root + "/rescued"}).status, 0);
    EXPECT_EQ(run_darl({"journal", "salvage", directory, "--out", root + "/rescued"}).status, 2) << "never overwrites";
}

TEST_F(JournalCommand, AWrongPathIsASentenceAndExitCodeTwo) {
    for (const char* action : {"inspect", "verify", "salvage"}) {
        const auto run = run_darl({"journal", action, root + "/nothing"});
        EXPECT_EQ(run.status, 2);
        EXPECT_NE(run.err.find("holds no journal"), std::string::npos) << run.err;
    }
}

}  // namespace
