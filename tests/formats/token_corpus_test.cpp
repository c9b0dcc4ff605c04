// SPDX-License-Identifier: Apache-2.0
#include "adapters/formats/token_corpus.hpp"

#include <filesystem>
#include <thread>

#include <gtest/gtest.h>

#include "adapters/formats/token_writer.hpp"
#include "darlcore/random.hpp"
#include "darlcore/testing/property.hpp"
#include "tests/formats/temp_folder.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::formats;
using darlcore::testing::file_text;
using darlcore::testing::temp_folder;
using darlcore::testing::write_text;
namespace fs = std::filesystem;

std::vector<std::uint32_t> random_ids(std::size_t count, std::uint64_t vocab_size, std::uint64_t seed) {
    xoshiro256 random(seed);
    std::vector<std::uint32_t> ids(count);
    for (auto& id : ids) id = static_cast<std::uint32_t>(random.below(vocab_size));
    return ids;
}

token_writer_settings settings(std::uint64_t seq_len, std::uint64_t vocab_size,
                               std::uint64_t shard_bytes_max = 1U << 20U) {
    token_writer_settings s;
    s.seq_len = seq_len;
    s.vocab_size = vocab_size;
    s.tokenizer_name = "test";
    s.shard_bytes_max = shard_bytes_max;
    return s;
}

token_writer_summary write_corpus(const std::string& folder, const token_writer_settings& s,
                                  const std::vector<std::uint32_t>& ids) {
    auto writer = token_writer::create(folder, s).value();
    writer.append(ids).value();
    return writer.finish().value();
}

TEST(token_corpora, read_back_what_was_written_over_shard_borders) {
    for (const std::uint64_t vocab : {512U, 70000U}) {
        const temp_folder temp;
        const auto ids = random_ids(9 * 37 + 4, vocab, vocab);
        const auto written = write_corpus(temp.file("c"), settings(8, vocab, 100), ids);
        EXPECT_EQ(written.dropped_ids, 4U);
        EXPECT_GT(written.manifest.shards.size(), 3U);
        const auto corpus = token_corpus::open(temp.file("c")).value();
        ASSERT_EQ(corpus.num_windows(), 37U);
        std::vector<std::uint32_t> all(9 * 37);
        corpus.read_windows(0, 37, all).value();
        EXPECT_TRUE(std::equal(all.begin(), all.end(), ids.begin()));
        std::vector<std::uint32_t> one(9);
        corpus.read_window(11, one).value();
        EXPECT_TRUE(std::equal(one.begin(), one.end(), ids.begin() + 99));
        EXPECT_TRUE(corpus.verify_all());
        EXPECT_EQ(token_corpus::open(temp.file("c/manifest.json")).value().identity(), corpus.identity());
    }
}

