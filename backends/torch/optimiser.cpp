// SPDX-License-Identifier: Apache-2.0
#include "backends/torch/optimiser.hpp"

#include <cmath>

#include "backends/torch/kernels.hpp"

namespace darlcore::training {
namespace {

constexpr std::int64_t block = 65536;

// The same mathematics in libtorch's operations, for tensors that are not in host memory.
void composed_adamw(const at::Tensor& w, const at::Tensor& g, const at::Tensor& m, const at::Tensor& v,
                    const kernels::adamw_factors& f) {
    const at::Tensor scaled = g * f.gradient_scale;
    m.mul_(f.beta1).add_(scaled, 1.0F - f.beta1);
    v.mul_(f.beta2).addcmul_(scaled, scaled, 1.0F - f.beta2);
    w.mul_(f.decay).addcdiv_(m, v.sqrt().mul_(f.root_correction).add_(f.eps), -f.step_size);
    g.zero_();
}

// As libtorch's SGD with nesterov: the first update sets the buffer to the gradient.
void composed_sgd(const at::Tensor& w, const at::Tensor& g, const at::Tensor& buffer, double lr, double momentum,
                  double decay, double scale) {
    g.mul_(scale);
    if (decay != 0.0) g.add_(w, decay);
    buffer.mul_(momentum).add_(g);
    w.sub_(g.add(buffer, momentum), lr);
    g.zero_();
}

}  // namespace

optimiser::optimiser(const optimiser_settings& settings, const models::parameters& weights)
    : settings_(settings), first_(at::zeros_like(weights.flat())) {
    if (settings.kind == optimiser_kind::adamw) second_ = at::zeros_like(weights.flat());
    for (std::size_t i = 0; i < weights.specs().size(); ++i) {
        const auto& spec = weights.specs()[i];
        if (!spec.trained) continue;
        const std::int64_t begin = weights.offset(i), end = begin + spec.elements();
        if (!runs_.empty() && runs_.back().end == begin && runs_.back().decays == spec.decays())
            runs_.back().end = end;
        else
            runs_.push_back({begin, end, spec.decays()});
    }
}

void optimiser::step(models::parameters& weights, double lr, double gradient_scale) {
    const at::NoGradGuard guard;
    ++updates_;
    for (const run& r : runs_) step_run(weights, r, lr, gradient_scale);
}

void optimiser::step_run(models::parameters& weights, const run& r, double lr, double gradient_scale) {
    const double decay = r.decays ? settings_.weight_decay : 0.0;
    const auto part = [&](const at::Tensor& t) { return t.narrow(0, r.begin, r.end - r.begin); };
    if (settings_.kind == optimiser_kind::sgd_nesterov) {
        composed_sgd(part(weights.flat()), part(weights.gradients()), part(first_), lr, settings_.beta1, decay,
                     gradient_scale);
        return;
    }
    const auto f = kernels::adamw_factors_for(lr, settings_.beta1, settings_.beta2, settings_.eps, decay, updates_,
                                              gradient_scale);
    if (!weights.flat().is_cpu()) {
        composed_adamw(part(weights.flat()), part(weights.gradients()), part(first_), part(second_), f);
        return;
    }
    float *w = torch_compat::f32(weights.flat()), *g = torch_compat::f32(weights.gradients());
    float *m = torch_compat::f32(first_), *v = torch_compat::f32(second_);
    at::parallel_for(r.begin, r.end, block, [&](std::int64_t begin, std::int64_t end) {
        kernels::adamw(w + begin, g + begin, m + begin, v + begin, end - begin, f);
    });
}

void optimiser::cool() {
    first_.zero_();
    if (second_.defined()) second_.zero_();
    updates_ = 0;
}

double norm_of(const at::Tensor& flat) {
    if (!flat.is_cpu()) return std::sqrt(flat.to(at::kDouble).square().sum().item<double>());
    const std::int64_t n = flat.numel(), blocks = (n + block - 1) / block;
    const float* x = torch_compat::const_f32(flat);
    std::vector<double> sums(static_cast<std::size_t>(blocks));
    at::parallel_for(0, blocks, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t b = begin; b < end; ++b)
            sums[static_cast<std::size_t>(b)] = kernels::sum_squares(x + b * block, std::min(block, n - b * block));
    });
    double total = 0.0;
    for (const double s : sums) total += s;
    return std::sqrt(total);
}

}  // namespace darlcore::training
