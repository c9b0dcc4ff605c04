// SPDX-License-Identifier: Apache-2.0
// Every waiting party: who, for what, since when; as the server says it and as `darl status` prints it.
#include <gtest/gtest.h>

#include "darlcore/merge/model_layout.hpp"
#include "tests/asio/round_fixture.hpp"
#include "tests/cli/run_darl.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::http::testing;

class who_waits : public round_over_http {
protected:
    json::value body(const std::string& site, const std::string& incarnation,
                     std::initializer_list<std::pair<std::string_view, json::value>> more = {}) {
        json::value out = json::make_object({{"cluster", site}, {"incarnation", incarnation}});
        for (const auto& [key, value] : more) out.set(key, value);
        return out;
    }
    json::value beta(std::initializer_list<std::pair<std::string_view, json::value>> more = {}) {
        return body("beta", std::string(32, 'b'), more);
    }
    void join_beta() {
        ASSERT_EQ(ask("/register", beta({{"protocol", 2}, {"ranks", 1}})).status, 200);
        const tensor_spec spec{"w", dtype::f32, {weights}};
        const auto layout = model_layout::make({spec}).value();
        ASSERT_EQ(ask("/round/join", beta({{"layout_digest", to_hex(layout.digest())},
                                           {"schedule_digest", "s"},
                                           {"seq_len", 8},
                                           {"codecs", json::value(json::array{json::value("f32")})}}))
                      .status,
                  200);
    }
    std::string poll_beta() {
        const auto got = ask("/round/poll", beta({{"have_generation", 0}, {"state", "idle"}, {"wait_s", 0}}));
        return got.status == 200 ? *got.body.at("action").as_string() : json::dump(got.body);
    }
    /// What /status says that `who` waits for; empty: nothing.
    std::string wait_of(const std::string& who) {
        const auto now = get(*client_, "/status").body;
        for (const auto& w : *now.at("waiting").as_array())
            if (*w.at("who").as_string() == who) return *w.at("for").as_string();
        return {};
    }
    double since_of(const std::string& who) {
        const auto now = get(*client_, "/status").body;
        for (const auto& w : *now.at("waiting").as_array())
            if (*w.at("who").as_string() == who) return *w.at("since_s").as_double();
        return -1;
    }
    std::string printed() { return darl::testing::run_darl({"status", server_->url()}).out; }
};

TEST_F(who_waits, a_new_run_waits_for_a_site_and_its_first_weights) {
    ASSERT_NO_FATAL_FAILURE(start(true));
    EXPECT_NE(wait_of("round").find("a site to join and upload the first weights"), std::string::npos);
    EXPECT_GE(since_of("round"), 0);
    EXPECT_NE(printed().find("first weights"), std::string::npos);
}

TEST_F(who_waits, a_site_without_blocks_a_second_process_and_a_paused_run) {
    ASSERT_NO_FATAL_FAILURE(begin_run());
    EXPECT_EQ(wait_of("alpha"), "") << "it trains";
    EXPECT_NE(wait_of("round").find("alpha (training"), std::string::npos) << wait_of("round");
    (void)claims();  // alpha has everything, reserved
    EXPECT_EQ(wait_of("alpha"), "") << "nothing more to get, but blocks to train";
    ASSERT_NO_FATAL_FAILURE(join_beta());
    ASSERT_EQ(*ask("/acquire", beta({{"blocks", 1}})).body.at("status").as_string(), "drain");
    EXPECT_EQ(wait_of("beta"), "blocks: all are leased or done");
    const double first = since_of("beta");
    EXPECT_GE(first, 0);
    EXPECT_LT(first, 60);
    while (since_of("beta") <= first) {  // time passes; ctest's limit ends it when it does not
    }
    ASSERT_EQ(*ask("/acquire", beta({{"blocks", 1}})).body.at("status").as_string(), "drain");
    EXPECT_GT(since_of("beta"), first) << "asking again does not begin anew";

    const auto other = ask("/register", body("alpha", std::string(32, 'c'), {{"protocol", 2}, {"ranks", 1}}));
    EXPECT_EQ(other.code, "cluster_busy");
    EXPECT_EQ(wait_of("alpha (another process)"), "the process that has this name: it is heard of");

    ASSERT_EQ(ask("/round/pause", json::make_object({{"reason", "power works"}})).status, 200);
    EXPECT_EQ(poll_beta(), "wait");
    EXPECT_EQ(wait_of("beta"), "the operator: the rounds are paused");
    EXPECT_NE(wait_of("round").find("the operator: paused (power works)"), std::string::npos) << wait_of("round");
    const std::string text = printed();
    for (const char* line : {"waiting: who, for what, since", "alpha (another process)",
                             "the process that has this name", "the rounds are paused", "power works"})
        EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;

    ASSERT_EQ(ask("/round/resume", json::object{}).status, 200);
    ASSERT_EQ(ask("/round/leave", beta()).status, 200);
    EXPECT_EQ(wait_of("beta"), "") << "who left waits no longer";
}

TEST_F(who_waits, a_contributor_waits_for_the_merge_and_the_round_for_who_still_trains) {
    ASSERT_NO_FATAL_FAILURE(begin_run());
    ASSERT_NO_FATAL_FAILURE(join_beta());
    ASSERT_EQ(poll_beta(), "train");
    const json::value leases = claims();
    const client::upload_job delta = make_delta(2.0F);
    ASSERT_EQ(patch(announce(delta), 0, read_file(delta.path)).status, 200);
    const auto pledged = ask("/round/contribute", claim_of(delta, leases));
    ASSERT_EQ(pledged.status, 200) << json::dump(pledged.body);
    const auto told = ask("/round/poll", body_of_site({{"have_generation", 0}, {"state", "waiting"}, {"wait_s", 0}}));
    ASSERT_EQ(*told.body.at("action").as_string(), "wait") << json::dump(told.body);
    EXPECT_EQ(wait_of("alpha"), "the merge of its contribution");
    EXPECT_NE(wait_of("round").find("beta (training"), std::string::npos) << wait_of("round");
    EXPECT_NE(wait_of("round").find("closes in"), std::string::npos) << wait_of("round");
}

}  // namespace
