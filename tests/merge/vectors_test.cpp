// SPDX-License-Identifier: Apache-2.0
#include "darlcore/testing/odd_tensor_backend.hpp"
#include "tests/merge/outer_step_vectors.hpp"

namespace {

using namespace darlcore;

TEST(outer_step_vectors, every_case_holds_on_the_composed_odd_backend) {
    darlcore::testing::odd_tensor_backend<false> backend;
    EXPECT_EQ(vectors::run_cases(backend), 24U);
}

TEST(outer_step_vectors, every_case_holds_on_the_odd_backend_that_takes_one_delta_at_a_time) {
    darlcore::testing::odd_tensor_backend<true> backend;
    EXPECT_EQ(vectors::run_cases(backend), 24U);
}

TEST(outer_step_vectors, conversions_to_the_bit) {
    const auto file = vectors::load();
    const auto& table = file.at("conversions");
    ASSERT_GE(table.at("f32_to_bf16").size(), 20U);
    for (const auto& row : *table.at("f32_to_bf16").as_array())
        EXPECT_EQ(bf16_bits_from_f32(vectors::hex_word(row.at("f32"))), vectors::hex_word(row.at("bf16")))
            << *row.at("f32").as_string();
    for (const auto& row : *table.at("f32_to_f16").as_array())
        EXPECT_EQ(f16_bits_from_f32(vectors::hex_word(row.at("f32"))), vectors::hex_word(row.at("f16")))
            << *row.at("f32").as_string();
}

TEST(outer_step_vectors, agreement_figures) {
    const auto file = vectors::load();
    for (const auto& one : *file.at("agreement").as_array()) {
        const std::string about = *one.at("about").as_string();
        std::vector<darlcore::testing::twin_contribution> twins;
        std::vector<double> norms, shares;
        double tokens = 0;
        for (const auto& t : *one.at("tokens").as_array()) tokens += vectors::number(t);
        for (std::size_t i = 0; i < one.at("deltas").size(); ++i) {
            twins.push_back({vectors::numbers(one.at("deltas").at(i)), vectors::number(one.at("tokens").at(i))});
            norms.push_back(vectors::norm_of(twins.back().delta));
            shares.push_back(twins.back().tokens / tokens);
        }
        const double mean = vectors::norm_of(darlcore::testing::twin_mean_delta(twins, twins[0].delta.size()));
        const auto figures = agreement_of(norms, shares, mean);
        const auto& expect = one.at("expect");
        vectors::expect_near(figures.orthogonal_floor, vectors::number(expect.at("orthogonal_floor")), about);
        ASSERT_EQ(figures.overall.has_value(), !expect.at("agreement").is_null()) << about;
        if (figures.overall) vectors::expect_near(*figures.overall, vectors::number(expect.at("agreement")), about);
        for (std::size_t i = 0; i < figures.per_site.size(); ++i) {
            const auto& expected = expect.at("per_site").at(i);
            ASSERT_EQ(figures.per_site[i].has_value(), !expected.is_null()) << about;
            if (figures.per_site[i]) vectors::expect_near(*figures.per_site[i], vectors::number(expected), about);
        }
    }
}

}  // namespace
