// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

#include "adapters/formats/json.hpp"
#include "darlcore/block_space.hpp"
#include "darlcore/corpus.hpp"
#include "darlcore/lease/ttl.hpp"
#include "darlcore/phase.hpp"

namespace {

using namespace darlcore;

json::value read_vectors(const std::string& name) {
    std::ifstream in(std::string(DARLCORE_TEST_DATA) + "/" + name);
    const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    return json::parse(text).value();
}

const json::value& vectors() {
    static const json::value document = read_vectors("block_space.json");
    return document;
}

std::uint64_t u64_of(const json::value& v) { return v.as_u64().value(); }

std::vector<std::uint64_t> numbers(const json::value& list) {
    std::vector<std::uint64_t> out;
    for (const auto& v : *list.as_array()) out.push_back(u64_of(v));
    return out;
}

space_parameters parameters_of(const json::value& c) {
    space_parameters p;
    p.num_samples = u64_of(c.at("num_samples"));
    p.block_size = u64_of(c.at("block_size"));
    p.seed = c.at("seed").as_i64().value();
    if (c.contains("shuffle")) p.shuffle = c.at("shuffle").as_bool().value();
    if (c.contains("scheme")) p.scheme = permutation_scheme_from_word(*c.at("scheme").as_string()).value();
    return p;
}

epoch_index epoch_of(const json::value& c) { return epoch_index{static_cast<std::uint32_t>(u64_of(c.at("epoch")))}; }

std::vector<std::uint64_t> blocks_between(const epoch_map& map, std::uint64_t begin, std::uint64_t end) {
    std::vector<std::uint64_t> out;
    for (std::uint64_t p = begin; p < end; ++p) out.push_back(map.block_at(position{p}));
    return out;
}

// BLAKE2b-16 of the blocks at all positions as 4-byte little-endian integers.
std::string fingerprint_of_blocks(const epoch_map& map) {
    blake2b hash(16);
    for (const std::uint64_t block : blocks_between(map, 0, map.num_blocks())) {
        std::uint8_t bytes[4];
        for (unsigned i = 0; i < 4; ++i) bytes[i] = static_cast<std::uint8_t>(block >> (8U * i));
        hash.update(std::span<const std::uint8_t>(bytes));
    }
    return to_hex(finish_digest<16>(hash));
}

void expect_ends(const epoch_map& map, const json::value& c) {
    const std::uint64_t m = map.num_blocks();
    const auto shown = std::min<std::uint64_t>(16, m);
    EXPECT_EQ(m, u64_of(c.at("num_blocks")));
    EXPECT_EQ(blocks_between(map, 0, shown), numbers(c.at("first")));
    EXPECT_EQ(blocks_between(map, m - shown, m), numbers(c.at("last")));
    EXPECT_EQ(to_hex(map.digest()), *c.at("digest").as_string());
}

TEST(block_space_vectors, seeding_key_words_and_outputs) {
    for (const auto& c : *vectors().at("seeding").as_array()) {
        const std::string& text = *c.at("text").as_string();
        EXPECT_EQ(to_hex(sha512_of(text)), *c.at("sha512").as_string());
        const auto key = seed_key(text);
        EXPECT_EQ(key.size(), u64_of(c.at("key_words")));
        for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(key[i], u64_of(c.at("key_first3").at(i)));
        EXPECT_EQ(key.back(), u64_of(c.at("key_last")));
        auto engine = seeded_engine(text);
        for (const std::uint64_t expected : numbers(c.at("u32"))) EXPECT_EQ(engine(), expected);
    }
}

TEST(block_space_vectors, permutations_and_their_digests) {
    for (const auto& c : *vectors().at("permutation").as_array()) {
        auto space = block_space::make(parameters_of(c)).value();
        const auto map = space.map(epoch_of(c)).value();
        expect_ends(*map, c);
        EXPECT_EQ(fingerprint_of_blocks(*map), *c.at("perm_blake2b16").as_string());
        const auto short_position = map->short_block_position();
        const std::int64_t seen = short_position ? static_cast<std::int64_t>(short_position->count) : -1;
        EXPECT_EQ(seen, c.at("short_block_position").as_i64().value());
    }
}

TEST(block_space_vectors, feistel_permutations_and_their_digests) {
    for (const auto& c : *vectors().at("feistel").as_array()) {
        auto space = block_space::make(parameters_of(c)).value();
        const auto map = space.map(epoch_of(c)).value();
        expect_ends(*map, c);
        EXPECT_TRUE(map->permutation().empty());
    }
}

TEST(block_space_vectors, corpus_identity_of_manifests) {
    EXPECT_EQ(*vectors().at("manifest_digest").at(0).at("digest").as_string(),
              to_hex(corpus_identity({.format = "pww-tokens-v1",
                                      .seq_len = 2048,
                                      .window = 2049,
                                      .dtype = "uint32",
                                      .vocab_size = 131073,
                                      .tokenizer_sha256 = std::string(64, '0'),
                                      .num_windows = 2756597})));
    EXPECT_EQ("73251dc341f30b5f45900ccbf92115a5", to_hex(corpus_identity({.format = "pww-tokens-v1",
                                                                          .seq_len = 8,
                                                                          .window = 9,
                                                                          .dtype = "uint16",
                                                                          .vocab_size = 50257,
                                                                          .tokenizer_sha256 = "",
                                                                          .num_windows = 10})));
    for (const auto& c : *vectors().at("manifest_digest").as_array())
        EXPECT_EQ(to_hex(blake2b_of<16>(*c.at("text").as_string())), *c.at("digest").as_string());
}

TEST(block_space_vectors, local_orders_of_groups) {
    for (const auto& c : *vectors().at("phase_shuffle").as_array()) {
        const auto order = shuffled_indices(
            phase_text(c.at("seed").as_i64().value(), epoch_of(c).count, u64_of(c.at("group"))), u64_of(c.at("n")));
        if (const auto* whole = c.find("order")) {
            EXPECT_EQ(std::vector<std::uint64_t>(order.begin(), order.end()), numbers(*whole));
            continue;
        }
        EXPECT_EQ(std::vector<std::uint64_t>(order.begin(), order.begin() + 16), numbers(c.at("first")));
        EXPECT_EQ(std::vector<std::uint64_t>(order.end() - 16, order.end()), numbers(c.at("last")));
        blake2b hash(16);
        for (const std::uint32_t index : order) {
            std::uint8_t bytes[8] = {};
            for (unsigned i = 0; i < 4; ++i) bytes[i] = static_cast<std::uint8_t>(index >> (8U * i));
            hash.update(std::span<const std::uint8_t>(bytes));
        }
        EXPECT_EQ(to_hex(finish_digest<16>(hash)), *c.at("order_blake2b16").as_string());
    }
}

TEST(block_space_vectors, blocks_per_phase) {
    for (const auto& c : *vectors().at("sizing").as_array()) {
        const batch_shape shape{u64_of(c.at("batch")), u64_of(c.at("ranks")), u64_of(c.at("accumulate"))};
        const std::uint64_t h = u64_of(c.at("inner_steps"));
        const std::uint64_t k = u64_of(c.at("block_size"));
        EXPECT_EQ(blocks_up(h, shape, k).value(), u64_of(c.at("blocks_up")));
        EXPECT_EQ(blocks_nearest(h, shape, k).value(), u64_of(c.at("blocks_nearest")));
    }
}

// The reference knows no default for sites without a phase time, so the test takes ours out.
TEST(block_space_vectors, time_to_live_of_leases) {
    lease::settings settings;
    settings.default_ttl_s = settings.min_ttl_s;
    for (const auto& c : *vectors().at("ttl").as_array()) {
        const auto macro_step_ms = lease::claimed_ms(c.at("macro_step_s").as_double().value(), lease::macro_step_max_s);
        const auto rtt_ms = lease::claimed_ms(c.at("rtt_s").as_double().value(), lease::rtt_max_s);
        EXPECT_EQ(lease::ttl_ms(settings, 0, macro_step_ms, rtt_ms),
                  std::llround(c.at("ttl_s").as_double().value() * 1000));
    }
}

std::vector<phase_group> groups_of(const json::value& c) {
    std::vector<phase_group> out;
    std::uint64_t counter = u64_of(c.at("first_group"));
    for (const auto& spans : *c.at("groups").as_array()) {
        phase_group group{counter++, {}};
        for (const auto& s : *spans.as_array()) group.spans.push_back(make_span(u64_of(s.at(0)), u64_of(s.at(1))));
        out.push_back(std::move(group));
    }
    return out;
}

std::vector<std::uint64_t> windows_of_rank(phase_reader& reader, const phase_plan& plan, std::uint64_t rank,
                                           std::uint64_t step) {
    std::vector<std::uint64_t> all;
    std::vector<std::uint64_t> batch;
    for (std::uint64_t j = 0; j < plan.micro_batches(step); ++j) {
        const auto real = reader.read(rank, step, j, batch);
        EXPECT_EQ(batch.size(), plan.shape().batch);
        all.insert(all.end(), batch.begin(), batch.begin() + static_cast<std::ptrdiff_t>(real));
    }
    return all;
}

TEST(block_space_vectors, windows_of_ranks_steps_and_groups) {
    for (const auto& c : *vectors().at("shard").as_array()) {
        const batch_shape shape{u64_of(c.at("batch")), u64_of(c.at("ranks")), u64_of(c.at("accumulate"))};
        const auto map = block_space::build(parameters_of(c), epoch_of(c)).value();
        const auto plan = phase_plan::make(map, groups_of(c), shape).value();
        const auto& steps = c.at("steps");
        ASSERT_EQ(plan.num_steps(), steps.size());
        phase_reader reader(plan);
        for (std::uint64_t s = 0; s < plan.num_steps(); ++s) {
            const auto& expected = steps.at(static_cast<std::size_t>(s));
            EXPECT_EQ(plan.step_windows(s), u64_of(expected.at("windows")));
            EXPECT_EQ(plan.micro_batches(s), u64_of(expected.at("micro_batches")));
            for (std::uint64_t r = 0; r < shape.ranks; ++r)
                EXPECT_EQ(windows_of_rank(reader, plan, r, s),
                          numbers(expected.at("ranks").at(static_cast<std::size_t>(r))));
        }
        for (std::size_t g = 0; g < plan.groups().size(); ++g)
            EXPECT_EQ(plan.group_trained_after_step(g), u64_of(c.at("group_trained_after_step").at(g)));
    }
}

}  // namespace
