// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "adapters/formats/json.hpp"
#include "adapters/formats/posix_file.hpp"
#include "backends/torch/decoder.hpp"
#include "backends/torch/kernels.hpp"
#include "backends/torch/weights_io.hpp"

namespace {

using darlcore::json::value;
using namespace darlcore::models;

// One model of the vector files: weights loaded, expected values at hand.
struct vector_model {
    explicit vector_model(const std::string& name) {
        const std::string folder = std::string(DARLCORE_TEST_DATA) + "/models/" + name;
        expected = *darlcore::json::parse(*darlcore::formats::read_text_file(folder + "/expected.json", 1U << 20U));
        weights.emplace(*read_folder_config(folder));
        const auto ok = read_folder_weights(folder, weights->specs(), flat());
        EXPECT_TRUE(ok.has_value()) << to_text(ok.error());
        net.emplace(*weights);
        const value& rows = expected.at("input_ids");
        std::vector<std::int64_t> ids;
        for (const value& row : *rows.as_array())
            for (const value& id : *row.as_array()) ids.push_back(*id.as_i64());
        windows = at::tensor(ids, at::kLong).view({static_cast<std::int64_t>(rows.size()), -1});
        ones = at::ones({windows.size(0)}, at::kFloat);
    }

    [[nodiscard]] std::span<float> flat() {
        return {static_cast<float*>(weights->flat().data_ptr()), static_cast<std::size_t>(weights->elements())};
    }
    [[nodiscard]] double positions() const { return static_cast<double>(windows.size(0) * (windows.size(1) - 1)); }
    // Mean loss; gradients of the mean are left in the flat vector.
    double loss_and_gradients() {
        weights->zero_gradients();
        const at::Tensor loss = net->loss_sum(windows, ones);
        loss.backward();
        weights->gradients().div_(positions());
        return loss.item<double>() / positions();
    }
    double gradient_norm() { return std::sqrt(weights->gradients().to(at::kDouble).square().sum().item<double>()); }

    value expected;
    std::optional<parameters> weights;
    std::optional<decoder> net;
    at::Tensor windows, ones;
};

void expect_sum_and_first(const at::Tensor& tensor, const value& pair, double tolerance, const std::string& name) {
    const at::Tensor wide = tensor.to(at::kDouble).flatten();
    const double sum = pair.at(std::size_t{0}).as_double().value();
    EXPECT_NEAR(wide.abs().sum().item<double>(), sum, tolerance * sum) << name;
    // One element: relative to the mean size, since single elements may be small by cancellation.
    const double scale = sum / static_cast<double>(wide.numel());
    EXPECT_NEAR(wide[0].item<double>(), pair.at(std::size_t{1}).as_double().value(), 10 * tolerance * scale) << name;
}

class vectors : public testing::TestWithParam<std::tuple<std::string, bool>> {
protected:
    void SetUp() override { darlcore::ops::use_own_kernels(std::get<1>(GetParam())); }
    void TearDown() override { darlcore::ops::use_own_kernels(true); }
    vector_model model{std::get<0>(GetParam())};
};

TEST_P(vectors, parameter_and_tensor_counts_agree) {
    EXPECT_EQ(parameter_count(model.weights->config()), model.expected.at("parameters").as_i64());
    EXPECT_EQ(static_cast<std::int64_t>(model.weights->specs().size()), model.expected.at("tensors").as_i64());
}

TEST_P(vectors, logits_agree_with_the_independent_implementation) {
    const at::NoGradGuard guard;
    const at::Tensor logits = model.net->logits(model.windows.narrow(1, 0, model.windows.size(1) - 1));
    const double sum = model.expected.at("logits_abs_sum").as_double().value();
    EXPECT_NEAR(logits.to(at::kDouble).abs().sum().item<double>(), sum, 2e-5 * sum);
    const value& positions = model.expected.at("logits_row0_positions");
    double largest = 0.0, worst = 0.0;
    for (std::size_t i = 0; i < positions.size(); ++i) {
        const value& row = model.expected.at("logits_row0").at(i);
        for (std::size_t j = 0; j < row.size(); ++j) {
            const double wanted = row.at(j).as_double().value();
            const double got = logits[0][*positions.at(i).as_i64()][static_cast<std::int64_t>(j)].item<double>();
            largest = std::max(largest, std::abs(wanted));
            worst = std::max(worst, std::abs(wanted - got));
        }
    }
    EXPECT_LT(worst, 2e-5 * largest);
}

TEST_P(vectors, loss_and_gradients_agree_with_the_independent_implementation) {
    const double wanted = model.expected.at("loss").as_double().value();
    EXPECT_NEAR(model.loss_and_gradients(), wanted, 2e-5 * wanted);
    const double norm = model.expected.at("grad_norm").as_double().value();
    EXPECT_NEAR(model.gradient_norm(), norm, 1e-4 * norm);
    const value& all = model.expected.at("gradients_abs_sum_and_first");
    ASSERT_EQ(all.size(), model.weights->specs().size());
    for (const auto& [name, pair] : *all.as_object())
        expect_sum_and_first(model.weights->at(name).grad(), pair, 1e-4, name);
}

TEST_P(vectors, five_fused_adamw_steps_agree_with_the_independent_implementation) {
    const value& adamw = model.expected.at("adamw");
    const auto clip = adamw.at("clip_norm").as_double();
    std::vector<float> m(model.flat().size()), v(model.flat().size());
    for (std::int64_t step = 1; step <= 5; ++step) {
        const double loss = model.loss_and_gradients();
        const double wanted =
            adamw.at("loss_before_each_step").at(static_cast<std::size_t>(step - 1)).as_double().value();
        EXPECT_NEAR(loss, wanted, 1e-4 * wanted) << step;
        const double norm = model.gradient_norm();
        const double wanted_norm =
            adamw.at("grad_norm_before_clip").at(static_cast<std::size_t>(step - 1)).as_double().value();
        EXPECT_NEAR(norm, wanted_norm, 1e-4 * wanted_norm) << step;
        const double scale = clip && norm > *clip ? *clip / norm : 1.0;
        for (std::size_t i = 0; i < model.weights->specs().size(); ++i) {
            const auto offset = model.weights->offset(i);
            const auto n = model.weights->specs()[i].elements();
            const auto f = darlcore::kernels::adamw_factors_for(
                1e-3, 0.9, 0.95, 1e-8, model.weights->specs()[i].decays() ? 0.1 : 0.0, step, scale);
            darlcore::kernels::adamw(model.flat().data() + offset,
                                     static_cast<float*>(model.weights->gradients().data_ptr()) + offset,
                                     m.data() + offset, v.data() + offset, n, f);
        }
    }
    for (const auto& [name, pair] : *adamw.at("weights_after_abs_sum_and_first").as_object()) {
        // A softmax does not see the biases of the keys: their gradients are rounding noise in f32 (up to the eps of
        // AdamW, which then moves them by parts of the rate) and zero in the f64 of the expectation.
        const double tolerance = name.ends_with("c_attn.bias") ? 5e-4 : 1e-4;
        expect_sum_and_first(model.weights->at(name).detach(), pair, tolerance, name);
    }
}

INSTANTIATE_TEST_SUITE_P(
    models, vectors, testing::Combine(testing::Values("qwen3_tied", "qwen3_untied", "llama", "gpt2"), testing::Bool()),
    [](const auto& one) { return std::get<0>(one.param) + (std::get<1>(one.param) ? "_own_kernels" : "_plain"); });

}  // namespace
