// SPDX-License-Identifier: Apache-2.0
#include "backends/torch/optimiser.hpp"

#include <gtest/gtest.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cmath>

#include "backends/torch/kernels.hpp"
#include "backends/torch/ops.hpp"
#include "darlcore/random.hpp"
#include "trainer_fixture.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::training;
using darlcore::models::parameters;

at::Tensor drawn(std::vector<std::int64_t> shape, std::uint32_t seed) {
    const std::uint32_t key[] = {seed};
    mt19937 engine(key);
    at::Tensor t = at::empty(shape, at::kFloat);
    for (std::int64_t i = 0; i < t.numel(); ++i)
        torch_compat::f32(t)[i] = static_cast<float>(engine()) / 2147483648.0F - 1.0F;
    return t;
}

// Ten updates by libtorch's optimiser on one side and ours on the other, with equal gradients.
template <class Twin>
double largest_difference(const optimiser_settings& settings, double lr, const Twin& make_twin) {
    parameters ours(test::tiny_model());
    ours.initialise(3);
    std::vector<at::Tensor> decayed, plain;
    std::vector<at::Tensor> copies;
    for (std::size_t i = 0; i < ours.specs().size(); ++i) {
        copies.push_back(ours.view(i).detach().clone().set_requires_grad(true));
        (ours.specs()[i].decays() ? decayed : plain).push_back(copies.back());
    }
    auto twin = make_twin(decayed, plain);
    optimiser update(settings, ours);
    for (std::uint32_t step = 0; step < 10; ++step) {
        const at::Tensor g = drawn({ours.elements()}, 100 + step);
        ours.gradients().copy_(g * 4.0);
        for (std::size_t i = 0; i < copies.size(); ++i)
            copies[i].mutable_grad() = g.narrow(0, ours.offset(i), copies[i].numel()).view_as(copies[i]).clone();
        update.step(ours, lr, 0.25);
        twin->step();
    }
    double worst = 0.0;
    for (std::size_t i = 0; i < copies.size(); ++i)
        worst = std::max(worst, (copies[i].detach() - ours.view(i).detach()).abs().max().template item<double>());
    EXPECT_EQ(ours.gradients().abs().sum().template item<double>(), 0.0);
    return worst;
}

TEST(optimiser, fused_adamw_follows_the_one_of_libtorch) {
    const auto twin = [](const auto& decayed, const auto& plain) {
        std::vector<torch::optim::OptimizerParamGroup> groups;
        const auto options = [](double decay) {
            return std::make_unique<torch::optim::AdamWOptions>(
                torch::optim::AdamWOptions(1e-2).betas(std::make_tuple(0.9, 0.95)).eps(1e-8).weight_decay(decay));
        };
        groups.emplace_back(decayed, options(0.1));
        groups.emplace_back(plain, options(0.0));
        return std::make_unique<torch::optim::AdamW>(groups, torch::optim::AdamWOptions(1e-2));
    };
    EXPECT_LT(largest_difference({}, 1e-2, twin), 2e-6);
}

TEST(optimiser, sgd_follows_the_one_of_libtorch) {
    optimiser_settings settings;
    settings.kind = optimiser_kind::sgd_nesterov;
    settings.weight_decay = 0.0;
    const auto twin = [](const auto& decayed, const auto& plain) {
        std::vector<at::Tensor> all = decayed;
        all.insert(all.end(), plain.begin(), plain.end());
        return std::make_unique<torch::optim::SGD>(all, torch::optim::SGDOptions(0.05).momentum(0.9).nesterov(true));
    };
    EXPECT_LT(largest_difference(settings, 0.05, twin), 2e-6);
}

