// SPDX-License-Identifier: Apache-2.0
#include "backends/torch/ops.hpp"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <vector>

#include "backends/torch/kernels.hpp"

namespace darlcore::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;
using torch_compat::const_f32;
using torch_compat::f32;

bool own_kernels_on = true;

// Rows per task, so that a task is worth its start.
std::int64_t grain(std::int64_t row_length) {
    return std::max<std::int64_t>(1, 32768 / std::max<std::int64_t>(row_length, 1));
}

struct rms_norm_function : torch::autograd::Function<rms_norm_function> {
    static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& w, double eps) {
        const std::int64_t rows = x.size(0), d = x.size(1);
        const at::Tensor y = at::empty_like(x);
        const at::Tensor inverse = at::empty({rows}, x.options());
        const float* in = const_f32(x);
        const float* weight = const_f32(w);
        float *out = f32(y), *inv = f32(inverse);
        at::parallel_for(0, rows, grain(d), [&](std::int64_t begin, std::int64_t end) {
            kernels::rms_norm(in + begin * d, weight, eps, end - begin, d, out + begin * d, inv + begin);
        });
        context->save_for_backward({x, w, inverse});
        return y;
    }

    static tensor_list backward(AutogradContext* context, tensor_list gradients) {
        const auto saved = context->get_saved_variables();
        const at::Tensor g = gradients[0].contiguous();
        const std::int64_t rows = g.size(0), d = g.size(1);
        const at::Tensor gx = at::empty_like(g);
        const at::Tensor gw = at::zeros_like(saved[1]);
        const float *x = const_f32(saved[0]), *w = const_f32(saved[1]), *inv = const_f32(saved[2]), *in = const_f32(g);
        float *out = f32(gx), *total = f32(gw);
        std::mutex adding;
        at::parallel_for(0, rows, grain(d), [&](std::int64_t begin, std::int64_t end) {
            std::vector<float> part(static_cast<std::size_t>(d), 0.0F);
            kernels::rms_norm_backward(x + begin * d, w, inv + begin, in + begin * d, end - begin, d, out + begin * d,
                                       part.data());
            const std::lock_guard<std::mutex> lock(adding);
            for (std::int64_t i = 0; i < d; ++i) total[i] += part[static_cast<std::size_t>(i)];
        });
        return {gx, gw, at::Tensor()};
    }
};

struct swiglu_function : torch::autograd::Function<swiglu_function> {
    static at::Tensor forward(AutogradContext* context, const at::Tensor& gate, const at::Tensor& up) {
        const at::Tensor y = at::empty_like(gate);
        const float *a = const_f32(gate), *b = const_f32(up);
        float* out = f32(y);
        at::parallel_for(0, gate.numel(), 16384, [&](std::int64_t begin, std::int64_t end) {
            kernels::swiglu(a + begin, b + begin, end - begin, out + begin);
        });
        context->save_for_backward({gate, up});
        return y;
    }

    static tensor_list backward(AutogradContext* context, tensor_list gradients) {
        const auto saved = context->get_saved_variables();
        const at::Tensor g = gradients[0].contiguous();
        const at::Tensor g_gate = at::empty_like(g), g_up = at::empty_like(g);
        const float *a = const_f32(saved[0]), *b = const_f32(saved[1]), *in = const_f32(g);
        float *out_gate = f32(g_gate), *out_up = f32(g_up);
        at::parallel_for(0, g.numel(), 16384, [&](std::int64_t begin, std::int64_t end) {
            kernels::swiglu_backward(a + begin, b + begin, in + begin, end - begin, out_gate + begin, out_up + begin);
        });
        return {g_gate, g_up};
    }
};

// Places of one position in [B, T, H, d] and [B, H, T, d].
struct head_places {
    std::int64_t b, t, h, d;
    [[nodiscard]] std::int64_t in(std::int64_t i, std::int64_t head) const { return (i * h + head) * d; }
    [[nodiscard]] std::int64_t out(std::int64_t i, std::int64_t head) const {
        return (((i / t) * h + head) * t + i % t) * d;
    }
};

