// SPDX-License-Identifier: Apache-2.0
// The helper program is the one of this build (DARL_SPM_PROGRAM).
#include "adapters/formats/sentencepiece.hpp"

#include <cstdlib>
#include <thread>

#include <gtest/gtest.h>

#include "adapters/formats/json.hpp"
#include "adapters/formats/spm_protocol.hpp"
#include "darlcore/testing/budget.hpp"
#include "tests/formats/spm_damage.hpp"
#include "tests/formats/temp_folder.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::formats;
using darlcore::testing::file_text;
using darlcore::testing::temp_folder;
using darlcore::testing::write_text;
using id_list = std::vector<std::uint32_t>;

const std::string folder = DARLCORE_TEST_DATA "/tokenizers/";

class sentencepiece_models : public ::testing::TestWithParam<const char*> {
protected:
    void SetUp() override { ::setenv("DARL_SPM", DARL_SPM_PROGRAM, 1); }
    [[nodiscard]] static std::string model_file() { return folder + "spm_" + GetParam() + ".model"; }
    [[nodiscard]] static json::value cases() {
        return json::parse(file_text(folder + "spm_" + GetParam() + ".cases.json")).value();
    }
};

TEST_P(sentencepiece_models, give_the_ids_and_texts_of_an_independent_binding) {
    const auto t = open_tokenizer(model_file()).value();
    const auto expected = cases();
    EXPECT_EQ(t->bos_id(), expected.at("bos").as_u64());
    EXPECT_EQ(t->eos_id(), expected.at("eos").as_u64());
    EXPECT_EQ(t->vocab_size(), padded_vocab_size(*expected.at("pieces").as_u64()));
    for (const auto& one : *expected.at("cases").as_array()) {
        id_list ids;
        ASSERT_TRUE(t->encode(*one.at(0).as_string(), ids));
        id_list wanted;
        for (const auto& id : *one.at(1).as_array()) wanted.push_back(static_cast<std::uint32_t>(*id.as_u64()));
        EXPECT_EQ(ids, wanted) << *one.at(0).as_string();
        EXPECT_EQ(t->decode(ids).value(), *one.at(2).as_string());
    }
    EXPECT_GE(expected.at("cases").size(), 80U);
}

TEST_P(sentencepiece_models, encode_from_several_threads_at_once) {
    const auto t = open_tokenizer(model_file()).value();
    const auto all = cases();
    std::vector<int> wrong(3, 0);
    std::vector<std::thread> threads;
    for (std::size_t k = 0; k < wrong.size(); ++k)
        threads.emplace_back([&, k] {
            for (const auto& one : *all.at("cases").as_array()) {
                id_list ids;
                const auto ok = t->encode(*one.at(0).as_string(), ids);
                wrong[k] += ok && ids.size() == one.at(1).size() ? 0 : 1;
            }
        });
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(wrong, std::vector<int>(3, 0));
}

TEST_P(sentencepiece_models, take_other_pieces_around_documents) {
    const auto t = open_tokenizer(model_file(), {"none", "<unk>"}).value();
    EXPECT_EQ(t->bos_id(), std::nullopt);
    EXPECT_EQ(t->eos_id(), 0U);
    const auto seen = open_tokenizer(model_file(), {"<nowhere>", ""});
    EXPECT_EQ(seen.error().code, errc::invalid_argument);
    EXPECT_NE(seen.error().context.find("--bos: `<nowhere>`"), std::string::npos) << seen.error().context;
}

// Red when the library is called in this process (it aborts on some of them) or a dead helper is waited for.
TEST_P(sentencepiece_models, that_are_damaged_end_with_an_error_or_work) {
    const int runs = darlcore::testing::property_runs(100);
    const int refused = darlcore::testing::refused_of_damaged(file_text(model_file()), runs, 7);
    EXPECT_GT(refused, runs / 4);
}

INSTANTIATE_TEST_SUITE_P(kinds, sentencepiece_models, ::testing::Values("unigram", "bpe"),
                         [](const auto& one) { return std::string(one.param); });

TEST(sentencepiece_helpers, that_are_missing_or_end_are_named) {
    const std::string model = folder + "spm_bpe.model";
    ::setenv("DARL_SPM", "/nowhere/darl-spm", 1);
    const auto missing = open_tokenizer(model);
    ASSERT_FALSE(missing);
    EXPECT_NE(missing.error().context.find("spm_bpe.model: "), std::string::npos) << missing.error().context;
    ::setenv("DARL_SPM", "/bin/true", 1);
    const auto ended = open_tokenizer(model);
    ASSERT_FALSE(ended);
    EXPECT_EQ(ended.error().code, errc::corrupt) << ended.error().context;
    ::unsetenv("DARL_SPM");
    const auto none = open_tokenizer(model);  // no darl-spm beside this test
    ASSERT_FALSE(none);
    EXPECT_NE(none.error().context.find("libsentencepiece-dev"), std::string::npos) << none.error().context;
}

TEST(sentencepiece_frames, that_are_cut_or_too_long_are_refused) {
    for (const std::string& bytes :
         {std::string("y\xff\xff\xff\xff", 5), std::string("y\5\0\0\0ab", 7), std::string("y\1"), std::string()}) {
        int ends[2];
        ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
        ASSERT_EQ(::write(ends[0], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
        ::close(ends[0]);
        spm::frame got;
        EXPECT_FALSE(spm::receive_frame(ends[1], got));
        ::close(ends[1]);
    }
}

TEST(tokenizers, of_no_known_kind_are_refused_with_what_is_read) {
    const temp_folder temp;
    write_text(temp.file("vocab.txt"), "a b c");
    const auto seen = open_tokenizer(temp.file("vocab.txt"));
    EXPECT_EQ(seen.error().code, errc::unsupported);
    EXPECT_NE(seen.error().context.find("vocab.txt: is neither a tokenizer.json nor"), std::string::npos);
}

}  // namespace
