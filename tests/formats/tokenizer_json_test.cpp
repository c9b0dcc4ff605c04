// SPDX-License-Identifier: Apache-2.0
#include "adapters/formats/tokenizer_json.hpp"

#include <thread>

#include <gtest/gtest.h>

#include "adapters/formats/json.hpp"
#include "adapters/formats/nfc.hpp"
#include "adapters/formats/tokenize.hpp"
#include "adapters/formats/utf8.hpp"
#include "darlcore/random.hpp"
#include "darlcore/testing/property.hpp"
#include "tests/formats/temp_folder.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::formats;
using darlcore::testing::file_text;
using darlcore::testing::temp_folder;
using darlcore::testing::write_text;
using id_list = std::vector<std::uint32_t>;

const std::string folder = DARLCORE_TEST_DATA "/tokenizers/";
constexpr const char* families[] = {"gpt2", "llama3", "qwen"};

json::value document_of(const std::string& name) {
    return json::parse(file_text(folder + name), json::limits{std::size_t{1} << 24U, 16}).value();
}
std::unique_ptr<tokenizer> tokenizer_of(const std::string& family) {
    return open_tokenizer(folder + family + ".tokenizer.json").value();
}
id_list ids_of(const tokenizer& t, std::string_view text) {
    id_list ids;
    t.encode(text, ids).value();
    return ids;
}
id_list list_of(const json::value& v) {
    id_list out;
    for (const auto& id : *v.as_array()) out.push_back(static_cast<std::uint32_t>(*id.as_u64()));
    return out;
}

TEST(tokenizer_json, gives_every_id_of_the_vectors) {
    std::size_t seen = 0;
    for (const char* family : families) {
        const auto t = tokenizer_of(family);
        const auto cases = document_of(std::string(family) + ".cases.json");
        for (const auto& one : *cases.at("cases").as_array()) {
            const std::string& text = *one.at(0).as_string();
            EXPECT_EQ(ids_of(*t, text), list_of(one.at(1))) << family << ": " << text;
            ++seen;
        }
        EXPECT_EQ(t->vocab_size(), padded_vocab_size(*cases.at("vocab_size").as_u64())) << family;
    }
    EXPECT_EQ(seen, 3U * 208U);
}

TEST(tokenizer_json, gives_every_text_of_the_vectors) {
    for (const char* family : families) {
        const auto t = tokenizer_of(family);
        const auto cases = document_of(std::string(family) + ".cases.json");
        for (const auto& one : *cases.at("decode_examples").as_array())
            EXPECT_EQ(t->decode(list_of(one.at(0))).value(), *one.at(1).as_string()) << family;
    }
}

TEST(tokenizer_json, knows_what_to_put_around_documents) {
    EXPECT_EQ(tokenizer_of("gpt2")->bos_id(), std::nullopt);
    EXPECT_EQ(tokenizer_of("gpt2")->eos_id(), 600U);
    EXPECT_EQ(tokenizer_of("llama3")->bos_id(), 800U);
    EXPECT_EQ(tokenizer_of("llama3")->eos_id(), 801U);
    EXPECT_EQ(tokenizer_of("qwen")->eos_id(), 700U);
    const auto own = open_tokenizer(folder + "qwen.tokenizer.json", {"<|im_start|>", "<|im_end|>"}).value();
    EXPECT_EQ(own->bos_id(), 701U);
    EXPECT_EQ(own->eos_id(), 702U);
    EXPECT_EQ(open_tokenizer(folder + "qwen.tokenizer.json", {"", "none"}).value()->eos_id(), std::nullopt);
    const auto seen = open_tokenizer(folder + "qwen.tokenizer.json", {"<bos>", ""});
    EXPECT_EQ(seen.error().code, errc::invalid_argument);
    EXPECT_NE(seen.error().context.find("--bos: `<bos>`"), std::string::npos) << seen.error().context;
    EXPECT_EQ(open_tokenizer("bytes", {"x", ""}).error().code, errc::invalid_argument);
}

