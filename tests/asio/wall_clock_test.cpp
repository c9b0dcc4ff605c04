// SPDX-License-Identifier: Apache-2.0
// The real server under a wall clock that jumps by a day.
#include <cmath>
#include <ctime>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/asio/serve_fixture.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::http::testing;

constexpr long day_s = 86'400;

class wall_clock : public ::testing::Test {
protected:
    void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
        GTEST_SKIP() << "a library cannot be loaded before the sanitizer's";
#endif
    }
    void step_to(long offset_s) {
        std::ofstream(folder_ / "next") << offset_s << "\n";
        std::filesystem::rename(folder_ / "next", folder_ / "offset");
        offset_s_ = offset_s;
    }
    served start(const std::vector<std::string>& arguments) {
        return {folder_ / "state",
                arguments,
                "",
                "127.0.0.1:0",
                {{"LD_PRELOAD", WALL_CLOCK_SHIM}, {"WALL_CLOCK_OFFSET_FILE", folder_ / "offset"}}};
    }
    static json::value body(const std::string& site,
                            std::initializer_list<std::pair<std::string_view, json::value>> more) {
        json::value out = json::make_object({{"cluster", site}, {"incarnation", "0123456789abcdef0123456789abcdef"}});
        for (const auto& [key, value] : more) out.set(key, value);
        return out;
    }
    /// Alpha leases and reserves both blocks, so that nothing can be stolen.
    void take_everything(client::http_client& c) {
        for (;;) {
            const auto got = post(c, "/acquire", body("alpha", {{"blocks", 2}, {"ttl", 1000}})).body;
            if (*got.at("status").as_string() != "granted") return;
            for (const auto& l : *got.at("leases").as_array()) {
                lease_ = *l.at("lease_id").as_string();
                end_ = l.at("end").as_u64().value();
                const json::value reserve =
                    body("alpha", {{"lease", lease_}, {"token", l.at("token")}, {"through", end_}});
                ASSERT_EQ(post(c, "/reserve", reserve).status, 200);
            }
        }
    }
    /// Alpha's lease is as it was, alpha may beat, and beta, who waits for blocks, has done so for seconds.
    void expect_nothing_happened(client::http_client& c) {
        const auto status = get(c, "/status").body;
        const double seen = *status.at("clusters").at("alpha").at("last_seen").as_double();
        EXPECT_NEAR(seen, static_cast<double>(std::time(nullptr) + offset_s_), 120) << "the step must have been seen";
        EXPECT_EQ(status.at("leased").as_u64(), 2U);
        const double ttl_s = *status.at("leases").at(0).at("ttl").as_double();
        EXPECT_GT(ttl_s, 500);
        EXPECT_LE(ttl_s, 1300) << "a restart may add 300 s";
        EXPECT_EQ(*post(c, "/acquire", body("beta", {{"blocks", 2}})).body.at("status").as_string(), "drain");
        const auto later = get(c, "/status").body;
        for (const auto& w : *later.at("waiting").as_array()) {
            EXPECT_GE(*w.at("since_s").as_double(), 0) << json::dump(w);
            EXPECT_LT(*w.at("since_s").as_double(), 300) << json::dump(w);
        }
        const auto beat =
            post(c, "/heartbeat", body("alpha", {{"progress", json::make_object({{lease_, end_}})}, {"ttl", 1000}}));
        EXPECT_EQ(beat.body.at("leases").at(lease_).at("valid").as_bool(), true) << json::dump(beat.body);
    }

    temporary_folder folder_;
    std::string lease_;
    std::uint64_t end_ = 0;
    long offset_s_ = 0;
};

TEST_F(wall_clock, steps_of_a_day_change_no_lease_and_no_waiting_time) {
    step_to(0);
    {
        served server = start({"--num-samples", "20", "--block-size", "10", "--lease.default_ttl_s=1000"});
        ASSERT_TRUE(server.up()) << server.log();
        auto c = server.client();
        for (const char* site : {"alpha", "beta"})
            ASSERT_EQ(post(c, "/register", body(site, {{"protocol", 2}, {"ranks", 1}})).status, 200);
        take_everything(c);
        for (const long offset : {0L, day_s, -day_s}) {
            SCOPED_TRACE(offset);
            step_to(offset);
            expect_nothing_happened(c);
        }
        server.child().kill();
    }
    step_to(day_s);
    served again = start({"--resume"});
    ASSERT_TRUE(again.up()) << again.log();
    auto c = again.client();
    expect_nothing_happened(c);
}

}  // namespace
