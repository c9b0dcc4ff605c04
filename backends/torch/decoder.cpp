// SPDX-License-Identifier: Apache-2.0
#include "backends/torch/decoder.hpp"

namespace darlcore::models {

decoder::decoder(const parameters& weights) : weights_(weights), config_(weights.config()) {
    DARLCORE_ASSERT(config_.kind != architecture::resnet18);
    if (config_.kind == architecture::gpt2)
        bind_gpt2();
    else
        bind_rotary();
    head_ = config_.tied ? embedding_ : &weights_.at("lm_head.weight");
}

void decoder::bind_rotary() {
    embedding_ = &weights_.at("model.embed_tokens.weight");
    last_norm_ = &weights_.at("model.norm.weight");
    const bool normed = config_.kind == architecture::qwen3;
    for (std::int64_t i = 0; i < config_.layers; ++i) {
        const std::string p = "model.layers." + std::to_string(i) + ".";
        const auto get = [&](const char* name) { return &weights_.at(p + name + ".weight"); };
        rotary_layers_.push_back({get("input_layernorm"), get("self_attn.q_proj"), get("self_attn.k_proj"),
                                  get("self_attn.v_proj"), get("self_attn.o_proj"),
                                  normed ? get("self_attn.q_norm") : nullptr,
                                  normed ? get("self_attn.k_norm") : nullptr, get("post_attention_layernorm"),
                                  get("mlp.gate_proj"), get("mlp.up_proj"), get("mlp.down_proj")});
    }
}

void decoder::bind_gpt2() {
    embedding_ = &weights_.at("transformer.wte.weight");
    positions_ = &weights_.at("transformer.wpe.weight");
    const auto pair = [&](const std::string& name) {
        return affine{&weights_.at(name + ".weight"), &weights_.at(name + ".bias")};
    };
    last_affine_ = pair("transformer.ln_f");
    for (std::int64_t i = 0; i < config_.layers; ++i) {
        const std::string p = "transformer.h." + std::to_string(i) + ".";
        gpt2_layers_.push_back({pair(p + "ln_1"), pair(p + "attn.c_attn"), pair(p + "attn.c_proj"), pair(p + "ln_2"),
                                pair(p + "mlp.c_fc"), pair(p + "mlp.c_proj")});
    }
}

at::Tensor decoder::linear(const at::Tensor& x, const at::Tensor& w) const {
    return at::mm(x, w.to(x.scalar_type()).t());
}

at::Tensor decoder::linear_added(const at::Tensor& onto, const at::Tensor& x, const at::Tensor& w) const {
    return at::addmm(onto, x, w.to(x.scalar_type()).t());
}

const ops::rotary_table& decoder::table(std::int64_t positions) {
    const auto found = tables_.find(positions);
    if (found != tables_.end()) return found->second;
    ops::rotary_table made = ops::make_rotary_table(positions, config_.head_dim, config_.rope_theta);
    made.cos = made.cos.to(weights_.flat().device());
    made.sin = made.sin.to(weights_.flat().device());
    return tables_.emplace(positions, std::move(made)).first->second;
}

at::Tensor decoder::rotary_attention(const rotary_layer& layer, const at::Tensor& x, std::int64_t b, std::int64_t t) {
    const at::Tensor none;
    const ops::rotary_table& angles = table(t);
    const std::int64_t d = config_.head_dim;
    const at::Tensor q = linear(x, *layer.q).view({b, t, config_.heads, d});
    const at::Tensor k = linear(x, *layer.k).view({b, t, config_.kv_heads, d});
    const at::Tensor v = linear(x, *layer.v).view({b, t, config_.kv_heads, d}).transpose(1, 2);
    const at::Tensor mixed = ops::attention(
        ops::norm_and_rotate(q, layer.q_norm != nullptr ? *layer.q_norm : none, angles, config_.norm_eps),
        ops::norm_and_rotate(k, layer.k_norm != nullptr ? *layer.k_norm : none, angles, config_.norm_eps), v);
    return mixed.transpose(1, 2).reshape({b * t, config_.heads * d});
}

at::Tensor decoder::rotary_hidden(const at::Tensor& ids) {
    const std::int64_t b = ids.size(0), t = ids.size(1);
    at::Tensor x = at::embedding(*embedding_, ids.reshape({-1})).to(compute_dtype_);
    for (const rotary_layer& layer : rotary_layers_) {
        const at::Tensor mixed = rotary_attention(layer, ops::rms_norm(x, *layer.input_norm, config_.norm_eps), b, t);
        x = linear_added(x, mixed, *layer.o);
        const at::Tensor h = ops::rms_norm(x, *layer.post_norm, config_.norm_eps);
        x = linear_added(x, ops::swiglu(linear(h, *layer.gate), linear(h, *layer.up)), *layer.down);
    }
    return ops::rms_norm(x, *last_norm_, config_.norm_eps);
}

at::Tensor decoder::gpt2_attention(const gpt2_layer& layer, const at::Tensor& x, std::int64_t b, std::int64_t t) {
    const std::int64_t d = config_.hidden_size;
    const at::Tensor all =
        at::addmm(layer.attention.bias->to(x.scalar_type()), x, layer.attention.weight->to(x.scalar_type()));
    const auto heads = [&](std::int64_t part) {
        return all.narrow(1, part * d, d).reshape({b, t, config_.heads, config_.head_dim}).transpose(1, 2);
    };
    return ops::attention(heads(0), heads(1), heads(2)).transpose(1, 2).reshape({b * t, d});
}

at::Tensor decoder::gpt2_hidden(const at::Tensor& ids) {
    const std::int64_t b = ids.size(0), t = ids.size(1);
    const auto norm = [&](const at::Tensor& x, const affine& a) {
        return at::layer_norm(x, {config_.hidden_size}, a.weight->to(x.scalar_type()), a.bias->to(x.scalar_type()),
                              config_.norm_eps);
    };
    // GPT-2's projections are stored [in, out].
    const auto project = [&](const at::Tensor& x, const affine& a) {
        return at::addmm(a.bias->to(x.scalar_type()), x, a.weight->to(x.scalar_type()));
    };
    at::Tensor x = at::embedding(*embedding_, ids.reshape({-1})).view({b, t, -1}) + positions_->narrow(0, 0, t);
    x = x.view({b * t, -1}).to(compute_dtype_);
    for (const gpt2_layer& layer : gpt2_layers_) {
        x = x + project(gpt2_attention(layer, norm(x, layer.norm1), b, t), layer.projection);
        x = x + project(at::gelu(project(norm(x, layer.norm2), layer.widen), "tanh"), layer.narrow);
    }
    return norm(x, last_affine_);
}

at::Tensor decoder::hidden(const at::Tensor& ids) {
    DARLCORE_ASSERT(ids.dim() == 2 && ids.size(1) > 0);
    return config_.kind == architecture::gpt2 ? gpt2_hidden(ids) : rotary_hidden(ids);
}

at::Tensor decoder::logits(const at::Tensor& ids) {
    return linear(hidden(ids), *head_).to(at::kFloat).view({ids.size(0), ids.size(1), config_.vocab_size});
}

at::Tensor decoder::loss_sum(const at::Tensor& windows, const at::Tensor& weights) {
    const std::int64_t t = windows.size(1) - 1;
    const at::Tensor targets = windows.narrow(1, 1, t).reshape({-1});
    return ops::head_loss_sum(hidden(windows.narrow(1, 0, t)), *head_, targets, weights.repeat_interleave(t));
}

}  // namespace darlcore::models
