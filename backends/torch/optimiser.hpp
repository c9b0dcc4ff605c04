// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/torch/parameters.hpp"

namespace darlcore::training {

enum class optimiser_kind : std::uint8_t { adamw, sgd_nesterov };

struct optimiser_settings {
    optimiser_kind kind = optimiser_kind::adamw;
    double beta1 = 0.9;  ///< also the momentum of SGD
    double beta2 = 0.95;
    double eps = 1e-8;
    double weight_decay = 0.1;  ///< on matrices only
};

/// Updates the flat master weights in place. Moments are f32 and belong to a site: they are never averaged.
/// Private to this folder.
class optimiser {
public:
    optimiser(const optimiser_settings& settings, const models::parameters& weights);

    /// One update with gradients * gradient_scale; the gradients are cleared.
    void step(models::parameters& weights, double lr, double gradient_scale);

    /// Updates since the moments were cold; the t of the bias correction.
    [[nodiscard]] std::int64_t updates() const { return updates_; }
    void set_updates(std::int64_t n) { updates_ = n; }
    [[nodiscard]] at::Tensor& first() { return first_; }
    [[nodiscard]] at::Tensor& second() { return second_; }  ///< undefined for SGD
    void cool();

private:
    // Neighbouring tensors with equal treatment are one run of the flat vector.
    struct run {
        std::int64_t begin, end;
        bool decays;
    };
    void step_run(models::parameters& weights, const run& r, double lr, double gradient_scale);

    optimiser_settings settings_;
    std::vector<run> runs_;
    at::Tensor first_, second_;
    std::int64_t updates_ = 0;
};

/// Square root of the sum of squares of a flat f32 vector, in f64; independent of the number of threads.
double norm_of(const at::Tensor& flat);

}  // namespace darlcore::training
