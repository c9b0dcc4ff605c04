// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>

#include <gtest/gtest.h>

#include "darlcore/hex.hpp"
#include "darlcore/merge/backend_ops.hpp"
#include "darlcore/merge/figures.hpp"
#include "darlcore/merge/model_layout.hpp"
#include "darlcore/testing/outer_step_twin.hpp"
#include "darlcore/testing/property.hpp"
#include "darlcore/testing/tensor_backend_support.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::testing;

TEST(tensor_spec, the_product_of_a_shape_is_checked) {
    EXPECT_EQ(*element_count(std::vector<std::uint64_t>{}), 1U);
    EXPECT_EQ(*element_count(std::vector<std::uint64_t>{3, 0, 5}), 0U);
    EXPECT_EQ(*element_count(std::vector<std::uint64_t>{3, 4}), 12U);
    EXPECT_EQ(element_count(std::vector<std::uint64_t>{1ULL << 32U, 1ULL << 31U}).error().code, errc::overflow);
    EXPECT_EQ(element_count(std::vector<std::uint64_t>{0, 1ULL << 63U}).error().code, errc::overflow);
    EXPECT_EQ(byte_count(1ULL << 61U, dtype::f64).error().code, errc::overflow);
}

TEST(dtype, words_come_back) {
    for (const dtype type : all_dtypes) EXPECT_EQ(dtype_from_word(word(type)), type);
    EXPECT_EQ(dtype_from_word("F32"), std::nullopt);
}

TEST(model_layout, order_is_ascending_unsigned_bytes_of_the_name) {
    const auto layout =
        model_layout::make({{"b", dtype::bf16, {2}}, {"\xc3\xa4", dtype::f32, {}}, {"Z", dtype::f32, {3}}});
    ASSERT_TRUE(layout);
    EXPECT_EQ(layout->specs()[0].name, "Z");
    EXPECT_EQ(layout->specs()[1].name, "b");
    EXPECT_EQ(layout->specs()[2].name, "\xc3\xa4");
    EXPECT_EQ(layout->offset(1), 3U);
    EXPECT_EQ(layout->elements(2), 1U);
    EXPECT_EQ(layout->total_elements(), 6U);
}

TEST(model_layout, the_digest_is_blake2b_of_its_lines_and_ignores_the_type_in_the_file) {
    const auto f32 = model_layout::make({{"b", dtype::f32, {2, 3}}, {"a", dtype::f32, {}}});
    const auto bf16 = model_layout::make({{"a", dtype::bf16, {}}, {"b", dtype::bf16, {2, 3}}});
    EXPECT_EQ(f32->digest(), bf16->digest());
    EXPECT_EQ(f32->digest(), blake2b_of<16>("a:f32:\nb:f32:2,3\n"));
    EXPECT_EQ(model_layout().digest(), blake2b_of<16>(""));
}

TEST(model_layout, each_difference_of_name_or_shape_changes_the_digest) {
    const auto base = model_layout::make({{"a", dtype::f32, {2, 3}}, {"b", dtype::f32, {4}}});
    const std::vector<std::vector<tensor_spec>> others{{{"a", dtype::f32, {3, 2}}, {"b", dtype::f32, {4}}},
                                                       {{"a", dtype::f32, {6}}, {"b", dtype::f32, {4}}},
                                                       {{"a", dtype::f32, {2, 3}}},
                                                       {{"a", dtype::f32, {2, 3}}, {"c", dtype::f32, {4}}}};
    for (const auto& other : others) EXPECT_NE(model_layout::make(other)->digest(), base->digest());
}

TEST(model_layout, what_cannot_be_merged_is_refused) {
    const tensor_spec a{"a", dtype::f32, {1}};
    EXPECT_EQ(model_layout::make({a, a}).error().code, errc::invalid_argument);
    EXPECT_EQ(model_layout::make({{"", dtype::f32, {}}}).error().code, errc::invalid_argument);
    EXPECT_EQ(model_layout::make({{"x\ny:f32:1", dtype::f32, {}}}).error().code, errc::invalid_argument);
    EXPECT_EQ(model_layout::make({{"a", dtype::i64, {1}}}).error().code, errc::unsupported);
    EXPECT_EQ(model_layout::make({{"a", dtype::f32, {1ULL << 61U}}, {"b", dtype::f32, {1}}}).error().code,
              errc::overflow);
}

TEST(outer_policy, the_rule_of_each_situation) {
    outer_policy p;
    using enum step_mode;
    EXPECT_EQ(rule_for(p, 2, true), (step_rule{0.7F, 0.9F, nesterov}));
    EXPECT_EQ(rule_for(p, 2, false), (step_rule{0.7F, 0.9F, nesterov}));
    EXPECT_EQ(rule_for(p, 1, true), (step_rule{1.0F, 0.9F, nesterov}));
    p.first_step = first_step_policy::plain;
    EXPECT_EQ(rule_for(p, 2, false), (step_rule{0.7F, 0.9F, plain}));
    EXPECT_EQ(rule_for(p, 2, true), (step_rule{0.7F, 0.9F, nesterov}));
    EXPECT_EQ(rule_for(p, 1, false), (step_rule{1.0F, 0.9F, plain}));
    p.first_step = first_step_policy::nesterov;
    p.solo = solo_policy::outer;
    EXPECT_EQ(rule_for(p, 1, true), (step_rule{0.7F, 0.9F, nesterov}));
    p.solo = solo_policy::adopt;
    EXPECT_EQ(rule_for(p, 1, true), (step_rule{1.0F, 0.9F, plain}));
    EXPECT_EQ(rule_for(p, 3, true), (step_rule{0.7F, 0.9F, nesterov}));
}

