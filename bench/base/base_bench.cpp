// SPDX-License-Identifier: Apache-2.0
// Block space: each figure beside the ceiling of the machine measured in the same run.
#include <numeric>
#include <vector>

#include <benchmark/benchmark.h>

#include "darlcore/block_space.hpp"

namespace {

using namespace darlcore;

void mt_output(benchmark::State& state) {
    mt19937 engine = seeded_engine("bench");
    std::uint32_t sum = 0;
    for (auto _ : state) {
        const auto words = engine.ready();
        sum += words[words.size() - 1];
        engine.skip(words.size());
        benchmark::DoNotOptimize(sum);
    }
    state.counters["ns_per_output"] =
        benchmark::Counter(static_cast<double>(state.iterations()) * mt19937::state_words * 1e-9,
                           benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(mt_output);

void permutation(benchmark::State& state) {
    const auto blocks = static_cast<std::uint64_t>(state.range(0));
    for (auto _ : state) benchmark::DoNotOptimize(mt_permutation(42, 0, blocks).data());
    state.counters["ns_per_element"] =
        benchmark::Counter(static_cast<double>(state.iterations()) * static_cast<double>(blocks) * 1e-9,
                           benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(permutation)->Arg(1'000'000)->Arg(100'000'000)->Unit(benchmark::kMillisecond);

void blake2b_rate(benchmark::State& state) {
    const std::vector<std::uint8_t> bytes(1 << 20, 7);
    for (auto _ : state) benchmark::DoNotOptimize(blake2b_of<16>(std::span<const std::uint8_t>(bytes)));
    state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes.size()));
}
BENCHMARK(blake2b_rate);

}  // namespace

BENCHMARK_MAIN();
