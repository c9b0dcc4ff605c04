// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "adapters/formats/safetensors.hpp"
#include "backends/curl/blob_transfer.hpp"
#include "backends/storage/sha256.hpp"
#include "tests/asio/raw_client.hpp"
#include "tests/asio/serve_fixture.hpp"

// One site, by hand, against the real server: what it sends, part by part.
namespace darlcore::http::testing {

inline constexpr std::size_t weights = 70'000;
inline const lease::caller caller{{"alpha"}, {0x0123456789abcdefULL, 0xfedcba9876543210ULL}};

inline json::value body_of_site(std::initializer_list<std::pair<std::string_view, json::value>> more = {}) {
    json::value body = json::make_object({{"cluster", "alpha"}, {"incarnation", to_text(caller.incarnation)}});
    for (const auto& [key, value] : more) body.set(key, value);
    return body;
}

inline std::string read_file(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline const client::retry_world patient{[] { return 0.5; }, [](double) { return true; }};

class round_over_http : public ::testing::Test {
protected:
    /// Where the server keeps its state.
    [[nodiscard]] virtual std::string state_path() const { return folder_ / "state"; }
    void start(bool first) {
        std::vector<std::string> arguments{"--resume"};
        if (first)
            arguments = {"--num-samples",
                         "40",
                         "--block-size",
                         "10",
                         "--outer.eta=1",
                         "--outer.beta=0",
                         "--round.live_window_s=60",
                         "--train.inner_steps=1"};
        if (first) arguments.insert(arguments.end(), more_.begin(), more_.end());
        server_ = std::make_unique<served>(state_path(), arguments);
        ASSERT_TRUE(server_->up()) << server_->log();
        client_ = std::make_unique<client::http_client>(server_->client());
    }
    void restart() {
        server_->child().kill();
        start(false);
    }
    client::json_answer ask(const std::string& path, const json::value& body) { return post(*client_, path, body); }

    /// A safetensors file of one tensor whose values are all `value`.
    client::upload_job make_file(const std::string& name, float value, const formats::safetensors_metadata& metadata) {
        const std::string path = folder_ / name;
        const std::vector<float> values(weights, value);
        const tensor_spec spec{"w", dtype::f32, {weights}};
        auto out = formats::safetensors_writer::create(path, std::span(&spec, 1), metadata).value();
        EXPECT_TRUE(out.write(std::as_bytes(std::span(values))));
        EXPECT_TRUE(out.finish());
        client::upload_job job;
        job.path = path;
        const std::string bytes = read_file(path);
        job.sha256 = storage::sha256_hex(bytes);
        job.bytes = bytes.size();
        job.codec = "f32";
        job.who = caller;
        return job;
    }
    json::value poll() {
        const auto got = ask("/round/poll", body_of_site({{"have_generation", 0}, {"state", "idle"}}));
        EXPECT_EQ(got.status, 200) << json::dump(got.body);
        return got.body;
    }
    /// The body of a contribution of this delta and these leases to generation 0.
    json::value claim_of(const client::upload_job& delta, const json::value& leases) {
        return body_of_site({{"id", "phase-1"},
                             {"base_generation", 0},
                             {"sha256", delta.sha256},
                             {"codec", "f32"},
                             {"tokens", 320},
                             {"steps", 1},
                             {"loss_sum", 1.0},
                             {"loss_count", 1},
                             {"leases", leases}});
    }
    void begin_run() {
        ASSERT_NO_FATAL_FAILURE(start(true));
        ASSERT_EQ(ask("/register", body_of_site({{"protocol", 2}, {"ranks", 1}})).status, 200);
        const auto joined =
            ask("/round/join", body_of_site({{"layout_digest", ""},
                                             {"schedule_digest", "s"},
                                             {"seq_len", 8},
                                             {"codecs", json::value(json::array{json::value("f32")})}}));
        ASSERT_EQ(joined.status, 200) << json::dump(joined.body);
        run_id_ = *joined.body.at("run_id").as_string();
        ASSERT_EQ(*poll().at("action").as_string(), "init");
        client::upload_job init = make_file("init", 1.0F, {});
        init.purpose = "init";
        const auto sent = client::upload_blob(*client_, init, patient);
        ASSERT_TRUE(sent) << to_text(sent.error());
        train_ = poll();
        ASSERT_EQ(*train_.at("action").as_string(), "train") << json::dump(train_);
    }
    client::upload_job make_delta(float value) {
        client::upload_job job = make_file("delta" + std::to_string(value), value,
                                           {{"darl.run_id", run_id_},
                                            {"darl.site", "alpha"},
                                            {"darl.base_generation", "0"},
                                            {"darl.tokens", "320"},
                                            {"darl.steps", "1"},
                                            {"darl.codec", "f32"}});
        job.base = generation{0};
        return job;
    }
    std::string announce(const client::upload_job& job) {
        const auto got = ask("/blobs", body_of_site({{"bytes", job.bytes},
                                                     {"sha256", job.sha256},
                                                     {"purpose", "delta"},
                                                     {"codec", "f32"},
                                                     {"base_generation", 0}}));
        EXPECT_TRUE(got.status == 201 || got.status == 200) << json::dump(got.body);
        const json::value* id = got.body.find("upload");
        return id == nullptr ? std::string() : *id->as_string();
    }
    client::answer patch(const std::string& id, std::uint64_t offset, const std::string& part,
                         const std::string& checksum = "",
                         const std::string& incarnation = to_text(caller.incarnation)) {
        client::call c;
        c.method = "PATCH";
        c.path = "/blobs/uploads/" + id;
        c.body = part;
        c.headers = {{"Upload-Offset", std::to_string(offset)},
                     {"X-DARL-Cluster", "alpha"},
                     {"X-DARL-Incarnation", incarnation}};
        if (!checksum.empty()) c.headers.emplace_back("Upload-Checksum", "sha256 " + checksum);
        return client_->perform(c).value_or(client::answer{});
    }
    /// Leases everything and reserves it; the claims of a contribution.
    json::value claims() {
        json::value out = json::array{};
        for (int i = 0; i < 8; ++i) {
            const auto got = ask("/acquire", body_of_site({{"blocks", 4}}));
            EXPECT_EQ(got.status, 200);
            if (*got.body.at("status").as_string() != "granted") break;
            for (const json::value& l : *got.body.at("leases").as_array()) {
                const auto reserved = ask(
                    "/reserve",
                    body_of_site({{"lease", l.at("lease_id")}, {"token", l.at("token")}, {"through", l.at("end")}}));
                EXPECT_EQ(reserved.status, 200) << json::dump(reserved.body);
                out.push_back(json::make_object({{"lease", l.at("lease_id")},
                                                 {"token", l.at("token")},
                                                 {"from", l.at("start")},
                                                 {"through", l.at("end")}}));
            }
        }
        return out;
    }

    std::vector<std::string> more_;  // arguments of the first start
    temporary_folder folder_;
    std::unique_ptr<served> server_;
    std::unique_ptr<client::http_client> client_;
    std::string run_id_;
    json::value train_;
};

}  // namespace darlcore::http::testing
