// SPDX-License-Identifier: Apache-2.0
// Rounds and blobs over the real binary: first weights, uploads in parts across restarts, a merge, the next generation.
#include <csignal>

#include <gtest/gtest.h>

#include "darlcore/hex.hpp"
#include "darlcore/merge/model_layout.hpp"
#include "tests/asio/round_fixture.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::http::testing;

TEST_F(round_over_http, a_contribution_uploaded_across_restarts_becomes_the_next_generation) {
    begin_run();
    const std::string wire = *train_.at("wire").at("sha256").as_string();
    const auto fetched = client::download_blob(*client_, wire, train_.at("wire").at("bytes").as_u64().value(),
                                               folder_ / "wire", patient);
    ASSERT_TRUE(fetched) << to_text(fetched.error());
    const json::value leases = claims();
    ASSERT_GE(leases.size(), 1U);
    const client::upload_job delta = make_delta(2.0F);
    const std::string bytes = read_file(delta.path);
    const std::string id = announce(delta);
    const std::size_t third = bytes.size() / 3;
    EXPECT_EQ(patch(id, 0, bytes.substr(0, third)).status, 204);
    restart();
    auto second = patch(id, third, bytes.substr(third, third));
    while (second.status == 409) second = patch(id, third, bytes.substr(third, third));
    EXPECT_EQ(second.status, 204) << second.body;
    restart();
    auto last = patch(id, 2 * third, bytes.substr(2 * third));
    // after a restart the server reads the staging file once more before it takes the next part; ctest's limit ends
    // this
    while (last.status == 409) last = patch(id, 2 * third, bytes.substr(2 * third));
    EXPECT_EQ(last.status, 200) << last.body;
    json::value claim = claim_of(delta, leases);
    const auto pledged = ask("/round/contribute", claim);
    ASSERT_EQ(pledged.status, 200) << json::dump(pledged.body);
    EXPECT_EQ(*pledged.body.at("status").as_string(), "pledged");
    json::value round;
    do {
        round = get(*client_, "/round").body;  // ctest's limit ends it when the merge never comes
    } while (round.at("generation").as_u64() == 0U);
    const auto again = ask("/round/contribute", claim);
    EXPECT_EQ(*again.body.at("status").as_string(), "merged") << json::dump(again.body);
    const auto model = formats::safetensors_reader::open(folder_ / "state/model/gen-000000000001/global.safetensors");
    ASSERT_TRUE(model) << to_text(model.error());
    std::vector<float> values(weights);
    ASSERT_TRUE(model->read_all(*model->header().find("w"), std::as_writable_bytes(std::span(values))));
    EXPECT_EQ(values.front(), 3.0F);
    EXPECT_EQ(values.back(), 3.0F);
    const auto status = get(*client_, "/status").body;
    EXPECT_EQ(status.at("committed").as_u64(), pledged.body.at("pledged_blocks").as_u64())
        << "blocks and model move together";
    restart();
    EXPECT_EQ(get(*client_, "/round").body.at("generation").as_u64(), 1U);
    EXPECT_EQ(server_->stop(), 0) << server_->log();
}

TEST_F(round_over_http, the_meta_of_a_generation_says_what_it_was_made_of) {
    begin_run();
    const json::value leases = claims();
    const client::upload_job delta = make_delta(2.0F);
    ASSERT_EQ(patch(announce(delta), 0, read_file(delta.path)).status, 200);
    const auto pledged = ask("/round/contribute", claim_of(delta, leases));
    ASSERT_EQ(pledged.status, 200) << json::dump(pledged.body);
    json::value round;
    do {
        round = get(*client_, "/round").body;
    } while (round.at("generation").as_u64() == 0U);
    const std::string made = folder_ / "state/model/gen-000000000001/";
    const json::value meta = json::parse(read_file(made + "meta.json")).value();
    EXPECT_EQ(*meta.at("run_id").as_string(), run_id_);
    EXPECT_EQ(meta.at("generation").as_u64(), 1U);
    EXPECT_EQ(meta.at("parent").as_u64(), 0U);
    EXPECT_EQ(meta.at("global_step").as_u64(), 1U);
    EXPECT_EQ(meta.at("tokens_total").as_u64(), pledged.body.at("weight_tokens").as_u64());
    EXPECT_EQ(meta.at("policy").at("eta").as_double(), 1.0);
    EXPECT_EQ(meta.at("eta_used").as_double(), 1.0);
    const tensor_spec table{"w", dtype::f32, {weights}};
    EXPECT_EQ(*meta.at("layout_digest").as_string(), to_hex(model_layout::make({table})->digest()));
    ASSERT_EQ(meta.at("contributions").size(), 1U);
    const json::value& used = meta.at("contributions").as_array()->front();
    EXPECT_EQ(*used.at("site").as_string(), "alpha");
    EXPECT_EQ(*used.at("sha256").as_string(), delta.sha256);
    EXPECT_EQ(used.at("share").as_double(), 1.0);
    EXPECT_EQ(used.at("drift").as_double(), 2.0) << "deltas of 2 on weights of 1";
    const json::value& files = meta.at("files");
    for (const char* name : {"global.safetensors", "velocity.safetensors", "wire.safetensors"}) {
        const std::string bytes = read_file(made + name);
        EXPECT_EQ(files.at(name).at("bytes").as_u64(), bytes.size()) << name;
        storage::sha256 one_part;  // the file is shorter than 16 MiB
        one_part.update(bytes);
        if (std::string_view(name).starts_with("wire"))
            EXPECT_EQ(*files.at(name).at("sha256").as_string(), one_part.hex());
        else
            EXPECT_EQ(*files.at(name).at("parts_sha256").as_string(), storage::sha256_hex(one_part.digest())) << name;
    }
}