struct norm_rotate_function : torch::autograd::Function<norm_rotate_function> {
    static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& w, const at::Tensor& cos,
                              const at::Tensor& sin, double eps, bool normed) {
        const head_places at_{x.size(0), x.size(1), x.size(2), x.size(3)};
        const at::Tensor y = at::empty({at_.b, at_.h, at_.t, at_.d}, x.options());
        const at::Tensor inverse = at::empty({normed ? at_.b * at_.t * at_.h : 0}, x.options());
        const float *in = const_f32(x), *weight = normed ? const_f32(w) : nullptr, *c = const_f32(cos),
                    *s = const_f32(sin);
        float *out = f32(y), *inv = f32(inverse);
        at::parallel_for(0, at_.b * at_.t, grain(at_.h * at_.d), [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; ++i) {
                const std::int64_t row = (i % at_.t) * (at_.d / 2);
                for (std::int64_t k = 0; k < at_.h; ++k) {
                    const float* from = in + at_.in(i, k);
                    float* to = out + at_.out(i, k);
                    if (normed) {
                        kernels::rms_norm(from, weight, eps, 1, at_.d, to, inv + i * at_.h + k);
                        from = to;
                    }
                    kernels::rotate(from, c + row, s + row, 1.0F, at_.d, to);
                }
            }
        });
        context->save_for_backward({x, w, cos, sin, inverse});
        context->saved_data["normed"] = normed;
        return y;
    }

    static tensor_list backward(AutogradContext* context, tensor_list gradients) {
        const auto saved = context->get_saved_variables();
        const bool normed = context->saved_data["normed"].toBool();
        const at::Tensor& x = saved[0];
        const head_places at_{x.size(0), x.size(1), x.size(2), x.size(3)};
        const at::Tensor g = gradients[0].contiguous();
        const at::Tensor gx = at::empty_like(x);
        const at::Tensor gw = normed ? at::zeros_like(saved[1]) : at::Tensor();
        const float *in = const_f32(g), *values = const_f32(x), *c = const_f32(saved[2]), *s = const_f32(saved[3]);
        const float *weight = normed ? const_f32(saved[1]) : nullptr, *inv = const_f32(saved[4]);
        float* out = f32(gx);
        std::mutex adding;
        at::parallel_for(0, at_.b * at_.t, grain(at_.h * at_.d), [&](std::int64_t begin, std::int64_t end) {
            std::vector<float> part(static_cast<std::size_t>(at_.d), 0.0F), turned(static_cast<std::size_t>(at_.d));
            for (std::int64_t i = begin; i < end; ++i) {
                const std::int64_t row = (i % at_.t) * (at_.d / 2);
                for (std::int64_t k = 0; k < at_.h; ++k) {
                    float* to = out + at_.in(i, k);
                    kernels::rotate(in + at_.out(i, k), c + row, s + row, -1.0F, at_.d, normed ? turned.data() : to);
                    if (normed) {
                        kernels::rms_norm_backward(values + at_.in(i, k), weight, inv + i * at_.h + k, turned.data(), 1,
                                                   at_.d, to, part.data());
                    }
                }
            }
            if (!normed) return;
            const std::lock_guard<std::mutex> lock(adding);
            for (std::int64_t i = 0; i < at_.d; ++i) f32(gw)[i] += part[static_cast<std::size_t>(i)];
        });
        return {gx, gw, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
    }
};

constexpr std::int64_t loss_chunk_rows = 1024;

// Loss and, in the same pass, both gradients: the logits of a chunk are turned into their own gradient and used at
// once.
struct head_loss_function : torch::autograd::Function<head_loss_function> {
    static at::Tensor forward(AutogradContext* context, const at::Tensor& hidden, const at::Tensor& head,
                              const at::Tensor& targets, const at::Tensor& weights, bool with_gradients) {
        const std::int64_t rows = hidden.size(0), vocab = head.size(0);
        const at::Tensor g_hidden = with_gradients ? at::empty_like(hidden) : at::Tensor();
        const at::Tensor g_head = with_gradients ? at::zeros_like(head) : at::Tensor();
        const auto* target = static_cast<const std::int64_t*>(targets.data_ptr());
        const float* weight = const_f32(weights);
        double total = 0.0;
        for (std::int64_t first = 0; first < rows; first += loss_chunk_rows) {
            const std::int64_t n = std::min(loss_chunk_rows, rows - first);
            const at::Tensor part = hidden.narrow(0, first, n);
            at::Tensor logits = at::mm(part, head.t());
            float* values = f32(logits);
            std::vector<double> losses(static_cast<std::size_t>(n));
            at::parallel_for(0, n, grain(vocab), [&](std::int64_t begin, std::int64_t end) {
                for (std::int64_t i = begin; i < end; ++i)
                    losses[static_cast<std::size_t>(i)] =
                        kernels::cross_entropy_row(values + i * vocab, vocab, target[first + i], weight[first + i]);
            });
            for (const double loss : losses) total += loss;
            if (!with_gradients) continue;
            at::Tensor into = g_hidden.narrow(0, first, n);
            at::mm_out(into, logits, head);
            g_head.addmm_(logits.t(), part);
        }
        if (with_gradients) context->save_for_backward({g_hidden, g_head});
        return at::scalar_tensor(total, at::TensorOptions().dtype(at::kDouble));
    }

