// SPDX-License-Identifier: Apache-2.0
#include "adapters/formats/manifest.hpp"

#include <functional>

#include <gtest/gtest.h>

#include "adapters/formats/json.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::formats;

token_manifest example() {
    token_manifest m;
    m.seq_len = 7;
    m.vocab_size = 512;
    m.tokenizer_name = "bytes";
    m.num_windows = 10;
    m.shards = {{"tokens-00000.bin", 6, 96, std::string(64, 'a')}, {"tokens-00001.bin", 4, 64, std::string(64, 'b')}};
    m.leaves = {blake2b_of<32>("leaf")};
    m.corpus_content = corpus_content(m.leaves);
    m.source = "made for a test";
    m.bos_id = 256;
    return m;
}

TEST(manifests, round_trip_through_their_text) {
    EXPECT_EQ(parse_manifest(manifest_text(example())).value(), example());
}

TEST(manifests, of_the_reference_are_read) {
    const auto m = parse_manifest(R"({"format": "pww-tokens-v1", "seq_len": 8, "window": 9, "dtype": "uint16",
        "vocab_size": 50257, "tokenizer": {"repo_id": "some/tokenizer", "sha256": ""}, "num_windows": 10,
        "total_tokens": 90, "shards": [{"path": "shard_00000.bin", "windows": 10}]})")
                       .value();
    EXPECT_EQ(to_hex(m.corpus()), "73251dc341f30b5f45900ccbf92115a5");
    EXPECT_EQ(m.shards.at(0).bytes, 180U);
    EXPECT_EQ(m.tokenizer_name, "some/tokenizer");
    EXPECT_FALSE(m.corpus_content);
}

struct refusal {
    const char* what;
    errc code;
    std::function<void(json::value&)> damage;
};

json::value& member(json::value& doc, std::string_view key) { return const_cast<json::value&>(doc.at(key)); }

std::vector<refusal> refusals() {
    const auto set = [](const char* key, json::value v) { return [=](json::value& d) { d.set(key, v); }; };
    const auto set_shard = [](const char* key, json::value v) {
        return [=](json::value& d) { (*member(d, "shards").as_array())[0].set(key, v); };
    };
    const auto drop = [](const char* key) {
        return [=](json::value& d) { std::erase_if(*d.as_object(), [&](const auto& m) { return m.first == key; }); };
    };
    const std::string hex64(64, 'c');
    return {
        {"no format", errc::parse_error, drop("format")},
        {"unknown format", errc::unsupported, set("format", "darl-tokens-2")},
        {"format is a number", errc::parse_error, set("format", 1)},
        {"no seq_len", errc::parse_error, drop("seq_len")},
        {"negative seq_len", errc::parse_error, set("seq_len", -1)},
        {"zero seq_len", errc::corrupt, set("seq_len", 0)},
        {"huge seq_len", errc::corrupt, set("seq_len", std::uint64_t{1} << 40U)},
        {"fractional seq_len", errc::parse_error, set("seq_len", 7.5)},
        {"seq_len as text", errc::parse_error, set("seq_len", "7")},
        {"window without the shifted id", errc::corrupt, set("window", 7)},
        {"no window", errc::parse_error, drop("window")},
        {"unknown dtype", errc::unsupported, set("dtype", "int32")},
        {"no dtype", errc::parse_error, drop("dtype")},
        {"zero vocabulary", errc::corrupt, set("vocab_size", 0)},
        {"vocabulary beyond the dtype", errc::corrupt, set("vocab_size", 70000)},
        {"huge vocabulary", errc::corrupt, set("vocab_size", UINT64_MAX)},
        {"no windows key", errc::parse_error, drop("num_windows")},
        {"windows that overflow", errc::corrupt, set("num_windows", UINT64_MAX)},
        {"more windows than the shards", errc::corrupt, set("num_windows", 11)},
        {"fewer windows than the shards", errc::corrupt, set("num_windows", 9)},
        {"no tokenizer", errc::parse_error, drop("tokenizer")},
        {"tokenizer as text", errc::parse_error, set("tokenizer", "bytes")},
        {"tokenizer digest too short", errc::parse_error,
         set("tokenizer", json::make_object({{"name", "x"}, {"sha256", "abc"}}))},
        {"no shards", errc::parse_error, drop("shards")},
        {"shards as text", errc::parse_error, set("shards", "all")},
        {"empty shard list", errc::corrupt, set("shards", json::array{})},
        {"shard as text", errc::parse_error, set("shards", json::array{"tokens-00000.bin"})},
        {"shard path leaves the folder", errc::invalid_argument, set_shard("path", "../x.bin")},
        {"shard path leaves in the middle", errc::invalid_argument, set_shard("path", "a/../../x.bin")},
        {"shard path is absolute", errc::invalid_argument, set_shard("path", "/etc/passwd")},
        {"shard path is empty", errc::invalid_argument, set_shard("path", "")},
        {"shard path has a zero byte", errc::invalid_argument, set_shard("path", std::string("a\0b", 3))},
        {"shard path is no text", errc::parse_error, set_shard("path", 5)},
        {"shard with other windows", errc::corrupt, set_shard("windows", 5)},
        {"shard with windows that overflow", errc::corrupt, set_shard("windows", UINT64_MAX)},
        {"shard with other bytes", errc::corrupt, set_shard("bytes", 97)},
        {"shard without a digest", errc::parse_error, set_shard("sha256", "")},
        {"shard with a digest of other letters", errc::parse_error, set_shard("sha256", std::string(64, 'g'))},
        {"other total_ids", errc::corrupt, set("total_ids", 79)},
        {"no total_ids", errc::parse_error, drop("total_ids")},
        {"no corpus digest", errc::parse_error, drop("corpus")},
        {"other corpus digest", errc::corrupt, set("corpus", std::string(32, '0'))},
        {"corpus digest too long", errc::parse_error, set("corpus", hex64)},
        {"no content digest", errc::parse_error, drop("corpus_content")},
        {"null content digest", errc::parse_error, set("corpus_content", nullptr)},
        {"other content digest", errc::corrupt, set("corpus_content", hex64)},
        {"no leaves", errc::parse_error, drop("corpus_leaves")},
        {"a leaf too many", errc::corrupt, set("corpus_leaves", json::array{hex64, hex64})},
        {"a leaf that is no digest", errc::parse_error, set("corpus_leaves", json::array{"leaf"})},
        {"another leaf", errc::corrupt, set("corpus_leaves", json::array{hex64})},
        {"begin id beyond the vocabulary", errc::parse_error, set("bos_id", 512)},
        {"end id as text", errc::parse_error, set("eos_id", "257")},
    };
}

