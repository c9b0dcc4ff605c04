// SPDX-License-Identifier: Apache-2.0
#include "backends/torch/model_spec.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace darlcore::models {
namespace {

using specs = std::vector<parameter_spec>;

struct flavour_row {
    const char* name;
    std::int64_t hidden, layers, heads, kv_heads, head_dim, ffn;
    bool tied;
    std::int64_t vocab;
};

constexpr std::array<flavour_row, 9> flavour_rows{{
    {"0.6B", 1024, 28, 16, 8, 128, 3072, true, 151936},
    {"1.7B", 2048, 28, 16, 8, 128, 6144, true, 151936},
    {"4B", 2560, 36, 32, 8, 128, 9728, true, 151936},
    {"8B", 4096, 36, 32, 8, 128, 12288, false, 151936},
    {"14B", 5120, 40, 40, 8, 128, 17408, false, 151936},
    {"32B", 5120, 64, 64, 8, 128, 25600, false, 151936},
    {"debug-1m", 128, 4, 4, 2, 32, 512, true, 512},
    {"debug-3m", 192, 6, 6, 2, 32, 640, true, 512},
    {"debug-10m", 320, 8, 10, 2, 32, 1024, true, 512},
}};

void add(specs& out, std::string name, std::vector<std::int64_t> shape, init_rule rule, double scale = 0.0,
         bool trained = true) {
    out.push_back({std::move(name), std::move(shape), rule, scale, trained});
}

void add_rotary_layer(specs& out, const model_config& c, const std::string& p) {
    const double s = c.init_std;
    const std::int64_t d = c.hidden_size;
    const std::int64_t q = c.heads * c.head_dim;
    const std::int64_t kv = c.kv_heads * c.head_dim;
    add(out, p + "input_layernorm.weight", {d}, init_rule::ones);
    add(out, p + "self_attn.q_proj.weight", {q, d}, init_rule::normal, s);
    add(out, p + "self_attn.k_proj.weight", {kv, d}, init_rule::normal, s);
    add(out, p + "self_attn.v_proj.weight", {kv, d}, init_rule::normal, s);
    add(out, p + "self_attn.o_proj.weight", {d, q}, init_rule::normal, s);
    if (c.kind == architecture::qwen3) {
        add(out, p + "self_attn.q_norm.weight", {c.head_dim}, init_rule::ones);
        add(out, p + "self_attn.k_norm.weight", {c.head_dim}, init_rule::ones);
    }
    add(out, p + "post_attention_layernorm.weight", {d}, init_rule::ones);
    add(out, p + "mlp.gate_proj.weight", {c.ffn_size, d}, init_rule::normal, s);
    add(out, p + "mlp.up_proj.weight", {c.ffn_size, d}, init_rule::normal, s);
    add(out, p + "mlp.down_proj.weight", {d, c.ffn_size}, init_rule::normal, s);
}

specs rotary_specs(const model_config& c) {
    specs out;
    add(out, "model.embed_tokens.weight", {c.vocab_size, c.hidden_size}, init_rule::normal, c.init_std);
    for (std::int64_t i = 0; i < c.layers; ++i) add_rotary_layer(out, c, "model.layers." + std::to_string(i) + ".");
    add(out, "model.norm.weight", {c.hidden_size}, init_rule::ones);
    if (!c.tied) add(out, "lm_head.weight", {c.vocab_size, c.hidden_size}, init_rule::normal, c.init_std);
    return out;
}

void add_affine(specs& out, const std::string& name, std::int64_t n) {
    add(out, name + ".weight", {n}, init_rule::ones);
    add(out, name + ".bias", {n}, init_rule::zeros);
}

// GPT-2 stores its projections transposed: [in, out].
void add_conv1d(specs& out, const std::string& name, std::int64_t in, std::int64_t n, double std_dev) {
    add(out, name + ".weight", {in, n}, init_rule::normal, std_dev);
    add(out, name + ".bias", {n}, init_rule::zeros);
}

specs gpt2_specs(const model_config& c) {
    specs out;
    const std::int64_t d = c.hidden_size;
    // Residual projections start smaller, so that the variance does not grow with depth.
    const double residual_std = c.init_std / std::sqrt(2.0 * static_cast<double>(c.layers));
    add(out, "transformer.wte.weight", {c.vocab_size, d}, init_rule::normal, c.init_std);
    add(out, "transformer.wpe.weight", {c.positions_max, d}, init_rule::normal, c.init_std);
    for (std::int64_t i = 0; i < c.layers; ++i) {
        const std::string p = "transformer.h." + std::to_string(i) + ".";
        add_affine(out, p + "ln_1", d);
        add_conv1d(out, p + "attn.c_attn", d, 3 * d, c.init_std);
        add_conv1d(out, p + "attn.c_proj", d, d, residual_std);
        add_affine(out, p + "ln_2", d);
        add_conv1d(out, p + "mlp.c_fc", d, c.ffn_size, c.init_std);
        add_conv1d(out, p + "mlp.c_proj", c.ffn_size, d, residual_std);
    }
    add_affine(out, "transformer.ln_f", d);
    if (!c.tied) add(out, "lm_head.weight", {c.vocab_size, d}, init_rule::normal, c.init_std);
    return out;
}

void add_conv(specs& out, const std::string& name, std::int64_t to, std::int64_t from, std::int64_t k) {
    const double fan_out = static_cast<double>(to * k * k);
    add(out, name + ".weight", {to, from, k, k}, init_rule::normal, std::sqrt(2.0 / fan_out));
}

void add_batch_norm(specs& out, const std::string& name, std::int64_t n) {
    add_affine(out, name, n);
    add(out, name + ".running_mean", {n}, init_rule::zeros, 0.0, false);
    add(out, name + ".running_var", {n}, init_rule::ones, 0.0, false);
}

void add_basic_block(specs& out, const std::string& p, std::int64_t from, std::int64_t to) {
    add_conv(out, p + "conv1", to, from, 3);
    add_batch_norm(out, p + "bn1", to);
    add_conv(out, p + "conv2", to, to, 3);
    add_batch_norm(out, p + "bn2", to);
    if (from == to) return;
    add_conv(out, p + "downsample.0", to, from, 1);
    add_batch_norm(out, p + "downsample.1", to);
}

specs resnet18_specs(const model_config& c) {
    specs out;
    add_conv(out, "conv1", 64, 3, 3);  // CIFAR stem: 3x3, stride 1, no pooling
    add_batch_norm(out, "bn1", 64);
    std::int64_t from = 64;
    for (std::int64_t stage = 0; stage < 4; ++stage) {
        const std::int64_t to = std::int64_t{64} << stage;
        const std::string p = "layer" + std::to_string(stage + 1) + ".";
        add_basic_block(out, p + "0.", from, to);
        add_basic_block(out, p + "1.", to, to);
        from = to;
    }
    const double bound = 1.0 / std::sqrt(512.0);
    add(out, "fc.weight", {c.classes, 512}, init_rule::uniform, bound);
    add(out, "fc.bias", {c.classes}, init_rule::uniform, bound);
    return out;
}

result<void> positive(std::int64_t value, const char* field) {
    if (value > 0) return {};
    return fail(errc::invalid_argument,
                std::string("model: ") + field + " must be at least 1, not " + std::to_string(value));
}

}  // namespace

