// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "backends/sim/disk.hpp"
#include "backends/sim/rng.hpp"
#include "backends/storage/blob_store.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::storage;
using sim::disk;
using sim::loss;

const std::string state_path = "/run";

std::string bytes_of(std::size_t size, std::uint64_t seed) {
    sim::rng random(seed);
    std::string bytes;
    while (bytes.size() < size) bytes.push_back(static_cast<char>(random.next()));
    return bytes;
}

blob_facts delta(std::string_view bytes, std::string site = "hpc-a", std::uint64_t generation = 3) {
    blob_facts facts;
    facts.sha256 = sha256_hex(bytes);
    facts.bytes = bytes.size();
    facts.codec = "bf16";
    facts.generation = generation;
    facts.site = std::move(site);
    facts.incarnation = "0011";
    return facts;
}

/// Counts bytes and refuses a body that begins with '!'.
class counting_scanner final : public blob_scanner {
public:
    void update(std::string_view bytes) override {
        if (count_ == 0 && !bytes.empty()) first_ = bytes.front();
        count_ += bytes.size();
    }
    result<std::string> finish() override {
        if (first_ == '!') return fail(errc::meta_mismatch, "header is not what was announced");
        return "{\"count\":" + std::to_string(count_) + "}";
    }

private:
    std::uint64_t count_ = 0;
    char first_ = 0;
};

class Blobs : public ::testing::Test {
protected:
    Blobs() { limits.reserve_bytes = 0; }
    void SetUp() override {
        ASSERT_TRUE(ensure_directory(on, state_path).has_value());
        restart();
    }
    void restart() {
        store.reset();
        auto opened = blob_store::open(
            on, state_path, limits, [](const blob_facts&) { return std::make_unique<counting_scanner>(); },
            [this] { return "u" + std::to_string(++ids); }, now);
        ASSERT_TRUE(opened.has_value()) << to_text(opened.error());
        store = std::move(*opened);
    }
    std::string announce(const blob_facts& facts) {
        const auto answer = store->announce(facts, standing, now);
        EXPECT_TRUE(answer.has_value()) << to_text(answer.error());
        return answer ? answer->upload.id : "";
    }
    errc refusal(const blob_facts& facts) {
        const auto answer = store->announce(facts, standing, now);
        return answer ? errc::internal : answer.error().code;
    }

    disk on;
    blob_limits limits;
    blob_standing standing{3, 0, 0};
    std::int64_t now = 0;
    int ids = 0;
    std::unique_ptr<blob_store> store;
};

