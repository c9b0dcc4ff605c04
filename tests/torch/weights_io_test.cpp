// SPDX-License-Identifier: Apache-2.0
#include "backends/torch/weights_io.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "backends/torch/bf16.hpp"
#include "backends/torch/init.hpp"
#include "backends/torch/language_model.hpp"
#include "temp_folder.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::models;
using darlcore::test::temp_folder;

model_config tiny() {
    model_config c;
    c.vocab_size = 32;
    c.hidden_size = 8;
    c.layers = 1;
    c.heads = 2;
    c.kv_heads = 1;
    c.head_dim = 4;
    c.ffn_size = 12;
    c.positions_max = 64;
    return c;
}

std::vector<float> ramp(const std::vector<parameter_spec>& specs) {
    std::size_t n = 0;
    for (const auto& spec : specs) n += static_cast<std::size_t>(spec.elements());
    std::vector<float> values(n);
    for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<float>(i) * 0.001F - 0.3F;
    return values;
}

flat_source from(const std::vector<float>& values) {
    return [&values](std::uint64_t first, std::span<float> out) {
        std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(first), out.size(), out.begin());
    };
}

TEST(bf16, rounds_to_nearest_even_and_keeps_special_values) {
    EXPECT_EQ(to_bf16(1.5F), 0x3fc0);
    EXPECT_EQ(to_bf16(1.00390625F), 0x3f80);  // tie, down to even
    EXPECT_EQ(to_bf16(1.01171875F), 0x3f82);  // tie, up to even
    EXPECT_EQ(to_bf16(-0.0F), 0x8000);
    EXPECT_EQ(to_bf16(3.4e38F), 0x7f80);
    EXPECT_EQ(to_bf16(0x1p-149F * 40000), 0x0001);  // denormals are kept
    EXPECT_TRUE(std::isnan(from_bf16(to_bf16(std::bit_cast<float>(0x7f800001U)))));
    for (std::uint32_t b = 0; b < 0x10000; ++b) {
        const auto bits = static_cast<std::uint16_t>(b);
        if (std::isnan(from_bf16(bits))) continue;
        ASSERT_EQ(to_bf16(from_bf16(bits)), bits);
    }
}

TEST(bf16, half_precision_values_are_exact) {
    EXPECT_EQ(from_f16(0x3c00), 1.0F);
    EXPECT_EQ(from_f16(0xc000), -2.0F);
    EXPECT_EQ(from_f16(0x0001), 0x1p-24F);
    EXPECT_EQ(from_f16(0x7bff), 65504.0F);
    EXPECT_TRUE(std::isinf(from_f16(0x7c00)));
}

TEST(weights_io, a_written_file_reads_back_to_the_bit) {
    const temp_folder folder;
    const auto specs = parameter_specs(tiny());
    const auto values = ramp(specs);
    const auto written = write_weights(folder / "w", specs, dtype::f32, {{"darl.site", "a"}}, from(values));
    ASSERT_TRUE(written) << to_text(written.error());
    EXPECT_EQ(written->bytes, std::filesystem::file_size(folder / "w"));
    const auto file = formats::safetensors_reader::open(folder / "w");
    ASSERT_TRUE(file);
    EXPECT_EQ(*file->header().meta("darl.site"), "a");
    std::vector<float> again(values.size());
    ASSERT_TRUE(read_weights(*file, specs, again));
    EXPECT_EQ(again, values);
}

TEST(weights_io, bf16_files_hold_the_rounded_values) {
    const temp_folder folder;
    const auto specs = parameter_specs(tiny());
    const auto values = ramp(specs);
    ASSERT_TRUE(write_weights(folder / "w", specs, dtype::bf16, {}, from(values)));
    std::vector<float> again(values.size());
    ASSERT_TRUE(read_weights(*formats::safetensors_reader::open(folder / "w"), specs, again));
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(again[i], from_bf16(to_bf16(values[i])));
}

