// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <zlib.h>

#include <cmath>
#include <fstream>

#include "backends/torch/image_source.hpp"
#include "temp_folder.hpp"
#include "trainer_fixture.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::training;
using namespace darlcore::test;

trainer_settings image_settings() {
    trainer_settings s;
    s.model.kind = models::architecture::resnet18;
    s.seed = 4;
    s.seq_len = 1;
    s.batch = 10;
    s.optimiser = optimiser_choice::sgd_nesterov;
    s.weight_decay = 5e-4;
    s.schedule = {0.256, 1, 100, 1.0, 0.0};
    return s;
}

TEST(resnet18, learns_class_patterns_and_moves_its_running_statistics) {
    const auto ranks = single_communicator();
    auto trainer = *inner_trainer::create(image_settings(), *ranks);
    trainer.initialise();
    const auto data = pattern_source(60, 1), held_out = pattern_source(20, 2);
    const auto map = space(60, 10);
    scripted script({});
    for (int pass = 0; pass < 3; ++pass) {
        for (const phase_group& group : groups_of(6, 2)) script.waiting.push_back(group);
        const auto phase = trainer.train_phase(map, *data, script.hooks);
        ASSERT_TRUE(phase) << to_text(phase.error());
        EXPECT_EQ(phase->windows, 60U);
        EXPECT_EQ(phase->tokens, 60U);
    }
    EXPECT_NEAR(script.reports.front().lr, 0.256 * 10 / 128, 1e-9);
    EXPECT_NEAR(script.reports.front().loss, std::log(10.0), 0.8);
    EXPECT_LT(script.reports.back().loss, 0.8 * script.reports.front().loss);
    const auto score = trainer.evaluate(*held_out, 20);
    ASSERT_TRUE(score);
    EXPECT_EQ(score->windows, 20U);
    EXPECT_LE(score->correct, 20U);

    std::size_t first = 0;
    for (const auto& spec : trainer.specs()) {
        const auto n = static_cast<std::size_t>(spec.elements());
        const auto values = trainer.weights().subspan(first, n);
        if (spec.name.ends_with("running_mean")) {
            EXPECT_TRUE(std::any_of(values.begin(), values.end(), [](float x) { return x != 0.0F; })) << spec.name;
        }
        // What no optimiser touches has cold moments.
        if (!spec.trained) {
            for (const float m : trainer.first_moments().subspan(first, n)) ASSERT_EQ(m, 0.0F);
        }
        first += n;
    }
}

void write_bytes(const std::string& path, const std::vector<std::uint8_t>& bytes) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

TEST(image_source, cifar_records_are_read_and_damaged_ones_named) {
    const temp_folder folder;
    std::vector<std::uint8_t> two(2 * image_record_bytes, 7);
    two[image_record_bytes] = 9;
    write_bytes(folder / "a.bin", two);
    const auto source = cifar10_source({folder / "a.bin", folder / "a.bin"});
    ASSERT_TRUE(source);
    EXPECT_EQ((*source)->num_windows(), 4U);
    std::vector<std::byte> record(image_record_bytes);
    ASSERT_TRUE((*source)->read(3, record));
    EXPECT_EQ(record[0], std::byte{9});
    EXPECT_EQ(record[3072], std::byte{7});
    two[0] = 10;
    write_bytes(folder / "b.bin", two);
    EXPECT_EQ(cifar10_source({folder / "b.bin"}).error().code, errc::corrupt);
    two.pop_back();
    write_bytes(folder / "c.bin", two);
    EXPECT_EQ(cifar10_source({folder / "c.bin"}).error().code, errc::truncated);
    EXPECT_EQ(cifar10_source({folder / "none.bin"}).error().code, errc::not_found);
}

TEST(image_source, idx_images_are_centred_whether_gzipped_or_not) {
    const temp_folder folder;
    std::vector<std::uint8_t> images{0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 28, 0, 0, 0, 28};
    for (int i = 0; i < 2 * 28 * 28; ++i) images.push_back(static_cast<std::uint8_t>(1 + i % 200));
    const std::vector<std::uint8_t> labels{0, 0, 8, 1, 0, 0, 0, 2, 3, 5};
    write_bytes(folder / "labels", labels);
    write_bytes(folder / "plain", images);
    gzFile packed = ::gzopen((folder / "packed.gz").c_str(), "wb");
    ::gzwrite(packed, images.data(), static_cast<unsigned>(images.size()));
    ::gzclose(packed);
    for (const char* name : {"plain", "packed.gz"}) {
        const auto source = idx_source(folder / name, folder / "labels");
        ASSERT_TRUE(source) << to_text(source.error());
        std::vector<std::byte> record(image_record_bytes);
        ASSERT_TRUE((*source)->read(1, record));
        EXPECT_EQ(record[0], std::byte{5});
        EXPECT_EQ(record[1 + 2 * 32 + 1], std::byte{0});
        EXPECT_EQ(record[1 + 2 * 32 + 2], std::byte{static_cast<std::uint8_t>(1 + (28 * 28) % 200)});
        EXPECT_EQ(record[1 + 2 * 1024 + 2 * 32 + 2], record[1 + 2 * 32 + 2]);
    }
    const auto first = idx_source(folder / "plain", folder / "labels", 1);
    ASSERT_TRUE(first) << to_text(first.error());
    EXPECT_EQ((*first)->num_windows(), 1U);
    const auto more = idx_source(folder / "plain", folder / "labels", 3);
    EXPECT_EQ(more.error().code, errc::invalid_argument);
    EXPECT_NE(more.error().context.find("has 2 images, not 3"), std::string::npos);
    EXPECT_EQ(idx_source(folder / "labels", folder / "labels").error().code, errc::parse_error);
    images.pop_back();
    write_bytes(folder / "short", images);
    EXPECT_EQ(idx_source(folder / "short", folder / "labels").error().code, errc::truncated);
}

}  // namespace
