// SPDX-License-Identifier: Apache-2.0
// bench_load_weights [FOLDER]: reading a model's weights beside reading the same bytes from the page cache, and the
// peak of resident memory that it takes. Beside it three ways that convert nothing: one `read` after the other into the
// same memory, the same by as many threads as the load has, and, for bf16, threads that read as the load does and store
// as many f32 as there are numbers: the floor of a load into f32. The files (300 and 150 MB) are made and removed here.
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "adapters/formats/posix_file.hpp"
#include "backends/host/run_threads.hpp"
#include "backends/torch/weights_io.hpp"

namespace {

using namespace darlcore;

// The least of several runs, by the clock and by the processor time of all threads. Units: seconds.
struct cost {
    double wall = 1e9;
    double processor = 1e9;

    void measure(const auto& work) {
        const double begun[] = {now(CLOCK_MONOTONIC), now(CLOCK_PROCESS_CPUTIME_ID)};
        work();
        wall = std::min(wall, now(CLOCK_MONOTONIC) - begun[0]);
        processor = std::min(processor, now(CLOCK_PROCESS_CPUTIME_ID) - begun[1]);
    }
    static double now(clockid_t clock) {
        timespec t{};
        ::clock_gettime(clock, &t);
        return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
    }
};

// A line of /proc/self/status in MiB.
double resident_mib(const std::string& key) {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
        if (line.starts_with(key)) return std::stod(line.substr(key.size() + 1)) / 1024;
    return 0;
}

void forget_peak() { std::ofstream("/proc/self/clear_refs") << 5; }

constexpr std::uint64_t part_bytes = std::uint64_t{2} << 20U;

// Calls work(first byte, bytes) for parts of the file, on `threads` threads.
template <class Work>
void for_parts(std::uint64_t bytes, int threads, const Work& work) {
    std::atomic<std::uint64_t> next{0};
    host::run_on_threads(threads, [&] {
        for (std::uint64_t first = next.fetch_add(part_bytes); first < bytes; first = next.fetch_add(part_bytes))
            work(first, std::min(part_bytes, bytes - first));
    });
}

// The file's bytes to where the numbers go, as they are.
void read_bytes(const std::string& path, std::span<std::byte> room, int threads) {
    const auto file = formats::posix_file::open_for_reading(path).value();
    for_parts(
        std::min<std::uint64_t>(file.size_bytes().value(), room.size()), threads,
        [&](std::uint64_t first, std::uint64_t bytes) { file.read_at(first, room.subspan(first, bytes)).value(); });
}

// Fills memory, around the caches where the processor can.
void store(std::span<std::byte> to, std::byte value) {
#if defined(__x86_64__)
    if (reinterpret_cast<std::uintptr_t>(to.data()) % 16 == 0 && to.size() % 16 == 0) {
        const __m128i all = _mm_set1_epi8(std::to_integer<char>(value));
        for (std::size_t i = 0; i < to.size(); i += 16) _mm_stream_si128(reinterpret_cast<__m128i*>(&to[i]), all);
        return _mm_sfence();
    }
#endif
    std::memset(to.data(), std::to_integer<int>(value), to.size());
}

// The file's 16-bit numbers through a small buffer, and 32 bits stored for each.
void read_and_store(const std::string& path, std::span<std::byte> room, int threads) {
    const auto file = formats::posix_file::open_for_reading(path).value();
    for_parts(room.size() / 2, threads, [&](std::uint64_t first, std::uint64_t bytes) {
        alignas(64) std::array<std::byte, 24U << 10U> buffer;
        for (std::uint64_t at = 0; at < bytes; at += buffer.size()) {
            const auto n = std::min<std::uint64_t>(buffer.size(), bytes - at);
            file.read_at(first + at, std::span(buffer).first(n)).value();
            store(room.subspan(2 * (first + at), 2 * n), buffer[0]);
        }
    });
}

void measure(const std::string& path, const std::vector<models::parameter_spec>& specs, std::size_t elements) {
    const auto bytes = std::filesystem::file_size(path);
    const int threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 4U));  // as the load
    cost plain, together, floor, load;
    double peak = 0;
    std::vector<float> flat(elements);
    const auto room = std::as_writable_bytes(std::span(flat));
    const bool narrow = bytes < room.size();
    for (int round = 0; round < 9; ++round) {
        plain.measure([&] { read_bytes(path, room, 1); });
        together.measure([&] { read_bytes(path, room, threads); });
        if (narrow) floor.measure([&] { read_and_store(path, room, threads); });
        const double before = resident_mib("VmRSS:");
        forget_peak();
        load.measure([&] {
            const auto file = formats::safetensors_reader::open(path).value();
            (void)models::read_weights(file, specs, flat).value();
        });
        peak = std::max(peak, resident_mib("VmHWM:") - before);
    }
    if (!narrow) floor = together;
    std::printf("%s: %.0f MB, %d threads; peak beside the model %.1f MiB\n", path.substr(path.rfind('/') + 1).c_str(),
                static_cast<double>(bytes) * 1e-6, threads, peak);
    const auto print = [&](const char* clock, double cost::*of) {
        std::printf(
            "  %s: load %.1f ms; bytes by one thread %.1f ms (ratio %.3f), by all %.1f ms (%.3f), floor %.1f ms "
            "(%.3f)\n",
            clock, load.*of * 1e3, plain.*of * 1e3, load.*of / (plain.*of), together.*of * 1e3,
            load.*of / (together.*of), floor.*of * 1e3, load.*of / (floor.*of));
    };
    print("clock", &cost::wall);
    print("processor", &cost::processor);
}

}  // namespace

int main(int count, char** arguments) {
    while (count > 1 && std::string(arguments[count - 1]).starts_with("--benchmark")) --count;  // scripts/bench
    namespace fs = std::filesystem;
    const fs::path folder = count > 1 ? fs::path(arguments[1]) : fs::temp_directory_path() / "darl-bench-load";
    fs::create_directories(folder);
    const auto config = models::flavour("debug-10m", 200'704).value();  // one large tensor and many small ones
    const auto specs = models::parameter_specs(config);
    std::size_t elements = 0;
    for (const auto& s : specs) elements += static_cast<std::size_t>(s.elements());
    const auto values = [](std::uint64_t first, std::span<float> out) {
        for (float& x : out) x = static_cast<float>(first++ % 1000) * 1e-3F;
    };
    for (const dtype type : {dtype::f32, dtype::bf16}) {
        const std::string path = (folder / (type == dtype::f32 ? "f32.safetensors" : "bf16.safetensors")).string();
        fs::remove(path);
        (void)models::write_weights(path, specs, type, {}, values).value();
        measure(path, specs, elements);
        fs::remove(path);
    }
    return 0;
}
