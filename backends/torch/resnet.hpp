// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/torch/parameters.hpp"

namespace darlcore::models {

/// ResNet-18 with the stem for 32 x 32 images (3 x 3, stride 1, no pooling). Owns no weights. Private to this folder.
class resnet18 {
public:
    /// Preconditions (asserted): the weights are those of a resnet18; they outlive this object.
    explicit resnet18(const parameters& weights) : weights_(weights) {
        DARLCORE_ASSERT(weights.config().kind == architecture::resnet18);
    }
    /// images [B, 3, 32, 32] to logits [B, classes]. In training the running statistics move.
    at::Tensor logits(const at::Tensor& images, bool training);

private:
    at::Tensor convolve(const at::Tensor& x, const std::string& name, std::int64_t stride, std::int64_t padding) const;
    at::Tensor norm(const at::Tensor& x, const std::string& name, bool training) const;
    at::Tensor block(const at::Tensor& x, const std::string& prefix, std::int64_t stride, bool widened,
                     bool training) const;

    const parameters& weights_;
};

}  // namespace darlcore::models