// Strings of what tokenizers stumble over.
std::string random_text(std::uint64_t seed) {
    static constexpr const char* parts[] = {"a",
                                            "e",
                                            "the",
                                            " the",
                                            " ",
                                            "  ",
                                            "\n",
                                            "\r\n",
                                            "\t",
                                            "'s",
                                            "'RE",
                                            "'",
                                            "1",
                                            "23",
                                            "4567",
                                            ".",
                                            "...",
                                            "!?",
                                            "(",
                                            "_",
                                            "<|",
                                            "|>",
                                            "<tool_call>",
                                            "\xc3\xa9",
                                            "e\xcc\x81",
                                            "\xcc\xa3",
                                            "\xc2\xa0",
                                            "\xe2\x80\x83",
                                            "\xe6\xbc\xa2\xe5\xad\x97",
                                            "\xed\x95\x9c",
                                            "\xf0\x9f\x98\x80",
                                            "\xe2\x80\x8d",
                                            "\xd0\xb6",
                                            "\xd7\xa9",
                                            "ABC",
                                            "ab"};
    xoshiro256 random(seed);
    std::string text;
    for (std::uint64_t n = random.below(60); n > 0; --n) text += parts[random.below(std::size(parts))];
    return text;
}

DARLCORE_PROPERTY(tokenizer_json, decodes_what_it_encoded, 1000, (std::uint64_t seed)) {
    static const auto gpt2 = tokenizer_of("gpt2");
    static const auto llama3 = tokenizer_of("llama3");
    static const auto qwen = tokenizer_of("qwen");
    const std::string text = random_text(seed);
    RC_ASSERT(gpt2->decode(ids_of(*gpt2, text)).value() == text);
    RC_ASSERT(llama3->decode(ids_of(*llama3, text)).value() == text);
    std::string buffer;
    RC_ASSERT(qwen->decode(ids_of(*qwen, text)).value() == to_nfc(text, buffer).value());
}

// The table of recent words lives on between calls: red when a place is taken for another word's.
DARLCORE_PROPERTY(tokenizer_json, does_not_depend_on_what_was_encoded_before, 300, (std::uint64_t seed)) {
    static const auto used = tokenizer_of("llama3");
    const std::string text = random_text(seed);
    RC_ASSERT(ids_of(*used, text) == ids_of(*tokenizer_of("llama3"), text));
}

