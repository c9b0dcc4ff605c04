// SPDX-License-Identifier: Apache-2.0
// The merge on files: parameters per second from the page cache, with and without digests of the outputs.
//
//     bench_merge_files FOLDER [MILLION_PARAMETERS] [DELTAS] [CHUNK_KIB]     default 32 million, 3 deltas in bf16; a
//     folder in memory (tmpfs)
//                                                                 leaves out the disk, which fsync would measure
//                                                                 otherwise
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

#include "backends/host/merge_files.hpp"

namespace {

using namespace darlcore;

/// Values of either sign around `scale`. Sums of tiny ones would leave the range of normal numbers, which costs a
/// processor a hundred times as much and no model has.
std::vector<std::byte> values_of(dtype type, float scale) {
    std::vector<std::byte> piece(1U << 20U);
    const std::size_t size = size_of(type);
    std::uint32_t random = 1;
    for (std::size_t at = 0; at < piece.size(); at += size) {
        random = random * 1664525U + 1013904223U;
        const float value = scale * (static_cast<float>(random >> 8U) / 8388608.0F - 1.0F);
        const auto bits = std::bit_cast<std::uint32_t>(value);
        const std::uint32_t word = type == dtype::bf16 ? bits >> 16U : bits;
        std::memcpy(piece.data() + at, &word, size);
    }
    return piece;
}

void write_model(const std::string& path, dtype type, std::uint64_t elements) {
    const std::vector<tensor_spec> specs{{"w", type, {elements}}};
    auto writer = formats::safetensors_writer::create(path, specs, {}).value();
    const std::vector<std::byte> piece = values_of(type, type == dtype::bf16 ? 1e-3F : 0.1F);
    for (std::uint64_t left = writer.data_bytes(); left > 0;) {
        const auto take = std::min<std::uint64_t>(left, piece.size());
        writer.write(std::span(piece).first(take)).value();
        left -= take;
    }
    writer.finish().value();
}

double processor_seconds() {
    timespec t{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

struct times {
    double wall_s = 1e9;
    double processor_s =
        1e9;  // of all threads together: what a machine without other jobs would divide among its cores
};

times run_once(const host::merge_request& request) {
    for (const auto& path : {request.weights_out, *request.velocity_out, *request.wire_out})
        std::filesystem::remove(path);
    const auto start = std::chrono::steady_clock::now();
    const double processor_start = processor_seconds();
    const auto report = host::merge_files(request);
    const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const double processor = processor_seconds() - processor_start;
    if (!report || !report->merged) {
        std::fprintf(stderr, "the merge failed: %s\n", report ? "nothing usable" : to_text(report.error()).c_str());
        std::exit(1);
    }
    return {wall, processor};
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: bench_merge_files FOLDER [million parameters] [deltas] [chunk KiB]\n");
        return 2;
    }
    const std::filesystem::path folder = std::filesystem::path(argv[1]) / "darl-bench-merge";
    const std::uint64_t elements = (argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 32) * 1'000'000;
    const int deltas = argc > 3 ? std::atoi(argv[3]) : 3;
    std::filesystem::create_directories(folder);
    const auto file = [&](const std::string& name) { return (folder / name).string(); };
    host::merge_request request;
    request.base_path = file("w");
    request.velocity_path = file("v");
    write_model(file("w"), dtype::f32, elements);
    write_model(file("v"), dtype::f32, elements);
    for (int i = 0; i < deltas; ++i) {
        const std::string path = file("d" + std::to_string(i));
        write_model(path, dtype::bf16, elements);
        // As in the server: the upload was scanned while it arrived.
        request.deltas.push_back(
            {path, {"", {std::to_string(i)}, generation{0}, 100, 1}, {}, delta_scan{true, 1e-3F, 1.0}});
    }
    request.guards.max_abs_weight = 1.0F;
    if (argc > 4) request.chunk_bytes_max = std::strtoull(argv[4], nullptr, 10) << 10U;
    request.weights_out = file("w2");
    request.velocity_out = file("v2");
    request.wire_out = file("wire");
    for (const bool digests : {false, true}) {
        request.digests = digests;
        times best;
        for (int repeat = 0; repeat < 4; ++repeat) {
            const times t = run_once(request);
            best = {std::min(best.wall_s, t.wall_s), std::min(best.processor_s, t.processor_s)};
        }
        const double n = static_cast<double>(elements) / 1e6;
        std::printf(
            "| %.0f M parameters, %d deltas bf16 | digests %s | wall %.0f M parameters/s | %.0f M per second of one "
            "processor |\n",
            n, deltas, digests ? "on" : "off", n / best.wall_s, n / best.processor_s);
    }
    std::filesystem::remove_all(folder);
    return 0;
}
