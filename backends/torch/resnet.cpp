// SPDX-License-Identifier: Apache-2.0
#include "backends/torch/resnet.hpp"

namespace darlcore::models {

at::Tensor resnet18::convolve(const at::Tensor& x, const std::string& name, std::int64_t stride,
                              std::int64_t padding) const {
    return at::conv2d(x, weights_.at(name + ".weight"), {}, stride, padding);
}

at::Tensor resnet18::norm(const at::Tensor& x, const std::string& name, bool training) const {
    return at::batch_norm(x, weights_.at(name + ".weight"), weights_.at(name + ".bias"),
                          weights_.at(name + ".running_mean"), weights_.at(name + ".running_var"), training, 0.1, 1e-5,
                          false);
}

at::Tensor resnet18::block(const at::Tensor& x, const std::string& p, std::int64_t stride, bool widened,
                           bool training) const {
    at::Tensor y = at::relu(norm(convolve(x, p + "conv1", stride, 1), p + "bn1", training));
    y = norm(convolve(y, p + "conv2", 1, 1), p + "bn2", training);
    const at::Tensor shortcut =
        widened ? norm(convolve(x, p + "downsample.0", stride, 0), p + "downsample.1", training) : x;
    return at::relu(y + shortcut);
}

at::Tensor resnet18::logits(const at::Tensor& images, bool training) {
    at::Tensor x = at::relu(norm(convolve(images, "conv1", 1, 1), "bn1", training));
    for (int stage = 1; stage <= 4; ++stage) {
        const std::string p = "layer" + std::to_string(stage) + ".";
        x = block(x, p + "0.", stage == 1 ? 1 : 2, stage > 1, training);
        x = block(x, p + "1.", 1, false, training);
    }
    return at::addmm(weights_.at("fc.bias"), x.mean({2, 3}), weights_.at("fc.weight").t());
}

}  // namespace darlcore::models
