// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "darlcore/error.hpp"

namespace darlcore::models {

enum class architecture : std::uint8_t { qwen3, llama, gpt2, resnet18 };

/// The word of config.json's model_type.
constexpr std::string_view word(architecture kind) {
    switch (kind) {
        case architecture::qwen3:
            return "qwen3";
        case architecture::llama:
            return "llama";
        case architecture::gpt2:
            return "gpt2";
        case architecture::resnet18:
            return "resnet18";
    }
    return "";
}

/// Everything that decides the shapes and the mathematics of a model. One decoder serves qwen3, llama and gpt2.
/// Units: sizes in elements; rope_theta and norm_eps pure numbers.
struct model_config {
    architecture kind = architecture::qwen3;
    std::int64_t vocab_size = 0;
    std::int64_t hidden_size = 0;
    std::int64_t layers = 0;
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;
    std::int64_t head_dim = 0;
    std::int64_t ffn_size = 0;
    std::int64_t positions_max =
        0;  ///< gpt2: rows of the position table; others: a bound that is only written to files
    double norm_eps = 1e-6;
    double rope_theta = 1e6;
    double init_std = 0.02;
    bool tied = true;
    std::optional<std::int64_t> bos_id;
    std::optional<std::int64_t> eos_id;
    std::int64_t classes = 10;  ///< resnet18 only

    friend bool operator==(const model_config&, const model_config&) = default;
};

enum class init_rule : std::uint8_t { normal, uniform, zeros, ones };

/// One tensor of a model as it stands in files and in the layout.
struct parameter_spec {
    std::string name;
    std::vector<std::int64_t> shape;
    init_rule init = init_rule::normal;
    double init_scale = 0.02;  ///< standard deviation (normal) or half width (uniform)
    bool trained = true;       ///< false: a running statistic; it travels and is averaged, no optimiser touches it

    [[nodiscard]] std::int64_t elements() const;
    /// Weight decay is for matrices and kernels only.
    [[nodiscard]] bool decays() const { return trained && shape.size() >= 2; }
};

/// Names of the built-in Qwen3 flavours, smallest last: 0.6B ... 32B, debug-1m, debug-3m, debug-10m.
const std::vector<std::string>& flavour_names();

/// A built-in flavour, with a vocabulary other than its own where given (others than 0 are taken as they are).
/// Errors: errc::not_found, naming the flavours that exist.
result<model_config> flavour(std::string_view name, std::int64_t vocab_size = 0);

/// All tensors in layout order (ascending bytes of the name). Tied heads appear once, derived tables never.
/// Preconditions (asserted): the config is valid.
std::vector<parameter_spec> parameter_specs(const model_config& config);

/// Trained elements, each tied tensor once. Allocates no weights.
std::int64_t parameter_count(const model_config& config);

/// Checks sizes: positive, heads a multiple of kv_heads, even head_dim where rotated.
/// Errors: errc::invalid_argument naming the field.
result<void> validate(const model_config& config);

/// Reads a Hugging Face config.json, in the old and the new spelling (rope_theta or rope_parameters, torch_dtype or
/// dtype). Every key must be known: a setting that changes the mathematics in a way that is not implemented is refused.
/// Errors: errc::parse_error, errc::unsupported, errc::unknown_key, errc::invalid_argument; each names `source` and the
/// key.
result<model_config> parse_config(std::string_view json_text, std::string_view source);

/// config.json with both spellings of what differs between writers, so that older and newer readers take it.
std::string config_text(const model_config& config);

}  // namespace darlcore::models
