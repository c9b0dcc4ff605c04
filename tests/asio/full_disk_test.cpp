// SPDX-License-Identifier: Apache-2.0
// A disk that is really full: before and during an upload, at a pledge and during a merge. And small numbers of sites:
// whoever comes with fresh weights never becomes the model.
#include <sys/mount.h>
#include <sys/statvfs.h>

#include <filesystem>

#include "darlcore/hex.hpp"
#include "darlcore/merge/model_layout.hpp"
#include "tests/asio/round_fixture.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::http::testing;

class a_small_disk : public round_over_http {
protected:
    void SetUp() override {
        std::filesystem::create_directories(disk());
        if (::mount("none", disk().c_str(), "tmpfs", 0, "size=160m") != 0)
            GTEST_SKIP() << "mounting a tmpfs needs root";
        mounted_ = true;
        ASSERT_NO_FATAL_FAILURE(begin_run());
    }
    void TearDown() override {
        server_.reset();
        if (mounted_) ::umount2(disk().c_str(), MNT_DETACH);
    }
    [[nodiscard]] std::string disk() const { return folder_ / "disk"; }
    [[nodiscard]] std::string state_path() const override { return disk() + "/state"; }
    [[nodiscard]] std::uint64_t free_bytes() const {
        struct statvfs info {};
        return ::statvfs(disk().c_str(), &info) == 0 ? info.f_bavail * info.f_frsize : 0;
    }
    /// Somebody else's file takes all but so many bytes.
    void fill_but(std::uint64_t left_bytes) {
        std::ofstream out(disk() + "/other", std::ios::binary | std::ios::app);
        for (const std::size_t size : {std::size_t{1} << 20U, std::size_t{4096}}) {
            const std::string piece(size, 'x');
            while (free_bytes() >= left_bytes + size && out.write(piece.data(), static_cast<long>(size)).flush()) {
            }
        }
    }
    void make_room() { std::filesystem::remove(disk() + "/other"); }

    /// Asks until the generation is there; ctest's limit ends it.
    void await_generation(std::uint64_t wanted) {
        while (get(*client_, "/round").body.at("generation").as_u64() != wanted) {
        }
    }

private:
    bool mounted_ = false;
};

TEST_F(a_small_disk, full_before_an_upload_says_507_and_takes_it_when_there_is_room) {
    const client::upload_job delta = make_delta(2.0F);
    fill_but(256 * 1024);
    const auto refused = ask("/blobs", body_of_site({{"bytes", delta.bytes},
                                                     {"sha256", delta.sha256},
                                                     {"purpose", "delta"},
                                                     {"codec", "f32"},
                                                     {"base_generation", 0}}));
    EXPECT_EQ(refused.status, 507) << json::dump(refused.body);
    EXPECT_EQ(refused.code, "no_room");
    make_room();
    EXPECT_EQ(patch(announce(delta), 0, read_file(delta.path)).status, 200);
}

TEST_F(a_small_disk, full_in_the_middle_of_an_upload_keeps_what_arrived) {
    const client::upload_job delta = make_delta(2.0F);
    const std::string bytes = read_file(delta.path);
    const std::string id = announce(delta);
    const std::size_t third = bytes.size() / 3;
    ASSERT_EQ(patch(id, 0, bytes.substr(0, third)).status, 204);
    fill_but(0);
    const auto refused = patch(id, third, bytes.substr(third), storage::sha256_hex(bytes.substr(third)));
    EXPECT_TRUE(refused.status == 507 || refused.status == 503) << refused.status << ' ' << refused.body;
    EXPECT_EQ(get(*client_, "/round").status, 200) << "reads go on";
    make_room();
    client::call head;
    head.method = "HEAD";
    head.path = "/blobs/uploads/" + id;
    const auto where = client_->perform(head).value();
    ASSERT_EQ(where.status, 200);
    const auto offset = std::stoull(*where.header("upload-offset"));
    EXPECT_GE(offset, third);
    EXPECT_EQ(patch(id, offset, bytes.substr(offset)).status, 200);
    EXPECT_EQ(server_->stop(), 0) << server_->log();
}

TEST_F(a_small_disk, full_at_a_pledge_refuses_it_or_keeps_it_and_goes_on_when_there_is_room) {
    const json::value leases = claims();
    const client::upload_job delta = make_delta(2.0F);
    ASSERT_EQ(patch(announce(delta), 0, read_file(delta.path)).status, 200);
    fill_but(0);
    const auto first = ask("/round/contribute", claim_of(delta, leases));
    // the journal's segment was allocated before, so there is room for a record as a rule
    EXPECT_TRUE(first.status == 503 || first.status == 200) << json::dump(first.body);
    if (first.status == 200) {
        EXPECT_EQ(get(*client_, "/status").body.at("pledged").as_u64(), first.body.at("pledged_blocks").as_u64());
    } else {
        EXPECT_EQ(first.code, "disk_full_ack") << json::dump(first.body);
        EXPECT_EQ(get(*client_, "/status").body.at("pledged").as_u64(), 0U) << "nothing was acknowledged";
    }
    make_room();
    auto again = ask("/round/contribute", claim_of(delta, leases));
    for (; again.status == 503; again = ask("/round/contribute", claim_of(delta, leases))) {
    }
    ASSERT_EQ(again.status, 200) << json::dump(again.body);
    await_generation(1);
    EXPECT_EQ(server_->stop(), 0) << server_->log();
}

