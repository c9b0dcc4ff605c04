// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <unordered_map>

#include "backends/torch/compat.hpp"
#include "backends/torch/model_spec.hpp"

namespace darlcore::models {

/// Master weights of one model: one flat f32 vector in layout order, its gradients beside it, and a named view per
/// tensor. Flat, because merge, delta, clipping, reduction and optimiser are then single passes over memory. Private to
/// the .cpp files of this folder (it shows libtorch's types).
class parameters {
public:
    /// Zero weights. Preconditions (asserted): the config is valid.
    explicit parameters(const model_config& config, bool with_gradients = true);

    [[nodiscard]] const model_config& config() const { return config_; }
    [[nodiscard]] const std::vector<parameter_spec>& specs() const { return specs_; }
    /// First element of tensor i in the flat vector.
    [[nodiscard]] std::int64_t offset(std::size_t i) const { return offsets_[i]; }
    [[nodiscard]] std::int64_t elements() const { return flat_.numel(); }

    [[nodiscard]] at::Tensor& flat() { return flat_; }
    [[nodiscard]] const at::Tensor& flat() const { return flat_; }
    [[nodiscard]] at::Tensor& gradients() { return gradients_; }

    [[nodiscard]] const at::Tensor& view(std::size_t i) const { return views_[i]; }
    /// Preconditions (asserted): the tensor exists.
    [[nodiscard]] const at::Tensor& at(const std::string& name) const;

    /// The f32 elements of tensor i on the host. Preconditions (asserted): weights are on the CPU.
    [[nodiscard]] std::span<float> host(std::size_t i);

    void initialise(std::int64_t seed);
    void zero_gradients();

private:
    void make_views(bool with_gradients);

    model_config config_;
    std::vector<parameter_spec> specs_;
    std::vector<std::int64_t> offsets_;
    at::Tensor flat_, gradients_;
    std::vector<at::Tensor> views_;
    std::unordered_map<std::string, std::size_t> index_;
};

}  // namespace darlcore::models
