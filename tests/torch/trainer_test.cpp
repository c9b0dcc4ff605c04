// SPDX-License-Identifier: Apache-2.0
#include "backends/torch/trainer.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "darlcore/phase.hpp"
#include "temp_folder.hpp"
#include "trainer_fixture.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::training;
using namespace darlcore::test;

struct one_rank {
    explicit one_rank(const trainer_settings& s)
        : ranks(single_communicator()), trainer(*inner_trainer::create(s, *ranks)) {
        trainer.initialise();
    }
    std::unique_ptr<communicator> ranks;
    inner_trainer trainer;
};

TEST(trainer, the_first_loss_is_about_the_log_of_the_vocabulary) {
    trainer_settings s = tiny_settings();
    s.model = *models::flavour("debug-1m");
    s.seq_len = 32;
    one_rank one(s);
    const auto data = drawn_windows(4, 33, 512);
    const auto scored = one.trainer.evaluate(*data, 100);
    EXPECT_NEAR(*scored->loss(), std::log(512.0), 0.1);
    EXPECT_EQ(scored->windows, 4U);
    EXPECT_EQ(scored->tokens, 128U);
}

TEST(trainer, debug_1m_overfits_eight_windows_in_fewer_than_300_steps) {
    trainer_settings s;
    s.model = *models::flavour("debug-1m");
    s.seq_len = 32;
    s.batch = 8;
    s.schedule = {3e-3, 10, 300, 0.1, 0.1};
    one_rank one(s);
    const auto data = drawn_windows(8, 33, 512);
    std::uint64_t steps = 0;
    double loss = 10.0;
    for (std::uint64_t epoch = 0; loss >= 0.1 && epoch < 299; ++epoch) {
        scripted script(groups_of(1, 1));
        const auto phase = one.trainer.train_phase(space(8, 8), *data, script.hooks);
        ASSERT_TRUE(phase) << to_text(phase.error());
        steps += phase->steps;
        loss = phase->last_loss;
        if (epoch == 0) {
            EXPECT_NEAR(loss, 6.238, 0.1);
        }
    }
    EXPECT_LT(loss, 0.1);
    EXPECT_LT(steps, 300U);
}

TEST(trainer, a_phase_trains_every_window_of_its_groups_once_and_ends_ragged) {
    one_rank one(tiny_settings());
    const auto data = drawn_windows(23, 9, 64);
    const auto map = space(23, 4);
    scripted script(groups_of(map->num_blocks(), 2));
    const auto phase = one.trainer.train_phase(map, *data, script.hooks);
    ASSERT_TRUE(phase);
    EXPECT_EQ(phase->ending, phase_ending::finished);
    EXPECT_EQ(phase->windows, 23U);
    EXPECT_EQ(phase->tokens, 23U * 8);
    EXPECT_EQ(phase->steps, 12U);
    EXPECT_EQ(phase->groups, 3U);
    EXPECT_EQ(script.reports.back().windows, 1U);
    EXPECT_EQ(one.trainer.position(), 12U);
    for (std::size_t i = 0; i + 1 < script.reports.size(); ++i) EXPECT_EQ(script.reports[i].windows, 2U);
}

TEST(trainer, groups_count_as_trained_only_after_the_step_that_used_their_last_window) {
    trainer_settings s = tiny_settings();
    s.batch = 3;
    one_rank one(s);
    const auto data = drawn_windows(16, 9, 64);
    const auto map = space(16, 4);
    scripted script(groups_of(4, 1));
    ASSERT_TRUE(one.trainer.train_phase(map, *data, script.hooks));
    std::vector<std::size_t> trained;
    for (const auto& r : script.reports) trained.push_back(r.groups_trained);
    EXPECT_EQ(trained, (std::vector<std::size_t>{0, 1, 2, 3, 3, 4}));
}

TEST(trainer, an_early_end_finishes_the_group_that_a_step_has_begun_and_no_other) {
    trainer_settings s = tiny_settings();
    s.batch = 3;
    one_rank one(s);
    const auto data = drawn_windows(40, 9, 64);
    const auto map = space(40, 4);
    scripted script(groups_of(10, 1));
    // After step 2, six windows are used: group 0 and half of group 1. The earliest end is after group 1: 8 windows.
    script.decide = [](const step_report& r) { return r.step == 2 ? after_step::end_soon : after_step::go_on; };
    const auto phase = one.trainer.train_phase(map, *data, script.hooks);
    ASSERT_TRUE(phase);
    EXPECT_EQ(phase->ending, phase_ending::finished);
    EXPECT_EQ(phase->windows, 8U);
    EXPECT_EQ(phase->groups, 2U);
    EXPECT_EQ(phase->steps, 3U);
}