std::int64_t parameter_spec::elements() const {
    std::int64_t n = 1;
    for (const std::int64_t extent : shape) n *= extent;
    return n;
}

const std::vector<std::string>& flavour_names() {
    static const std::vector<std::string> names = [] {
        std::vector<std::string> all;
        for (const flavour_row& row : flavour_rows) all.emplace_back(row.name);
        return all;
    }();
    return names;
}

result<model_config> flavour(std::string_view name, std::int64_t vocab_size) {
    for (const flavour_row& row : flavour_rows) {
        if (name != row.name) continue;
        model_config c;
        c.vocab_size = vocab_size == 0 ? row.vocab : vocab_size;
        c.hidden_size = row.hidden;
        c.layers = row.layers;
        c.heads = row.heads;
        c.kv_heads = row.kv_heads;
        c.head_dim = row.head_dim;
        c.ffn_size = row.ffn;
        c.positions_max = 40960;
        c.tied = row.tied;
        return c;
    }
    std::string known;
    for (const std::string& n : flavour_names()) known += (known.empty() ? "" : ", ") + n;
    return fail(errc::not_found, "no model flavour '" + std::string(name) + "'; there are: " + known);
}

std::vector<parameter_spec> parameter_specs(const model_config& config) {
    DARLCORE_ASSERT(validate(config).has_value());
    specs out;
    switch (config.kind) {
        case architecture::qwen3:
        case architecture::llama:
            out = rotary_specs(config);
            break;
        case architecture::gpt2:
            out = gpt2_specs(config);
            break;
        case architecture::resnet18:
            out = resnet18_specs(config);
            break;
    }
    std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return out;
}

std::int64_t parameter_count(const model_config& config) {
    std::int64_t n = 0;
    for (const parameter_spec& spec : parameter_specs(config)) n += spec.trained ? spec.elements() : 0;
    return n;
}

result<void> validate(const model_config& c) {
    if (c.kind == architecture::resnet18) return positive(c.classes, "classes");
    const std::pair<std::int64_t, const char*> sizes[] = {
        {c.vocab_size, "vocab_size"},        {c.hidden_size, "hidden_size"},
        {c.layers, "num_hidden_layers"},     {c.heads, "num_attention_heads"},
        {c.kv_heads, "num_key_value_heads"}, {c.head_dim, "head_dim"},
        {c.ffn_size, "intermediate_size"},   {c.positions_max, "max_position_embeddings"}};
    for (const auto& [value, field] : sizes) {
        if (auto ok = positive(value, field); !ok) return ok;
        if (value > (std::int64_t{1} << 31))
            return fail(errc::invalid_argument, std::string("model: ") + field + " is absurdly large");
    }
    if (c.heads % c.kv_heads != 0) {
        return fail(errc::invalid_argument, "model: num_attention_heads must be a multiple of num_key_value_heads");
    }
    if (c.kind != architecture::gpt2 && c.head_dim % 2 != 0) {
        return fail(errc::invalid_argument, "model: head_dim must be even for rotary positions");
    }
    if (c.kind == architecture::gpt2 && (c.heads * c.head_dim != c.hidden_size || c.kv_heads != c.heads)) {
        return fail(errc::invalid_argument, "model: gpt2 needs n_embd = n_head * head_dim and no grouped heads");
    }
    if (!(c.norm_eps > 0.0) || !(c.rope_theta > 0.0) || !(c.init_std >= 0.0) ||
        !std::isfinite(c.norm_eps + c.rope_theta + c.init_std)) {
        return fail(errc::invalid_argument,
                    "model: norm eps and rope_theta must be positive, initializer_range not negative");
    }
    return {};
}

}  // namespace darlcore::models
