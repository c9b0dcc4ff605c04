// SPDX-License-Identifier: Apache-2.0
#include "backends/torch/language_model.hpp"

#include <algorithm>
#include <cmath>

#include "backends/torch/decoder.hpp"
#include "backends/torch/init.hpp"

namespace darlcore::models {

struct language_model::state {
    explicit state(const model_config& config) : weights(config, false), net(weights) {}
    parameters weights;
    decoder net;
};

namespace {

at::Tensor ids_tensor(std::span<const std::int64_t> ids, std::int64_t row) {
    const at::Tensor t = at::empty({static_cast<std::int64_t>(ids.size()) / row, row}, at::kLong);
    std::copy(ids.begin(), ids.end(), static_cast<std::int64_t*>(t.data_ptr()));
    return t;
}

result<void> check_ids(const model_config& c, std::span<const std::int64_t> ids, std::int64_t positions) {
    if (ids.empty()) return fail(errc::invalid_argument, "the sequence is empty");
    for (const std::int64_t id : ids) {
        if (id < 0 || id >= c.vocab_size) {
            return fail(errc::invalid_argument, "id " + std::to_string(id) + " is outside the model's vocabulary of " +
                                                    std::to_string(c.vocab_size));
        }
    }
    if (c.kind == architecture::gpt2 && positions > c.positions_max) {
        return fail(errc::invalid_argument,
                    std::to_string(positions) + " positions exceed the model's " + std::to_string(c.positions_max));
    }
    return {};
}

std::int64_t draw(const float* logits, std::int64_t vocab, double temperature, text_random& random,
                  const std::function<bool(std::int64_t)>& allowed) {
    std::vector<double> p(static_cast<std::size_t>(vocab), -INFINITY);
    std::int64_t best = 0;
    for (std::int64_t i = 0; i < vocab; ++i) {
        if (allowed && !allowed(i)) continue;
        p[static_cast<std::size_t>(i)] = static_cast<double>(logits[i]);
        if (p[static_cast<std::size_t>(i)] > p[static_cast<std::size_t>(best)]) best = i;
    }
    if (temperature <= 0.0) return best;
    const double top = p[static_cast<std::size_t>(best)];
    double total = 0.0;
    for (double& x : p) total += x = std::exp((x - top) / temperature);
    double left = random.uniform() * total;
    for (std::int64_t i = 0; i < vocab; ++i) {
        left -= p[static_cast<std::size_t>(i)];
        if (left < 0.0) return i;
    }
    return best;
}

}  // namespace

language_model::language_model(std::unique_ptr<state> s) : state_(std::move(s)) {}
language_model::language_model(language_model&&) noexcept = default;
language_model& language_model::operator=(language_model&&) noexcept = default;
language_model::~language_model() = default;

result<language_model> language_model::create(const model_config& config, std::int64_t seed) {
    if (auto ok = validate(config); !ok) return ok.error();
    if (config.kind == architecture::resnet18) return fail(errc::unsupported, "resnet18 is not a language model");
    auto s = std::make_unique<state>(config);
    s->weights.initialise(seed);
    return language_model(std::move(s));
}

result<language_model> language_model::open(const std::string& folder) {
    const auto config = read_folder_config(folder);
    if (!config) return config.error();
    if (config->kind == architecture::resnet18)
        return fail(errc::unsupported, folder + ": resnet18 is not a language model");
    auto s = std::make_unique<state>(*config);
    const std::span<float> flat(torch_compat::f32(s->weights.flat()), static_cast<std::size_t>(s->weights.elements()));
    if (auto ok = read_folder_weights(folder, s->weights.specs(), flat); !ok) return ok.error();
    return language_model(std::move(s));
}

const model_config& language_model::config() const { return state_->weights.config(); }

std::span<const float> language_model::weights() const {
    return {torch_compat::const_f32(state_->weights.flat()), static_cast<std::size_t>(state_->weights.elements())};
}

result<std::vector<float>> language_model::logits(std::span<const std::int64_t> ids) {
    if (auto ok = check_ids(config(), ids, static_cast<std::int64_t>(ids.size())); !ok) return ok.error();
    const at::NoGradGuard guard;
    const at::Tensor out = state_->net.logits(ids_tensor(ids, static_cast<std::int64_t>(ids.size()))).contiguous();
    const float* first = torch_compat::const_f32(out);
    return std::vector<float>(first, first + out.numel());
}

result<double> language_model::loss_sum(std::span<const std::int64_t> windows, std::int64_t window) {
    DARLCORE_ASSERT(window >= 2 && windows.size() % static_cast<std::size_t>(window) == 0);
    if (auto ok = check_ids(config(), windows, window - 1); !ok) return ok.error();
    const at::NoGradGuard guard;
    const at::Tensor rows = ids_tensor(windows, window);
    return state_->net.loss_sum(rows, at::ones({rows.size(0)}, at::kFloat)).item<double>();
}

result<std::vector<std::int64_t>> language_model::sample(std::vector<std::int64_t> prompt, const sampling& how,
                                                         const std::function<bool(std::int64_t)>& allowed) {
    if (auto ok = check_ids(config(), prompt, 1); !ok) return ok.error();
    const std::int64_t context =
        config().kind == architecture::gpt2 ? std::min(how.context_max, config().positions_max) : how.context_max;
    text_random random("darl-sample:" + std::to_string(how.seed));
    std::vector<std::int64_t> made;
    for (std::int64_t i = 0; i < how.tokens; ++i) {
        const std::size_t seen = std::min(prompt.size(), static_cast<std::size_t>(context));
        const auto all = logits(std::span<const std::int64_t>(prompt).last(seen));
        if (!all) return all.error();
        const float* last = all->data() + (seen - 1) * static_cast<std::size_t>(config().vocab_size);
        const std::int64_t id = draw(last, config().vocab_size, how.temperature, random, allowed);
        prompt.push_back(id);
        made.push_back(id);
        if (config().eos_id && id == *config().eos_id) break;
    }
    return made;
}

std::string libtorch_version() { return std::string("libtorch ") + torch_compat::version_text; }

}  // namespace darlcore::models
