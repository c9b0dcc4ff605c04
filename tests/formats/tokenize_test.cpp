// SPDX-License-Identifier: Apache-2.0
#include "adapters/formats/tokenize.hpp"

#include <filesystem>

#include <gtest/gtest.h>

#include "adapters/formats/token_corpus.hpp"
#include "tests/formats/temp_folder.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::formats;
using darlcore::testing::temp_folder;
using darlcore::testing::write_text;
namespace fs = std::filesystem;

bool always(const tokenize_progress&) { return true; }

tokenize_settings settings_for(const temp_folder& temp, std::vector<std::string> inputs, std::uint64_t seq_len = 3) {
    tokenize_settings s;
    for (const auto& name : inputs) s.inputs.push_back(temp.file(name));
    s.out = temp.file("out");
    s.seq_len = seq_len;
    return s;
}

std::vector<std::uint32_t> all_ids(const std::string& folder) {
    const auto corpus = token_corpus::open(folder).value();
    std::vector<std::uint32_t> ids(static_cast<std::size_t>(corpus.num_windows() * corpus.window()));
    corpus.read_windows(0, corpus.num_windows(), ids).value();
    return ids;
}

// As bytes, but takes UTF-8 only and has no BOS and EOS.
class utf8_tokenizer final : public tokenizer {
public:
    [[nodiscard]] std::string name() const override { return "utf8"; }
    [[nodiscard]] std::string sha256() const override { return std::string(64, '0'); }
    [[nodiscard]] std::uint64_t vocab_size() const override { return 256; }
    [[nodiscard]] std::optional<std::uint32_t> bos_id() const override { return std::nullopt; }
    [[nodiscard]] std::optional<std::uint32_t> eos_id() const override { return std::nullopt; }
    [[nodiscard]] bool needs_utf8() const override { return true; }
    [[nodiscard]] result<void> encode(std::string_view text, std::vector<std::uint32_t>& ids) const override {
        return bytes_->encode(text, ids);
    }
    [[nodiscard]] result<std::string> decode(std::span<const std::uint32_t> ids) const override {
        return bytes_->decode(ids);
    }

private:
    std::unique_ptr<tokenizer> bytes_ = make_bytes_tokenizer();
};

TEST(tokenisation, puts_each_document_between_bos_and_eos_in_input_order) {
    const temp_folder temp;
    write_text(temp.file("a.txt"), "ab");
    write_text(temp.file("b.jsonl"), "{\"text\":\"c\"}\n\n{\"id\":1,\"text\":\"\\u00e4\"}\n");
    const auto summary =
        tokenize_files(*make_bytes_tokenizer(), settings_for(temp, {"a.txt", "b.jsonl"}), always).value();
    EXPECT_EQ(all_ids(temp.file("out")), (std::vector<std::uint32_t>{256, 'a', 'b', 257, 256, 'c', 257, 256}));
    EXPECT_EQ(summary.documents, 3U);
    EXPECT_EQ(summary.ids, 11U);
    EXPECT_EQ(summary.dropped_ids, 3U);  // c3 a4 EOS
    EXPECT_EQ(summary.manifest.bos_id, 256U);
    EXPECT_EQ(summary.manifest.vocab_size, 512U);
}

TEST(tokenisation, takes_one_document_per_line) {
    const temp_folder temp;
    write_text(temp.file("a.txt"), "x\n\ny\nz");
    auto s = settings_for(temp, {"a.txt"}, 2);
    s.format = document_format::lines;
    const auto summary = tokenize_files(*make_bytes_tokenizer(), s, always).value();
    EXPECT_EQ(summary.documents, 3U);
    EXPECT_EQ(all_ids(temp.file("out")), (std::vector<std::uint32_t>{256, 'x', 257, 256, 'y', 257, 256, 'z', 257}));
}