TEST(weights_io, a_missing_an_extra_and_a_reshaped_tensor_are_named) {
    const temp_folder folder;
    const auto specs = parameter_specs(tiny());
    const auto values = ramp(specs);
    const auto read_as = [&](std::vector<parameter_spec> wanted) {
        std::size_t n = 0;
        for (const auto& spec : wanted) n += static_cast<std::size_t>(spec.elements());
        std::vector<float> out(n);
        return read_weights(*formats::safetensors_reader::open(folder / "w"), wanted, out).error();
    };
    ASSERT_TRUE(write_weights(folder / "w", specs, dtype::f32, {}, from(values)));
    auto more = specs;
    more.push_back({"z.extra", {2}, init_rule::zeros, 0.0, true});
    EXPECT_EQ(read_as(more).code, errc::layout_mismatch);
    EXPECT_NE(read_as(more).context.find("'z.extra' is missing"), std::string::npos);
    auto fewer = specs;
    fewer.pop_back();
    EXPECT_NE(read_as(fewer).context.find("'" + specs.back().name + "' is not part"), std::string::npos);
    auto other = specs;
    other[0].shape = {static_cast<std::int64_t>(specs[0].elements()), 1};
    EXPECT_NE(read_as(other).context.find(specs[0].name), std::string::npos);
}

TEST(weights_io, the_layout_digest_changes_with_name_and_shape_only) {
    auto specs = parameter_specs(tiny());
    const std::string digest = layout_digest(specs);
    EXPECT_EQ(digest.size(), 32U);
    specs[0].init_scale = 7.0;
    EXPECT_EQ(layout_digest(specs), digest);
    specs[0].name += "x";
    EXPECT_NE(layout_digest(specs), digest);
}

TEST(model_folder, export_and_open_give_the_same_weights_in_one_file_or_in_shards) {
    const temp_folder folder;
    auto model = language_model::create(tiny(), 5);
    ASSERT_TRUE(model);
    const std::vector<float> values(model->weights().begin(), model->weights().end());
    ASSERT_TRUE(write_model_folder(folder / "one", tiny(), from(values)));
    ASSERT_TRUE(write_model_folder(folder / "many", tiny(), from(values), 600));
    EXPECT_TRUE(std::filesystem::exists(folder / "many/model.safetensors.index.json"));
    ASSERT_TRUE(export_initial(folder / "seeded", tiny(), 5));
    for (const char* name : {"one", "many", "seeded"}) {
        const auto again = language_model::open(folder / name);
        ASSERT_TRUE(again) << to_text(again.error());
        EXPECT_EQ(std::vector<float>(again->weights().begin(), again->weights().end()), values) << name;
    }
}

TEST(model_folder, export_refuses_a_folder_that_holds_something_and_leaves_nothing_behind) {
    const temp_folder folder;
    std::filesystem::create_directories(folder / "full");
    std::ofstream(folder / "full/x") << "1";
    const auto refused = export_initial(folder / "full", tiny(), 5);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, errc::already_exists);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(language_model, sampling_repeats_for_a_seed_and_follows_the_filter) {
    auto model = language_model::create(tiny(), 5);
    language_model::sampling how;
    how.tokens = 12;
    how.seed = 3;
    const auto a = model->sample({1, 2}, how);
    EXPECT_EQ(*a, *model->sample({1, 2}, how));
    how.seed = 4;
    EXPECT_NE(*a, *model->sample({1, 2}, how));
    const auto few = model->sample({1, 2}, how, [](std::int64_t id) { return id < 3; });
    for (const std::int64_t id : *few) EXPECT_LT(id, 3);
}

TEST(language_model, an_id_outside_the_vocabulary_is_an_error_naming_it) {
    auto model = language_model::create(tiny(), 5);
    const std::int64_t ids[] = {1, 32};
    EXPECT_NE(model->logits(ids).error().context.find("id 32"), std::string::npos);
    EXPECT_FALSE(model->logits({}));
}

}  // namespace
