// SPDX-License-Identifier: Apache-2.0
// Who may speak: two processes under one name, TLS, client certificates.
#include <array>
#include <atomic>
#include <barrier>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "backends/asio/token_file.hpp"
#include "tests/asio/certificate.hpp"
#include "tests/cli/run_darl.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::http::testing;

const std::vector<std::string> large_run = {"--num-samples", "100000", "--block-size", "10", "--no-sync"};

TEST(two_processes, under_one_name_at_the_same_instant_exactly_one_gets_blocks) {
    constexpr int rounds = 1000;
    temporary_folder folder;
    served server(folder / "state", large_run);
    ASSERT_TRUE(server.up()) << server.log();
    const std::string processes[] = {std::string(32, 'a'), std::string(32, 'b')};
    std::barrier together(2);
    std::vector<std::array<int, 2>> granted(rounds);
    std::atomic<int> odd_answers{0};
    const auto process = [&](std::size_t me) {
        auto c = server.client();
        for (int i = 0; i < rounds; ++i) {
            const std::string site = "s" + std::to_string(i);
            together.arrive_and_wait();
            const auto mine = [&](std::initializer_list<std::pair<std::string_view, json::value>> more) {
                json::value body = json::make_object({{"cluster", site}, {"incarnation", processes[me]}});
                for (const auto& [key, value] : more) body.set(key, value);
                return body;
            };
            const auto registered = post(c, "/register", mine({{"protocol", 2}, {"ranks", 1}}));
            if (registered.code == "cluster_busy") continue;
            if (registered.status != 200) {
                ++odd_answers;
                continue;
            }
            const auto got = post(c, "/acquire", mine({{"blocks", 1}, {"request_id", "r" + std::to_string(me)}}));
            if (got.status == 200 && got.body.at("leases").size() == 1)
                granted[static_cast<std::size_t>(i)][me] = 1;
            else if (got.code != "fenced")
                ++odd_answers;
        }
    };
    std::thread other([&] { process(1); });
    process(0);
    other.join();
    EXPECT_EQ(odd_answers, 0);
    for (int i = 0; i < rounds; ++i) {
        const auto& g = granted[static_cast<std::size_t>(i)];
        EXPECT_EQ(g[0] + g[1], 1) << "site s" << i;
    }
}

class tls : public ::testing::Test {
protected:
    std::vector<std::string> tls_run(std::vector<std::string> more = {}) {
        std::vector<std::string> out = {"--num-samples",     "100",         "--block-size", "10",
                                        "--tls-certificate", pem("server"), "--tls-key",    folder_ / "server.key"};
        out.insert(out.end(), more.begin(), more.end());
        return out;
    }
    std::string pem(const std::string& name) { return folder_ / (name + ".pem"); }
    static result<client::answer> health(client::client_options o) {
        auto c = client::http_client::make(std::move(o));
        if (!c) return c.error();
        client::call call;
        call.path = "/health";
        return c->perform(call);
    }
    temporary_folder folder_;
};

TEST_F(tls, a_client_that_knows_the_authority_is_served_and_others_fail) {
    make_certificate(folder_, "server");
    make_certificate(folder_, "stranger");
    served server(folder_ / "state", tls_run(), "sesame");
    ASSERT_TRUE(server.up()) << server.log();
    ASSERT_TRUE(server.url().starts_with("https://")) << server.url();
    client::client_options o;
    o.base_url = server.url();
    o.token = "sesame";
    o.ca_file = pem("server");
    const auto good = health(o);
    ASSERT_TRUE(good) << to_text(good.error());
    EXPECT_EQ(good->status, 200);
    o.ca_file = pem("stranger");
    const auto unknown = health(o);
    ASSERT_FALSE(unknown);
    EXPECT_EQ(unknown.error().code, errc::unreachable);
    o.base_url = "http" + server.url().substr(5);
    o.insecure = true;
    EXPECT_FALSE(health(o)) << "plain HTTP is not answered on a TLS port";
    EXPECT_EQ(server.stop(), 0) << server.log();
}

TEST_F(tls, where_client_certificates_are_asked_for_a_client_without_one_is_not_served) {
    make_certificate(folder_, "server");
    make_certificate(folder_, "client");
    make_certificate(folder_, "stranger");
    served server(folder_ / "state", tls_run({"--tls-client-ca", pem("client")}), "sesame");
    ASSERT_TRUE(server.up()) << server.log();
    client::client_options o;
    o.base_url = server.url();
    o.ca_file = pem("server");
    o.token = "sesame";
    EXPECT_FALSE(health(o)) << "no certificate";
    o.client_certificate_file = pem("stranger");
    o.client_key_file = folder_ / "stranger.key";
    EXPECT_FALSE(health(o)) << "a certificate of another authority";
    o.client_certificate_file = pem("client");
    o.client_key_file = folder_ / "client.key";
    const auto good = health(o);
    ASSERT_TRUE(good) << to_text(good.error());
    EXPECT_EQ(good->status, 200);
    ASSERT_TRUE(http::write_secret_file(folder_ / "token", "sesame\n"));
    std::vector<std::string> look = {"status",          server.url(), "--token-file",
                                     folder_ / "token", "--ca-file",  pem("server")};
    EXPECT_EQ(darl::testing::run_darl(look).status, 75) << "no certificate: not reached";
    look.insert(look.end(), {"--client-certificate", pem("client")});
    EXPECT_EQ(darl::testing::run_darl(look).status, 2) << "a certificate without its key";
    look.insert(look.end(), {"--client-key", folder_ / "client.key"});
    const auto seen = darl::testing::run_darl(look);
    EXPECT_EQ(seen.status, 0) << seen.err;
}

}  // namespace
