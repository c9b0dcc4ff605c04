// SPDX-License-Identifier: Apache-2.0
// Models that SentencePiece's own trainer makes here, with normalisation tables and settings of all kinds: ids and
// texts must be those of its own programs. Skipped where the programs are not installed.
#include <cstdlib>
#include <sstream>

#include <gtest/gtest.h>

#include "adapters/formats/sentencepiece.hpp"
#include "adapters/formats/tokenizer.hpp"
#include "darlcore/random.hpp"
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

bool run(const std::string& command) { return std::system(command.c_str()) == 0; }
bool has_programs() { return run("command -v spm_train spm_encode spm_decode >/dev/null 2>&1"); }

// Words, and characters that the tables change: ligatures, full and half width, circled and vulgar numbers, units,
// several spaces, marks apart from their letters, jamo, presentation forms, capitals, invisible characters.
const std::vector<std::string>& pieces() {
    static const std::vector<std::string> all = {"the",
                                                 "block",
                                                 "is",
                                                 "held",
                                                 "by",
                                                 "one",
                                                 "site",
                                                 "The",
                                                 "STRASSE",
                                                 "Stra\u00dfe",
                                                 "na\u00efve",
                                                 "nai\u0308ve",
                                                 "\ufb01ne",
                                                 "\ufb03",
                                                 "\uff21\uff22\uff23",
                                                 "\uff11\uff12",
                                                 "\uff76\uff9e",
                                                 "\u2460\u2461",
                                                 "\u00bd",
                                                 "\u338f",
                                                 "\u2122",
                                                 "e\u0301",
                                                 "\u00e9",
                                                 "a\u0323\u0302",
                                                 "\u1112\u1161\u11ab",
                                                 "\ud55c\uad6d",
                                                 "\u65e5\u672c\u8a9e",
                                                 "\ufdfa",
                                                 "\u0627\u0644",
                                                 "\u0130stanbul",
                                                 "\u03a3\u03b1\u03c2",
                                                 "\u200b",
                                                 "\u00ad",
                                                 "\u00a0",
                                                 "\u3000",
                                                 "\u2003",
                                                 "\t",
                                                 "  ",
                                                 "\u2581",
                                                 "\U0001f600",
                                                 "\U0001f469\u200d\U0001f680",
                                                 "0",
                                                 "1",
                                                 "42",
                                                 "2026",
                                                 "x\u00b2",
                                                 "\u212b",
                                                 "\u2026",
                                                 "-",
                                                 "\u2014",
                                                 ".",
                                                 ",",
                                                 "!",
                                                 "<sep>",
                                                 "\u0e01\u0e33",
                                                 "\u1e9b\u0323"};
    return all;
}

std::string text_of(xoshiro256& random, std::size_t words) {
    std::string text;
    for (std::size_t w = 0; w < words; ++w) {
        text += pieces()[random.below(pieces().size())];
        if (random.below(3) != 0) text += ' ';
    }
    return text;
}

std::vector<std::string> texts(std::uint64_t seed, std::size_t count) {
    xoshiro256 random(seed);
    std::vector<std::string> all;
    for (std::size_t i = 0; i < count; ++i) all.push_back(text_of(random, 1 + random.below(14)));
    return all;
}

std::string lines_of(const std::vector<std::string>& all) {
    std::string text;
    for (const std::string& one : all) text += one + "\n";
    return text;
}

id_list ids_of(const std::string& line) {
    std::istringstream in(line);
    id_list ids;
    for (std::uint32_t id = 0; in >> id;) ids.push_back(id);
    return ids;
}

std::vector<std::string> split_lines(const std::string& text) {
    std::istringstream in(text);
    std::vector<std::string> all;
    for (std::string line; std::getline(in, line);) all.push_back(line);
    return all;
}

