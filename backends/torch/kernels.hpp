// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// CPU kernels of the models on plain f32 arrays: one pass where libtorch 1.13 needs several. No libtorch here, so that
// they can be tested and measured alone. All arrays are contiguous and do not overlap unless said. Rows are
// independent; callers split them over threads.
namespace darlcore::kernels {

/// Shape legend: R rows, D row length, T positions, d head size.

/// y = x * r * w with r = 1 / sqrt(mean(x^2) + eps) per row. x, y [R, D]; w [D]; inverse [R] keeps r for the backward
/// pass.
void rms_norm(const float* x, const float* w, double eps, std::int64_t rows, std::int64_t d, float* y, float* inverse);

/// Gradients of rms_norm. g [R, D] in; gx [R, D] out; gw [D] is added to.
void rms_norm_backward(const float* x, const float* w, const float* inverse, const float* g, std::int64_t rows,
                       std::int64_t d, float* gx, float* gw);

/// Half-split rotation of one row: out = (a cos - b sin, b cos + a sin), a and b the halves of x [d]; cos, sin [d / 2].
/// out may be x. `sign` -1 turns back (the backward pass).
void rotate(const float* x, const float* cos, const float* sin, float sign, std::int64_t d, float* out);

/// y = silu(gate) * up, elementwise over n.
void swiglu(const float* gate, const float* up, std::int64_t n, float* y);
void swiglu_backward(const float* gate, const float* up, const float* g, std::int64_t n, float* g_gate, float* g_up);

/// In place on scores [T, T]: row t becomes softmax(scale * row[0..t]), zeros after t.
void causal_softmax(float* scores, float scale, std::int64_t positions);
/// In place on g [T, T]: the gradient of the scores from the gradient of the probabilities p.
void causal_softmax_backward(const float* p, float scale, std::int64_t positions, float* g);

/// Cross-entropy of one row of logits [V] against `target`, times weight; the row becomes weight * (softmax - onehot).
double cross_entropy_row(float* logits, std::int64_t vocab, std::int64_t target, float weight);

/// Sum of squares in f64: blocks of 65 536 elements from the first, 16 interleaved lanes inside, blocks in order (40
/// section 8).
double sum_squares(const float* x, std::int64_t n);

struct adamw_factors {
    float gradient_scale;  ///< clipping and division by tokens in one
    float beta1, beta2;
    float decay;            ///< 1 - lr * weight decay
    float step_size;        ///< lr / (1 - beta1^t)
    float root_correction;  ///< 1 / sqrt(1 - beta2^t)
    float eps;
};

/// Factors of update t = 1, 2, ... in f64, rounded once.
adamw_factors adamw_factors_for(double lr, double beta1, double beta2, double eps, double weight_decay, std::int64_t t,
                                double gradient_scale);

/// One AdamW update over n elements in place; g is cleared for the next step.
/// Source: decoupled weight decay as in libtorch's AdamW, which the tests use as the twin.
void adamw(float* w, float* g, float* m, float* v, std::int64_t n, const adamw_factors& f);

}  // namespace darlcore::kernels
