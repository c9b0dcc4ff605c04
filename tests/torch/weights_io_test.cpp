// SPDX-License-Identifier: Apache-2.0
#include "backends/torch/weights_io.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "backends/torch/init.hpp"
#include "backends/torch/language_model.hpp"
#include "darlcore/merge/conversions.hpp"
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
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(again[i], f32_from_bf16(bf16_from_f32(values[i])));
}

// A file with one tensor of these bytes.
void write_tensor(const std::string& path, dtype type, std::span<const std::byte> bytes) {
    const std::vector<tensor_spec> specs{{"a", type, {bytes.size() / 2}}};
    auto writer = formats::safetensors_writer::create(path, specs, {}).value();
    writer.write(bytes).value();
    writer.finish().value();
}

TEST(weights_io, every_16_bit_value_is_widened_exactly) {
    const temp_folder folder;
    // more than one part that a thread takes, and a last piece of no whole vector
    std::vector<std::uint16_t> stored((1U << 20U) + (1U << 16U) + 13);
    for (std::size_t i = 0; i < stored.size(); ++i) stored[i] = static_cast<std::uint16_t>(i * 40'503U);
    const std::vector<parameter_spec> specs{
        {"a", {static_cast<std::int64_t>(stored.size())}, init_rule::zeros, 0.0, true}};
    for (const dtype type : {dtype::bf16, dtype::f16}) {
        const std::string path = folder / std::string(word(type));
        write_tensor(path, type, std::as_bytes(std::span(stored)));
        std::vector<float> read(stored.size());
        ASSERT_TRUE(read_weights(*formats::safetensors_reader::open(path), specs, read));
        for (std::size_t i = 0; i < stored.size(); ++i) {
            const float wanted = type == dtype::bf16 ? f32_from_bf16(stored[i]) : f32_from_f16(stored[i]);
            if (std::isnan(wanted)) {
                ASSERT_TRUE(std::isnan(read[i])) << i;
            } else {
                ASSERT_EQ(std::bit_cast<std::uint32_t>(read[i]), std::bit_cast<std::uint32_t>(wanted)) << i;
            }
        }
    }
}

// Threads read parts of the file at once; the error is the one that reading from the front would meet.
TEST(weights_io, a_file_cut_while_it_is_read_is_told_by_its_end) {
    const temp_folder folder;
    const std::vector<std::uint16_t> zeros(5U << 20U);
    write_tensor(folder / "w", dtype::bf16, std::as_bytes(std::span(zeros)));
    const auto file = formats::safetensors_reader::open(folder / "w").value();
    const std::uint64_t end = file.data_begin() + (4U << 20U) - 100;  // late in the second part
    std::filesystem::resize_file(folder / "w", end);
    const std::vector<parameter_spec> specs{
        {"a", {static_cast<std::int64_t>(zeros.size())}, init_rule::zeros, 0.0, true}};
    std::vector<float> read(zeros.size());
    for (int run = 0; run < 20; ++run) {
        const auto seen = read_weights(file, specs, read);
        ASSERT_FALSE(seen);
        EXPECT_EQ(seen.error().code, errc::short_read);
        EXPECT_NE(seen.error().context.find("ends at byte " + std::to_string(end)), std::string::npos)
            << seen.error().context;
    }
}

// A line of /proc/self/status in bytes.
std::uint64_t resident(const std::string& key) {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
        if (line.starts_with(key)) return 1024 * std::stoull(line.substr(key.size()));
    return 0;
}

// The highest resident memory during `work`, less what it was before.
std::uint64_t peak_of(const std::function<void()>& work) {
    std::ofstream("/proc/self/clear_refs") << 5;
    const std::uint64_t before = resident("VmRSS:");
    work();
    return resident("VmHWM:") - std::min(before, resident("VmHWM:"));
}

// Red when a tensor, a file or the model is held twice at any time: the largest tensor alone has 24 MiB.
TEST(weights_io, a_load_takes_the_model_and_one_buffer) {
    if (resident("VmHWM:") == 0) GTEST_SKIP() << "this system tells no peak of resident memory";
    const temp_folder folder;
    constexpr std::uint64_t buffer = std::uint64_t{2} << 20U;  // the threads' own pages in it
    const auto config = flavour("debug-3m", 32'768).value();
    const auto specs = parameter_specs(config);
    const auto model = 4 * static_cast<std::uint64_t>(parameter_count(config));
    const flat_source zeros = [](std::uint64_t, std::span<float> out) { std::fill(out.begin(), out.end(), 0.5F); };
    ASSERT_TRUE(write_weights(folder / "f32", specs, dtype::f32, {}, zeros));
    ASSERT_TRUE(write_weights(folder / "bf16", specs, dtype::bf16, {}, zeros));
    ASSERT_TRUE(write_model_folder(folder / "one", config, zeros));
    ASSERT_TRUE(write_model_folder(folder / "shards", config, zeros, model / 4));
    std::vector<float> flat(model / 4, 1.0F);
    for (const char* name : {"f32", "bf16"}) {
        const auto peak = peak_of(
            [&] { EXPECT_TRUE(read_weights(*formats::safetensors_reader::open(folder / name), specs, flat)) << name; });
        EXPECT_LE(peak, buffer) << name;
    }
    ASSERT_TRUE(language_model::create(tiny(), 1));  // what the library itself takes at its first use
    for (const char* name : {"one", "shards"}) {
        EXPECT_LE(peak_of([&] { EXPECT_TRUE(language_model::open(folder / name)) << name; }), model + buffer) << name;
    }
    EXPECT_GT(peak_of([&] { std::vector<float>(model / 4, 1.0F).swap(flat); }), model / 2) << "the peak is seen";
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
