// SPDX-License-Identifier: Apache-2.0
#include "backends/torch/task.hpp"

#include <cstring>

#include "backends/torch/decoder.hpp"
#include "backends/torch/resnet.hpp"

namespace darlcore::training {
namespace {

// Ids as the source holds them to the numbers that an embedding takes.
template <class Id>
void widen_ids(std::span<const std::byte> ids, std::int64_t* out) {
    for (std::size_t i = 0; i < ids.size() / sizeof(Id); ++i) {
        Id id = 0;
        std::memcpy(&id, ids.data() + i * sizeof id, sizeof id);
        out[i] = static_cast<std::int64_t>(id);
    }
}

class language_task final : public task {
public:
    language_task(const models::model_config& config, std::uint64_t seq_len)
        : weights_(config), net_(weights_), window_(static_cast<std::int64_t>(seq_len) + 1) {}

    [[nodiscard]] models::parameters& weights() override { return weights_; }
    [[nodiscard]] std::size_t window_bytes(std::size_t id_bytes) const override {
        return id_bytes * static_cast<std::size_t>(window_);
    }
    [[nodiscard]] std::uint64_t window_tokens() const override { return static_cast<std::uint64_t>(window_ - 1); }

    at::Tensor loss_sum(std::span<const std::byte> batch, const at::Tensor& weights, bool) override {
        const at::Tensor ids = at::empty({weights.numel(), window_}, at::kLong);
        auto* numbers = static_cast<std::int64_t*>(ids.data_ptr());
        if (batch.size() == 2 * static_cast<std::size_t>(ids.numel())) {
            widen_ids<std::uint16_t>(batch, numbers);
        } else {
            DARLCORE_ASSERT_CMP(batch.size(), ==, 4 * static_cast<std::size_t>(ids.numel()));
            widen_ids<std::int32_t>(batch, numbers);
        }
        return net_.loss_sum(ids, weights);
    }

private:
    models::parameters weights_;
    models::decoder net_;
    std::int64_t window_;
};

constexpr std::int64_t image_bytes = 3 * 32 * 32;

class image_task final : public task {
public:
    image_task(const models::model_config& config, double label_smoothing)
        : weights_(config), net_(weights_), label_smoothing_(label_smoothing) {}

    [[nodiscard]] models::parameters& weights() override { return weights_; }
    [[nodiscard]] std::size_t window_bytes(std::size_t) const override { return 1 + image_bytes; }
    [[nodiscard]] std::uint64_t window_tokens() const override { return 1; }
    [[nodiscard]] double correct() const override { return correct_; }

    at::Tensor loss_sum(std::span<const std::byte> batch, const at::Tensor& weights, bool training) override {
        const std::int64_t rows = weights.numel();
        const at::Tensor raw = at::empty({rows, 1 + image_bytes}, at::kByte);
        std::memcpy(raw.data_ptr(), batch.data(), batch.size());
        const at::Tensor labels = raw.select(1, 0).to(at::kLong);
        const at::Tensor images =
            raw.narrow(1, 1, image_bytes).reshape({rows, 3, 32, 32}).to(at::kFloat).div_(127.5).sub_(1.0);
        const at::Tensor logits = net_.logits(images, training);
        correct_ = ((logits.detach().argmax(1) == labels).to(at::kFloat) * weights).sum().item<double>();
        const at::Tensor losses =
            at::cross_entropy_loss(logits, labels, {}, at::Reduction::None, -100, training ? label_smoothing_ : 0.0);
        return (losses * weights).to(at::kDouble).sum();
    }

private:
    models::parameters weights_;
    models::resnet18 net_;
    double label_smoothing_;
    double correct_ = 0.0;
};

}  // namespace

std::unique_ptr<task> make_language_task(const models::model_config& config, std::uint64_t seq_len) {
    return std::make_unique<language_task>(config, seq_len);
}

std::unique_ptr<task> make_image_task(const models::model_config& config, double label_smoothing) {
    return std::make_unique<image_task>(config, label_smoothing);
}

}  // namespace darlcore::training
