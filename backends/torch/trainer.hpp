// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "adapters/formats/json.hpp"
#include "backends/torch/communicator.hpp"
#include "backends/torch/model_spec.hpp"
#include "backends/torch/schedule.hpp"
#include "backends/torch/weights_io.hpp"
#include "darlcore/epoch_map.hpp"
#include "darlcore/phase_group.hpp"
#include "darlcore/sizing.hpp"

// The inner loop of a site: trains groups of windows on one generation and gives the delta. Knows nothing of servers
// and leases: the caller hands it spans that are reserved already, and is told after each applied step what may be
// called trained.
namespace darlcore::training {

/// Where windows come from. Language models read a window as seq_len + 1 ids of id_bytes() each (native i32 or u16),
/// resnet18 as one label byte and 3 x 32 x 32 pixel bytes (the CIFAR-10 record).
class window_source {
public:
    virtual ~window_source() = default;
    [[nodiscard]] virtual std::uint64_t num_windows() const = 0;
    /// Bytes of one window in the form above.
    [[nodiscard]] virtual std::size_t window_bytes() const = 0;
    [[nodiscard]] virtual std::size_t id_bytes() const { return 4; }
    /// Preconditions: window < num_windows(), out.size() == window_bytes(). Called from several threads at once.
    [[nodiscard]] virtual result<void> read(std::uint64_t window, std::span<std::byte> out) const = 0;
};

/// Windows held in memory, for tests and small held-out sets. Ids in rows of `window`.
std::unique_ptr<window_source> memory_source(std::vector<std::int32_t> ids, std::size_t window);

enum class optimiser_choice : std::uint8_t { adamw, sgd_nesterov };

struct trainer_settings {
    models::model_config model;
    std::int64_t seed = 0;         ///< of the run: initial weights depend on nothing else
    std::uint64_t seq_len = 0;     ///< predicted positions of a window; 1 for images
    std::uint64_t batch = 1;       ///< B, windows per rank and micro-batch
    std::uint64_t accumulate = 1;  ///< A
    lr_schedule schedule;          ///< resnet18: of a batch of 128, scaled by the replica's (B * A * ranks)
    optimiser_choice optimiser = optimiser_choice::adamw;
    double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
    double clip_norm = 1.0;        ///< 0: off
    double label_smoothing = 0.1;  ///< images only
};

/// What the caller learns after each applied step. Values are those of the whole site.
struct step_report {
    std::uint64_t step = 0;                 ///< applied steps of this phase, this one included
    std::uint64_t global_step = 0;          ///< position after it
    std::uint64_t windows = 0, tokens = 0;  ///< of this step
    double loss = 0.0;                      ///< mean over the step's predicted positions
    double lr = 0.0;
    double grad_norm = 0.0;  ///< before clipping
    double step_s = 0.0, data_wait_s = 0.0;
    std::size_t groups_trained = 0;  ///< groups of this phase that are wholly in applied steps
};

struct group_end {};   ///< no more groups: finish what is there
struct phase_drop {};  ///< throw the phase away now
/// Answer to "which positions next?". All positions must be reserved.
using next_group = std::variant<phase_group, group_end, phase_drop>;

enum class after_step : std::uint8_t {
    go_on,
    end_soon,  ///< finish at the earliest allowed end (10 section 5): budget, drain, SIGTERM
    drop,      ///< throw the phase away now
};

/// The caller's side of a phase. Called on rank 0 only.
struct phase_hooks {
    std::function<next_group()> group;
    std::function<after_step(const step_report&)> stepped;  ///< may be empty
};

enum class phase_ending : std::uint8_t { finished, dropped, not_finite };

struct phase_summary {
    phase_ending ending = phase_ending::finished;
    std::uint64_t steps = 0, windows = 0, tokens = 0;
    double loss_sum = 0.0;                         ///< nats over `tokens` positions, f64
    double last_loss = 0.0, last_grad_norm = 0.0;  ///< last finite values
    std::size_t groups = 0;  ///< groups that are wholly in the weights, in the order they were given
    double train_s = 0.0, data_wait_s = 0.0;
    std::string problem;  ///< not_finite: step, rank, last finite values
};

struct evaluation {
    double loss_sum = 0.0;
    std::uint64_t tokens = 0, windows = 0;
    std::uint64_t correct = 0;  ///< images only: windows whose label was predicted

