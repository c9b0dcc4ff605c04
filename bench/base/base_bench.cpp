// SPDX-License-Identifier: Apache-2.0
// Block space: each figure beside the ceiling of the machine measured in the same run: best of several repeats, in
// processor time of this thread, so that other work on the machine disturbs less.
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include <benchmark/benchmark.h>

#if defined(DARLCORE_BENCH_OPENSSL)
#include <openssl/evp.h>
#endif

#include "darlcore/block_space.hpp"
#include "darlcore/phase.hpp"

namespace {

using namespace darlcore;

double thread_seconds() {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

template <class Work>
double best_seconds(int repeats, Work&& work) {
    double best = 1e300;
    for (int k = 0; k < repeats; ++k) {
        const double start = thread_seconds();
        work();
        best = std::min(best, thread_seconds() - start);
    }
    return best;
}

// Nanoseconds per tempered output of the engine.
double engine_output_ns() {
    static const double ns = [] {
        constexpr int blocks = 20'000;
        mt19937 engine = seeded_engine("bench");
        std::uint32_t sum = 0;
        const double seconds = best_seconds(9, [&] {
            for (int b = 0; b < blocks; ++b) {
                const auto words = engine.ready();
                sum += words.back();
                engine.skip(words.size());
            }
        });
        benchmark::DoNotOptimize(sum);
        return seconds * 1e9 / (blocks * static_cast<double>(mt19937::state_words));
    }();
    return ns;
}

// Mean tries per entry of a shuffle of n.
double tries_per_entry(std::uint64_t n) {
    double tries = 0;
    for (std::uint64_t i = 2; i <= n; ++i) tries += static_cast<double>(std::bit_ceil(i + 1)) / static_cast<double>(i);
    return tries / static_cast<double>(n);
}

// Nanoseconds per independent random read-modify-write in a table of n words whose addresses are known far ahead.
double random_update_ns(std::uint64_t n) {
    std::vector<std::uint32_t> table(n, 1);
    constexpr std::size_t updates = 4'000'000;
    const double seconds = best_seconds(3, [&] {
        std::uint64_t x = 0x9e3779b97f4a7c15U;
        for (std::size_t k = 0; k < updates; ++k) {
            x ^= x << 13U;
            x ^= x >> 7U;
            x ^= x << 17U;
            ++table[static_cast<std::size_t>((static_cast<std::uint64_t>(static_cast<std::uint32_t>(x)) * n) >> 32U)];
        }
    });
    benchmark::DoNotOptimize(table.data());
    return seconds * 1e9 / updates;
}

double hash_bytes_per_second() {
    static const double rate = [] {
        const std::vector<std::uint8_t> bytes(8U << 20U, 7);
        const double seconds =
            best_seconds(9, [&] { benchmark::DoNotOptimize(blake2b_of<16>(std::span<const std::uint8_t>(bytes))); });
        return static_cast<double>(bytes.size()) / seconds;
    }();
    return rate;
}

#if defined(DARLCORE_BENCH_OPENSSL)
double openssl_hash_bytes_per_second() {
    const std::vector<std::uint8_t> bytes(8U << 20U, 7);
    unsigned char out[EVP_MAX_MD_SIZE];
    const double seconds = best_seconds(9, [&] {
        unsigned size = 0;
        EVP_Digest(bytes.data(), bytes.size(), out, &size, EVP_blake2b512(), nullptr);
        benchmark::DoNotOptimize(out);
    });
    return static_cast<double>(bytes.size()) / seconds;
}
#endif

void permutation(benchmark::State& state) {
    const auto blocks = static_cast<std::uint64_t>(state.range(0));
    double best = 1e300;
    for (auto _ : state)
        best = std::min(best, best_seconds(1, [&] { benchmark::DoNotOptimize(mt_permutation(42, 0, blocks).data()); }));
    const double ns = best * 1e9 / static_cast<double>(blocks);
    const double engine = engine_output_ns() * tries_per_entry(blocks);
    const double memory = random_update_ns(blocks);
    state.counters["ns_per_element"] = ns;
    state.counters["ceiling_engine_ns"] = engine;
    state.counters["ceiling_memory_ns"] = memory;
    state.counters["ratio"] = ns / (engine + memory);
}
BENCHMARK(permutation)->Arg(1'000'000)->Iterations(100)->Unit(benchmark::kMillisecond);
BENCHMARK(permutation)->Arg(100'000'000)->Iterations(3)->Unit(benchmark::kMillisecond);

// The same order by one draw and one swap at a time: what batching and prefetching are worth.
void permutation_plain_loop(benchmark::State& state) {
    const auto blocks = static_cast<std::uint32_t>(state.range(0));
    double best = 1e300;
    for (auto _ : state) {
        best = std::min(best, best_seconds(1, [&] {
                            std::vector<std::uint32_t> a(blocks);
                            std::iota(a.begin(), a.end(), 0U);
                            mt19937 engine = seeded_engine(permutation_text(42, 0));
                            for (std::uint32_t i = blocks - 1; i > 0; --i) std::swap(a[i], a[engine.draw(i + 1)]);
                            benchmark::DoNotOptimize(a.data());
                        }));
    }
    state.counters["ns_per_element"] = best * 1e9 / blocks;
}
BENCHMARK(permutation_plain_loop)->Arg(1'000'000)->Iterations(20)->Unit(benchmark::kMillisecond);
BENCHMARK(permutation_plain_loop)->Arg(100'000'000)->Iterations(1)->Unit(benchmark::kMillisecond);

void epoch_digest(benchmark::State& state) {
    const auto blocks = static_cast<std::uint64_t>(state.range(0));
    const epoch_map map({.num_samples = blocks, .seed = 42}, epoch_index{0});
    double best = 1e300;
    for (auto _ : state) best = std::min(best, best_seconds(1, [&] { benchmark::DoNotOptimize(map.digest()); }));
    const double rate = static_cast<double>(4 * blocks) / best;
    state.counters["MB_per_s"] = rate * 1e-6;
    state.counters["blake2b_MB_per_s"] = hash_bytes_per_second() * 1e-6;
    state.counters["ratio"] = rate / hash_bytes_per_second();
#if defined(DARLCORE_BENCH_OPENSSL)
    state.counters["openssl_MB_per_s"] = openssl_hash_bytes_per_second() * 1e-6;
    state.counters["ratio_to_openssl"] = rate / openssl_hash_bytes_per_second();
#endif
}
BENCHMARK(epoch_digest)->Arg(1'000'000)->Iterations(50)->Unit(benchmark::kMillisecond);

void feistel_access(benchmark::State& state) {
    const auto size = static_cast<std::uint64_t>(state.range(0));
    const feistel_permutation f(42, 0, size);
    constexpr std::uint64_t accesses = 100'000;
    double best = 1e300;
    std::uint64_t sum = 0;
    for (auto _ : state) {
        best = std::min(best, best_seconds(1, [&] {
                            for (std::uint64_t x = 0; x < accesses; ++x) sum += f.forward(x);
                        }));
    }
    benchmark::DoNotOptimize(sum);
    state.counters["ns_per_access"] = best * 1e9 / accesses;
}
BENCHMARK(feistel_access)->Arg(1'000'000)->Arg(10'000'000'000'000)->Iterations(30);

// Every lookup takes the result of the last one, so that latency is measured and not throughput.
void window_count(benchmark::State& state) {
    const epoch_map map({.num_samples = 9'999'999, .block_size = 10, .seed = 42}, epoch_index{0});
    std::uint64_t chain = 0;
    for (auto _ : state) {
        const std::uint64_t start = chain & 0xfffffU;
        chain = map.window_count(make_span(start % 900'000, start % 900'000 + 100));
        benchmark::DoNotOptimize(chain);
    }
}
BENCHMARK(window_count);

void windows_of(benchmark::State& state) {
    const epoch_map map({.num_samples = 99'999, .block_size = 10, .seed = 42}, epoch_index{0});
    std::uint64_t p = 0;
    for (auto _ : state) {
        benchmark::DoNotOptimize(map.windows_of(position{p}));
        p = p + 1 == map.num_blocks() ? 0 : p + 1;
    }
}
BENCHMARK(windows_of);

void phase_windows(benchmark::State& state) {
    const auto map =
        block_space::build({.num_samples = 1'000'000, .block_size = 1024, .seed = 42}, epoch_index{0}).value();
    const auto plan = phase_plan::make(map, {{0, {make_span(0, 64)}}, {1, {make_span(64, 128)}}}, {8, 4, 1}).value();
    std::uint64_t windows = 0;
    std::vector<std::uint64_t> batch;
    for (auto _ : state) {
        phase_reader reader(plan);
        for (std::uint64_t s = 0; s < plan.num_steps(); ++s) windows += reader.read(0, s, 0, batch);
        benchmark::DoNotOptimize(batch.data());
    }
    state.counters["ns_per_window"] = benchmark::Counter(static_cast<double>(windows) * 1e-9,
                                                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(phase_windows)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
