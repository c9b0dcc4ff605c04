// SPDX-License-Identifier: Apache-2.0
// The fused outer step beside what the memory of this machine gives for the same mix of reads and writes, in one
// process.
//
//     bench_outer_step [GIB] [REPEATS]     default 2.4 GiB of arrays per case, best of 5
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <thread>
#include <vector>

#include "backends/host/cpu_backend.hpp"
#include "bench/host/ceiling.hpp"

namespace {

using namespace darlcore;

/// Memory on transparent huge pages, touched once.
class arena {
public:
    explicit arena(std::size_t bytes) : bytes_(bytes) {
        base_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (base_ == MAP_FAILED) {
            std::perror("mmap");
            std::exit(1);
        }
        ::madvise(base_, bytes, MADV_HUGEPAGE);
        std::memset(base_, 0, bytes);
    }
    ~arena() { ::munmap(base_, bytes_); }
    arena(const arena&) = delete;
    arena& operator=(const arena&) = delete;
    /// The next piece, at a cache line.
    void* take(std::size_t bytes) {
        void* piece = static_cast<char*>(base_) + used_;
        used_ += (bytes + 63) / 64 * 64;
        return piece;
    }

private:
    void* base_;
    std::size_t bytes_;
    std::size_t used_ = 0;
};

/// Processor time of the whole process: on a quiet machine the time of the wall times the threads, on a busy one
/// without the turns of others.
double processor_seconds() {
    timespec t{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double seconds_of(int threads, const std::function<void()>& work) {
    const double start = processor_seconds();
    work();
    return (processor_seconds() - start) / threads;
}

struct case_of {
    int count;
    dtype type;
    bool wire;
    bool in_place;
    int threads;
};

bench::traffic_kernel widest() {
#if defined(__x86_64__)
    if (host::available_instruction_sets().back() == host::instruction_set::avx512) return &bench::move_64;
#endif
    return &bench::move_16;
}

void move_on(int threads, const bench::traffic& t, std::size_t n) {
    static const bench::traffic_kernel kernel = widest();
    std::vector<std::thread> helpers;
    const auto border = [&](int part) {
        return n * static_cast<std::size_t>(part) / static_cast<std::size_t>(threads) / 65536 * 65536;
    };
    for (int part = 1; part < threads; ++part)
        helpers.emplace_back([&, part] { kernel(t, border(part), part + 1 == threads ? n : border(part + 1)); });
    kernel(t, 0, threads == 1 ? n : border(1));
    for (auto& helper : helpers) helper.join();
}

std::size_t bytes_per_parameter(const case_of& c) {
    return 8 + static_cast<std::size_t>(c.count) * size_of(c.type) + 8 + (c.wire ? 2U : 0U);
}

void run(const case_of& c, double gib, int repeats) {
    const std::size_t held = bytes_per_parameter(c) - (c.in_place ? 8 : 0);
    const std::size_t n = static_cast<std::size_t>(gib * 1073741824.0) / held / 65536 * 65536;
    arena memory(n * held + 65536);
    auto* w = static_cast<float*>(memory.take(4 * n));
    auto* v = static_cast<float*>(memory.take(4 * n));
    auto* w_out = c.in_place ? w : static_cast<float*>(memory.take(4 * n));
    auto* v_out = c.in_place ? v : static_cast<float*>(memory.take(4 * n));
    void* wire = c.wire ? memory.take(2 * n) : nullptr;
    std::vector<const void*> raw;
    std::vector<weighted_delta> deltas;
    for (int i = 0; i < c.count; ++i) {
        raw.push_back(memory.take(size_of(c.type) * n));
        deltas.push_back({{raw.back(), n, c.type}, 1.0F / static_cast<float>(c.count), 1.0F});
    }
    const bench::traffic t{w,          v,       c.in_place ? nullptr : w_out, c.in_place ? nullptr : v_out, wire,
                           raw.data(), c.count, size_of(c.type) == 2};
    host::cpu_backend backend({.threads = c.threads});
    host::cpu_backend::queue q;
    outer_step_args args;
    args.w = {w, n, dtype::f32};
    args.v = {v, n, dtype::f32};
    args.deltas = deltas;
    args.rule = {0.7F, 0.9F, step_mode::nesterov};
    args.w_out = {w_out, n, dtype::f32};
    args.v_out = {v_out, n, dtype::f32};
    if (c.wire) args.wire = {wire, n, dtype::bf16};
    // Interleaved, so that a busy neighbour hits both.
    double ceiling = 1e9, kernel = 1e9;
    for (int r = 0; r <= repeats; ++r) {
        ceiling = std::min(ceiling, seconds_of(c.threads, [&] { move_on(c.threads, t, n); }));
        kernel = std::min(kernel, seconds_of(c.threads, [&] { static_cast<void>(backend.outer_step(q, args)); }));
    }
    const double bytes = static_cast<double>(bytes_per_parameter(c) * n);
    std::printf("| %d | %s | %s | %s | %d | %zu | %.1f | %.1f | %.2f | %.2f |\n", c.count, word(c.type).data(),
                c.wire ? "yes" : "no", c.in_place ? "in place" : "around", c.threads, bytes_per_parameter(c),
                bytes / ceiling / 1e9, bytes / kernel / 1e9, ceiling / kernel, static_cast<double>(n) / kernel / 1e9);
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    const double gib = argc > 1 ? std::atof(argv[1]) : 2.4;
    const int repeats = argc > 2 ? std::atoi(argv[2]) : 5;
    if (!(gib >= 0.01 && gib <= 64) || repeats < 1) {
        std::fprintf(stderr, "usage: bench_outer_step [GIB of arrays] [repeats]\n");
        return 2;
    }
    const int all = host::cpu_backend().threads();
    std::printf("kernels: %s, %d threads at most, %.1f GiB of arrays per case, best of %d\n\n",
                host::best_kernels().name, all, gib, repeats);
    std::printf(
        "| N | deltas | wire | stores | threads | B/parameter | ceiling GB/s | kernel GB/s | ratio | G parameters/s |\n"
        "|---|---|---|---|---|---|---|---|---|---|\n");
    for (const int threads : {1, all}) {
        for (const dtype type : {dtype::bf16, dtype::f32})
            for (const int count : {1, 2, 3, 8}) run({count, type, false, true, threads}, gib, repeats);
        run({3, dtype::bf16, true, true, threads}, gib, repeats);
        run({3, dtype::bf16, true, false, threads}, gib, repeats);
        if (all == 1) break;
    }
    return 0;
}