TEST(optimiser, the_norm_is_that_of_the_plain_sum) {
    for (const std::int64_t n : {0, 1, 15, 16, 17, 65535, 65536, 65537, 200'000}) {
        const at::Tensor x = drawn({n}, 5);
        const double plain = std::sqrt(x.to(at::kDouble).square().sum().item<double>());
        EXPECT_NEAR(norm_of(x), plain, 1e-12 * plain) << n;
    }
}

// Value and gradients of an operation under both bodies.
struct both_ways {
    std::vector<at::Tensor> own, plain;
};

template <class Operation>
both_ways run_both(std::vector<at::Tensor> inputs, const Operation& operation) {
    both_ways out;
    for (const bool own : {true, false}) {
        ops::use_own_kernels(own);
        for (at::Tensor& t : inputs) t = t.detach().clone().set_requires_grad(true);
        at::Tensor y = operation(inputs);
        // Different factors, so that a gradient that is summed wrongly shows.
        const at::Tensor g = drawn({y.numel()}, 77).view_as(y).to(y.scalar_type());
        (y * g).sum().backward();
        auto& side = own ? out.own : out.plain;
        side.push_back(y.detach());
        for (const at::Tensor& t : inputs) side.push_back(t.grad());
    }
    ops::use_own_kernels(true);
    return out;
}

void expect_equal(const both_ways& r, double tolerance) {
    for (std::size_t i = 0; i < r.own.size(); ++i) {
        const double scale = r.plain[i].abs().max().item<double>();
        EXPECT_LT((r.own[i] - r.plain[i]).abs().max().item<double>(), tolerance * std::max(scale, 1.0)) << i;
    }
}

TEST(own_kernels, equal_plain_operations_in_value_and_gradient_for_odd_sizes) {
    for (const std::int64_t d : {2, 8, 30, 32, 34, 130}) {
        expect_equal(run_both({drawn({7, d}, 1), drawn({d}, 2)},
                              [](const auto& in) { return ops::rms_norm(in[0], in[1], 1e-6); }),
                     2e-6);
        expect_equal(run_both({drawn({5, d}, 1) * 4, drawn({5, d}, 2)},
                              [](const auto& in) { return ops::swiglu(in[0], in[1]); }),
                     2e-6);
        const auto table = ops::make_rotary_table(3, d, 1e4);
        expect_equal(run_both({drawn({2, 3, 4, d}, 1), drawn({d}, 2)},
                              [&](const auto& in) { return ops::norm_and_rotate(in[0], in[1], table, 1e-6); }),
                     4e-6);
        expect_equal(run_both({drawn({2, 3, 4, d}, 1)},
                              [&](const auto& in) { return ops::norm_and_rotate(in[0], at::Tensor(), table, 1e-6); }),
                     4e-6);
    }
}

TEST(own_kernels, attention_equals_plain_softmax_with_and_without_shared_heads) {
    for (const std::int64_t t : {1, 2, 15, 16, 17, 40}) {
        for (const std::int64_t kv : {1, 2, 4}) {
            expect_equal(run_both({drawn({2, 4, t, 8}, 1) * 3, drawn({2, kv, t, 8}, 2) * 3, drawn({2, kv, t, 8}, 3)},
                                  [](const auto& in) { return ops::attention(in[0], in[1], in[2]); }),
                         4e-6);
        }
    }
}

TEST(own_kernels, a_later_position_never_changes_an_earlier_output) {
    const at::NoGradGuard guard;
    const at::Tensor q = drawn({1, 2, 9, 8}, 1), k = drawn({1, 1, 9, 8}, 2), v = drawn({1, 1, 9, 8}, 3);
    const at::Tensor before = ops::attention(q, k, v);
    k.narrow(2, 8, 1).fill_(50.0);
    v.narrow(2, 8, 1).fill_(50.0);
    EXPECT_TRUE(at::equal(ops::attention(q, k, v).narrow(2, 0, 8), before.narrow(2, 0, 8)));
}

TEST(own_kernels, cross_entropy_in_chunks_equals_the_plain_one_and_filler_rows_weigh_nothing) {
    const at::Tensor targets = at::arange(0, 1100, at::kLong).remainder(37);
    at::Tensor weights = at::ones({1100}, at::kFloat);
    weights.narrow(0, 900, 200).zero_();
    const auto loss = [&](const auto& in) { return ops::head_loss_sum(in[0], in[1], targets, weights); };
    const auto r = run_both({drawn({1100, 6}, 1) * 5, drawn({37, 6}, 2)}, loss);
    expect_equal(r, 4e-6);
    EXPECT_EQ(r.own[1].narrow(0, 900, 200).abs().sum().item<double>(), 0.0);
}

TEST(own_kernels, extreme_logits_stay_finite) {
    std::vector<float> row{1000.0F, -1000.0F, 0.0F};
    EXPECT_NEAR(kernels::cross_entropy_row(row.data(), 3, 1, 1.0F), 2000.0, 1e-3);
    EXPECT_FLOAT_EQ(row[0], 1.0F);
    EXPECT_FLOAT_EQ(row[1], -1.0F);
    std::vector<float> bad{NAN, 0.0F};
    EXPECT_FALSE(std::isfinite(kernels::cross_entropy_row(bad.data(), 2, 1, 1.0F)));
}

}  // namespace