TEST(trainer, an_early_end_at_a_group_border_stops_at_once) {
    one_rank one(tiny_settings());
    const auto data = drawn_windows(40, 9, 64);
    scripted script(groups_of(10, 1));
    script.decide = [](const step_report& r) { return r.step == 2 ? after_step::end_soon : after_step::go_on; };
    const auto phase = one.trainer.train_phase(space(40, 4), *data, script.hooks);
    EXPECT_EQ(phase->windows, 4U);
    EXPECT_EQ(phase->groups, 1U);
}

TEST(trainer, a_dropped_phase_leaves_the_loaded_weights) {
    one_rank one(tiny_settings());
    const auto before = copy_of(one.trainer.weights());
    const auto data = drawn_windows(40, 9, 64);
    scripted script(groups_of(10, 1));
    script.decide = [](const step_report& r) { return r.step == 3 ? after_step::drop : after_step::go_on; };
    const auto phase = one.trainer.train_phase(space(40, 4), *data, script.hooks);
    EXPECT_EQ(phase->ending, phase_ending::dropped);
    EXPECT_EQ(copy_of(one.trainer.weights()), before);
}

TEST(trainer, a_phase_without_groups_trains_nothing) {
    one_rank one(tiny_settings());
    const auto data = drawn_windows(4, 9, 64);
    scripted script({});
    const auto phase = one.trainer.train_phase(space(4, 4), *data, script.hooks);
    EXPECT_EQ(phase->ending, phase_ending::finished);
    EXPECT_EQ(phase->steps, 0U);
    EXPECT_EQ(one.trainer.norms().delta, 0.0);
}

TEST(trainer, a_phase_that_is_not_finite_stops_before_the_step_is_applied) {
    const temp_folder folder;
    one_rank good(tiny_settings());
    const std::vector<float> values = copy_of(good.trainer.weights());
    const auto poisoned = [&](std::uint64_t first, std::span<float> out) {
        std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(first), out.size(), out.begin());
        if (first == 0) out[0] = std::numeric_limits<float>::quiet_NaN();
    };
    ASSERT_TRUE(models::write_weights(folder / "g", good.trainer.specs(), dtype::f32, {}, poisoned));
    ASSERT_TRUE(good.trainer.load_generation(folder / "g"));
    const auto data = drawn_windows(64, 9, 64);
    scripted script(groups_of(16, 4));
    const auto phase = good.trainer.train_phase(space(64, 4), *data, script.hooks);
    ASSERT_TRUE(phase);
    EXPECT_EQ(phase->ending, phase_ending::not_finite);
    EXPECT_NE(phase->problem.find("rank 0"), std::string::npos);
    EXPECT_EQ(good.trainer.updates(), phase->steps);
    for (const float m : good.trainer.first_moments()) ASSERT_TRUE(std::isfinite(m));
}

TEST(trainer, a_window_that_cannot_be_read_is_an_error_naming_it) {
    one_rank one(tiny_settings());
    failing_source data(drawn_windows(8, 9, 64));
    data.fail_at = 5;
    scripted script(groups_of(2, 1));
    const auto phase = one.trainer.train_phase(space(8, 4), data, script.hooks);
    ASSERT_FALSE(phase);
    EXPECT_NE(phase.error().context.find("window 5"), std::string::npos);
}

TEST(trainer, data_of_another_shape_is_refused_before_any_step) {
    one_rank one(tiny_settings());
    scripted script(groups_of(2, 1));
    EXPECT_EQ(one.trainer.train_phase(space(8, 4), *drawn_windows(8, 10, 64), script.hooks).error().code,
              errc::invalid_argument);
    EXPECT_EQ(one.trainer.train_phase(space(9, 4), *drawn_windows(8, 9, 64), script.hooks).error().code,
              errc::corpus_mismatch);
    EXPECT_TRUE(script.reports.empty());
}