TEST_F(Blobs, ADeltaUploadedInThreeSessionsWithRestartsBetweenHasTheRightDigest) {
    const auto body = bytes_of(300'000, 1);
    const auto id = announce(delta(body));
    for (int session = 0; session < 3; ++session) {
        const auto status = store->status(id, now);
        ASSERT_TRUE(status.has_value());
        EXPECT_EQ(status->offset, static_cast<std::uint64_t>(session) * 100'000);
        const auto part = std::string_view(body).substr(status->offset, 100'000);
        const auto accepted = store->append(id, "hpc-a", status->offset, part, sha256_hex(part), now);
        ASSERT_TRUE(accepted.has_value()) << to_text(accepted.error());
        EXPECT_EQ(accepted->stored, session == 2);
        if (session == 2) {
            EXPECT_EQ(accepted->scan, "{\"count\":300000}");
        }
        restart();
    }
    const auto blob = store->fetch(sha256_hex(body), "hpc-b", now);
    ASSERT_TRUE(blob.has_value());
    EXPECT_EQ(read_file(on, store->path_of(sha256_hex(body))).value(), body);
    EXPECT_EQ(blob->facts.site, "hpc-a");
    EXPECT_TRUE(store->announce(delta(body, "hpc-b"), standing, now)->stored) << "a re-upload of known bytes is free";
    EXPECT_EQ(on.files_below(state_path + "/blobs/staging").size(), 0U);
}

TEST_F(Blobs, ARunningUploadIsFoundAgainByItsDigest) {
    const auto body = bytes_of(1000, 1);
    const auto id = announce(delta(body));
    ASSERT_TRUE(store->append(id, "hpc-a", 0, std::string_view(body).substr(0, 400), std::nullopt, now).has_value());
    const auto again = store->announce(delta(body), standing, now);
    ASSERT_TRUE(again.has_value());
    EXPECT_EQ(again->upload.id, id);
    EXPECT_EQ(again->upload.offset, 400U);
}

TEST_F(Blobs, AFlippedBitIsRefusedPerPartByItsChecksumAndAtTheEndByTheDigest) {
    const auto body = bytes_of(1000, 1);
    auto damaged = body;
    damaged[500] = static_cast<char>(damaged[500] ^ 1);
    auto id = announce(delta(body));
    EXPECT_EQ(store->append(id, "hpc-a", 0, damaged, sha256_hex(body), now).error().code, errc::checksum_mismatch);
    EXPECT_EQ(store->status(id, now)->offset, 0U) << "the part is discarded";
    EXPECT_EQ(store->append(id, "hpc-a", 0, damaged, std::nullopt, now).error().code, errc::digest_mismatch);
    EXPECT_EQ(store->status(id, now).error().code, errc::gone) << "the staging file is dropped";
    EXPECT_EQ(store->put(delta(body), body, standing, now)->scan, "{\"count\":1000}")
        << "a new upload from offset 0 works";
}

TEST_F(Blobs, AfterAPartWithAWrongChecksumTheRightOneIsAccepted) {
    const auto body = bytes_of(900, 2);
    const auto id = announce(delta(body));
    ASSERT_TRUE(store->append(id, "hpc-a", 0, std::string_view(body).substr(0, 300), std::nullopt, now).has_value());
    const std::string wrong(300, 'x');
    const auto right = std::string_view(body).substr(300, 300);
    EXPECT_EQ(store->append(id, "hpc-a", 300, wrong, sha256_hex(right), now).error().code, errc::checksum_mismatch);
    ASSERT_TRUE(store->append(id, "hpc-a", 300, right, sha256_hex(right), now).has_value());
    EXPECT_TRUE(store->append(id, "hpc-a", 600, std::string_view(body).substr(600), std::nullopt, now)->stored);
}

TEST_F(Blobs, APartCutShortKeepsWhatArrivedOnlyWithoutAChecksum) {
    const auto body = bytes_of(1000, 1);
    const auto id = announce(delta(body));
    {
        auto part = store->begin_part(id, "hpc-a", 0, 1000, std::nullopt, now);
        ASSERT_TRUE(part.has_value());
        ASSERT_TRUE(part->write(std::string_view(body).substr(0, 250)).has_value());
        EXPECT_EQ(part->finish(now).error().code, errc::short_read);
    }
    EXPECT_EQ(store->status(id, now)->offset, 250U);
    {
        auto part = store->begin_part(id, "hpc-a", 250, 750, sha256_hex(std::string_view(body).substr(250)), now);
        ASSERT_TRUE(part.has_value());
        ASSERT_TRUE(part->write(std::string_view(body).substr(250, 100)).has_value());
    }
    EXPECT_EQ(store->status(id, now)->offset, 250U);
    EXPECT_TRUE(store->append(id, "hpc-a", 250, std::string_view(body).substr(250), std::nullopt, now)->stored);
}

TEST_F(Blobs, AWrongOffsetASecondWriterAndAStrangerAreRefused) {
    const auto body = bytes_of(1000, 1);
    const auto id = announce(delta(body));
    EXPECT_EQ(store->append(id, "hpc-a", 1, body, std::nullopt, now).error().code, errc::offset_mismatch);
    {
        const auto part = store->begin_part(id, "hpc-a", 0, 1000, std::nullopt, now);
        ASSERT_TRUE(part.has_value());
        EXPECT_EQ(store->begin_part(id, "hpc-a", 0, 1000, std::nullopt, now).error().code, errc::offset_mismatch);
    }
    EXPECT_EQ(store->append(id, "hpc-b", 0, body, std::nullopt, now).error().code, errc::not_owner);
    EXPECT_EQ(store->abandon(id, "hpc-b").error().code, errc::not_owner);
    EXPECT_EQ(store->append("nope", "hpc-a", 0, body, std::nullopt, now).error().code, errc::gone);
    EXPECT_EQ(store->append(id, "hpc-a", 0, body + "x", std::nullopt, now).error().code, errc::too_large);
    EXPECT_TRUE(store->abandon(id, "hpc-a").has_value());
    EXPECT_EQ(store->status(id, now).error().code, errc::gone);
}

TEST_F(Blobs, ABodyThatTheScannerRefusesIsDropped) {
    const std::string body = "!" + bytes_of(100, 1);
    EXPECT_EQ(store->put(delta(body), body, standing, now).error().code, errc::meta_mismatch);
    EXPECT_EQ(on.files_below(state_path + "/blobs").size(), 0U);
}

TEST_F(Blobs, AnAnnouncementIsCheckedBeforeAByteIsSent) {
    const auto body = bytes_of(1000, 1);
    EXPECT_EQ(refusal(delta(body, "hpc-a", 2)), errc::stale_generation);
    auto facts = delta(body);
    facts.sha256 = "../../etc/passwd";
    EXPECT_EQ(refusal(facts), errc::bad_request);
    facts = delta(body);
    facts.purpose = blob_purpose::init;
    EXPECT_EQ(refusal(facts), errc::stale_generation) << "an initial model is wanted only while there is none";
    standing.layout_bytes = 1001;
    EXPECT_EQ(refusal(delta(body)), errc::bad_request);
    standing.layout_bytes = 1000;
    EXPECT_EQ(refusal(delta(body)), errc::internal) << "accepted";
}

TEST_F(Blobs, ASiteHasTwoOpenUploadsAndABoundOnItsBytes) {
    announce(delta(bytes_of(1000, 1)));
    announce(delta(bytes_of(1000, 2)));
    EXPECT_EQ(refusal(delta(bytes_of(1000, 3))), errc::quota);
    announce(delta(bytes_of(1000, 3), "hpc-b"));
    limits.site_bytes_max = 2500;
    restart();
    ASSERT_TRUE(store->put(delta(bytes_of(1000, 1)), bytes_of(1000, 1), standing, now).has_value());
    EXPECT_EQ(refusal(delta(bytes_of(1000, 4))), errc::quota) << "one stored, one staged and this one are 3000 bytes";
    standing.current_generation = 4;
    EXPECT_EQ(store->drop_uploads(4, now), 2U);
    EXPECT_EQ(refusal(delta(bytes_of(1000, 4), "hpc-a", 4)), errc::internal) << "merged bytes no longer count";
}

// Found by the simulation: a lone site that was killed twice in its uploads could never upload again.
TEST_F(Blobs, UploadsOfAReplacedProcessAndExpiredOnesDoNotCountAgainstTheirSite) {
    announce(delta(bytes_of(1000, 1)));
    announce(delta(bytes_of(1000, 2)));
    auto later = delta(bytes_of(1000, 3));
    EXPECT_EQ(refusal(later), errc::quota);
    later.incarnation = "0022";
    auto resumed = delta(bytes_of(1000, 1));
    resumed.incarnation = "0022";
    announce(resumed);  // the same bytes: that upload goes on
    announce(later);    // and the other one of the replaced process is gone
    auto more = delta(bytes_of(1000, 2));
    more.incarnation = "0022";
    EXPECT_EQ(refusal(more), errc::quota);
    now += limits.upload_expires_ms;
    announce(more);
}

TEST_F(Blobs, TheReserveIsKeptAlsoAgainstUploadsThatAreStillToArrive) {
    limits.reserve_bytes = 5000;
    on.set_capacity(20'000);
    restart();
    announce(delta(bytes_of(9000, 1)));
    EXPECT_EQ(refusal(delta(bytes_of(9000, 2), "hpc-b")), errc::no_room);
    standing.merge_bytes = 11'000;
    EXPECT_EQ(refusal(delta(bytes_of(1000, 3), "hpc-b")), errc::no_room) << "the next merge needs that space";
    standing.merge_bytes = 0;
    EXPECT_EQ(refusal(delta(bytes_of(1000, 3), "hpc-b")), errc::internal);
}

TEST_F(Blobs, UploadsEndWhenTheyExpireOrTheirGenerationIsOverAndStagingIsCleanedAtStart) {
    const auto body = bytes_of(1000, 1);
    const auto id = announce(delta(body));
    now = limits.upload_expires_ms - 1;
    EXPECT_EQ(store->drop_uploads(3, now), 0U);
    ASSERT_TRUE(store->append(id, "hpc-a", 0, std::string_view(body).substr(0, 10), std::nullopt, now).has_value());
    now += limits.upload_expires_ms - 1;
    EXPECT_EQ(store->drop_uploads(3, now), 0U) << "counted from its last byte";
    now += 1;
    EXPECT_EQ(store->drop_uploads(3, now), 1U);
    const auto other = announce(delta(body));
    EXPECT_EQ(store->drop_uploads(4, now), 1U);
    EXPECT_EQ(store->status(other, now).error().code, errc::gone);
    ASSERT_TRUE(replace_file(on, state_path + "/blobs/staging/unknown.part", "leftover").has_value());
    restart();
    EXPECT_EQ(on.files_below(state_path + "/blobs/staging").size(), 0U);
}

TEST_F(Blobs, GarbageIsCollectedByGenerationNeverByAgeAndUnknownFilesStay) {
    const auto put = [&](std::uint64_t seed, blob_purpose purpose, std::uint64_t generation) {
        const auto body = bytes_of(100, seed);
        auto facts = delta(body, "hpc-a", generation);
        facts.purpose = purpose;
        if (purpose == blob_purpose::wire) {
            EXPECT_TRUE(replace_file(on, state_path + "/wire", body).has_value());
            EXPECT_TRUE(store->publish(state_path + "/wire", facts).has_value());
        } else {
            EXPECT_TRUE(store
                            ->put(facts, body,
                                  {purpose == blob_purpose::init ? std::nullopt : std::optional(generation), 0, 0}, now)
                            .has_value());
        }
        return facts.sha256;
    };
    const auto wire_0 = put(1, blob_purpose::wire, 0);
    const auto wire_1 = put(2, blob_purpose::wire, 1);
    const auto wire_2 = put(3, blob_purpose::wire, 2);
    const auto wire_3 = put(4, blob_purpose::wire, 3);
    const auto input_of_last_merge = put(5, blob_purpose::delta, 2);
    const auto old_delta = put(6, blob_purpose::delta, 1);
    const auto current_delta = put(7, blob_purpose::delta, 3);
    const auto init = put(8, blob_purpose::init, 0);
    const std::string unknown = store->path_of(std::string(64, 'a'));
    ASSERT_TRUE(ensure_directory(on, parent_directory(unknown)).has_value());
    ASSERT_TRUE(replace_file(on, unknown, "not ours").has_value());
    ASSERT_TRUE(store->fetch(wire_1, "hpc-slow", now).has_value());

    const blob_retention keep{3, 2, {0}, {input_of_last_merge}};
    now += limits.fetch_grace_ms;
    auto gone = store->collect(keep, now);
    ASSERT_TRUE(gone.has_value());
    std::sort(gone->begin(), gone->end());
    auto expected = std::vector{old_delta, init};
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(*gone, expected) << "wire 1 is old but somebody still fetches it";
    now += 1;
    EXPECT_EQ(*store->collect(keep, now), std::vector{wire_1});
    restart();
    for (const auto& kept : {wire_0, wire_2, wire_3, input_of_last_merge, current_delta})
        EXPECT_TRUE(store->find(kept).has_value());
    EXPECT_FALSE(store->find(wire_1).has_value());
    EXPECT_EQ(store->fetch(wire_1, "hpc-slow", now).error().code, errc::blob_missing);
    EXPECT_TRUE(exists(on, unknown));
}

TEST_F(Blobs, AnUploadThatWasCompleteButNotYetNamedAtTheCrashIsFinishedByPreparing) {
    const auto body = bytes_of(5000, 1);
    const auto id = announce(delta(body));
    ASSERT_TRUE(store->append(id, "hpc-a", 0, std::string_view(body).substr(0, 4999), std::nullopt, now).has_value());
    ASSERT_TRUE(on.content(state_path + "/blobs/staging/" + id + ".part").size() == 4999);
    on.set_content(state_path + "/blobs/staging/" + id + ".part", body);
    restart();
    ASSERT_EQ(store->unprepared(), std::vector{id});
    ASSERT_TRUE(store->prepare(id, now).has_value());
    EXPECT_TRUE(store->find(sha256_hex(body)).has_value());
    EXPECT_TRUE(store->unprepared().empty());
}

TEST_F(Blobs, WherePublishingCannotLinkItCopies) {
    on.no_hard_links(true);
    const auto body = bytes_of(100, 9);
    auto facts = delta(body);
    facts.purpose = blob_purpose::wire;
    ASSERT_TRUE(replace_file(on, state_path + "/wire", body).has_value());
    ASSERT_TRUE(store->publish(state_path + "/wire", facts).has_value());
    ASSERT_TRUE(store->publish(state_path + "/wire", facts).has_value()) << "harmless twice";
    EXPECT_EQ(on.content(store->path_of(facts.sha256)), body);
}

/// A blob that was answered `stored` is there, whole, after a power cut at any call; an announced upload has an offset.
std::string judge_after_cut(const sim::disk_image& image, const std::string& sha256, bool was_stored) {
    disk after(image);
    auto opened = blob_store::open(
        after, state_path, {}, nullptr, [] { return std::string("z"); }, 0);
    if (!opened) return "refused: " + to_text(opened.error());
    for (const auto& id : (*opened)->unprepared()) {
        const auto prepared = (*opened)->prepare(id, 0);
        if (!prepared && prepared.error().code != errc::digest_mismatch) return to_text(prepared.error());
    }
    for (const auto& facts : (*opened)->list())
        if (sha256_of_file(after, (*opened)->path_of(facts.sha256)).value_or("") != facts.sha256)
            return "a blob holds wrong bytes";
    if (was_stored && !(*opened)->find(sha256)) return "a stored blob is gone";
    return {};
}

TEST(BlobCrash, AStoredBlobSurvivesAPowerCutAtAnyCallAndNoNameEverHoldsWrongBytes) {
    disk on;
    ASSERT_TRUE(ensure_directory(on, state_path).has_value());
    const auto body = bytes_of(3000, 1);
    bool stored = false;
    std::string violation;
    std::uint64_t cuts = 0;
    bool judging = true;
    on.on_call([&](const sim::io_call& call) {
        if (!judging) return;
        for (const loss mode : sim::every_loss) {
            const auto what = judge_after_cut(on.image().after_power_cut(mode, call.number), sha256_hex(body), stored);
            ++cuts;
            if (!what.empty() && violation.empty())
                violation = "call " + std::to_string(call.number) + " " + std::string(word(mode)) + ": " + what;
        }
    });
    blob_limits limits;
    limits.reserve_bytes = 0;
    auto store = blob_store::open(
        on, state_path, limits, nullptr, [] { return std::string("u1"); }, 0);
    ASSERT_TRUE(store.has_value());
    const auto begun = (*store)->announce(delta(body), {3, 0, 0}, 0);
    ASSERT_TRUE(begun.has_value());
    for (std::uint64_t at = 0; at < 3000; at += 1000) {
        const auto accepted =
            (*store)->append(begun->upload.id, "hpc-a", at, std::string_view(body).substr(at, 1000), std::nullopt, 0);
        ASSERT_TRUE(accepted.has_value());
        stored = accepted->stored;
    }
    ASSERT_TRUE(stored);
    ASSERT_TRUE((*store)->find(sha256_hex(body)).has_value());
    ASSERT_TRUE((*store)->fetch(sha256_hex(body), "x", 0).has_value());  // one more call behind the answer
    EXPECT_EQ(violation, "");
    EXPECT_GT(cuts, 150U);
}

TEST(BlobFaults, AFullDiskOrAnErrorAtAnyCallOfAnUploadNeverLeavesAWrongBlob) {
    const auto body = bytes_of(3000, 1);
    const auto upload = [&](disk& on) {
        blob_limits limits;
        limits.reserve_bytes = 0;
        auto store = blob_store::open(
            on, state_path, limits, nullptr, [] { return std::string("u1"); }, 0);
        if (!store) return false;
        const auto begun = (*store)->announce(delta(body), {3, 0, 0}, 0);
        if (!begun) return false;
        auto offset = begun->upload.offset;
        for (int tries = 0; tries < 6; ++tries) {
            const auto accepted = (*store)->append(begun->upload.id, "hpc-a", offset,
                                                   std::string_view(body).substr(offset, 1000), std::nullopt, 0);
            if (accepted && accepted->stored) return true;
            const auto status = (*store)->status(begun->upload.id, 0);
            if (!status) return false;
            offset = status->offset;
        }
        return false;
    };
    disk undisturbed;
    ASSERT_TRUE(ensure_directory(undisturbed, state_path).has_value());
    ASSERT_TRUE(upload(undisturbed));
    int completed = 0;
    for (std::uint64_t n = 1; n <= undisturbed.calls(); ++n)
        for (const auto kind : {sim::fault_kind::no_space, sim::fault_kind::io_error, sim::fault_kind::failed_sync,
                                sim::fault_kind::short_transfer}) {
            disk on;
            ASSERT_TRUE(ensure_directory(on, state_path).has_value());
            on.inject({on.calls() + n, kind, false});
            const bool stored = upload(on);
            completed += stored ? 1 : 0;
            if (kind == sim::fault_kind::short_transfer) {
                ASSERT_TRUE(stored);
            }
            for (const loss mode : sim::every_loss)
                ASSERT_EQ(judge_after_cut(on.image().after_power_cut(mode, n), sha256_hex(body), stored), "") << n;
        }
    EXPECT_GT(completed, 30);
}

}  // namespace
