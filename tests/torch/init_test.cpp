// SPDX-License-Identifier: Apache-2.0
#include "backends/torch/init.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "darlcore/digest.hpp"

namespace {

using namespace darlcore::models;

std::vector<float> drawn(const parameter_spec& spec, std::int64_t seed) {
    std::vector<float> out(static_cast<std::size_t>(spec.elements()));
    initialise(spec, seed, out);
    return out;
}

std::string digest(const std::vector<float>& values) {
    const auto* first = reinterpret_cast<const std::uint8_t*>(values.data());
    return darlcore::to_hex(darlcore::sha256_of(std::span<const std::uint8_t>(first, 4 * values.size())));
}

TEST(init, the_bits_of_a_seed_are_pinned) {
    const parameter_spec spec{"model.embed_tokens.weight", {512, 128}, init_rule::normal, 0.02, true};
    EXPECT_EQ(digest(drawn(spec, 42)), "7afef93577158a815bc09d16ed49f1d452682f11e373f01d9204a2abb052f7e2");
}

TEST(init, another_seed_or_another_name_gives_other_values) {
    const parameter_spec a{"a", {64}, init_rule::normal, 1.0, true};
    const parameter_spec b{"b", {64}, init_rule::normal, 1.0, true};
    EXPECT_EQ(drawn(a, 1), drawn(a, 1));
    EXPECT_NE(drawn(a, 1), drawn(a, 2));
    EXPECT_NE(drawn(a, 1), drawn(b, 1));
}

TEST(init, normal_values_have_the_moments_and_tails_of_a_normal_distribution) {
    const parameter_spec spec{"x", {400'000}, init_rule::normal, 0.02, true};
    double m1 = 0, m2 = 0, m4 = 0;
    int beyond = 0;
    for (const float x : drawn(spec, 7)) {
        const double z = static_cast<double>(x) / 0.02;
        m1 += z;
        m2 += z * z;
        m4 += z * z * z * z;
        beyond += std::abs(z) > 1.959964 ? 1 : 0;
    }
    const double n = 400'000;
    EXPECT_NEAR(m1 / n, 0.0, 0.01);
    EXPECT_NEAR(m2 / n, 1.0, 0.01);
    EXPECT_NEAR(m4 / n, 3.0, 0.06);
    EXPECT_NEAR(beyond / n, 0.05, 0.0015);
}

TEST(init, uniform_values_fill_their_range) {
    const parameter_spec spec{"fc", {100'000}, init_rule::uniform, 0.5, true};
    const auto values = drawn(spec, 7);
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    EXPECT_GE(*low, -0.5F);
    EXPECT_LE(*high, 0.5F);
    EXPECT_LT(*low, -0.499F);
    EXPECT_GT(*high, 0.499F);
}

TEST(init, norms_start_at_one_and_biases_at_zero) {
    EXPECT_EQ(drawn({"n", {3}, init_rule::ones, 0.0, true}, 1), (std::vector<float>{1, 1, 1}));
    EXPECT_EQ(drawn({"b", {2}, init_rule::zeros, 0.0, true}, 1), (std::vector<float>{0, 0}));
}

}  // namespace