TEST_F(round_over_http, wrong_parts_are_refused_with_their_codes) {
    begin_run();
    const client::upload_job delta = make_delta(2.0F);
    const std::string bytes = read_file(delta.path);
    const std::string id = announce(delta);
    std::string flipped = bytes.substr(0, 1000);
    flipped[500] = static_cast<char>(flipped[500] ^ 1);
    EXPECT_EQ(patch(id, 0, flipped, storage::sha256_hex(bytes.substr(0, 1000))).status, 460);
    const auto wrong_offset = patch(id, 7, bytes.substr(7, 100));
    EXPECT_EQ(wrong_offset.status, 409);
    ASSERT_NE(wrong_offset.header("upload-offset"), nullptr);
    EXPECT_EQ(*wrong_offset.header("upload-offset"), "0");
    EXPECT_EQ(patch("unknown-upload", 0, "x").status, 410);
    EXPECT_EQ(patch(id, 0, "x", "zz").status, 400);
    EXPECT_EQ(patch(id, 0, "x", "", "00000000000000000000000000000001").status, 409)
        << "another process of the site is fenced";
    std::string damaged = bytes;
    damaged[bytes.size() - 10] = static_cast<char>(damaged[bytes.size() - 10] ^ 1);
    EXPECT_EQ(patch(id, 0, damaged).status, 422) << "the whole has another digest than announced";
    EXPECT_EQ(patch(announce(delta), 0, bytes).status, 200);
    client::call head;
    head.method = "HEAD";
    head.path = "/blobs/uploads/" + id;
    EXPECT_EQ(client_->perform(head)->status, 410);
    EXPECT_EQ(ask("/round/contribute",
                  body_of_site({{"id", "x"}, {"base_generation", 0}, {"sha256", std::string(64, 'a')}, {"tokens", 1}}))
                  .code,
              "blob_missing");
    EXPECT_EQ(ask("/blobs", body_of_site({{"bytes", delta.bytes},
                                          {"sha256", delta.sha256},
                                          {"purpose", "delta"},
                                          {"codec", "f32"},
                                          {"base_generation", 7}}))
                  .code,
              "stale_generation");
}

TEST_F(round_over_http, ranges_etags_and_heads_of_blobs) {
    begin_run();
    const std::string path = "/blobs/sha256/" + *train_.at("wire").at("sha256").as_string();
    const auto ask_range = [&](std::vector<std::pair<std::string, std::string>> headers, const char* method = "GET") {
        client::call c;
        c.method = method;
        c.path = path;
        c.headers = std::move(headers);
        return client_->perform(c).value();
    };
    const auto whole = ask_range({});
    EXPECT_EQ(whole.status, 200);
    EXPECT_EQ(storage::sha256_hex(whole.body), *train_.at("wire").at("sha256").as_string());
    const auto part = ask_range({{"Range", "bytes=10-19"}});
    EXPECT_EQ(part.status, 206);
    EXPECT_EQ(part.body, whole.body.substr(10, 10));
    EXPECT_EQ(*part.header("content-range"), "bytes 10-19/" + std::to_string(whole.body.size()));
    EXPECT_EQ(ask_range({{"Range", "bytes=0-1,4-5"}}).status, 416);
    EXPECT_EQ(ask_range({{"Range", "bytes=" + std::to_string(whole.body.size()) + "-"}}).status, 416);
    EXPECT_EQ(ask_range({{"Range", "bytes=0-1"}, {"If-Range", "\"other\""}}).status, 200);
    const auto head = ask_range({}, "HEAD");
    EXPECT_EQ(head.status, 200);
    EXPECT_EQ(*head.header("content-length"), std::to_string(whole.body.size()));
    client::call absent;
    absent.path = "/blobs/sha256/" + std::string(64, 'a');
    EXPECT_EQ(client_->perform(absent)->status, 404);
    absent.path = "/blobs/sha256/" + std::string(62, 'a') + "..";  // not a digest: no path can be smuggled in
    EXPECT_EQ(client_->perform(absent)->status, 400);
}

}  // namespace