    static tensor_list backward(AutogradContext* context, tensor_list g) {
        auto saved = context->get_saved_variables();
        const double factor = g[0].item<double>();
        if (factor != 1.0) {
            for (at::Tensor& t : saved) t.mul_(factor);
        }
        return {saved[0], saved[1], at::Tensor(), at::Tensor(), at::Tensor()};
    }
};

at::Tensor plain_head_loss_sum(const at::Tensor& hidden, const at::Tensor& head, const at::Tensor& targets,
                               const at::Tensor& weights) {
    at::Tensor total = at::zeros({}, hidden.options().dtype(at::kDouble));
    for (std::int64_t first = 0; first < hidden.size(0); first += loss_chunk_rows) {
        const std::int64_t n = std::min(loss_chunk_rows, hidden.size(0) - first);
        const at::Tensor logits = at::mm(hidden.narrow(0, first, n), head.to(hidden.scalar_type()).t()).to(at::kFloat);
        const at::Tensor losses = at::cross_entropy_loss(logits, targets.narrow(0, first, n), {}, at::Reduction::None);
        total = total + (losses * weights.narrow(0, first, n)).to(at::kDouble).sum();
    }
    return total;
}

}  // namespace

void use_own_kernels(bool on) { own_kernels_on = on; }

capabilities caps(const at::Tensor& like) {
    capabilities c;
    c.own_kernels = own_kernels_on && like.is_cpu() && like.scalar_type() == at::kFloat;
    c.fused_attention = DARLCORE_TORCH_HAS_SDPA != 0 && own_kernels_on;
    return c;
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& w, double eps) {
    if (caps(x).own_kernels && x.dim() == 2) return rms_norm_function::apply(x.contiguous(), w, eps);
    const at::Tensor wide = x.to(at::kFloat);
    const at::Tensor inverse = at::rsqrt(wide.mul(wide).mean(-1, true) + eps);
    return (wide * inverse * w).to(x.scalar_type());
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
    if (caps(gate).own_kernels) return swiglu_function::apply(gate.contiguous(), up.contiguous());
    return at::silu(gate) * up;
}

rotary_table make_rotary_table(std::int64_t positions, std::int64_t head_dim, double theta) {
    const std::int64_t half = head_dim / 2;
    rotary_table table{at::empty({positions, half}, at::kFloat), at::empty({positions, half}, at::kFloat)};
    for (std::int64_t i = 0; i < half; ++i) {
        const double frequency = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
        for (std::int64_t t = 0; t < positions; ++t) {
            const double angle = static_cast<double>(t) * frequency;
            f32(table.cos)[t * half + i] = static_cast<float>(std::cos(angle));
            f32(table.sin)[t * half + i] = static_cast<float>(std::sin(angle));
        }
    }
    return table;
}

at::Tensor norm_and_rotate(const at::Tensor& x, const at::Tensor& w, const rotary_table& table, double eps) {
    const bool normed = w.defined();
    if (caps(x).own_kernels) {
        // An undefined tensor cannot be saved, so the table stands in for the absent weight.
        return norm_rotate_function::apply(x.contiguous(), normed ? w : table.cos, table.cos, table.sin, eps, normed);
    }
    const at::Tensor y = (normed ? rms_norm(x, w, eps) : x).transpose(1, 2);
    const std::int64_t half = x.size(3) / 2;
    const at::Tensor cos = table.cos.to(x.options()), sin = table.sin.to(x.options());
    const at::Tensor a = y.narrow(3, 0, half), b = y.narrow(3, half, half);
    return at::cat({a * cos - b * sin, b * cos + a * sin}, 3);
}

at::Tensor head_loss_sum(const at::Tensor& hidden, const at::Tensor& head, const at::Tensor& targets,
                         const at::Tensor& weights) {
    if (!caps(hidden).own_kernels) return plain_head_loss_sum(hidden, head, targets, weights);
    const bool with_gradients = at::GradMode::is_enabled() && (hidden.requires_grad() || head.requires_grad());
    return head_loss_function::apply(hidden.contiguous(), head, targets, weights, with_gradients);
}

}  // namespace darlcore::ops
