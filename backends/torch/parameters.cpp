// SPDX-License-Identifier: Apache-2.0
#include "backends/torch/parameters.hpp"

#include "backends/torch/init.hpp"

namespace darlcore::models {

parameters::parameters(const model_config& config, bool with_gradients)
    : config_(config), specs_(parameter_specs(config)) {
    std::int64_t total = 0;
    for (std::size_t i = 0; i < specs_.size(); ++i) {
        offsets_.push_back(total);
        index_.emplace(specs_[i].name, i);
        total += specs_[i].elements();
    }
    flat_ = at::zeros({total}, at::kFloat);
    if (with_gradients) gradients_ = at::zeros({total}, at::kFloat);
    make_views(with_gradients);
}

void parameters::make_views(bool with_gradients) {
    for (std::size_t i = 0; i < specs_.size(); ++i) {
        const std::int64_t n = specs_[i].elements();
        at::Tensor view = flat_.narrow(0, offsets_[i], n).view(specs_[i].shape);
        if (with_gradients && specs_[i].trained) {
            view.set_requires_grad(true);
            // Backward adds into this view, so the flat vector is always the whole gradient.
            view.mutable_grad() = gradients_.narrow(0, offsets_[i], n).view(specs_[i].shape);
        }
        views_.push_back(std::move(view));
    }
}

const at::Tensor& parameters::at(const std::string& name) const {
    const auto found = index_.find(name);
    DARLCORE_ASSERT(found != index_.end());
    return views_[found->second];
}

std::span<float> parameters::host(std::size_t i) {
    DARLCORE_ASSERT(flat_.is_cpu());
    return {torch_compat::f32(flat_) + offsets_[i], static_cast<std::size_t>(specs_[i].elements())};
}

void parameters::initialise(std::int64_t seed) {
    for (std::size_t i = 0; i < specs_.size(); ++i) models::initialise(specs_[i], seed, host(i));
}

void parameters::zero_gradients() {
    if (gradients_.defined()) gradients_.zero_();
}

}  // namespace darlcore::models
