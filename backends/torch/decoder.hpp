// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>

#include "backends/torch/ops.hpp"
#include "backends/torch/parameters.hpp"

namespace darlcore::models {

/// The mathematics of qwen3, llama and gpt2 over a set of named weights. Holds derived tables, owns no weights.
/// Private to this folder.
class decoder {
public:
    /// Preconditions (asserted): the weights are those of a decoder; they outlive this object.
    explicit decoder(const parameters& weights);

    /// ids [B, T] i64 to hidden states [B * T, D], after the last norm.
    at::Tensor hidden(const at::Tensor& ids);
    /// Weights of the output layer [V, D]; the embedding when tied.
    [[nodiscard]] const at::Tensor& head() const { return *head_; }
    /// ids [B, T] to logits [B, T, V] in f32.
    at::Tensor logits(const at::Tensor& ids);
    /// windows [B, T + 1] i64, weights [B] f32: sum over windows of weight * sum of cross-entropies over the T
    /// predicted positions, f64.
    at::Tensor loss_sum(const at::Tensor& windows, const at::Tensor& weights);

    /// Dtype of the matrix products; f32 unless set. Masters stay f32.
    void set_compute_dtype(at::ScalarType dtype) { compute_dtype_ = dtype; }

private:
    struct rotary_layer {
        const at::Tensor *input_norm, *q, *k, *v, *o, *q_norm, *k_norm, *post_norm, *gate, *up, *down;
    };
    struct affine {
        const at::Tensor *weight, *bias;
    };
    struct gpt2_layer {
        affine norm1, attention, projection, norm2, widen, narrow;
    };

    void bind_rotary();
    void bind_gpt2();
    at::Tensor rotary_hidden(const at::Tensor& ids);
    at::Tensor gpt2_hidden(const at::Tensor& ids);
    at::Tensor rotary_attention(const rotary_layer& layer, const at::Tensor& x, std::int64_t b, std::int64_t t);
    at::Tensor gpt2_attention(const gpt2_layer& layer, const at::Tensor& x, std::int64_t b, std::int64_t t);
    const ops::rotary_table& table(std::int64_t positions);
    [[nodiscard]] at::Tensor linear(const at::Tensor& x, const at::Tensor& w) const;
    [[nodiscard]] at::Tensor linear_added(const at::Tensor& onto, const at::Tensor& x, const at::Tensor& w) const;

    const parameters& weights_;
    const model_config& config_;
    const at::Tensor* embedding_ = nullptr;
    const at::Tensor* positions_ = nullptr;
    const at::Tensor* head_ = nullptr;
    const at::Tensor* last_norm_ = nullptr;
    affine last_affine_{};
    std::vector<rotary_layer> rotary_layers_;
    std::vector<gpt2_layer> gpt2_layers_;
    std::map<std::int64_t, ops::rotary_table> tables_;
    at::ScalarType compute_dtype_ = at::kFloat;
};

}  // namespace darlcore::models
