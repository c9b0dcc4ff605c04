// SPDX-License-Identifier: Apache-2.0
// The merge on files: parameters per second from the page cache, with and without digests of the outputs, beside a
// program that only reads the same inputs and writes (and digests) the same outputs.
//
//     bench_merge_files FOLDER [MILLION_PARAMETERS] [CHUNK_KIB]     default 32 million; 1, 2, 3 and 8 deltas in bf16
//
// A folder in memory (tmpfs) leaves out the disk, which fsync would measure otherwise.
#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

#include "backends/host/cpu_backend.hpp"
#include "backends/host/file_digest.hpp"
#include "backends/host/merge_files.hpp"
#include "backends/host/raw_file.hpp"
#include "backends/host/run_threads.hpp"

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

/// Moves the bytes of a merge and computes nothing: what files, copies and SHA-256 cost by themselves.
void move_bytes(const host::merge_request& request, bool digests, std::uint64_t chunk) {
    std::vector<formats::safetensors_reader> in;
    const auto open = [&](const std::string& path) { in.push_back(formats::safetensors_reader::open(path).value()); };
    open(request.base_path);
    open(*request.velocity_path);
    for (const auto& delta : request.deltas) open(delta.path);
    std::vector<formats::safetensors_writer> out;
    const std::uint64_t elements = in.front().header().entries.front().spec.shape.front();
    const auto create = [&](const std::string& path, dtype type) {
        const std::vector<tensor_spec> specs{{"w", type, {elements}}};
        out.push_back(formats::safetensors_writer::create(path, specs, {}).value());
    };
    create(request.weights_out, dtype::f32);
    create(*request.velocity_out, dtype::f32);
    create(*request.wire_out, dtype::bf16);
    const int threads = host::cpu_backend().threads();
    std::atomic<std::uint64_t> next{0};
    host::run_on_threads(threads, [&] {
        std::vector<std::byte> buffer(chunk * sizeof(float));
        for (std::uint64_t turn = next++; chunk * turn < elements; turn = next++) {
            const std::uint64_t at = chunk * turn, count = std::min(chunk, elements - at);
            for (std::size_t i = 0; i < in.size(); ++i) {
                const std::uint64_t size = i < 2 ? 4 : 2;
                in[i].read(at * size, std::span(buffer).first(count * size)).value();
            }
            for (std::size_t i = 0; i < out.size(); ++i) {
                const std::size_t o = (turn + i) % out.size();
                const std::uint64_t size = o < 2 ? 4 : 2;
                out[o].write_at(at * size, std::span(buffer).first(count * size)).value();
            }
        }
    });
    if (digests) {
        std::vector<host::raw_file> files;
        std::vector<host::digest_job> jobs;
        for (const auto& file : out) files.push_back(host::raw_file::open(file.path()).value());
        for (const auto& file : files)
            jobs.push_back(
                {file.size_bytes(), [&file](auto at, auto into) { return file.read(at, into); }, jobs.size() < 2});
        static_cast<void>(host::digest_files(jobs, threads).value());
    }
    for (auto& file : out) file.finish().value();
}

/// Wall and processor time of one turn, the outputs of the last one removed before it.
template <class Work>
times measured(const host::merge_request& request, const Work& work) {
    for (const auto& path : {request.weights_out, *request.velocity_out, *request.wire_out})
        std::filesystem::remove(path);
    const auto start = std::chrono::steady_clock::now();
    const double processor_start = processor_seconds();
    work();
    const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return {wall, processor_seconds() - processor_start};
}

void merge_once(const host::merge_request& request) {
    const auto report = host::merge_files(request);
    if (report && report->merged) return;
    std::fprintf(stderr, "the merge failed: %s\n", report ? "nothing usable" : to_text(report.error()).c_str());
    std::exit(1);
}

void compare(host::merge_request request, double millions) {
    for (const bool digests : {false, true}) {
        request.digests = digests;
        times merge, bytes;
        const auto keep_best = [](times& best, const times& t) {
            best = {std::min(best.wall_s, t.wall_s), std::min(best.processor_s, t.processor_s)};
        };
        for (int repeat = 0; repeat < 3; ++repeat) {
            keep_best(merge, measured(request, [&] { merge_once(request); }));
            // in the pieces that suit it best
            for (const std::uint64_t chunk : {16384U, 32768U, 65536U})
                keep_best(bytes, measured(request, [&] { move_bytes(request, digests, chunk); }));
        }
        std::printf("| %zu | %s | %.0f | %.0f | %.2f | %.0f | %.0f | %.2f |\n", request.deltas.size(),
                    digests ? "yes" : "no", millions / merge.wall_s, millions / bytes.wall_s,
                    bytes.wall_s / merge.wall_s, millions / merge.processor_s, millions / bytes.processor_s,
                    bytes.processor_s / merge.processor_s);
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: bench_merge_files FOLDER [million parameters] [chunk KiB]\n");
        return 2;
    }
    const std::filesystem::path folder = std::filesystem::path(argv[1]) / "darl-bench-merge";
    const std::uint64_t elements = (argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 32) * 1'000'000;
    std::filesystem::create_directories(folder);
    const auto file = [&](const std::string& name) { return (folder / name).string(); };
    host::merge_request request;
    request.base_path = file("w");
    request.velocity_path = file("v");
    write_model(file("w"), dtype::f32, elements);
    write_model(file("v"), dtype::f32, elements);
    request.guards.max_abs_weight = 1.0F;
    if (argc > 3) request.chunk_bytes_max = std::strtoull(argv[3], nullptr, 10) << 10U;
    request.weights_out = file("w2");
    request.velocity_out = file("v2");
    request.wire_out = file("wire");
    std::printf(
        "M parameters/s by wall clock and per second of one processor; bytes = the same bytes moved, nothing "
        "computed\n| N | digests | merge | bytes | ratio | merge/cpu s | bytes/cpu s | ratio |\n");
    for (const std::size_t deltas : {1U, 2U, 3U, 8U}) {
        while (request.deltas.size() < deltas) {
            const std::string name = std::to_string(request.deltas.size());
            write_model(file("d" + name), dtype::bf16, elements);
            // As in the server: the upload was scanned while it arrived.
            request.deltas.push_back(
                {file("d" + name), {"", {name}, generation{0}, 100, 1}, {}, delta_scan{true, 1e-3F, 1.0}});
        }
        compare(request, static_cast<double>(elements) / 1e6);
    }
    std::filesystem::remove_all(folder);
    return 0;
}
