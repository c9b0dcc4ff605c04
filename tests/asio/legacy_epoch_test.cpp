// SPDX-License-Identifier: Apache-2.0
// Whole epochs of clients that speak protocol 1: each call on a connection of its own, commit after the work is safe.
#include <algorithm>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/asio/serve_fixture.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::http::testing;

constexpr std::uint64_t blocks = 100;

/// What one client did, by its own records.
struct own_record {
    std::vector<std::uint64_t> trained;  ///< positions, in the order of training
    std::string trouble;                 ///< the first answer that the client could not use
    std::uint64_t waits = 0;
};

/// A client as the reference's: register without a protocol, then acquire, beat, commit lease by lease until the epoch
/// is over. Stolen tails are noticed by the end that a heartbeat replies.
class legacy_client {
public:
    legacy_client(const served& server, std::string name, std::string incarnation)
        : server_(&server), name_(std::move(name)), incarnation_(std::move(incarnation)) {}

    own_record run() {
        own_record out;
        if (ask("/register", {{"digest", "c97cfba06cb5d539adcc3863bab0be77"},
                              {"ranks", 4},
                              {"num_samples", 1000},
                              {"block_size", 10},
                              {"incarnation", incarnation_}})
                .status != 200) {
            out.trouble = "register";
            return out;
        }
        for (std::uint64_t turn = 0; turn < 10'000 && out.trouble.empty(); ++turn) {
            const std::string id = name_ + std::to_string(turn);
            const auto got = ask("/acquire", {{"blocks", 8}, {"ttl", 30.0}, {"max_spans", 4}, {"request_id", id}});
            const json::value* status = got.body.find("status");
            const std::string word = status == nullptr || status->as_string() == nullptr ? "" : *status->as_string();
            if (word == "epoch_complete") return out;
            if (word == "drain") {
                ++out.waits;
                std::this_thread::yield();
                continue;
            }
            if (word != "granted") {
                out.trouble = "acquire: " + json::dump(got.body);
                return out;
            }
            for (const json::value& lease : *got.body.at("leases").as_array()) train(lease, out);
        }
        if (out.trouble.empty()) out.trouble = "the epoch did not end";
        return out;
    }

private:
    void train(const json::value& lease, own_record& out) {
        const std::string id = *lease.at("lease_id").as_string();
        const std::uint64_t start = lease.at("start").as_u64().value();
        std::uint64_t end = lease.at("end").as_u64().value();
        for (std::uint64_t position = start; position < end; ++position) {
            const auto beat = ask("/heartbeat", {{"progress", json::make_object({{id, position}})}, {"ttl", 30.0}});
            const json::value* leases = beat.body.find("leases");
            if (beat.status != 200 || leases == nullptr || leases->at(id).at("valid").as_bool() != true) {
                out.trouble = "heartbeat: " + json::dump(beat.body);
                return;
            }
            end = std::min(end, leases->at(id).at("end").as_u64().value());
            if (position < end) out.trained.push_back(position);
        }
        const auto committed = ask("/commit", {{"lease", id}, {"through", end}});
        if (committed.status != 200) out.trouble = "commit: " + json::dump(committed.body);
    }
    client::json_answer ask(const std::string& path,
                            std::initializer_list<std::pair<std::string_view, json::value>> fields) const {
        auto c = server_->client();  // a connection per call, as the reference does
        json::value body = json::make_object({{"cluster", name_}});
        for (const auto& [key, value] : fields) body.set(key, value);
        return post(c, path, body);
    }

    const served* server_;
    std::string name_;
    std::string incarnation_;
};

std::vector<std::string> legacy_run() {
    return {"--num-samples", "1000", "--block-size", "10", "--seed", "42", "--commit-policy", "on_checkpoint"};
}

void expect_each_position_once(const std::vector<own_record>& records) {
    std::map<std::uint64_t, int> seen;
    for (const own_record& r : records) {
        EXPECT_EQ(r.trouble, "");
        for (const std::uint64_t p : r.trained) ++seen[p];
    }
    EXPECT_EQ(seen.size(), blocks);
    for (const auto& [position, times] : seen) EXPECT_EQ(times, 1) << "position " << position;
}

TEST(legacy_epoch, one_client_runs_an_epoch_to_its_end) {
    temporary_folder folder;
    served server(folder / "state", legacy_run());
    ASSERT_TRUE(server.up()) << server.log();
    const own_record only = legacy_client(server, "alpha", "f5e265ffcf59439e8317b9c274e1619b").run();
    expect_each_position_once({only});
    auto c = server.client();
    const json::value status = get(c, "/status").body;
    EXPECT_EQ(status.at("committed").as_u64(), blocks);
    EXPECT_EQ(status.at("epoch_complete").as_bool(), true);
    EXPECT_EQ(*status.at("clusters").at("alpha").at("promise").as_string(), "site");
    EXPECT_EQ(server.stop(), 0) << server.log();
}

TEST(legacy_epoch, two_clients_share_an_epoch_and_both_see_its_end) {
    temporary_folder folder;
    served server(folder / "state", legacy_run());
    ASSERT_TRUE(server.up()) << server.log();
    std::vector<own_record> records(2);
    std::thread first([&] { records[0] = legacy_client(server, "alpha", "f5e265ffcf59439e8317b9c274e1619b").run(); });
    std::thread second([&] { records[1] = legacy_client(server, "beta", "75e61bdbc312481989cca135a2e036e1").run(); });
    first.join();
    second.join();
    expect_each_position_once(records);
    auto c = server.client();
    EXPECT_EQ(get(c, "/status").body.at("committed").as_u64(), blocks);
    EXPECT_EQ(server.stop(), 0) << server.log();
}

TEST(legacy_epoch, a_server_that_commits_with_the_merge_refuses_protocol_1) {
    temporary_folder folder;
    served server(folder / "state", {"--num-samples", "1000", "--block-size", "10", "--seed", "42"});
    ASSERT_TRUE(server.up()) << server.log();
    auto c = server.client();
    const auto refused = post(c, "/register", json::make_object({{"cluster", "alpha"}}));
    EXPECT_EQ(refused.status, 400);
    EXPECT_EQ(refused.code, "policy");
    EXPECT_NE(refused.body.at("error").as_string()->find("on_checkpoint"), std::string::npos);
}

}  // namespace