TEST(tokenizer_json, encodes_from_several_threads_at_once) {
    const auto t = tokenizer_of("qwen");
    std::vector<id_list> expected;
    for (std::uint64_t i = 0; i < 200; ++i) expected.push_back(ids_of(*t, random_text(i)));
    std::vector<int> wrong(4, 0);
    std::vector<std::thread> threads;
    for (std::size_t k = 0; k < wrong.size(); ++k)
        threads.emplace_back([&, k] {
            for (std::uint64_t i = 0; i < 200; ++i) wrong[k] += ids_of(*t, random_text(i)) == expected[i] ? 0 : 1;
        });
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST(tokenizer_json, makes_equal_shards_with_any_number_of_threads) {
    const temp_folder temp;
    std::string lines;
    for (std::uint64_t i = 0; i < 3000; ++i) lines += json::quote(random_text(i)) + "\n";
    write_text(temp.file("a.txt"), lines);
    const auto t = tokenizer_of("qwen");
    std::vector<digest32> contents;
    for (const unsigned threads : {1U, 3U, 8U}) {
        tokenize_settings s;
        s.inputs = {temp.file("a.txt")};
        s.format = document_format::lines;
        s.seq_len = 15;
        s.threads = threads;
        s.out = temp.file("out" + std::to_string(threads));
        contents.push_back(
            *tokenize_files(*t, s, [](const tokenize_progress&) { return true; }).value().manifest.corpus_content);
    }
    EXPECT_EQ(contents[0], contents[1]);
    EXPECT_EQ(contents[0], contents[2]);
}

TEST(tokenizer_json, names_the_byte_of_ill_formed_text) {
    id_list ids;
    const auto seen = tokenizer_of("gpt2")->encode("abc\xff", ids);
    EXPECT_EQ(seen.error().code, errc::parse_error);
    EXPECT_NE(seen.error().context.find("byte 3"), std::string::npos);
    EXPECT_EQ(tokenizer_of("gpt2")->decode(id_list{5000}).error().code, errc::invalid_argument);
}

// Both spellings of merges, and a model without a type, are one tokenizer.
TEST(tokenizer_json, reads_both_spellings_of_merges) {
    auto document = document_of("llama3.tokenizer.json");
    json::object& model = *document.as_object()->back().second.as_object();
    for (auto& [key, member] : model) {
        if (key != "merges") continue;
        for (auto& m : *member.as_array()) m = json::value(*m.at(0).as_string() + " " + *m.at(1).as_string());
    }
    std::erase_if(model, [](const auto& member) { return member.first == "type"; });
    const auto t = parse_tokenizer_json(json::dump(document), "t.json", {}).value();
    const auto original = tokenizer_of("llama3");
    for (std::uint64_t i = 0; i < 200; ++i) EXPECT_EQ(ids_of(*t, random_text(i)), ids_of(*original, random_text(i)));
}

// Sets the member at a path of keys and indices ("a/0/b"), adding a last key that is not there.
void set_at(json::value& v, std::string_view path, const json::value& to) {
    const auto slash = path.find('/');
    const std::string key(path.substr(0, slash));
    json::value* inner = nullptr;
    if (v.is_array()) {
        inner = &(*v.as_array())[std::stoul(key)];
    } else {
        if (!v.contains(key)) v.set(key, nullptr);
        for (auto& [name, member] : *v.as_object())
            if (name == key) inner = &member;
    }
    if (slash == std::string_view::npos)
        *inner = to;
    else
        set_at(*inner, path.substr(slash + 1), to);
}

struct bad_setting {
    const char* path;
    const char* json;
    const char* named;
};

const std::vector<bad_setting>& bad_settings() {
    static const std::vector<bad_setting> all = {
        {"version", "\"2.0\"", "version"},
        {"truncation", "{\"max_length\":8}", "truncation"},
        {"padding", "{\"length\":8}", "padding"},
        {"surprise", "1", "file.surprise"},
        {"normalizer", "{\"type\":\"NFKC\"}", "normalizer.type"},
        {"normalizer", "{\"type\":\"NFC\",\"strip\":true}", "normalizer.strip"},
        {"normalizer", "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Lowercase\"}]}",
         "normalizer.normalizers[0].type"},
        {"normalizer", "[]", "normalizer.type"},
        {"pre_tokenizer", "null", "pre_tokenizer"},
        {"pre_tokenizer", "{\"type\":\"Whitespace\"}", "pre_tokenizer.type"},
        {"pre_tokenizer", "{\"type\":\"Digits\"}", "without a ByteLevel"},
        {"pre_tokenizer/pretokenizers/0/pattern", "{\"Regex\":\"\\\\w+\"}", "pretokenizers[0].pattern.Regex"},
        {"pre_tokenizer/pretokenizers/0/pattern", "{\"Regex\":\"(\"}", "pretokenizers[0].pattern.Regex"},
        {"pre_tokenizer/pretokenizers/0/pattern", "{\"Regex\":\"\"}", "pretokenizers[0].pattern.Regex"},
        {"pre_tokenizer/pretokenizers/0/pattern", "{\"Glob\":\"x\"}", "pretokenizers[0].pattern.Glob"},
        {"pre_tokenizer/pretokenizers/0/pattern", "\"x\"", "pretokenizers[0].pattern"},
        {"pre_tokenizer/pretokenizers/0/behavior", "\"MergedWithNext\"", "pretokenizers[0].behavior"},
        {"pre_tokenizer/pretokenizers/0/invert", "1", "pretokenizers[0].invert"},
        {"pre_tokenizer/pretokenizers/0/type", "\"Metaspace\"", "pretokenizers[0].type"},
        {"pre_tokenizer/pretokenizers/1/type", "\"Split\"", "pretokenizers[1]"},
        {"pre_tokenizer/pretokenizers/1/add_prefix_space", "\"no\"", "pretokenizers[1].add_prefix_space"},
        {"post_processor", "{\"type\":\"BertProcessing\"}", "post_processor.type"},
        {"post_processor/processors/1/single", "[{\"SpecialToken\":{\"id\":\"<none>\",\"type_id\":0}}]", "<none>"},
        {"post_processor/processors/1/single", "[1]", "processors[1].single[0]"},
        {"decoder", "{\"type\":\"WordPiece\"}", "decoder.type"},
        {"model", "null", "model"},
        {"model/type", "\"Unigram\"", "model.type"},
        {"model/dropout", "0.1", "model.dropout"},
        {"model/continuing_subword_prefix", "\"##\"", "model.continuing_subword_prefix"},
        {"model/end_of_word_suffix", "\"</w>\"", "model.end_of_word_suffix"},
        {"model/byte_fallback", "true", "model.byte_fallback"},
        {"model/ignore_merges", "\"yes\"", "model.ignore_merges"},
        {"model/beam", "2", "model.beam"},
        {"model/vocab", "[]", "model.vocab"},
        {"model/vocab", "{\"a\":0}", "no token for byte"},
        {"model/vocab/a", "-1", "\"a\""},
        {"model/vocab/a", "99999999", "\"a\""},
        {"model/vocab/a", "1", "occurs twice"},
        {"model/merges", "{}", "model.merges"},
        {"model/merges/3", "\"ab\"", "model.merges[3]"},
        {"model/merges/3", "\"a b c\"", "model.merges[3]"},
        {"model/merges/3", "[\"a\"]", "model.merges[3]"},
        {"model/merges/3", "[\"qqqq\",\"zzzz\"]", "model.merges[3]"},
        {"model/merges/3", "[\"h\",\"e\"]", "model.merges[3]: occurs twice"},
        {"added_tokens", "{}", "added_tokens"},
        {"added_tokens/0/id", "\"x\"", "added_tokens[0].id"},
        {"added_tokens/0/id", "5", "added_tokens[0].id"},
        {"added_tokens/0/content", "\"\"", "added_tokens[0].content"},
        {"added_tokens/0/content", "\"a\"", "added_tokens[0].id"},
        {"added_tokens/1/id", "800", "occurs twice"},
        {"added_tokens/0/single_word", "true", "added_tokens[0].single_word"},
        {"added_tokens/0/lstrip", "true", "added_tokens[0].lstrip"},
        {"added_tokens/0/rstrip", "true", "added_tokens[0].rstrip"},
        {"added_tokens/0/weight", "1", "added_tokens[0].weight"},
    };
    return all;
}

TEST(tokenizer_json, refuses_what_it_does_not_implement_and_names_file_and_key) {
    const auto good = document_of("llama3.tokenizer.json");
    for (const auto& [path, text, named] : bad_settings()) {
        auto document = good;
        set_at(document, path, json::parse(text).value());
        const auto seen = parse_tokenizer_json(json::dump(document), "some/t.json", {});
        ASSERT_FALSE(seen) << path << " " << text;
        EXPECT_NE(seen.error().context.find("some/t.json: "), std::string::npos) << seen.error().context;
        EXPECT_NE(seen.error().context.find(named), std::string::npos) << path << ": " << seen.error().context;
    }
    for (const char* bad : {"{", "[]", "{}", "{\"model\":{}}"}) {
        const auto seen = parse_tokenizer_json(bad, "t.json", {});
        ASSERT_FALSE(seen) << bad;
        EXPECT_NE(seen.error().context.find("t.json: "), std::string::npos) << seen.error().context;
    }
}

}  // namespace
