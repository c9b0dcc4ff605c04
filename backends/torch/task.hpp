// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "backends/torch/parameters.hpp"
#include "backends/torch/trainer.hpp"

// What the inner loop asks of a model, whatever it is. Private to this folder.
namespace darlcore::training {

class task {
public:
    virtual ~task() = default;
    [[nodiscard]] virtual models::parameters& weights() = 0;
    /// Bytes of a window in the model's form, with ids of `id_bytes` (2 or 4; pictures have none).
    [[nodiscard]] virtual std::size_t window_bytes(std::size_t id_bytes) const = 0;
    /// Predicted positions of a window.
    [[nodiscard]] virtual std::uint64_t window_tokens() const = 0;
    /// batch: `weights.numel()` windows one after the other. Sum of weight * loss over them, f64 scalar, differentiable
    /// in training.
    virtual at::Tensor loss_sum(std::span<const std::byte> batch, const at::Tensor& weights, bool training) = 0;
    /// Windows whose prediction was right, weighted, in the last `loss_sum`; images only.
    [[nodiscard]] virtual double correct() const { return 0.0; }
};

std::unique_ptr<task> make_language_task(const models::model_config& config, std::uint64_t seq_len);
std::unique_ptr<task> make_image_task(const models::model_config& config, double label_smoothing);

}  // namespace darlcore::training
