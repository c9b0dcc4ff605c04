// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "backends/torch/weights_io.hpp"

namespace darlcore::models {

/// A decoder for use, not for training: logits, loss, sampling. Hides libtorch.
/// Thread-safety: one caller at a time.
class language_model {
public:
    /// Weights drawn from a seed.
    /// Errors: those of validate; errc::unsupported for a config that is no decoder.
    static result<language_model> create(const model_config& config, std::int64_t seed);
    /// A model folder. Errors: those of read_folder_config and read_folder_weights.
    static result<language_model> open(const std::string& folder);

    language_model(language_model&&) noexcept;
    language_model& operator=(language_model&&) noexcept;
    ~language_model();

    [[nodiscard]] const model_config& config() const;
    /// All weights, flat in layout order.
    [[nodiscard]] std::span<const float> weights() const;

    /// Logits [T, V] of one sequence of T ids.
    /// Errors: errc::invalid_argument for an empty sequence, an id outside the vocabulary, or more positions than
    /// gpt2's table has.
    result<std::vector<float>> logits(std::span<const std::int64_t> ids);

    /// Sum of cross-entropies (nats) over all predicted positions of windows [B, window], flat.
    /// Errors: as logits. Preconditions (asserted): window >= 2, windows.size() a multiple of it.
    result<double> loss_sum(std::span<const std::int64_t> windows, std::int64_t window);

    struct sampling {
        std::int64_t tokens = 64;
        double temperature = 1.0;  ///< 0 takes the most likely id
        std::int64_t seed = 0;
        std::int64_t context_max = 1024;  ///< the last ids that are looked at
    };
    /// Continues `prompt`; gives the new ids, ending early after eos. `allowed(id)` filters ids (nothing given: all).
    /// Determinism: equal bits for equal weights, prompt and settings on one machine.
    result<std::vector<std::int64_t>> sample(std::vector<std::int64_t> prompt, const sampling& how,
                                             const std::function<bool(std::int64_t)>& allowed = {});

private:
    struct state;
    explicit language_model(std::unique_ptr<state> s);
    std::unique_ptr<state> state_;
};

/// Version and build of the libtorch in use, for `darl doctor`: "libtorch 1.13.0".
std::string libtorch_version();

}  // namespace darlcore::models
