// SPDX-License-Identifier: Apache-2.0
#include "backends/torch/kernels.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "backends/torch/instruction_clones.hpp"

namespace darlcore::kernels {
namespace {

constexpr std::int64_t lanes = 16;
constexpr std::int64_t block = 65536;

// e^x to about 1e-7 relative, in operations that compilers vectorise: x = n ln2 + r, e^r by a polynomial, 2^n by its
// bits.
inline __attribute__((always_inline)) float fast_exp(float x) {
    x = x < -87.0F ? -87.0F : (x > 88.0F ? 88.0F : x);
    const float shifted = x * 1.44269504F + 12582912.0F;  // rounds to the nearest integer in the low mantissa bits
    const float n = shifted - 12582912.0F;
    const float r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
    float p = 1.9875691500e-4F;
    p = p * r + 1.3981999507e-3F;
    p = p * r + 8.3334519073e-3F;
    p = p * r + 4.1665795894e-2F;
    p = p * r + 1.6666665459e-1F;
    p = p * r + 5.0000001201e-1F;
    p = p * r * r + r + 1.0F;
    const std::int32_t power = (std::bit_cast<std::int32_t>(shifted) - 0x4b400000 + 127) << 23;
    return p * std::bit_cast<float>(power);
}

// 1 / (1 + e^-x). In two passes: in one, the compiler follows the clamp's ends through the division, for every element,
// and the division by 1 + e^88 takes the processor's slow path for results below the normal range.
inline __attribute__((always_inline)) void sigmoids(const float* x, float* out) {
    float e[lanes];
    for (std::int64_t j = 0; j < lanes; ++j) e[j] = fast_exp(-x[j]);
    for (std::int64_t j = 0; j < lanes; ++j) out[j] = 1.0F / (1.0F + e[j]);
}

inline __attribute__((always_inline)) float sum_lanes(const float* sums) {
    float total = 0.0F;
    for (std::int64_t j = 0; j < lanes; ++j) total += sums[j];
    return total;
}

inline __attribute__((always_inline)) float dot(const float* a, const float* b, std::int64_t n) {
    float sums[lanes] = {};
    std::int64_t i = 0;
    for (; i + lanes <= n; i += lanes)
        for (std::int64_t j = 0; j < lanes; ++j) sums[j] += a[i + j] * b[i + j];
    for (; i < n; ++i) sums[0] += a[i] * b[i];
    return sum_lanes(sums);
}

inline __attribute__((always_inline)) float max_of(const float* x, std::int64_t n) {
    float best[lanes];
    std::fill(best, best + lanes, x[0]);
    std::int64_t i = 0;
    for (; i + lanes <= n; i += lanes)
        for (std::int64_t j = 0; j < lanes; ++j) best[j] = x[i + j] > best[j] ? x[i + j] : best[j];
    for (; i < n; ++i) best[0] = x[i] > best[0] ? x[i] : best[0];
    return *std::max_element(best, best + lanes);
}

// x becomes e^(scale * x - top); gives the sum.
inline __attribute__((always_inline)) float exp_in_place(float* x, float scale, float top, std::int64_t n) {
    float sums[lanes] = {};
    std::int64_t i = 0;
    for (; i + lanes <= n; i += lanes) {
        for (std::int64_t j = 0; j < lanes; ++j) {
            const float e = fast_exp(scale * x[i + j] - top);
            x[i + j] = e;
            sums[j] += e;
        }
    }
    for (; i < n; ++i) {
        x[i] = fast_exp(scale * x[i] - top);
        sums[0] += x[i];
    }
    return sum_lanes(sums);
}

inline __attribute__((always_inline)) double block_squares(const float* x, std::int64_t n) {
    double sums[lanes] = {};
    std::int64_t i = 0;
    for (; i + lanes <= n; i += lanes)
        for (std::int64_t j = 0; j < lanes; ++j)
            sums[j] += static_cast<double>(x[i + j]) * static_cast<double>(x[i + j]);
    for (std::int64_t j = 0; i < n; ++i, ++j) sums[j] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    double total = 0.0;
    for (std::int64_t j = 0; j < lanes; ++j) total += sums[j];
    return total;
}

}  // namespace

DARLCORE_CLONES void rms_norm(const float* x, const float* w, double eps, std::int64_t rows, std::int64_t d, float* y,
                              float* inverse) {
    for (std::int64_t r = 0; r < rows; ++r, x += d, y += d) {
        const double mean = static_cast<double>(dot(x, x, d)) / static_cast<double>(d);
        const float scale = static_cast<float>(1.0 / std::sqrt(mean + eps));
        for (std::int64_t i = 0; i < d; ++i) y[i] = x[i] * scale * w[i];
        inverse[r] = scale;
    }
}

DARLCORE_CLONES void rms_norm_backward(const float* x, const float* w, const float* inverse, const float* g,
                                       std::int64_t rows, std::int64_t d, float* gx, float* gw) {
    for (std::int64_t r = 0; r < rows; ++r, x += d, g += d, gx += d) {
        const float scale = inverse[r];
        for (std::int64_t i = 0; i < d; ++i) {
            gw[i] += g[i] * x[i] * scale;
            gx[i] = g[i] * w[i];
        }
        const float along = dot(gx, x, d) * scale * scale * scale / static_cast<float>(d);
        for (std::int64_t i = 0; i < d; ++i) gx[i] = gx[i] * scale - x[i] * along;
    }
}

DARLCORE_CLONES void rotate(const float* x, const float* cos, const float* sin, float sign, std::int64_t d,
                            float* out) {
    const std::int64_t half = d / 2;
    for (std::int64_t i = 0; i < half; ++i) {
        const float a = x[i];
        const float b = x[i + half];
        const float s = sign * sin[i];
        out[i] = a * cos[i] - b * s;
        out[i + half] = b * cos[i] + a * s;
    }
}

DARLCORE_CLONES void swiglu(const float* gate, const float* up, std::int64_t n, float* y) {
    float s[lanes];
    std::int64_t i = 0;
    for (; i + lanes <= n; i += lanes) {
        sigmoids(gate + i, s);
        for (std::int64_t j = 0; j < lanes; ++j) y[i + j] = gate[i + j] * s[j] * up[i + j];
    }
    for (; i < n; ++i) y[i] = gate[i] / (1.0F + fast_exp(-gate[i])) * up[i];
}

DARLCORE_CLONES void swiglu_backward(const float* gate, const float* up, const float* g, std::int64_t n, float* g_gate,
                                     float* g_up) {
    float s[lanes];
    std::int64_t i = 0;
    for (; i + lanes <= n; i += lanes) {
        sigmoids(gate + i, s);
        for (std::int64_t j = 0; j < lanes; ++j) {
            const float silu = gate[i + j] * s[j];
            g_up[i + j] = g[i + j] * silu;
            g_gate[i + j] = g[i + j] * up[i + j] * (s[j] + silu * (1.0F - s[j]));
        }
    }
    for (; i < n; ++i) {
        const float sigmoid = 1.0F / (1.0F + fast_exp(-gate[i]));
        const float silu = gate[i] * sigmoid;
        g_up[i] = g[i] * silu;
        g_gate[i] = g[i] * up[i] * (sigmoid + silu * (1.0F - sigmoid));
    }
}

DARLCORE_CLONES void causal_softmax(float* scores, float scale, std::int64_t positions) {
    for (std::int64_t t = 0; t < positions; ++t) {
        float* row = scores + t * positions;
        const std::int64_t n = t + 1;
        const float top = scale * max_of(row, n);
        const float inverse = 1.0F / exp_in_place(row, scale, top, n);
        for (std::int64_t i = 0; i < n; ++i) row[i] *= inverse;
        std::fill(row + n, row + positions, 0.0F);
    }
}

DARLCORE_CLONES void causal_softmax_backward(const float* p, float scale, std::int64_t positions, float* g) {
    for (std::int64_t t = 0; t < positions; ++t) {
        const float* row = p + t * positions;
        float* out = g + t * positions;
        const std::int64_t n = t + 1;
        const float along = dot(row, out, n);
        for (std::int64_t i = 0; i < n; ++i) out[i] = scale * row[i] * (out[i] - along);
        std::fill(out + n, out + positions, 0.0F);
    }
}

DARLCORE_CLONES double cross_entropy_row(float* logits, std::int64_t vocab, std::int64_t target, float weight) {
    const float top = max_of(logits, vocab);
    const float chosen = logits[target];
    const float sum = exp_in_place(logits, 1.0F, top, vocab);
    const float factor = weight / sum;
    for (std::int64_t i = 0; i < vocab; ++i) logits[i] *= factor;
    logits[target] -= weight;
    const double loss = std::log(static_cast<double>(sum)) + static_cast<double>(top) - static_cast<double>(chosen);
    return static_cast<double>(weight) * loss;
}

DARLCORE_CLONES double sum_squares(const float* x, std::int64_t n) {
    double total = 0.0;
    for (std::int64_t i = 0; i < n; i += block) total += block_squares(x + i, std::min(block, n - i));
    return total;
}

adamw_factors adamw_factors_for(double lr, double beta1, double beta2, double eps, double weight_decay, std::int64_t t,
                                double gradient_scale) {
    const auto steps = static_cast<double>(t);
    return {static_cast<float>(gradient_scale),
            static_cast<float>(beta1),
            static_cast<float>(beta2),
            static_cast<float>(1.0 - lr * weight_decay),
            static_cast<float>(lr / (1.0 - std::pow(beta1, steps))),
            static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(beta2, steps))),
            static_cast<float>(eps)};
}

DARLCORE_CLONES void adamw(float* w, float* g, float* m, float* v, std::int64_t n, const adamw_factors& f) {
    const float keep1 = 1.0F - f.beta1;
    const float keep2 = 1.0F - f.beta2;
    const adamw_factors k = f;
    for (std::int64_t i = 0; i < n; ++i) {
        const float gi = g[i] * k.gradient_scale;
        const float mi = k.beta1 * m[i] + keep1 * gi;
        const float vi = k.beta2 * v[i] + keep2 * gi * gi;
        m[i] = mi;
        v[i] = vi;
        w[i] = w[i] * k.decay - k.step_size * mi / (std::sqrt(vi) * k.root_correction + k.eps);
        g[i] = 0.0F;
    }
}

}  // namespace darlcore::kernels
