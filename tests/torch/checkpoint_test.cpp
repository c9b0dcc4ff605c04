// SPDX-License-Identifier: Apache-2.0
#include "backends/torch/checkpoint.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "backends/torch/compute_environment.hpp"
#include "backends/torch/metrics_file.hpp"
#include "backends/torch/schedule.hpp"
#include "temp_folder.hpp"
#include "trainer_fixture.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::training;
using namespace darlcore::test;
namespace fs = std::filesystem;

struct trained {
    trained() : ranks(single_communicator()), trainer(*inner_trainer::create(tiny_settings(), *ranks)) {
        trainer.initialise();
        step();
    }
    void step() {
        const auto data = drawn_windows(4, 9, 64);
        scripted script(groups_of(1, 1));
        ASSERT_TRUE(trainer.train_phase(space(4, 4), *data, script.hooks));
    }
    std::unique_ptr<communicator> ranks;
    inner_trainer trainer;
};

checkpoint_store open_store(const temp_folder& folder, const std::string& incarnation,
                            const std::string& run = "run-1") {
    return *checkpoint_store::open(folder / "ck", run, trained().trainer.layout_digest(), incarnation);
}

std::size_t files_in(const std::string& folder) {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), {}));
}

struct fresh {
    fresh() : ranks(single_communicator()), trainer(*inner_trainer::create(tiny_settings(), *ranks)) {}
    std::unique_ptr<communicator> ranks;
    inner_trainer trainer;
    std::vector<std::string> notes;
};

TEST(checkpoint, moments_age_position_and_the_callers_data_come_back) {
    const temp_folder folder;
    trained t;
    auto store = open_store(folder, "aa");
    ASSERT_TRUE(store.save(t.trainer, json::make_object({{"contribution", "c-1"}})));
    fresh f;
    const auto found = open_store(folder, "bb").restore(f.trainer, f.notes);
    ASSERT_TRUE(found && found->has_value());
    EXPECT_EQ(*(*found)->extra.at("contribution").as_string(), "c-1");
    EXPECT_EQ(f.trainer.position(), t.trainer.position());
    EXPECT_EQ(f.trainer.updates(), t.trainer.updates());
    EXPECT_EQ(copy_of(f.trainer.first_moments()), copy_of(t.trainer.first_moments()));
    EXPECT_EQ(copy_of(f.trainer.second_moments()), copy_of(t.trainer.second_moments()));
}

TEST(checkpoint, an_empty_folder_restores_nothing) {
    const temp_folder folder;
    fresh f;
    const auto found = open_store(folder, "aa").restore(f.trainer, f.notes);
    ASSERT_TRUE(found);
    EXPECT_FALSE(found->has_value());
}

TEST(checkpoint, two_are_kept_and_a_damaged_newest_falls_back_to_the_older_one) {
    const temp_folder folder;
    trained t;
    auto store = open_store(folder, "aa");
    std::string newest;
    for (int i = 0; i < 4; ++i) {
        newest = store.save(t.trainer, json::make_object({{"number", i}}))->name;
        t.step();
    }
    EXPECT_EQ(files_in(folder / "ck"), 4U);
    std::fstream damaged(folder / "ck/" + newest + ".safetensors", std::ios::in | std::ios::out | std::ios::binary);
    damaged.seekp(-1, std::ios::end);
    damaged.put('\x55');
    damaged.close();
    fresh f;
    const auto found = store.restore(f.trainer, f.notes);
    ASSERT_TRUE(found && found->has_value());
    EXPECT_EQ((*found)->extra.at("number").as_i64(), 2);
    ASSERT_EQ(f.notes.size(), 1U);
    EXPECT_NE(f.notes[0].find(newest), std::string::npos);
}

TEST(checkpoint, moments_without_their_last_written_file_do_not_count) {
    const temp_folder folder;
    trained t;
    auto store = open_store(folder, "aa");
    const auto made = store.save(t.trainer, {});
    fs::remove(folder / "ck/" + made->name + ".json");
    fresh f;
    EXPECT_FALSE(store.restore(f.trainer, f.notes)->has_value());
}

TEST(checkpoint, one_of_another_run_is_refused_and_can_be_set_aside) {
    const temp_folder folder;
    trained t;
    ASSERT_TRUE(open_store(folder, "aa").save(t.trainer, {}));
    fresh f;
    const auto refused = open_store(folder, "aa", "run-2").restore(f.trainer, f.notes);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, errc::refused);
    EXPECT_NE(refused.error().context.find("--fresh"), std::string::npos);
    const auto aside = checkpoint_store::set_aside(folder / "ck");
    ASSERT_TRUE(aside);
    EXPECT_EQ(files_in(*aside), 2U);
}

