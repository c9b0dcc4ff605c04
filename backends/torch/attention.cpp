// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "backends/torch/kernels.hpp"
#include "backends/torch/ops.hpp"

namespace darlcore::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;
using torch_compat::const_f32;
using torch_compat::f32;

// scores [S, T, T] to causal probabilities; each [T, T] is one head.
struct causal_softmax_function : torch::autograd::Function<causal_softmax_function> {
    static at::Tensor forward(AutogradContext* context, const at::Tensor& scores, double scale) {
        const at::Tensor p = scores.detach().contiguous();  // the caller's product is not needed by anybody else
        const std::int64_t t = p.size(-1);
        float* data = f32(p);
        at::parallel_for(0, p.size(0), 1, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; ++i)
                kernels::causal_softmax(data + i * t * t, static_cast<float>(scale), t);
        });
        context->save_for_backward({p});
        context->saved_data["scale"] = scale;
        return p;
    }

    static tensor_list backward(AutogradContext* context, tensor_list g) {
        const at::Tensor p = context->get_saved_variables()[0];
        const double scale = context->saved_data["scale"].toDouble();
        const at::Tensor out = g[0].clone(at::MemoryFormat::Contiguous);
        const std::int64_t t = p.size(-1);
        const float* probabilities = const_f32(p);
        float* data = f32(out);
        at::parallel_for(0, p.size(0), 1, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; ++i)
                kernels::causal_softmax_backward(probabilities + i * t * t, static_cast<float>(scale), t,
                                                 data + i * t * t);
        });
        return {out, at::Tensor()};
    }
};

at::Tensor plain_causal_softmax(const at::Tensor& scores, double scale) {
    const std::int64_t t = scores.size(-1);
    const at::Tensor later = at::ones({t, t}, scores.options().dtype(at::kBool)).triu(1);
    return at::softmax((scores.to(at::kFloat) * scale).masked_fill(later, -INFINITY), -1).to(scores.scalar_type());
}

#if DARLCORE_TORCH_HAS_SDPA
at::Tensor fused_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    const std::int64_t repeat = q.size(1) / k.size(1);
    const auto spread = [&](const at::Tensor& x) { return repeat == 1 ? x : x.repeat_interleave(repeat, 1); };
    return at::scaled_dot_product_attention(q, spread(k), spread(v), {}, 0.0, true);
}
#endif

}  // namespace

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
#if DARLCORE_TORCH_HAS_SDPA
    if (caps(q).fused_attention) return fused_attention(q, k, v);
#endif
    const std::int64_t b = q.size(0), h = q.size(1), t = q.size(2), d = q.size(3), kv = k.size(1);
    // Heads that share keys are stacked along the rows: one product per key head, keys never repeated in memory.
    const at::Tensor q3 = q.reshape({b * kv, (h / kv) * t, d});
    const at::Tensor k3 = k.reshape({b * kv, t, d});
    const at::Tensor v3 = v.reshape({b * kv, t, d});
    const double scale = 1.0 / std::sqrt(static_cast<double>(d));
    const at::Tensor scores = at::bmm(q3, k3.transpose(1, 2)).view({b * h, t, t});
    const at::Tensor p =
        caps(q).own_kernels ? causal_softmax_function::apply(scores, scale) : plain_causal_softmax(scores, scale);
    return at::bmm(p.view({b * kv, (h / kv) * t, t}), v3).view({b, h, t, d});
}

}  // namespace darlcore::ops