TEST(trainer, accumulation_gives_the_step_of_the_larger_batch) {
    trainer_settings large = tiny_settings(), small = tiny_settings();
    large.batch = 4;
    small.batch = 1;
    small.accumulate = 4;
    const auto data = drawn_windows(16, 9, 64);
    one_rank a(large), b(small);
    scripted one(groups_of(4, 4)), two(groups_of(4, 4));
    ASSERT_TRUE(a.trainer.train_phase(space(16, 4), *data, one.hooks));
    ASSERT_TRUE(b.trainer.train_phase(space(16, 4), *data, two.hooks));
    ASSERT_EQ(one.reports.size(), two.reports.size());
    for (std::size_t i = 0; i < one.reports.size(); ++i)
        EXPECT_NEAR(one.reports[i].loss, two.reports[i].loss, 1e-5 * one.reports[i].loss);
}

TEST(trainer, the_delta_is_the_difference_to_the_loaded_values) {
    const temp_folder folder;
    one_rank one(tiny_settings());
    // The generation travels as bf16: the delta must not contain its rounding.
    ASSERT_TRUE(one.trainer.write_weights(folder / "wire", dtype::bf16, {}));
    ASSERT_TRUE(one.trainer.load_generation(folder / "wire"));
    ASSERT_TRUE(one.trainer.write_delta(folder / "zero", dtype::f32, {}));
    std::vector<float> delta(one.trainer.weights().size(), 1.0F);
    ASSERT_TRUE(models::read_weights(*formats::safetensors_reader::open(folder / "zero"), one.trainer.specs(), delta));
    for (const float x : delta) ASSERT_EQ(x, 0.0F);

    const auto before = copy_of(one.trainer.weights());
    const auto data = drawn_windows(8, 9, 64);
    scripted script(groups_of(2, 1));
    ASSERT_TRUE(one.trainer.train_phase(space(8, 4), *data, script.hooks));
    ASSERT_TRUE(one.trainer.write_delta(folder / "delta", dtype::f32, {{"darl.tokens", "64"}}));
    const auto file = formats::safetensors_reader::open(folder / "delta");
    EXPECT_EQ(*file->header().meta("darl.tokens"), "64");
    ASSERT_TRUE(models::read_weights(*file, one.trainer.specs(), delta));
    double squares = 0.0;
    for (std::size_t i = 0; i < delta.size(); ++i) {
        ASSERT_EQ(delta[i], one.trainer.weights()[i] - before[i]);
        squares += static_cast<double>(delta[i]) * static_cast<double>(delta[i]);
    }
    EXPECT_NEAR(one.trainer.norms().delta, std::sqrt(squares), 1e-6 * std::sqrt(squares));
}

TEST(trainer, a_restart_between_phases_gives_the_same_bits) {
    const temp_folder folder;
    const auto data = drawn_windows(16, 9, 64);
    const auto run_phase = [&](inner_trainer& t, std::uint64_t first) {
        scripted script({{first, {make_span(first, first + 2)}}});
        ASSERT_TRUE(t.train_phase(space(16, 4), *data, script.hooks));
    };
    one_rank whole(tiny_settings());
    run_phase(whole.trainer, 0);
    ASSERT_TRUE(whole.trainer.write_weights(folder / "g1", dtype::f32, {}));
    ASSERT_TRUE(whole.trainer.load_generation(folder / "g1"));

    one_rank again(tiny_settings());
    again.trainer.restore_moments(whole.trainer.first_moments(), whole.trainer.second_moments(),
                                  whole.trainer.updates());
    again.trainer.set_position(whole.trainer.position());
    ASSERT_TRUE(again.trainer.load_generation(folder / "g1"));
    one_rank cold(tiny_settings());
    cold.trainer.set_position(whole.trainer.position());
    ASSERT_TRUE(cold.trainer.load_generation(folder / "g1"));

    run_phase(whole.trainer, 2);
    run_phase(again.trainer, 2);
    run_phase(cold.trainer, 2);
    EXPECT_EQ(copy_of(again.trainer.weights()), copy_of(whole.trainer.weights()));
    EXPECT_NE(copy_of(cold.trainer.weights()), copy_of(whole.trainer.weights()));
}

TEST(trainer, settings_that_make_no_sense_are_named) {
    const auto ranks = single_communicator();
    trainer_settings s = tiny_settings();
    s.batch = 0;
    EXPECT_NE(inner_trainer::create(s, *ranks).error().context.find("batch"), std::string::npos);
    s = tiny_settings();
    s.schedule.peak = -1;
    EXPECT_FALSE(inner_trainer::create(s, *ranks));
    s = tiny_settings();
    s.model.kv_heads = 3;
    EXPECT_NE(inner_trainer::create(s, *ranks).error().context.find("num_key_value_heads"), std::string::npos);
}