    /// Nothing when nothing was scored; never 0 instead.
    [[nodiscard]] std::optional<double> loss() const;
    [[nodiscard]] std::optional<double> perplexity() const;
};

struct delta_norms {
    double delta = 0.0, weights = 0.0;
};

class phase_run;

/// One rank's trainer. With several ranks every rank makes the same calls in the same order.
/// Determinism: f32, one thread, one build: equal bits for equal inputs, also across a restart between phases.
/// Thread-safety: one caller at a time.
class inner_trainer {
public:
    /// Zero weights until `initialise` or `load_generation`. The communicator outlives the trainer.
    /// Errors: errc::invalid_argument naming the setting.
    static result<inner_trainer> create(const trainer_settings& settings, communicator& ranks);

    inner_trainer(inner_trainer&&) noexcept;
    inner_trainer& operator=(inner_trainer&&) noexcept;
    ~inner_trainer();

    [[nodiscard]] const trainer_settings& settings() const;
    [[nodiscard]] const std::vector<models::parameter_spec>& specs() const;
    [[nodiscard]] std::string layout_digest() const;

    // Generations. The values that are loaded are remembered: the delta is measured against them.
    /// Weights from the run seed; equal bits on every site and rank.
    void initialise();
    /// Errors: those of read_weights (every rank reads the file).
    result<void> load_generation(const std::string& path);
    /// Back to the loaded values, after a phase that ended without a delta.
    void reload();
    /// Sets the place in the learning-rate schedule, in both directions.
    void set_position(std::uint64_t global_step);
    [[nodiscard]] std::uint64_t position() const;

    /// Trains groups until the hooks end the phase. Whole groups only are in the weights when it says `finished`; after
    /// `dropped` and `not_finite` the weights are the loaded ones again. Moments stay. Errors: errc::io_error and the
    /// like from the source, errc::unreachable from the ranks; the weights are then undefined until the next load or
    /// reload.
    result<phase_summary> train_phase(std::shared_ptr<const epoch_map> map, const window_source& source,
                                      const phase_hooks& hooks);

    /// delta = weights - loaded values, f32; written as bf16 or f32 safetensors through a staging name, durable on
    /// return.
    result<models::written_file> write_delta(const std::string& path, dtype type,
                                             const formats::safetensors_metadata& metadata) const;
    [[nodiscard]] delta_norms norms() const;
    result<models::written_file> write_weights(const std::string& path, dtype type,
                                               const formats::safetensors_metadata& metadata) const;
    [[nodiscard]] std::span<const float> weights() const;

    /// Mean loss over windows [0, min(windows_max, all)), split over the ranks; the number of ranks does not change the
    /// score.
    result<evaluation> evaluate(const window_source& source, std::uint64_t windows_max);

    // What a site keeps besides the generation (60 section 6): moments, their age, the position.
    [[nodiscard]] std::uint64_t updates() const;
    [[nodiscard]] std::span<const float> first_moments() const;
    [[nodiscard]] std::span<const float> second_moments() const;  ///< empty for SGD
    /// Preconditions (asserted): sizes as the accessors'.
    void restore_moments(std::span<const float> first, std::span<const float> second, std::uint64_t updates);
    /// Cold moments, as a joiner has.
    void cool();

private:
    struct state;
    friend class phase_run;
    explicit inner_trainer(std::unique_ptr<state> s);
    std::unique_ptr<state> state_;
};

}  // namespace darlcore::training
