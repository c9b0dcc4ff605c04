// SPDX-License-Identifier: Apache-2.0
// Back to an older generation with the real command, then a real server on the new directory, and a process of before
// that nobody stopped.
#include <cstdio>

#include <gtest/gtest.h>

#include "darlcore/hex.hpp"
#include "darlcore/merge/model_layout.hpp"
#include "tests/asio/round_fixture.hpp"
#include "tests/cli/run_darl.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::http::testing;
using darl::testing::run_darl;

class rolled_back_run : public round_over_http {
protected:
    [[nodiscard]] std::string state_path() const override { return folder_ / state_; }

    /// Trains everything that is free and waits for the merge; the answer to the contribution.
    json::value merge_all(const std::string& id, std::uint64_t base) {
        client::upload_job delta = make_file(id, 2.0F,
                                             {{"darl.run_id", run_id_},
                                              {"darl.site", "alpha"},
                                              {"darl.base_generation", std::to_string(base)},
                                              {"darl.tokens", "320"},
                                              {"darl.steps", "1"},
                                              {"darl.codec", "f32"}});
        delta.base = generation{base};
        const json::value leases = claims();
        EXPECT_GE(leases.size(), 1U);
        const auto announced = ask("/blobs", body_of_site({{"bytes", delta.bytes},
                                                           {"sha256", delta.sha256},
                                                           {"purpose", "delta"},
                                                           {"codec", "f32"},
                                                           {"base_generation", base}}));
        EXPECT_EQ(announced.status, 201) << json::dump(announced.body);
        EXPECT_EQ(patch(*announced.body.at("upload").as_string(), 0, read_file(delta.path)).status, 200);
        claim_ = claim_of(delta, leases);
        claim_.set("id", id);
        claim_.set("base_generation", base);
        const auto pledged = ask("/round/contribute", claim_);
        EXPECT_EQ(pledged.status, 200) << json::dump(pledged.body);
        while (round().at("generation").as_u64() == base) {  // ctest's limit ends it when the merge never comes
        }
        return pledged.body;
    }
    json::value round() { return get(*client_, "/round").body; }
    void enter() {
        ASSERT_EQ(ask("/register", body_of_site({{"protocol", 2}, {"ranks", 1}})).status, 200);
        const tensor_spec table{"w", dtype::f32, {weights}};
        const auto joined =
            ask("/round/join", body_of_site({{"layout_digest", to_hex(model_layout::make({table})->digest())},
                                             {"schedule_digest", "s"},
                                             {"seq_len", 8},
                                             {"codecs", json::value(json::array{json::value("f32")})}}));
        ASSERT_EQ(joined.status, 200) << json::dump(joined.body);
    }
    float first_weight(std::uint64_t g) {
        char name[32];
        std::snprintf(name, sizeof name, "gen-%012u", static_cast<unsigned>(g));
        const auto model =
            formats::safetensors_reader::open(folder_ / (state_ + "/model/" + name + "/global.safetensors"));
        EXPECT_TRUE(model) << to_text(model.error());
        std::vector<float> values(weights);
        EXPECT_TRUE(model->read_all(*model->header().find("w"), std::as_writable_bytes(std::span(values))));
        return values.front();
    }

    std::string state_ = "state";
    json::value claim_;
};

TEST_F(rolled_back_run, goes_on_with_the_old_model_trains_every_block_again_and_refuses_who_was_not_stopped) {
    begin_run();
    const auto first = merge_all("phase-1", 0);
    EXPECT_EQ(first_weight(1), 3.0F);
    const json::value claim_of_before = claim_;

    const auto too_early =
        run_darl({"journal", "salvage", folder_ / "state", "--generation", "0", "--out", folder_ / "back"});
    EXPECT_EQ(too_early.status, 3) << "the server runs: " << too_early.err;
    EXPECT_NE(too_early.err.find("stop it"), std::string::npos) << too_early.err;
    EXPECT_EQ(server_->stop(), 0);
    const auto unknown =
        run_darl({"journal", "salvage", folder_ / "state", "--generation", "5", "--out", folder_ / "back"});
    EXPECT_EQ(unknown.status, 2);
    EXPECT_NE(unknown.err.find("there are: 0, 1"), std::string::npos) << unknown.err;
    const auto back =
        run_darl({"--json", "journal", "salvage", folder_ / "state", "--generation", "0", "--out", folder_ / "back"});
    ASSERT_EQ(back.status, 0) << back.err;
    const auto report = json::parse(back.out).value();
    EXPECT_EQ(report.at("generation").as_u64(), 2U) << "1 was used";
    ASSERT_EQ(report.at("undone").size(), 1U);
    EXPECT_EQ(report.at("undone").at(std::size_t{0}).at("end").as_u64(), first.at("pledged_blocks").as_u64());
    EXPECT_EQ(run_darl({"journal", "verify", folder_ / "back"}).status, 0);
    const auto listed = run_darl({"--json", "journal", "inspect", "--records", folder_ / "back"});
    EXPECT_EQ(*json::parse(listed.out)->at("records").as_array()->back().at("type").as_string(), "rolled_back");
    const auto told =
        run_darl({"journal", "salvage", folder_ / "state", "--generation", "0", "--out", folder_ / "two"});
    EXPECT_NE(told.out.find("generation 0 goes on as generation 2 in epoch 0"), std::string::npos) << told.out;
    EXPECT_NE(told.out.find("trained again: epoch 0, blocks [0, 4)"), std::string::npos) << told.out;
    EXPECT_EQ(run_darl({"journal", "salvage", folder_ / "state", "--generation", "0", "--out", folder_ / "two"}).status,
              2)
        << "never into a directory that is there";

    state_ = "back";
    ASSERT_NO_FATAL_FAILURE(start(false));
    EXPECT_EQ(round().at("generation").as_u64(), 2U);
    EXPECT_EQ(first_weight(2), 1.0F) << "the weights of generation 0";
    EXPECT_EQ(get(*client_, "/status").body.at("committed").as_u64(), 0U);

    // a process from before that nobody stopped
    EXPECT_EQ(ask("/round/contribute", claim_of_before).code, "unknown_site");
    EXPECT_EQ(ask("/round/poll", body_of_site({{"have_generation", 1}, {"state", "idle"}})).code, "unknown_site");
    EXPECT_EQ(ask("/acquire", body_of_site({{"blocks", 4}})).code, "unknown_site");
    enter();
    EXPECT_EQ(ask("/round/contribute", claim_of_before).code, "stale_generation");
    EXPECT_EQ(get(*client_, "/status").body.at("committed").as_u64(), 0U) << "none of it counts";

    // and on: the wire copy of the new generation is served, every block is trained again
    const json::value polled = poll();
    ASSERT_EQ(*polled.at("action").as_string(), "train") << json::dump(polled);
    const auto fetched =
        client::download_blob(*client_, *polled.at("wire").at("sha256").as_string(),
                              polled.at("wire").at("bytes").as_u64().value(), folder_ / "wire", patient);
    ASSERT_TRUE(fetched) << to_text(fetched.error());
    const auto again = merge_all("phase-2", 2);
    EXPECT_EQ(again.at("pledged_blocks").as_u64(), first.at("pledged_blocks").as_u64());
    EXPECT_EQ(round().at("generation").as_u64(), 3U);
    EXPECT_EQ(first_weight(3), 3.0F);
    EXPECT_EQ(get(*client_, "/status").body.at("committed").as_u64(), first.at("pledged_blocks").as_u64());
    EXPECT_EQ(server_->stop(), 0) << server_->log();
}

}  // namespace