class sentencepiece_tables : public ::testing::TestWithParam<const char*> {
protected:
    void SetUp() override {
        if (!has_programs())
            GTEST_SKIP() << "spm_train, spm_encode, spm_decode (package sentencepiece) are not installed";
        ::setenv("DARL_SPM", DARL_SPM_PROGRAM, 1);
        write_text(temp.file("train.txt"), lines_of(texts(1, 400)));
        // a table of one's own: code points in hexadecimal, what they become
        write_text(temp.file("rules.tsv"), "41\t61\nFB01\t66 69\n2026\t2E 2E 2E\n200B\t\n");
        std::string settings = GetParam();
        const auto own = settings.find("rules.tsv");
        if (own != std::string::npos) settings.replace(own, 9, temp.file("rules.tsv"));
        ASSERT_TRUE(run("spm_train --minloglevel=2 --input=" + temp.file("train.txt") +
                        " --model_prefix=" + temp.file("m") +
                        " --vocab_size=" + (settings.find("byte_fallback") == std::string::npos ? "220" : "420") +
                        " --hard_vocab_limit=false " + settings + " >/dev/null 2>&1"));
    }
    // What their program answers for a file, line by line.
    [[nodiscard]] std::vector<std::string> theirs(const std::string& program, const std::string& in) const {
        const std::string out = temp.file("out");
        EXPECT_TRUE(run(program + " --model=" + temp.file("m.model") + " --input=" + in + " --output=" + out));
        return split_lines(file_text(out));
    }

    temp_folder temp;
};

// Red when the text is changed on its way (normalised twice, trimmed), or ids are read with another size.
TEST_P(sentencepiece_tables, give_the_ids_and_texts_of_their_own_programs) {
    const auto t = open_tokenizer(temp.file("m.model")).value();
    const auto all = texts(2, static_cast<std::size_t>(darlcore::testing::property_runs(300)));
    write_text(temp.file("in.txt"), lines_of(all));
    const auto encoded = theirs("spm_encode --output_format=id", temp.file("in.txt"));
    write_text(temp.file("ids.txt"), lines_of(encoded));
    const auto decoded = theirs("spm_decode --input_format=id", temp.file("ids.txt"));
    ASSERT_EQ(encoded.size(), all.size());
    ASSERT_EQ(decoded.size(), all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
        id_list ids;
        ASSERT_TRUE(t->encode(all[i], ids));
        ASSERT_EQ(ids, ids_of(encoded[i])) << all[i];
        ASSERT_EQ(t->decode(ids).value(), decoded[i]) << all[i];
    }
}

TEST_P(sentencepiece_tables, of_damaged_models_end_with_an_error_or_work) {
    (void)darlcore::testing::refused_of_damaged(file_text(temp.file("m.model")), darlcore::testing::property_runs(15),
                                                11);
}

INSTANTIATE_TEST_SUITE_P(
    settings, sentencepiece_tables,
    ::testing::Values("--model_type=unigram --normalization_rule_name=nmt_nfkc",
                      "--model_type=bpe --normalization_rule_name=nmt_nfkc",
                      "--model_type=unigram --normalization_rule_name=nfkc",
                      "--model_type=bpe --normalization_rule_name=nfkc_cf",
                      "--model_type=unigram --normalization_rule_name=nmt_nfkc_cf",
                      "--model_type=bpe --normalization_rule_name=identity --byte_fallback --split_digits",
                      "--model_type=unigram --normalization_rule_name=identity --remove_extra_whitespaces=false",
                      "--model_type=bpe --normalization_rule_name=nmt_nfkc --add_dummy_prefix=false --byte_fallback",
                      "--model_type=unigram --normalization_rule_name=nfkc --treat_whitespace_as_suffix",
                      "--model_type=bpe --user_defined_symbols='<sep>,42' --remove_extra_whitespaces=false",
                      "--model_type=char --normalization_rule_name=nmt_nfkc",
                      "--model_type=word --normalization_rule_name=nmt_nfkc",
                      "--model_type=unigram --normalization_rule_tsv=rules.tsv"),
    [](const auto& one) {
        std::string name;
        for (const char c : std::string(one.param).substr(2)) {
            const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0;
            if (plain || !name.ends_with('_')) name += plain ? c : '_';
        }
        return name;
    });

}  // namespace