TEST_F(a_small_disk, full_during_a_merge_keeps_the_pledge_and_merges_when_there_is_room) {
    const json::value leases = claims();
    const client::upload_job delta = make_delta(2.0F);
    ASSERT_EQ(patch(announce(delta), 0, read_file(delta.path)).status, 200);
    fill_but(std::size_t{weights} * sizeof(float) * 3 / 2);  // for the weights, not for the momentum
    const auto pledged = ask("/round/contribute", claim_of(delta, leases));
    ASSERT_EQ(pledged.status, 200) << json::dump(pledged.body);
    std::string waiting;
    while (waiting.find("failed merge") == std::string::npos)
        waiting = *get(*client_, "/round").body.at("waiting_for").as_string();
    EXPECT_EQ(get(*client_, "/round").body.at("generation").as_u64(), 0U) << "the old model stays";
    EXPECT_EQ(get(*client_, "/status").body.at("pledged").as_u64(), pledged.body.at("pledged_blocks").as_u64());
    EXPECT_EQ(ask("/round/poll", body_of_site({{"have_generation", 0}, {"state", "idle"}, {"wait_s", 0}})).status, 200);
    make_room();
    await_generation(1);
    EXPECT_EQ(*ask("/round/contribute", claim_of(delta, leases)).body.at("status").as_string(), "merged");
    EXPECT_EQ(get(*client_, "/status").body.at("committed").as_u64(), pledged.body.at("pledged_blocks").as_u64());
    EXPECT_EQ(server_->stop(), 0) << server_->log();
}

TEST_F(round_over_http, a_site_with_fresh_weights_can_never_become_the_truth) {
    begin_run();
    const std::string truth = *train_.at("wire").at("sha256").as_string();
    ASSERT_EQ(ask("/round/leave", body_of_site({{"reason", "maintenance"}})).status, 200);
    restart();  // the server has forgotten whoever was there
    // the only site of the run is a new one, with weights of its own
    const std::string incarnation = "11111111111111112222222222222222";
    const auto as_beta = [&](std::initializer_list<std::pair<std::string_view, json::value>> more) {
        json::value body = json::make_object({{"cluster", "beta"}, {"incarnation", incarnation}});
        for (const auto& [key, value] : more) body.set(key, value);
        return body;
    };
    ASSERT_EQ(ask("/register", as_beta({{"protocol", 2}, {"ranks", 1}})).status, 200);
    const tensor_spec spec{"w", dtype::f32, {weights}};
    const std::string layout = to_hex(model_layout::make({spec})->digest());
    ASSERT_EQ(ask("/round/join", as_beta({{"layout_digest", layout},
                                          {"schedule_digest", "s"},
                                          {"seq_len", 8},
                                          {"codecs", json::value(json::array{json::value("f32")})}}))
                  .status,
              200);
    const auto polled = ask("/round/poll", as_beta({{"have_generation", 0}, {"state", "idle"}})).body;
    EXPECT_NE(*polled.at("action").as_string(), "init") << "nobody is asked for first weights again";
    if (*polled.at("action").as_string() == "train") {
        EXPECT_EQ(*polled.at("wire").at("sha256").as_string(), truth);
    }
    client::upload_job fresh = make_file("fresh", 77.0F, {});
    fresh.purpose = "init";
    fresh.who = lease::caller{{"beta"}, {0x1111111111111111ULL, 0x2222222222222222ULL}};
    const auto sent = client::upload_blob(*client_, fresh, patient);
    const auto as_delta = ask("/round/contribute", as_beta({{"id", "fresh-1"},
                                                            {"base_generation", 0},
                                                            {"sha256", fresh.sha256},
                                                            {"codec", "f32"},
                                                            {"tokens", 320},
                                                            {"steps", 1},
                                                            {"loss_sum", 1.0},
                                                            {"loss_count", 1},
                                                            {"leases", json::value(json::array{})}}));
    EXPECT_NE(as_delta.status, 200) << json::dump(as_delta.body);
    EXPECT_EQ(get(*client_, "/round").body.at("generation").as_u64(), 0U) << (sent ? "stored" : to_text(sent.error()));
    const auto model = formats::safetensors_reader::open(state_path() + "/model/gen-000000000000/global.safetensors");
    ASSERT_TRUE(model) << to_text(model.error());
    std::vector<float> values(weights);
    ASSERT_TRUE(model->read_all(*model->header().find("w"), std::as_writable_bytes(std::span(values))));
    EXPECT_EQ(values, std::vector<float>(weights, 1.0F));
    const auto after = ask("/round/poll", as_beta({{"have_generation", 0}, {"state", "idle"}})).body;
    if (*after.at("action").as_string() == "train") {
        EXPECT_EQ(*after.at("wire").at("sha256").as_string(), truth);
    }
}

}  // namespace