TEST(checkpoint, files_of_an_older_incarnation_stay_until_pruned) {
    const temp_folder folder;
    trained t;
    auto old = open_store(folder, "old");
    ASSERT_TRUE(old.save(t.trainer, {}));
    ASSERT_TRUE(old.save(t.trainer, {}));
    auto young = open_store(folder, "young");
    ASSERT_TRUE(young.save(t.trainer, {}));
    EXPECT_EQ(files_in(folder / "ck"), 6U);
    young.prune();
    EXPECT_EQ(files_in(folder / "ck"), 4U);
    fresh f;
    EXPECT_EQ((*young.restore(f.trainer, f.notes))->incarnation, "young");
}

TEST(schedule, warms_up_holds_decays_and_stays_at_the_floor) {
    const lr_schedule s{1.0, 4, 100, 0.1, 0.1};
    EXPECT_DOUBLE_EQ(learning_rate(s, 0), 0.25);
    EXPECT_DOUBLE_EQ(learning_rate(s, 3), 1.0);
    EXPECT_DOUBLE_EQ(learning_rate(s, 50), 1.0);
    EXPECT_DOUBLE_EQ(learning_rate(s, 90), 1.0);
    EXPECT_NEAR(learning_rate(s, 95), 0.55, 1e-12);
    EXPECT_DOUBLE_EQ(learning_rate(s, 100), 0.1);
    EXPECT_DOUBLE_EQ(learning_rate(s, 5000), 0.1);
    for (std::uint64_t i = 91; i < 100; ++i) EXPECT_LT(learning_rate(s, i), learning_rate(s, i - 1));
}

TEST(schedule, the_digest_tells_any_difference) {
    const lr_schedule s;
    std::vector<lr_schedule> others(5, s);
    others[0].peak *= 1.000001;
    others[1].warmup_steps += 1;
    others[2].total_steps += 1;
    others[3].decay_fraction = 0.2;
    others[4].floor_fraction = 0.2;
    for (const lr_schedule& o : others) EXPECT_NE(schedule_digest(o), schedule_digest(s));
}

TEST(metrics_file, lines_have_stable_keys_and_no_nan_and_stay_after_a_restart) {
    const temp_folder folder;
    for (const char* incarnation : {"aa", "bb"}) {
        auto file = *metrics_file::open(folder / "m.jsonl", {"run", "site", incarnation});
        step_report r;
        r.loss = NAN;
        file.write("step", {3, 4, 5}, step_metrics(r));
        EXPECT_FALSE(file.failed());
    }
    std::ifstream in(folder / "m.jsonl");
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    ASSERT_EQ(lines.size(), 2U);
    const auto first = *json::parse(lines[0]), second = *json::parse(lines[1]);
    for (const char* key : {"time", "run_id", "site", "incarnation", "kind", "generation", "global_step",
                            "tokens_total", "loss", "lr", "grad_norm", "tokens_per_s", "step_s", "data_wait_s"}) {
        EXPECT_TRUE(first.contains(key)) << key;
    }
    EXPECT_TRUE(first.at("loss").is_null());
    EXPECT_EQ(*second.at("incarnation").as_string(), "bb");
}

bool nothing_is_set(std::string_view) { return false; }
bool everything_is_set(std::string_view) { return true; }

TEST(compute_environment, names_the_kernels_when_the_library_does_not_know_the_processor) {
    compute_facts f;
    f.blas_core = "Prescott";
    f.avx2 = f.avx512 = true;
    f.cores = 8;
    const auto has = [&](const std::string& name, const std::string& value) {
        const auto all = worker_environment(f, &nothing_is_set);
        return std::find(all.begin(), all.end(), std::pair(name, value)) != all.end();
    };
    EXPECT_TRUE(has("OPENBLAS_CORETYPE", "SkylakeX"));
    f.avx512 = false;
    EXPECT_TRUE(has("OPENBLAS_CORETYPE", "Haswell"));
    f.blas_core = "SkylakeX";
    EXPECT_FALSE(has("OPENBLAS_CORETYPE", "Haswell"));
    f.workers = 4;
    EXPECT_TRUE(has("OMP_NUM_THREADS", "2"));
    EXPECT_FALSE(has("OMP_WAIT_POLICY", "passive"));
    f.workers = 9;
    EXPECT_TRUE(has("OMP_WAIT_POLICY", "passive"));
    EXPECT_TRUE(worker_environment(f, &everything_is_set).empty());
}

}  // namespace