// The numbers that the header of the policies states: w = 1, delta = 1, first merge.
TEST(outer_policy, solo_first_merges_give_the_documented_numbers) {
    struct row {
        solo_policy solo;
        first_step_policy first;
        float v, w;
    };
    const row rows[] = {{solo_policy::full, first_step_policy::nesterov, 2.0F, 2.9F},
                        {solo_policy::outer, first_step_policy::nesterov, 1.7F, 2.33F},
                        {solo_policy::adopt, first_step_policy::nesterov, 2.0F, 2.0F},
                        {solo_policy::full, first_step_policy::plain, 2.0F, 2.0F}};
    for (const row& r : rows) {
        step_case one;
        one.w = host_tensor(dtype::f32, 1);
        one.w.set(0, 1.0F);
        one.deltas = {one.w};
        one.shares = {1.0F};
        one.scales = {1.0F};
        one.rule = rule_for({0.7, 0.9, r.solo, r.first}, 1, false);
        const step_outcome out = reference_step(one);
        EXPECT_FLOAT_EQ(out.v.at(0), r.v) << word(r.solo) << ' ' << word(r.first);
        EXPECT_FLOAT_EQ(out.w.at(0), r.w) << word(r.solo) << ' ' << word(r.first);
    }
}

TEST(outer_policy, words_come_back_and_bad_numbers_are_refused) {
    for (const auto p : {solo_policy::full, solo_policy::outer, solo_policy::adopt})
        EXPECT_EQ(solo_policy_from_word(word(p)), p);
    for (const auto p : {first_step_policy::nesterov, first_step_policy::plain})
        EXPECT_EQ(first_step_policy_from_word(word(p)), p);
    EXPECT_EQ(solo_policy_from_word("none"), std::nullopt);
    EXPECT_TRUE(validate({}));
    EXPECT_TRUE(validate({1.0, 0.0}));
    for (const outer_policy& bad : {outer_policy{0.0, 0.9}, outer_policy{-1.0, 0.9}, outer_policy{std::nan(""), 0.9},
                                    outer_policy{1e39, 0.9}, outer_policy{0.7, 1.0}, outer_policy{0.7, -0.1},
                                    outer_policy{0.7, std::nan("")}, outer_policy{0.7, 1.0 - 1e-12}})
        EXPECT_EQ(validate(bad).error().code, errc::invalid_argument);
}

TEST(outer_policy, shares_are_exact_or_refused) {
    const std::array<std::uint64_t, 2> three_to_one{300, 100};
    EXPECT_EQ(*shares_of(three_to_one), (std::vector<float>{0.75F, 0.25F}));
    EXPECT_EQ(shares_of(std::array<std::uint64_t, 2>{0, 0}).error().code, errc::zero_tokens);
    EXPECT_EQ(shares_of(std::array<std::uint64_t, 2>{1ULL << 52U, 1ULL << 52U}).error().code, errc::overflow);
    EXPECT_TRUE(shares_of(std::array<std::uint64_t, 2>{1ULL << 52U, (1ULL << 52U) - 1}));
    EXPECT_EQ(shares_of(std::array<std::uint64_t, 1>{~0ULL}).error().code, errc::overflow);
    EXPECT_EQ(step_advance(std::array<std::uint64_t, 3>{5, 9, 7}), 9U);
}

TEST(figures, drift_gives_mean_and_max_and_nothing_for_a_model_of_zeros) {
    const std::array<double, 2> norms{0.01, 0.30};
    const auto drift = drift_of(norms, 1.0);
    EXPECT_DOUBLE_EQ(drift->max, 0.30);
    EXPECT_DOUBLE_EQ(drift->mean, 0.155);
    EXPECT_EQ(drift_of(norms, 0.0), std::nullopt);
}

TEST(figures, cosine_needs_two_deltas_that_are_not_zero) {
    EXPECT_EQ(cosine_of(6.0, 2.0, 3.0), 1.0);
    EXPECT_EQ(cosine_of(0.0, 0.0, 3.0), std::nullopt);
}

