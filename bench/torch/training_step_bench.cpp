// SPDX-License-Identifier: Apache-2.0
// bench_training_step [FLAVOUR [ROUNDS [BATCH [SEQ_LEN]]]]: a training step of the project beside a plain libtorch loop
// of the same model in the same process, in turns: same weights, windows, threads and update. Prints medians and the
// ratio of their times. The plain loop is what a user of libtorch writes: one operation per line of the paper,
// autograd, clip_grad_norm_, torch::optim::AdamW.
#include <ATen/core/ivalue.h>

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "backends/torch/compat.hpp"
#include "backends/torch/compute_environment.hpp"
#include "backends/torch/optimiser.hpp"
#include "backends/torch/task.hpp"
#include "darlcore/random.hpp"

namespace {

using namespace darlcore;
using at::Tensor;

class plain_qwen3 {
public:
    plain_qwen3(const models::model_config& config, const models::parameters& like) : c_(config) {
        for (std::size_t i = 0; i < like.specs().size(); ++i)
            w_[like.specs()[i].name] = like.view(i).detach().clone().requires_grad_(true);
    }

    std::vector<Tensor> matrices(bool yes) {
        std::vector<Tensor> out;
        for (auto& [name, t] : w_)
            if ((t.dim() >= 2) == yes) out.push_back(t);
        return out;
    }

    Tensor loss(const Tensor& windows) {
        const std::int64_t b = windows.size(0), t = windows.size(1) - 1;
        make_tables(t);
        Tensor x = at::embedding(w_["model.embed_tokens.weight"], windows.narrow(1, 0, t));
        for (std::int64_t i = 0; i < c_.layers; ++i) {
            const std::string p = "model.layers." + std::to_string(i) + ".";
            x = x + attend(rms(x, w_[p + "input_layernorm.weight"]), p + "self_attn.", b, t);
            const Tensor h = rms(x, w_[p + "post_attention_layernorm.weight"]);
            const Tensor gated =
                at::silu(at::linear(h, w_[p + "mlp.gate_proj.weight"])) * at::linear(h, w_[p + "mlp.up_proj.weight"]);
            x = x + at::linear(gated, w_[p + "mlp.down_proj.weight"]);
        }
        const Tensor& head = w_[c_.tied ? "model.embed_tokens.weight" : "lm_head.weight"];
        const Tensor logits = at::linear(rms(x, w_["model.norm.weight"]), head).view({b * t, c_.vocab_size});
        return at::cross_entropy_loss(logits, windows.narrow(1, 1, t).reshape({-1}));
    }

private:
    [[nodiscard]] Tensor rms(const Tensor& x, const Tensor& w) const {
        return x * at::rsqrt(x.square().mean(-1, true) + c_.norm_eps) * w;
    }

    void make_tables(std::int64_t t) {
        if (cos_.defined() && cos_.size(0) == t) return;
        const Tensor inverse = at::pow(c_.rope_theta, at::arange(0, c_.head_dim, 2, at::kFloat).div(-c_.head_dim));
        const Tensor angles = at::outer(at::arange(t, at::kFloat), inverse);
        const Tensor both = at::cat({angles, angles}, 1);
        cos_ = both.cos();
        sin_ = both.sin();
        mask_ = at::full({t, t}, -INFINITY, at::kFloat).triu_(1);
    }

    [[nodiscard]] Tensor rotate(const Tensor& x) const {
        const auto halves = x.chunk(2, -1);
        return x * cos_ + at::cat({-halves[1], halves[0]}, -1) * sin_;
    }

    Tensor attend(const Tensor& x, const std::string& p, std::int64_t b, std::int64_t t) {
        const auto heads = [&](const std::string& name, std::int64_t n) {
            return at::linear(x, w_[p + name]).view({b, t, n, c_.head_dim});
        };
        const Tensor q = rotate(rms(heads("q_proj.weight", c_.heads), w_[p + "q_norm.weight"]).transpose(1, 2));
        const Tensor k = rotate(rms(heads("k_proj.weight", c_.kv_heads), w_[p + "k_norm.weight"]).transpose(1, 2));
        const Tensor v = heads("v_proj.weight", c_.kv_heads).transpose(1, 2);
        const std::int64_t share = c_.heads / c_.kv_heads;
        const Tensor keys = k.repeat_interleave(share, 1), values = v.repeat_interleave(share, 1);
#if DARLCORE_TORCH_HAS_SDPA
        const Tensor mixed = at::scaled_dot_product_attention(q, keys, values, {}, 0.0, true);
#else
        const Tensor scores = at::matmul(q, keys.transpose(2, 3)) / std::sqrt(static_cast<double>(c_.head_dim)) + mask_;
        const Tensor mixed = at::matmul(at::softmax(scores, -1), values);
#endif
        return at::linear(mixed.transpose(1, 2).reshape({b, t, c_.heads * c_.head_dim}), w_[p + "o_proj.weight"]);
    }