TEST(token_corpora, digests_do_not_depend_on_how_files_and_appends_are_cut) {
    const temp_folder temp;
    const auto ids = random_ids(2 * 70'000 + 1, 300, 5);  // more than one leaf
    const auto whole = write_corpus(temp.file("a"), settings(1, 300), ids).manifest;
    auto writer = token_writer::create(temp.file("b"), settings(1, 300, 1000)).value();
    for (std::size_t at = 0; at < ids.size(); at += 777)
        writer.append(std::span(ids).subspan(at, std::min<std::size_t>(777, ids.size() - at))).value();
    const auto pieces = writer.finish().value().manifest;
    EXPECT_EQ(whole.leaves.size(), 2U);
    EXPECT_GT(pieces.shards.size(), 200U);  // also more than are kept open
    EXPECT_EQ(whole.corpus(), pieces.corpus());
    EXPECT_EQ(whole.corpus_content, pieces.corpus_content);
    const auto corpus = token_corpus::open(temp.file("b")).value();
    EXPECT_TRUE(corpus.verify_all());
    EXPECT_EQ(corpus.leaf_digest(1).value(), whole.leaves.at(1));
    std::vector<std::uint32_t> all(2 * corpus.num_windows());
    corpus.read_windows(0, corpus.num_windows(), all).value();
    EXPECT_TRUE(std::equal(all.begin(), all.end(), ids.begin()));
}

TEST(token_corpora, content_digest_is_that_of_the_stored_bytes) {
    const temp_folder temp;
    const auto m = write_corpus(temp.file("c"), settings(8, 512), random_ids(90, 512, 1)).manifest;
    const std::string bytes = file_text(temp.file("c/tokens-00000.bin"));
    ASSERT_EQ(bytes.size(), 180U);
    EXPECT_EQ(m.leaves, std::vector<digest32>{blake2b_of<32>(bytes)});
    EXPECT_EQ(*m.corpus_content, corpus_content(m.leaves));
    EXPECT_EQ(m.shards[0].sha256, to_hex(sha256_of(bytes)));
}

TEST(token_corpora, equal_geometry_with_other_tokens_has_another_content) {
    const temp_folder temp;
    auto ids = random_ids(900, 512, 1);
    const auto a = write_corpus(temp.file("a"), settings(8, 512), ids).manifest;
    ids[500] ^= 1U;
    const auto b = write_corpus(temp.file("b"), settings(8, 512), ids).manifest;
    EXPECT_EQ(a.corpus(), b.corpus());
    EXPECT_NE(a.corpus_content, b.corpus_content);
}

TEST(token_corpora, of_the_reference_get_their_content_digest_on_demand) {
    const temp_folder temp;
    const auto m = write_corpus(temp.file("c"), settings(8, 512), random_ids(90, 512, 1)).manifest;
    write_text(temp.file("c/manifest.json"),
               R"({"format":"pww-tokens-v1","seq_len":8,"window":9,"dtype":"uint16","vocab_size":512,"tokenizer":{},)"
               R"("num_windows":10,"shards":[{"path":"tokens-00000.bin","windows":10}]})");
    const auto corpus = token_corpus::open(temp.file("c")).value();
    EXPECT_FALSE(corpus.manifest().corpus_content);
    EXPECT_EQ(corpus.content().value(), *m.corpus_content);
}

TEST(token_corpora, a_missing_short_or_long_shard_is_found_at_opening) {
    const temp_folder temp;
    const std::string shard = temp.file("c/tokens-00000.bin");
    write_corpus(temp.file("c"), settings(8, 512), random_ids(90, 512, 1));
    const std::string bytes = file_text(shard);
    write_text(shard, bytes.substr(1));
    EXPECT_EQ(token_corpus::open(temp.file("c")).error().code, errc::truncated);
    write_text(shard, bytes + "x");
    EXPECT_EQ(token_corpus::open(temp.file("c")).error().code, errc::corrupt);
    fs::remove(shard);
    EXPECT_EQ(token_corpus::open(temp.file("c")).error().code, errc::not_found);
    fs::create_directory(shard);
    EXPECT_EQ(token_corpus::open(temp.file("c")).error().code, errc::io_error);
    EXPECT_EQ(token_corpus::open(temp.file("nothing")).error().code, errc::not_found);
}

TEST(token_corpora, an_id_beyond_the_vocabulary_is_found_at_opening_or_by_the_deep_check) {
    const temp_folder temp;
    write_corpus(temp.file("c"), settings(1, 512), std::vector<std::uint32_t>(400, 511));
    const std::string shard = temp.file("c/tokens-00000.bin");
    std::string bytes = file_text(shard);
    bytes[1] = 2;  // id 767 in the first window, which the spot check reads
    write_text(shard, bytes);
    const auto opened = token_corpus::open(temp.file("c"));
    ASSERT_FALSE(opened);
    EXPECT_NE(opened.error().context.find("window 0 has id 767"), std::string::npos) << opened.error().context;
    bytes[1] = 1;
    bytes[4 * 2 + 1] = 2;  // the third window, which it does not
    write_text(shard, bytes);
    const auto corpus = token_corpus::open(temp.file("c")).value();
    EXPECT_EQ(corpus.verify_all().error().code, errc::corrupt);
}

TEST(token_corpora, changed_bytes_are_found_by_leaf_and_by_shard) {
    const temp_folder temp;
    write_corpus(temp.file("c"), settings(1, 300), random_ids(2 * 140'000, 300, 9));
    const std::string shard = temp.file("c/tokens-00000.bin");
    std::string bytes = file_text(shard);
    bytes[4 * 65536 + 2] ^= 1;  // in leaf 1
    write_text(shard, bytes);
    const auto corpus = token_corpus::open(temp.file("c")).value();
    EXPECT_EQ(corpus.verify_leaves(3, 0).error().code, errc::corrupt);
    EXPECT_NE(corpus.verify_leaves(3, 0).error().context.find("leaf 1"), std::string::npos);
    bool passed = false;
    bool failed = false;
    for (std::uint64_t seed = 0; seed < 40; ++seed) (corpus.verify_leaves(1, seed) ? passed : failed) = true;
    EXPECT_TRUE(passed && failed);  // a sample of one finds it sometimes
}

TEST(token_corpora, a_shard_cut_short_later_is_an_error_of_reading) {
    const temp_folder temp;
    write_corpus(temp.file("c"), settings(8, 512), random_ids(90, 512, 1));
    const auto corpus = token_corpus::open(temp.file("c")).value();
    fs::resize_file(temp.file("c/tokens-00000.bin"), 100);
    std::vector<std::uint32_t> ids(9);
    EXPECT_TRUE(corpus.read_window(0, ids));
    EXPECT_EQ(corpus.read_window(9, ids).error().code, errc::short_read);
}

TEST(token_corpora, may_be_read_by_several_threads) {
    const temp_folder temp;
    const auto ids = random_ids(2 * 20'000, 300, 3);
    write_corpus(temp.file("c"), settings(1, 300, 400), ids);  // 200 shards, more than are kept open
    const auto corpus = token_corpus::open(temp.file("c")).value();
    std::vector<std::thread> readers;
    std::vector<int> wrong(4, 0);
    for (std::size_t t = 0; t < wrong.size(); ++t) {
        readers.emplace_back([&, t] {
            std::vector<std::uint32_t> window(2);
            for (std::uint64_t i = t; i < corpus.num_windows(); i += 7) {
                const bool read = corpus.read_window(i, window).has_value();
                if (!read || window[0] != ids[2 * i] || window[1] != ids[2 * i + 1]) ++wrong[t];
            }
        });
    }
    for (auto& reader : readers) reader.join();
    EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST(token_writers, leave_nothing_behind_when_they_do_not_finish) {
    const temp_folder temp;
    {
        auto writer = token_writer::create(temp.file("c"), settings(8, 512)).value();
        writer.append(random_ids(90, 512, 1)).value();
        EXPECT_EQ(writer.append(std::vector<std::uint32_t>{512}).error().code, errc::invalid_argument);
    }
    EXPECT_TRUE(fs::is_empty(temp.path()));
}

TEST(token_writers, refuse_a_folder_that_holds_something) {
    const temp_folder temp;
    fs::create_directory(temp.file("c"));
    EXPECT_EQ(write_corpus(temp.file("c/"), settings(8, 512), random_ids(90, 512, 1)).manifest.num_windows, 10U);
    EXPECT_EQ(token_writer::create(temp.file("c"), settings(8, 512)).error().code, errc::already_exists);
    write_text(temp.file("file"), "x");
    EXPECT_EQ(token_writer::create(temp.file("file"), settings(8, 512)).error().code, errc::already_exists);
}

TEST(token_writers, refuse_less_than_one_window) {
    const temp_folder temp;
    auto writer = token_writer::create(temp.file("c"), settings(8, 512)).value();
    writer.append(random_ids(8, 512, 1)).value();
    EXPECT_EQ(writer.finish().error().code, errc::invalid_argument);
    EXPECT_EQ(token_writer::create(temp.file("c"), settings(0, 512)).error().code, errc::invalid_argument);
    EXPECT_EQ(token_writer::create(temp.file("c"), settings(8, 0)).error().code, errc::invalid_argument);
}

DARLCORE_PROPERTY(token_corpora, any_window_range_reads_as_it_was_written, 50, (std::uint64_t seed)) {
    const auto seq_len = *rc::gen::inRange<std::uint64_t>(1, 20);
    const auto windows = *rc::gen::inRange<std::uint64_t>(1, 60);
    const auto extra = *rc::gen::inRange<std::uint64_t>(0, seq_len + 1);
    const auto vocab = *rc::gen::element<std::uint64_t>(1, 2, 512, 65535, 65536, 1U << 20U);
    const auto shard_bytes = *rc::gen::inRange<std::uint64_t>(0, 300);
    const temp_folder temp;
    const auto ids = random_ids(static_cast<std::size_t>(windows * (seq_len + 1) + extra), vocab, seed);
    const auto summary = write_corpus(temp.file("c"), settings(seq_len, vocab, shard_bytes), ids);
    RC_ASSERT(summary.dropped_ids == extra);
    const auto corpus = token_corpus::open(temp.file("c")).value();
    RC_ASSERT(corpus.manifest() == summary.manifest);
    const auto first = *rc::gen::inRange<std::uint64_t>(0, windows);
    const auto count = *rc::gen::inRange<std::uint64_t>(0, windows - first + 1);
    std::vector<std::uint32_t> out(static_cast<std::size_t>(count * (seq_len + 1)));
    RC_ASSERT(corpus.read_windows(first, count, out).has_value());
    RC_ASSERT(std::equal(out.begin(), out.end(), ids.begin() + static_cast<std::ptrdiff_t>(first * (seq_len + 1))));
    const auto width = static_cast<std::size_t>(width_bytes(corpus.manifest().dtype));
    std::vector<std::byte> stored(out.size() * width);
    RC_ASSERT(corpus.read_stored(first, count, stored).has_value());
    for (std::size_t i = 0; i < out.size(); ++i) {
        std::uint32_t id = 0;
        std::memcpy(&id, stored.data() + i * width, width);  // little-endian
        RC_ASSERT(id == out[i]);
    }
    RC_ASSERT(corpus.verify_all().has_value());
}

// Longer than what is widened at once, and no multiple of it or of a vector.
TEST(token_corpora, long_windows_are_widened_piece_by_piece) {
    const temp_folder temp;
    const auto ids = random_ids(3 * 20'011, 65'000, 3);
    write_corpus(temp.file("c"), settings(20'010, 65'000), ids);
    const auto corpus = token_corpus::open(temp.file("c")).value();
    std::vector<std::uint32_t> all(ids.size());
    corpus.read_windows(0, 3, all).value();
    EXPECT_EQ(all, ids);
}

}  // namespace