TEST(manifests, that_contradict_themselves_are_refused_with_the_reason) {
    for (const auto& r : refusals()) {
        auto doc = json::parse(manifest_text(example())).value();
        r.damage(doc);
        const auto seen = parse_manifest(json::dump(doc));
        ASSERT_FALSE(seen) << r.what;
        EXPECT_EQ(word(seen.error().code), word(r.code)) << r.what << ": " << seen.error().context;
        EXPECT_EQ(seen.error().context.rfind("manifest: ", 0), 0U) << r.what << ": " << seen.error().context;
    }
}

TEST(manifests, that_are_not_one_json_object_are_refused) {
    for (const char* text : {"", "[]", "null", "{", "{}x", "\"darl-tokens-1\"", "{\"format\":\"a\",\"format\":\"b\"}"})
        EXPECT_EQ(parse_manifest(text).error().code, errc::parse_error) << text;
}

TEST(manifests, identity_covers_every_key_but_the_files) {
    const auto base = example().corpus();
    auto other = example();
    other.shards = {{"all.bin", 10, 160, std::string(64, 'c')}};
    EXPECT_EQ(other.corpus(), base);
    for (const std::function<void(token_manifest&)>& change :
         {std::function<void(token_manifest&)>([](auto& m) { m.format = "pww-tokens-v1"; }),
          std::function<void(token_manifest&)>([](auto& m) { m.seq_len = 8; }),
          std::function<void(token_manifest&)>([](auto& m) { m.dtype = token_dtype::uint32; }),
          std::function<void(token_manifest&)>([](auto& m) { m.vocab_size = 768; }),
          std::function<void(token_manifest&)>([](auto& m) { m.tokenizer_sha256 = std::string(64, '1'); }),
          std::function<void(token_manifest&)>([](auto& m) { m.num_windows = 11; })}) {
        auto changed = example();
        change(changed);
        EXPECT_NE(changed.corpus(), base);
    }
}

TEST(manifests, narrow_ids_are_used_below_65536) {
    EXPECT_EQ(dtype_for(65535), token_dtype::uint16);
    EXPECT_EQ(dtype_for(65536), token_dtype::uint32);
}

}  // namespace