    models::model_config c_;
    std::map<std::string, Tensor> w_;
    Tensor cos_, sin_, mask_;
};

struct plain_loop {
    plain_loop(const models::model_config& config, const models::parameters& like)
        : model(config, like), matrices(model.matrices(true)), vectors(model.matrices(false)) {
        using torch::optim::AdamWOptions;
        std::vector<torch::optim::OptimizerParamGroup> groups;
        for (const bool decays : {true, false}) {
            auto options = std::make_unique<AdamWOptions>(3e-4);
            options->betas({0.9, 0.95}).eps(1e-8).weight_decay(decays ? 0.1 : 0.0);
            groups.emplace_back(decays ? matrices : vectors, std::move(options));
        }
        adamw = std::make_unique<torch::optim::AdamW>(groups, AdamWOptions(3e-4));
    }
    double step(const Tensor& windows) {
        adamw->zero_grad();
        const Tensor loss = model.loss(windows);
        loss.backward();
        std::vector<Tensor> all = matrices;
        all.insert(all.end(), vectors.begin(), vectors.end());
        torch::nn::utils::clip_grad_norm_(all, 1.0);
        adamw->step();
        return loss.item<double>();
    }
    plain_qwen3 model;
    std::vector<Tensor> matrices, vectors;
    std::unique_ptr<torch::optim::AdamW> adamw;
};

struct own_loop {
    own_loop(const models::model_config& config, std::uint64_t seq_len)
        : task(training::make_language_task(config, seq_len)), update({}, task->weights()) {
        task->weights().initialise(1);
    }
    double step(std::span<const std::byte> batch, const Tensor& ones) {
        auto& weights = task->weights();
        const Tensor loss = task->loss_sum(batch, ones, true);
        loss.backward();
        const double tokens = ones.sum().item<double>() * static_cast<double>(task->window_tokens());
        const double norm = training::norm_of(weights.gradients()) / tokens;
        update.step(weights, 3e-4, (norm > 1.0 ? 1.0 / norm : 1.0) / tokens);
        return loss.item<double>() / tokens;
    }
    std::unique_ptr<training::task> task;
    training::optimiser update;
};

/// By the clock, and of the process's processors: the latter changes less when others use the machine.
struct spent {
    double wall_s = 0;
    double processor_s = 0;
};
double processor_seconds() {
    timespec t{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}
spent measured(const auto& work) {
    const auto begun = std::chrono::steady_clock::now();
    const double processor = processor_seconds();
    work();
    return {std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count(),
            processor_seconds() - processor};
}

double median(const std::vector<spent>& steps, double spent::*what) {
    std::vector<double> values;
    for (const spent& s : steps) values.push_back(s.*what);
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
    return values[values.size() / 2];
}

}  // namespace

int main(int count, char** arguments) {
    while (count > 1 && std::string(arguments[count - 1]).starts_with("--benchmark")) --count;  // scripts/bench
    training::restart_with_worker_environment();
    const auto number = [&](int i, std::int64_t otherwise) { return count > i ? std::stoll(arguments[i]) : otherwise; };
    const std::string name = count > 1 ? arguments[1] : "debug-10m";
    const std::int64_t rounds = number(2, 15), batch = number(3, 4), seq_len = number(4, 256);
    const auto config = models::flavour(name).value();
    own_loop own(config, static_cast<std::uint64_t>(seq_len));
    plain_loop plain(config, own.task->weights());
    xoshiro256 random(3);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(batch * (seq_len + 1)));
    for (auto& id : ids) id = static_cast<std::int32_t>(random.below(256));
    const Tensor windows = at::tensor(ids, at::kInt).to(at::kLong).view({batch, seq_len + 1});
    const Tensor ones = at::ones({batch}, at::kFloat);
    std::vector<spent> own_s, plain_s;
    double own_loss = 0, plain_loss = 0;
    for (std::int64_t r = 0; r <= rounds; ++r) {
        const spent a = measured([&] { own_loss = own.step(std::as_bytes(std::span(ids)), ones); });
        const spent b = measured([&] { plain_loss = plain.step(windows); });
        if (r == 0) {
            std::printf("loss before the first step: own %.6f, plain %.6f\n", own_loss, plain_loss);
            continue;  // buffers are warm from here on
        }
        own_s.push_back(a);
        plain_s.push_back(b);
    }
    std::printf("loss before the last step:  own %.6f, plain %.6f\n", own_loss, plain_loss);
    const auto tokens = static_cast<double>(batch * seq_len);
    const double own_wall = median(own_s, &spent::wall_s), plain_wall = median(plain_s, &spent::wall_s);
    std::printf("processor time per step: own %.1f ms, plain %.1f ms\n", 1e3 * median(own_s, &spent::processor_s),
                1e3 * median(plain_s, &spent::processor_s));
    std::printf(
        "%s, libtorch %s, %d threads, batch %lld x %lld: own %.1f ms (%.0f tokens/s), plain %.1f ms (%.0f tokens/s), "
        "ratio of times %.3f\n",
        name.c_str(), torch_compat::version_text, at::get_num_threads(), static_cast<long long>(batch),
        static_cast<long long>(seq_len), 1e3 * own_wall, tokens / own_wall, 1e3 * plain_wall, tokens / plain_wall,
        own_wall / plain_wall);
    return 0;
}