// Runs `body(rank, trainer)` on W threads, each a rank of one site.
template <class Body>
void with_ranks(std::size_t ranks, const trainer_settings& s, const Body& body) {
    auto all = thread_communicators(ranks);
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < ranks; ++r) {
        threads.emplace_back([&, r] {
            inner_trainer t = *inner_trainer::create(s, *all[r]);
            t.initialise();
            body(r, t);
        });
    }
    for (std::thread& t : threads) t.join();
}

std::vector<double> losses_with(std::size_t ranks) {
    trainer_settings s = tiny_settings();
    s.batch = 4 / ranks;
    const auto data = drawn_windows(80, 9, 64);
    const auto map = space(80, 5);
    std::vector<double> losses;
    with_ranks(ranks, s, [&](std::size_t r, inner_trainer& t) {
        scripted script(groups_of(16, 5));
        ASSERT_TRUE(t.train_phase(map, *data, script.hooks));
        if (r != 0) return;
        for (const auto& report : script.reports) losses.push_back(report.loss);
    });
    return losses;
}

TEST(replicated, one_two_and_four_ranks_give_equal_losses_over_twenty_steps) {
    const auto one = losses_with(1), two = losses_with(2), four = losses_with(4);
    ASSERT_EQ(one.size(), 20U);
    ASSERT_EQ(two.size(), 20U);
    ASSERT_EQ(four.size(), 20U);
    for (std::size_t i = 0; i < one.size(); ++i) {
        EXPECT_NEAR(two[i], one[i], 1e-5 * one[i]) << i;
        EXPECT_NEAR(four[i], one[i], 1e-5 * one[i]) << i;
    }
}

TEST(replicated, all_ranks_end_with_the_same_bits_also_after_a_ragged_early_end) {
    std::vector<std::vector<float>> weights(3);
    std::vector<phase_summary> phases(3);
    const auto data = drawn_windows(49, 9, 64);
    const auto map = space(49, 7);
    with_ranks(3, tiny_settings(), [&](std::size_t r, inner_trainer& t) {
        scripted script(groups_of(map->num_blocks(), 1));
        script.decide = [](const step_report& report) {
            return report.step == 3 ? after_step::end_soon : after_step::go_on;
        };
        phases[r] = *t.train_phase(map, *data, script.hooks);
        weights[r] = copy_of(t.weights());
    });
    EXPECT_EQ(weights[1], weights[0]);
    EXPECT_EQ(weights[2], weights[0]);
    EXPECT_EQ(phases[2].groups, 3U);
    EXPECT_EQ(phases[2].windows, phases[0].windows);
}

TEST(replicated, the_score_does_not_depend_on_the_number_of_ranks) {
    const auto data = drawn_windows(13, 9, 64);
    std::vector<double> scores;
    for (const std::size_t ranks : {1U, 2U, 3U}) {
        with_ranks(ranks, tiny_settings(), [&](std::size_t r, inner_trainer& t) {
            const auto scored = t.evaluate(*data, 11);
            if (r != 0) return;
            EXPECT_EQ(scored->windows, 11U);
            scores.push_back(*scored->loss());
        });
    }
    EXPECT_NEAR(scores[1], scores[0], 1e-6);
    EXPECT_NEAR(scores[2], scores[0], 1e-6);
}

TEST(replicated, a_rank_that_cannot_read_ends_the_phase_of_all) {
    const auto map = space(16, 4);
    std::vector<bool> failed(2);
    with_ranks(2, tiny_settings(), [&](std::size_t r, inner_trainer& t) {
        failing_source data(drawn_windows(16, 9, 64));
        const phase_plan plan = *phase_plan::make(map, groups_of(4, 4), {2, 2, 1});
        if (r == 1) data.fail_at = phase_reader(plan).window_at(1);
        scripted script(groups_of(4, 4));
        failed[r] = !t.train_phase(map, data, script.hooks).has_value();
    });
    EXPECT_TRUE(failed[0]);
    EXPECT_TRUE(failed[1]);
}

TEST(evaluation, nothing_scored_is_nothing_and_never_zero) {
    EXPECT_EQ(evaluation{}.loss(), std::nullopt);
    EXPECT_EQ(evaluation{}.perplexity(), std::nullopt);
}

}  // namespace
