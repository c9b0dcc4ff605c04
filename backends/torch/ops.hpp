// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/torch/compat.hpp"

// Differentiable building blocks. Each has a plain body made of libtorch operations (any device and dtype, the twin of
// the tests) and, for f32 on the CPU, a body on our own one-pass kernels. Private to this folder.
namespace darlcore::ops {

/// Switches the own kernels off or on for the whole process; tests compare both ways. Not thread-safe.
void use_own_kernels(bool on);

/// x [R, D], w [D]. Computed in f32, result in x's dtype.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& w, double eps);

/// silu(gate) * up; equal shapes.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

/// Cosines and sines [T, d / 2] of rotary positions 0 to T - 1, computed in f64. Derived, so never part of a layout.
struct rotary_table {
    at::Tensor cos, sin;
};
rotary_table make_rotary_table(std::int64_t positions, std::int64_t head_dim, double theta);

/// x [B, T, H, d] to [B, H, T, d]: RMSNorm over d (when w is defined), then the half-split rotation.
at::Tensor norm_and_rotate(const at::Tensor& x, const at::Tensor& w, const rotary_table& table, double eps);

/// Sum over rows of weight * cross-entropy, as an f64 scalar. hidden [N, D], head [V, D], targets [N] i64, weights [N]
/// f32. Works through the rows in chunks, so the logits of all rows never exist at once.
at::Tensor head_loss_sum(const at::Tensor& hidden, const at::Tensor& head, const at::Tensor& targets,
                         const at::Tensor& weights);

/// Causal attention. q [B, H, T, d], k and v [B, KV, T, d], H a multiple of KV; scale 1 / sqrt(d). Gives [B, H, T, d].
/// Three bodies: libtorch's fused operation where its headers have it, own softmax kernel on f32 CPU tensors, plain
/// softmax in f32.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

/// What this build and device can do; callers decide by it, never by a version.
struct capabilities {
    bool fused_attention = false;
    bool own_kernels = false;
};
capabilities caps(const at::Tensor& like);

}  // namespace darlcore::ops
