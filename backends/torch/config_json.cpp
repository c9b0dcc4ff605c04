// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <span>

#include "adapters/formats/json.hpp"
#include "backends/torch/model_spec.hpp"

namespace darlcore::models {
namespace {

using json::value;

// What is read besides the config itself; some keys only make sense together.
struct reading {
    model_config config;
    bool head_dim_given = false;
    bool kv_heads_given = false;
    bool sliding_used = false;
    bool sliding_given = false;
    std::string_view source;

    [[nodiscard]] error bad(errc code, std::string_view key, std::string_view what) const {
        const char* fix = code == errc::unsupported ? "; use a model that does without" : "";
        return fail(code, std::string(source) + ": key '" + std::string(key) + "' " + std::string(what) + fix);
    }
};

using key_reader = result<void> (*)(reading&, std::string_view, const value&);

struct key_rule {
    std::string_view key;
    key_reader read;
};

result<void> ignore(reading&, std::string_view, const value&) { return {}; }

template <std::int64_t model_config::*Field>
result<void> size_into(reading& r, std::string_view key, const value& v) {
    const auto n = v.as_i64();
    if (!n || *n < 1) return r.bad(errc::invalid_argument, key, "must be a positive integer");
    r.config.*Field = *n;
    return {};
}

template <double model_config::*Field>
result<void> number_into(reading& r, std::string_view key, const value& v) {
    const auto x = v.as_double();
    if (!x || !std::isfinite(*x) || *x < 0.0) return r.bad(errc::invalid_argument, key, "must be a number >= 0");
    r.config.*Field = *x;
    return {};
}

template <std::optional<std::int64_t> model_config::*Field>
result<void> id_into(reading& r, std::string_view key, const value& v) {
    // Newer writers give several end ids as a list; the first is the one that ends documents.
    const value& one = v.is_array() && v.size() > 0 ? v.at(std::size_t{0}) : v;
    if (one.is_null()) return {};
    const auto id = one.as_i64();
    if (!id || *id < 0) return r.bad(errc::invalid_argument, key, "must be a token id or null");
    r.config.*Field = *id;
    return {};
}

result<void> kv_heads(reading& r, std::string_view key, const value& v) {
    if (v.is_null()) return {};
    r.kv_heads_given = true;
    return size_into<&model_config::kv_heads>(r, key, v);
}

result<void> head_dim(reading& r, std::string_view key, const value& v) {
    if (v.is_null()) return {};
    r.head_dim_given = true;
    return size_into<&model_config::head_dim>(r, key, v);
}

result<void> tied(reading& r, std::string_view key, const value& v) {
    const auto b = v.as_bool();
    if (!b) return r.bad(errc::invalid_argument, key, "must be true or false");
    r.config.tied = *b;
    return {};
}

result<void> inner_size(reading& r, std::string_view key, const value& v) {
    if (v.is_null()) return {};
    return size_into<&model_config::ffn_size>(r, key, v);
}

result<void> must_be_false(reading& r, std::string_view key, const value& v) {
    if (v.is_null() || v.as_bool() == false) return {};
    return r.bad(errc::unsupported, key, "is switched on and not implemented");
}

result<void> must_be_true(reading& r, std::string_view key, const value& v) {
    if (v.as_bool() == true) return {};
    return r.bad(errc::unsupported, key, "is not true and the other way is not implemented");
}

result<void> must_be_zero(reading& r, std::string_view key, const value& v) {
    if (v.is_null() || v.as_double() == 0.0) return {};
    return r.bad(errc::unsupported, key, "must be 0: training is without dropout");
}

result<void> must_be_one(reading& r, std::string_view key, const value& v) {
    if (v.is_null() || v.as_double() == 1.0) return {};
    return r.bad(errc::unsupported, key, "must be 1; other values are not implemented");
}

result<void> must_be_null(reading& r, std::string_view key, const value& v) {
    if (v.is_null()) return {};
    return r.bad(errc::unsupported, key, "is set and not implemented");
}

result<void> must_be_silu(reading& r, std::string_view key, const value& v) {
    const std::string* s = v.as_string();
    if (s != nullptr && (*s == "silu" || *s == "swish")) return {};
    return r.bad(errc::unsupported, key, "must be \"silu\"; other activations are not implemented for this model_type");
}

result<void> must_be_tanh_gelu(reading& r, std::string_view key, const value& v) {
    const std::string* s = v.as_string();
    if (s != nullptr && (*s == "gelu_new" || *s == "gelu_pytorch_tanh")) return {};
    return r.bad(errc::unsupported, key, "must be \"gelu_new\"; other activations are not implemented for gpt2");
}

result<void> rope_type(reading& r, std::string_view key, const value& v) {
    const std::string* s = v.as_string();
    if (s != nullptr && *s == "default") return {};
    return r.bad(errc::unsupported, key, "must be \"default\"; scaled rotary positions are not implemented");
}

// rope_parameters of newer writers, rope_scaling of older ones: the same members.
result<void> rope_object(reading& r, std::string_view key, const value& v) {
    if (v.is_null()) return {};
    const json::object* members = v.as_object();
    if (members == nullptr) return r.bad(errc::invalid_argument, key, "must be an object or null");
    for (const auto& [name, member] : *members) {
        const std::string path = std::string(key) + "." + name;
        result<void> ok;
        if (name == "rope_theta")
            ok = number_into<&model_config::rope_theta>(r, path, member);
        else if (name == "rope_type" || name == "type")
            ok = rope_type(r, path, member);
        else if (name == "partial_rotary_factor")
            ok = must_be_one(r, path, member);
        else
            ok = r.bad(errc::unsupported, path, "is a scaled rotary position setting and not implemented");
        if (!ok) return ok;
    }
    return {};
}

result<void> layer_types(reading& r, std::string_view key, const value& v) {
    if (v.is_null()) return {};
    const json::array* all = v.as_array();
    if (all == nullptr) return r.bad(errc::invalid_argument, key, "must be a list");
    for (const value& one : *all) {
        const std::string* s = one.as_string();
        if (s == nullptr || *s != "full_attention") {
            return r.bad(errc::unsupported, key,
                         "names a layer that is not \"full_attention\"; others are not implemented");
        }
    }
    return {};
}

result<void> sliding_window(reading& r, std::string_view, const value& v) {
    r.sliding_given = !v.is_null();
    return {};
}

result<void> use_sliding_window(reading& r, std::string_view, const value& v) {
    r.sliding_used = v.as_bool().value_or(false);
    return {};
}

constexpr key_rule common_rules[] = {
    {"model_type", ignore},
    {"architectures", ignore},
    {"dtype", ignore},
    {"torch_dtype", ignore},
    {"transformers_version", ignore},
    {"use_cache", ignore},
    {"pad_token_id", ignore},
    {"_name_or_path", ignore},
    {"is_llama_config", ignore},
    {"transformers.js_config", ignore},
    {"is_decoder", ignore},
    {"unk_token_id", ignore},
    {"output_attentions", ignore},
    {"output_hidden_states", ignore},
    {"return_dict", ignore},
    {"task_specific_params", ignore},
    {"gradient_checkpointing", ignore},
    {"_attn_implementation_autoset", ignore},
    {"is_encoder_decoder", must_be_false},
    {"add_cross_attention", must_be_false},
    {"quantization_config", must_be_null},
    {"attn_implementation", ignore},
    {"vocab_size", size_into<&model_config::vocab_size>},
    {"tie_word_embeddings", tied},
    {"initializer_range", number_into<&model_config::init_std>},
    {"bos_token_id", id_into<&model_config::bos_id>},
    {"eos_token_id", id_into<&model_config::eos_id>},
};

constexpr key_rule rotary_rules[] = {
    {"hidden_size", size_into<&model_config::hidden_size>},
    {"num_hidden_layers", size_into<&model_config::layers>},
    {"num_attention_heads", size_into<&model_config::heads>},
    {"num_key_value_heads", kv_heads},
    {"head_dim", head_dim},
    {"intermediate_size", size_into<&model_config::ffn_size>},
    {"max_position_embeddings", size_into<&model_config::positions_max>},
    {"rms_norm_eps", number_into<&model_config::norm_eps>},
    {"rope_theta", number_into<&model_config::rope_theta>},
    {"rope_parameters", rope_object},
    {"rope_scaling", rope_object},
    {"partial_rotary_factor", must_be_one},
    {"rope_interleaved", must_be_false},
    {"hidden_act", must_be_silu},
    {"attention_bias", must_be_false},
    {"mlp_bias", must_be_false},
    {"attention_dropout", must_be_zero},
    {"pretraining_tp", must_be_one},
    {"layer_types", layer_types},
    {"sliding_window", sliding_window},
    {"use_sliding_window", use_sliding_window},
    {"max_window_layers", ignore},
};

constexpr key_rule gpt2_rules[] = {
    {"n_embd", size_into<&model_config::hidden_size>},
    {"n_layer", size_into<&model_config::layers>},
    {"n_head", size_into<&model_config::heads>},
    {"n_positions", size_into<&model_config::positions_max>},
    {"n_ctx", ignore},
    {"n_inner", inner_size},
    {"layer_norm_epsilon", number_into<&model_config::norm_eps>},
    {"activation_function", must_be_tanh_gelu},
    {"attn_pdrop", must_be_zero},
    {"embd_pdrop", must_be_zero},
    {"resid_pdrop", must_be_zero},
    {"scale_attn_weights", must_be_true},
    {"scale_attn_by_inverse_layer_idx", must_be_false},
    {"reorder_and_upcast_attn", must_be_false},
    {"summary_activation", ignore},
    {"summary_first_dropout", ignore},
    {"summary_proj_to_labels", ignore},
    {"summary_type", ignore},
    {"summary_use_proj", ignore},
};

constexpr key_rule resnet_rules[] = {{"classes", size_into<&model_config::classes>}};

std::span<const key_rule> own_rules(architecture kind) {
    switch (kind) {
        case architecture::gpt2:
            return gpt2_rules;
        case architecture::resnet18:
            return resnet_rules;
        default:
            return rotary_rules;
    }
}

const key_rule* find_rule(std::span<const key_rule> rules, std::string_view key) {
    for (const key_rule& rule : rules)
        if (rule.key == key) return &rule;
    return nullptr;
}

result<architecture> kind_of(const value& document, std::string_view source) {
    const value* type = document.find("model_type");
    const std::string* text = type == nullptr ? nullptr : type->as_string();
    if (text == nullptr) return fail(errc::parse_error, std::string(source) + ": key 'model_type' is missing; add it");
    for (const architecture kind :
         {architecture::qwen3, architecture::llama, architecture::gpt2, architecture::resnet18})
        if (*text == word(kind)) return kind;
    return fail(errc::unsupported, std::string(source) + ": model_type '" + *text +
                                       "' is not implemented; use a model of qwen3, llama, gpt2 or resnet18");
}

// The defaults that the usual library assumes for keys that are absent.
model_config defaults(architecture kind) {
    model_config c;
    c.kind = kind;
    c.tied = kind == architecture::gpt2;
    c.rope_theta = kind == architecture::qwen3 ? 1e6 : 1e4;
    c.norm_eps = kind == architecture::gpt2 ? 1e-5 : 1e-6;
    c.positions_max = kind == architecture::gpt2 ? 1024 : 2048;
    return c;
}

result<model_config> finish(reading r) {
    model_config& c = r.config;
    if (r.sliding_used && r.sliding_given) {
        return r.bad(errc::unsupported, "use_sliding_window", "is true and sliding windows are not implemented");
    }
    if (c.kind == architecture::llama && r.sliding_given) {
        return r.bad(errc::unsupported, "sliding_window", "is set and sliding windows are not implemented");
    }
    if (c.kind == architecture::gpt2 || !r.kv_heads_given) c.kv_heads = c.heads;
    if (!r.head_dim_given && c.heads > 0) {
        if (c.kind == architecture::qwen3)
            c.head_dim = 128;
        else if (c.hidden_size % c.heads == 0)
            c.head_dim = c.hidden_size / c.heads;
    }
    if (c.kind == architecture::gpt2 && c.ffn_size == 0) c.ffn_size = 4 * c.hidden_size;
    if (auto ok = validate(c); !ok) return fail(ok.error().code, std::string(r.source) + ": " + ok.error().context);
    return c;
}

value common_members(const model_config& c, std::string_view class_name) {
    value out = json::make_object({{"architectures", json::array{value(class_name)}}, {"model_type", word(c.kind)}});
    out.set("bos_token_id", c.bos_id ? value(*c.bos_id) : value());
    out.set("eos_token_id", c.eos_id ? value(*c.eos_id) : value());
    out.set("dtype", "float32").set("torch_dtype", "float32");
    out.set("initializer_range", c.init_std).set("tie_word_embeddings", c.tied).set("use_cache", true);
    out.set("vocab_size", c.vocab_size);
    return out;
}

value rotary_members(const model_config& c) {
    value out = common_members(c, c.kind == architecture::qwen3 ? "Qwen3ForCausalLM" : "LlamaForCausalLM");
    out.set("attention_bias", false)
        .set("attention_dropout", 0.0)
        .set("head_dim", c.head_dim)
        .set("hidden_act", "silu");
    out.set("hidden_size", c.hidden_size).set("intermediate_size", c.ffn_size);
    out.set("max_position_embeddings", c.positions_max).set("num_attention_heads", c.heads);
    out.set("num_hidden_layers", c.layers).set("num_key_value_heads", c.kv_heads).set("rms_norm_eps", c.norm_eps);
    out.set("rope_theta", c.rope_theta);
    out.set("rope_parameters", json::make_object({{"rope_theta", c.rope_theta}, {"rope_type", "default"}}));
    if (c.kind == architecture::qwen3)
        out.set("sliding_window", nullptr).set("use_sliding_window", false);
    else
        out.set("mlp_bias", false).set("pretraining_tp", 1);
    return out;
}

value gpt2_members(const model_config& c) {
    value out = common_members(c, "GPT2LMHeadModel");
    out.set("activation_function", "gelu_new").set("attn_pdrop", 0.0).set("embd_pdrop", 0.0).set("resid_pdrop", 0.0);
    out.set("layer_norm_epsilon", c.norm_eps).set("n_embd", c.hidden_size).set("n_head", c.heads);
    out.set("n_inner", c.ffn_size).set("n_layer", c.layers).set("n_positions", c.positions_max);
    return out;
}

}  // namespace

result<model_config> parse_config(std::string_view json_text, std::string_view source) {
    constexpr const char* again = "; write or copy the file again";
    const auto document = json::parse(json_text);
    if (!document) return fail(document.error().code, std::string(source) + ": " + document.error().context + again);
    const json::object* members = document->as_object();
    if (members == nullptr) return fail(errc::parse_error, std::string(source) + ": is not a JSON object" + again);
    const auto kind = kind_of(*document, source);
    if (!kind) return kind.error();
    reading r;
    r.config = defaults(*kind);
    r.source = source;
    for (const auto& [key, member] : *members) {
        const key_rule* rule = find_rule(own_rules(*kind), key);
        if (rule == nullptr) rule = find_rule(common_rules, key);
        if (rule == nullptr) {
            return r.bad(errc::unknown_key, key,
                         "is not known for model_type " + std::string(word(*kind)) +
                             "; remove it if it does not change the mathematics");
        }
        if (auto ok = rule->read(r, key, member); !ok) return ok.error();
    }
    return finish(std::move(r));
}

std::string config_text(const model_config& config) {
    switch (config.kind) {
        case architecture::gpt2:
            return json::dump(gpt2_members(config));
        case architecture::resnet18:
            return json::dump(json::make_object({{"model_type", word(config.kind)}, {"classes", config.classes}}));
        default:
            return json::dump(rotary_members(config));
    }
}

}  // namespace darlcore::models