TEST(tokenisation, does_not_depend_on_the_number_of_threads) {
    const temp_folder temp;
    std::string lines;
    for (int i = 0; i < 30'000; ++i) lines += "document number " + std::to_string(i * 7919) + "\n";
    write_text(temp.file("a.txt"), lines);
    std::vector<digest32> contents;
    for (const unsigned threads : {1U, 2U, 7U}) {
        auto s = settings_for(temp, {"a.txt"}, 15);
        s.format = document_format::lines;
        s.threads = threads;
        s.out = temp.file("out" + std::to_string(threads));
        contents.push_back(*tokenize_files(*make_bytes_tokenizer(), s, always).value().manifest.corpus_content);
    }
    EXPECT_EQ(contents[0], contents[1]);
    EXPECT_EQ(contents[0], contents[2]);
}

TEST(tokenisation, names_file_and_byte_of_ill_formed_text_and_leaves_nothing) {
    const temp_folder temp;
    write_text(temp.file("a.txt"), "good\nbad \xff text\n");
    auto s = settings_for(temp, {"a.txt"});
    const auto whole = tokenize_files(utf8_tokenizer(), s, always);
    ASSERT_FALSE(whole);
    EXPECT_EQ(whole.error().code, errc::parse_error);
    EXPECT_NE(whole.error().context.find("a.txt: invalid UTF-8 at byte 9"), std::string::npos) << whole.error().context;
    s.format = document_format::lines;
    const auto lines = tokenize_files(utf8_tokenizer(), s, always);
    EXPECT_NE(lines.error().context.find("a.txt:2: invalid UTF-8 at byte 9"), std::string::npos);
    EXPECT_FALSE(fs::exists(s.out));
    EXPECT_EQ(std::distance(fs::directory_iterator(temp.path()), fs::directory_iterator()), 1);
    s.replace_invalid_utf8 = true;
    EXPECT_EQ(tokenize_files(utf8_tokenizer(), s, always).value().replaced_utf8_parts, 1U);
}

TEST(tokenisation, bytes_take_anything) {
    const temp_folder temp;
    write_text(temp.file("a.bin"), std::string("\xff\x00\xfe", 3));
    EXPECT_TRUE(tokenize_files(*make_bytes_tokenizer(), settings_for(temp, {"a.bin"}), always));
}

TEST(tokenisation, names_file_and_line_of_a_bad_jsonl_line) {
    for (const char* bad : {"{\"text\":1}", "{\"texts\":\"a\"}", "not json", "[\"text\"]", "{\"text\":\"\\ud800\"}",
                            "{\"text\":\"\xff\"}", "{\"text\":\"a\"} {}"}) {
        const temp_folder temp;
        write_text(temp.file("a.jsonl"), std::string("{\"text\":\"fine\"}\n") + bad + "\n");
        const auto seen = tokenize_files(*make_bytes_tokenizer(), settings_for(temp, {"a.jsonl"}), always);
        ASSERT_FALSE(seen) << bad;
        EXPECT_EQ(seen.error().code, errc::parse_error) << bad;
        EXPECT_NE(seen.error().context.find("a.jsonl:2: "), std::string::npos) << seen.error().context;
        EXPECT_FALSE(fs::exists(temp.file("out")));
    }
}

TEST(tokenisation, repairs_jsonl_lines_when_told_to) {
    const temp_folder temp;
    write_text(temp.file("a.jsonl"), "{\"text\":\"ab\xff\"}\n");
    auto s = settings_for(temp, {"a.jsonl"});
    s.replace_invalid_utf8 = true;
    const auto summary = tokenize_files(*make_bytes_tokenizer(), s, always).value();
    EXPECT_EQ(summary.replaced_utf8_parts, 1U);
    EXPECT_EQ(summary.ids, 7U);  // BOS a b ef bf bd EOS
}

TEST(tokenisation, stops_when_told_to_and_leaves_nothing) {
    const temp_folder temp;
    write_text(temp.file("a.txt"), "some text");
    const auto s = settings_for(temp, {"a.txt"});
    const auto seen = tokenize_files(*make_bytes_tokenizer(), s, [](const tokenize_progress&) { return false; });
    EXPECT_EQ(seen.error().code, errc::cancelled);
    EXPECT_FALSE(fs::exists(s.out));
    EXPECT_EQ(std::distance(fs::directory_iterator(temp.path()), fs::directory_iterator()), 1);
}

TEST(tokenisation, refuses_bad_settings_by_name) {
    const temp_folder temp;
    write_text(temp.file("a.txt"), "some text");
    write_text(temp.file("short.txt"), "");
    const auto bytes = make_bytes_tokenizer();
    EXPECT_EQ(tokenize_files(*bytes, settings_for(temp, {}), always).error().code, errc::invalid_argument);
    EXPECT_EQ(tokenize_files(*bytes, settings_for(temp, {"none.txt"}), always).error().code, errc::not_found);
    EXPECT_EQ(tokenize_files(*bytes, settings_for(temp, {"short.txt"}), always).error().code, errc::invalid_argument);
    EXPECT_EQ(tokenize_files(*bytes, settings_for(temp, {"a.txt"}, 0), always).error().code, errc::invalid_argument);
    auto none = settings_for(temp, {"a.txt"});
    none.threads = 0;
    EXPECT_EQ(tokenize_files(*bytes, none, always).error().code, errc::invalid_argument);
}

std::string bytes_of(std::uint64_t value, std::size_t width) {
    std::string out;
    for (std::size_t i = 0; i < width; ++i) out.push_back(static_cast<char>(value >> (8U * i)));
    return out;
}

TEST(tokenisation, cuts_megatron_data_sets_with_their_ids_as_they_are) {
    const temp_folder temp;
    std::string index =
        std::string("MMIDIDX\0\0", 9) + bytes_of(1, 8) + bytes_of(8, 1) + bytes_of(2, 8) + bytes_of(3, 8);
    index += bytes_of(3, 4) + bytes_of(2, 4) + bytes_of(0, 8) + bytes_of(6, 8);
    index += bytes_of(0, 8) + bytes_of(1, 8) + bytes_of(2, 8);
    write_text(temp.file("d.idx"), index);
    std::string bin;
    for (const std::uint32_t id : {10U, 11U, 12U, 13U, 300U}) bin += bytes_of(id, 2);
    write_text(temp.file("d.bin"), bin);
    const auto s = settings_for(temp, {"d"}, 1);
    const auto summary = convert_megatron(*make_bytes_tokenizer(), s, always).value();
    EXPECT_EQ(summary.documents, 2U);
    EXPECT_EQ(summary.dropped_ids, 1U);
    EXPECT_EQ(all_ids(temp.file("out")), (std::vector<std::uint32_t>{10, 11, 12, 13}));
    auto again = s;
    again.out = temp.file("again");
    const auto beyond = convert_megatron(utf8_tokenizer(), again, always);  // vocabulary of 256
    EXPECT_EQ(beyond.error().code, errc::invalid_argument);
    EXPECT_NE(beyond.error().context.find("document 1"), std::string::npos) << beyond.error().context;
    EXPECT_FALSE(fs::exists(again.out));
}

}  // namespace