TEST(scan, pieces_change_no_bit) {
    const host_tensor tensor = arbitrary_tensor(dtype::bf16, 2 * scan_block_elements + 77, 3);
    scan_accumulator whole;
    whole.feed(tensor.view());
    for (const std::uint64_t piece : {1U, 7U, 4096U, 100'000U}) {
        scan_accumulator parts;
        for (std::uint64_t first = 0; first < tensor.elements(); first += piece)
            parts.feed(tensor.view().part(first, std::min(piece, tensor.elements() - first)));
        EXPECT_EQ(parts.finish(), whole.finish()) << piece;
    }
    EXPECT_EQ(scan_accumulator().finish(), delta_scan{});
}

TEST(tensor_view, exactly_equal_views_may_alias_and_overlapping_ones_may_not) {
    std::array<float, 8> memory{};
    const tensor_view all = view_of(std::span(memory));
    EXPECT_TRUE(may_alias(all, all));
    EXPECT_TRUE(may_alias(all.part(0, 4), all.part(4, 4)));
    EXPECT_FALSE(may_alias(all.part(0, 4), all.part(3, 4)));
    EXPECT_FALSE(may_alias(all.part(0, 4), all.part(0, 3)));
    EXPECT_FALSE(overlap(all.part(0, 0), all));
}

TEST(outer_step, arguments_that_break_a_promise_are_not_well_formed) {
    std::array<float, 8> memory{};
    std::array<float, 4> apart{}, delta{};
    const tensor_view all = view_of(std::span(memory));
    const weighted_delta d{view_of(std::span(std::as_const(delta))), 1.0F, 1.0F};
    outer_step_args good;
    good.w = all.part(0, 4);
    good.w_out = all.part(4, 4);
    good.v_out = view_of(std::span(apart));
    good.deltas = std::span(&d, 1);
    EXPECT_TRUE(well_formed(good));
    const auto broken = [&](auto&& spoil) {
        outer_step_args bad = good;
        spoil(bad);
        return !well_formed(bad);
    };
    EXPECT_TRUE(broken([](auto& a) { a.deltas = {}; }));
    EXPECT_TRUE(broken([&](auto& a) { a.w_out = all.part(2, 4); }));
    EXPECT_TRUE(broken([&](auto& a) { a.v_out = a.w_out; }));
    EXPECT_TRUE(broken([&](auto& a) { a.w_out = view_of(std::span(delta)); }));
    EXPECT_TRUE(broken([&](auto& a) { a.w.elements = 3; }));
    EXPECT_TRUE(broken([&](auto& a) { a.v = a.w_out; }));
    EXPECT_FALSE(broken([&](auto& a) { a.w_out = all.part(0, 4); })) << "in place";
}

// SGD with Nesterov momentum on the gradient -Delta, as optimisers write it: m = beta m + g; w -= eta (g + beta m).
double sgd_difference(bool heavy_ball, std::uint64_t seed) {
    bit_source bits(seed);
    const std::size_t n = 50;
    std::vector<float> sgd_w(n), momentum(n);
    step_case one;
    one.w = host_tensor(dtype::f32, n);
    for (std::size_t k = 0; k < n; ++k) one.w.set(k, sgd_w[k] = 0.25F * bits.unit());
    double worst = 0;
    for (int round = 0; round < 50; ++round) {
        one.deltas = {host_tensor(dtype::f32, n)};
        one.shares = {1.0F};
        one.scales = {1.0F};
        for (std::size_t k = 0; k < n; ++k) {
            const float delta = 0.002F * bits.unit();
            one.deltas[0].set(k, delta);
            momentum[k] = 0.9F * momentum[k] - delta;
            sgd_w[k] -= heavy_ball ? 0.7F * momentum[k] : 0.7F * (-delta + 0.9F * momentum[k]);
        }
        one.rule = {0.7F, 0.9F, step_mode::nesterov};
        const step_outcome out = reference_step(one);
        one.w = out.w;
        one.v = out.v;
        for (std::size_t k = 0; k < n; ++k)
            worst = std::max(worst, static_cast<double>(std::fabs(out.w.at(k) - sgd_w[k])));
    }
    return worst;
}

TEST(outer_step, fifty_rounds_equal_sgd_with_nesterov_momentum_and_not_heavy_ball) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        EXPECT_LT(sgd_difference(false, seed), 2e-6) << seed;
        EXPECT_GT(sgd_difference(true, seed), 2e-4) << seed;
    }
}

DARLCORE_PROPERTY(outer_step, eta_one_beta_zero_is_the_weighted_mean_of_the_local_models, 200, (std::uint32_t seed)) {
    bit_source bits(seed);
    std::vector<twin_contribution> used;
    twin_state old{{0.5, -1.25, 3.0}, std::nullopt};
    double tokens = 0;
    for (int i = 0; i < 3; ++i) {
        used.push_back(
            {{static_cast<double>(bits.unit()), static_cast<double>(bits.unit()), static_cast<double>(bits.unit())},
             static_cast<double>(bits.next() % 1000 + 1)});
        tokens += used.back().tokens;
    }
    const twin_state next = twin_outer_step(old, used, 1.0, 0.0, false);
    for (std::size_t k = 0; k < 3; ++k) {
        double mean = 0;
        for (const auto& c : used) mean += c.tokens * (old.w[k] + c.delta[k]) / tokens;
        RC_ASSERT(std::fabs(next.w[k] - mean) < 1e-12);
    }
}

}  // namespace
