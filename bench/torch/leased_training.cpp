// SPDX-License-Identifier: Apache-2.0
// What leasing costs a trainer: tokens/s of debug-10m in phases of reserved groups, with the delta and the checkpoint
// of every phase, beside a plain loop of the same model, optimiser and batch in the same process.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "backends/torch/checkpoint.hpp"
#include "backends/torch/compute_environment.hpp"
#include "backends/torch/optimiser.hpp"
#include "backends/torch/task.hpp"
#include "backends/torch/trainer.hpp"
#include "darlcore/block_space.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::training;

constexpr std::uint64_t seq_len = 128, batch = 4, steps = 8, windows = batch * steps;
constexpr double lr = 3e-4;

using stopwatch = std::chrono::steady_clock;
double seconds_since(stopwatch::time_point begun) {
    return std::chrono::duration<double>(stopwatch::now() - begun).count();
}

std::unique_ptr<window_source> drawn_windows() {
    std::vector<std::int32_t> ids(windows * (seq_len + 1));
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>((i * i + 7 * i) % 256);
    return memory_source(std::move(ids), seq_len + 1);
}

// The loop that anybody would write: read, loss, backward, clip, update.
struct plain_loop {
    std::unique_ptr<task> work = make_language_task(*models::flavour("debug-10m"), seq_len);
    optimiser update{{optimiser_kind::adamw, 0.9, 0.95, 1e-8, 0.1}, work->weights()};
    std::vector<std::byte> bytes = std::vector<std::byte>(batch * 4 * (seq_len + 1));
    at::Tensor ones = at::ones({static_cast<std::int64_t>(batch)}, at::kFloat);

    plain_loop() { work->weights().initialise(1); }

    void step(const window_source& data, std::uint64_t first) {
        const std::size_t each = data.window_bytes();
        for (std::uint64_t i = 0; i < batch; ++i)
            if (!data.read(first + i, std::span(bytes).subspan(i * each, each))) std::abort();
        const at::Tensor loss = work->loss_sum(bytes, ones, true);
        loss.backward();
        const double tokens = static_cast<double>(batch * seq_len);
        const double norm = norm_of(work->weights().gradients()) / tokens;
        benchmark::DoNotOptimize(loss.item<double>());
        update.step(work->weights(), lr, (norm > 1.0 ? 1.0 / norm : 1.0) / tokens);
    }
    double phase(const window_source& data) {
        const auto begun = stopwatch::now();
        for (std::uint64_t s = 0; s < steps; ++s) step(data, s * batch);
        return seconds_since(begun);
    }
};

struct leased_site {
    std::unique_ptr<communicator> ranks = single_communicator();
    std::string folder = (std::filesystem::temp_directory_path() /
                          ("darl-bench-" + std::to_string(stopwatch::now().time_since_epoch().count())))
                             .string();
    inner_trainer trainer;
    checkpoint_store checkpoints;
    std::shared_ptr<const epoch_map> map;

    leased_site()
        : trainer(*inner_trainer::create(settings(), *ranks)),
          checkpoints(*checkpoint_store::open(folder, "bench", trainer.layout_digest(), "1")),
          map(*block_space::build(geometry(), epoch_index{0})) {
        trainer.initialise();
    }
    leased_site(const leased_site&) = delete;
    leased_site& operator=(const leased_site&) = delete;
    ~leased_site() {
        std::error_code ignored;
        std::filesystem::remove_all(folder, ignored);
    }

    static trainer_settings settings() {
        trainer_settings s;
        s.model = *models::flavour("debug-10m");
        s.seed = 1;
        s.seq_len = seq_len;
        s.batch = batch;
        s.schedule = {lr, 0, std::uint64_t{1} << 40U, 0.0, 0.1};
        return s;
    }
    static space_parameters geometry() {
        space_parameters p;
        p.num_samples = windows;
        p.block_size = batch;
        return p;
    }
    // Four groups, as a phase of eight blocks has.
    double phase(const window_source& data) {
        const auto begun = stopwatch::now();
        std::uint64_t next = 0;
        phase_hooks hooks;
        hooks.group = [&]() -> next_group {
            if (next == steps) return group_end{};
            next += 2;
            return phase_group{next, {make_span(next - 2, next)}};
        };
        if (!trainer.train_phase(map, data, hooks)) std::abort();
        const double trained = seconds_since(begun);
        if (!trainer.write_delta(folder + "/delta", dtype::bf16, {})) std::abort();
        if (!checkpoints.save(trainer, json::make_object({}))) std::abort();
        written_s += seconds_since(begun) - trained;
        return trained;
    }
    double written_s = 0;
};

void leased_beside_plain(benchmark::State& state) {
    const auto data = drawn_windows();
    plain_loop plain;
    leased_site leased;
    (void)plain.phase(*data);
    (void)leased.phase(*data);
    leased.written_s = 0;
    double plain_s = 0, leased_s = 0;
    double phases = 0;
    for (auto _ : state) {
        plain_s += plain.phase(*data);
        leased_s += leased.phase(*data);
        ++phases;
    }
    const double tokens = phases * static_cast<double>(windows * seq_len);
    state.counters["plain_tokens_per_s"] = tokens / plain_s;
    state.counters["leased_tokens_per_s"] = tokens / leased_s;
    state.counters["leased_over_plain"] = plain_s / leased_s;
    state.counters["delta_and_checkpoint_s"] = leased.written_s / phases;
}
BENCHMARK(leased_beside_plain)->Iterations(6)->Unit(benchmark::kMillisecond);

}  // namespace

int main(int argc, char** argv) {
    restart_with_worker_environment();
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
