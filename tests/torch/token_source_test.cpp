// SPDX-License-Identifier: Apache-2.0
#include "backends/torch/token_source.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "adapters/formats/token_writer.hpp"
#include "temp_folder.hpp"
#include "trainer_fixture.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::test;

constexpr std::uint64_t windows = 8;

constexpr std::uint32_t vocab = 33'000;  // beyond what a signed number of 16 bits holds

// Windows of 9 ids; a vocabulary of 65 536 and more makes them 4 bytes wide.
std::shared_ptr<const formats::token_corpus> corpus_of(const std::string& folder, const std::vector<std::int32_t>& ids,
                                                       bool wide) {
    formats::token_writer_settings s;
    s.seq_len = 8;
    s.vocab_size = wide ? 70'000 : vocab;
    auto writer = formats::token_writer::create(folder, s).value();
    writer.append(std::vector<std::uint32_t>(ids.begin(), ids.end())).value();
    (void)writer.finish().value();
    return std::make_shared<const formats::token_corpus>(formats::token_corpus::open(folder).value());
}

std::vector<std::int32_t> drawn_ids() {
    xoshiro256 random(4);
    std::vector<std::int32_t> ids(windows * 9);
    for (auto& id : ids) id = static_cast<std::int32_t>(random.below(vocab));
    return ids;
}

std::vector<float> trained_on(const training::window_source& source, double& score) {
    const auto ranks = training::single_communicator();
    auto settings = tiny_settings();
    settings.model.vocab_size = vocab;
    auto t = training::inner_trainer::create(settings, *ranks).value();
    scripted script(groups_of(2, 2));
    EXPECT_TRUE(t.train_phase(space(windows, 4), source, script.hooks));
    score = t.evaluate(source, windows).value().loss_sum;
    return copy_of(t.weights());
}

// Red when ids of two bytes are read as signed ones or as those of four.
TEST(token_source, ids_of_two_bytes_train_the_same_bits_as_ids_of_four) {
    const temp_folder folder;
    const auto ids = drawn_ids();
    const auto narrow = training::token_source(corpus_of(folder / "narrow", ids, false), vocab).value();
    EXPECT_EQ(narrow->window_bytes(), 18U);
    EXPECT_EQ(narrow->id_bytes(), 2U);
    const auto memory = training::memory_source(ids, 9);
    double a = 0, b = 0;
    EXPECT_EQ(trained_on(*narrow, a), trained_on(*memory, b));
    EXPECT_EQ(a, b);
}

TEST(token_source, an_id_beyond_the_models_vocabulary_is_named_by_window) {
    for (const bool wide : {false, true}) {
        const temp_folder folder;
        const auto ids = drawn_ids();
        const std::int64_t model = wide ? 70'000 : vocab;
        const auto corpus = corpus_of(folder / "c", ids, wide);
        const std::size_t bytes = wide ? 4 : 2;
        std::fstream shard(folder / "c/tokens-00000.bin", std::ios::in | std::ios::out | std::ios::binary);
        shard.seekp(static_cast<std::streamoff>((9 * 5 + 8) * bytes));
        shard.write("\xff\xff\xff\xff", static_cast<std::streamsize>(bytes));  // after the corpus was opened
        shard.close();
        const auto source = training::token_source(corpus, model).value();
        std::vector<std::byte> window(source->window_bytes());
        EXPECT_TRUE(source->read(4, window));
        const auto seen = source->read(5, window);
        ASSERT_FALSE(seen);
        EXPECT_EQ(seen.error().code, errc::corrupt);
        EXPECT_NE(seen.error().context.find("window 5 holds an id beyond"), std::string::npos) << seen.error().context;
        EXPECT_TRUE(source->read(6, window));
    }
}

}  // namespace
