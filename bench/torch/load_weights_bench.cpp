// SPDX-License-Identifier: Apache-2.0
// bench_load_weights [FOLDER]: reading a model's weights beside reading the same bytes from the page cache into the
// same memory, and the peak of resident memory that it takes. The file (300 MB) is made and removed here.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "adapters/formats/posix_file.hpp"
#include "backends/torch/weights_io.hpp"

namespace {

using namespace darlcore;

double seconds(const auto& work) {
    const auto begun = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

// A line of /proc/self/status in MiB.
double resident_mib(const std::string& key) {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
        if (line.starts_with(key)) return std::stod(line.substr(key.size() + 1)) / 1024;
    return 0;
}

void forget_peak() { std::ofstream("/proc/self/clear_refs") << 5; }

void measure(const std::string& path, const std::vector<models::parameter_spec>& specs, std::size_t elements) {
    const auto bytes = std::filesystem::file_size(path);
    double plain = 1e9, load = 1e9, peak = 0;
    std::vector<float> flat(elements);
    for (int round = 0; round < 7; ++round) {
        plain = std::min(plain, seconds([&] {
                             const auto file = formats::posix_file::open_for_reading(path).value();
                             const auto room = std::as_writable_bytes(std::span(flat));
                             file.read_at(bytes - std::min<std::uint64_t>(bytes, room.size()),
                                          room.first(std::min<std::size_t>(bytes, room.size())))
                                 .value();
                         }));
        const double before = resident_mib("VmRSS:");
        forget_peak();
        load = std::min(load, seconds([&] {
                            const auto file = formats::safetensors_reader::open(path).value();
                            (void)models::read_weights(file, specs, flat).value();
                        }));
        peak = std::max(peak, resident_mib("VmHWM:") - before);
    }
    std::printf("%s: %.0f MB; bytes %.1f ms (%.1f GB/s), load %.1f ms, ratio %.3f; peak beside the model %.1f MiB\n",
                path.substr(path.rfind('/') + 1).c_str(), static_cast<double>(bytes) * 1e-6, plain * 1e3,
                static_cast<double>(bytes) * 1e-9 / plain, load * 1e3, load / plain, peak);
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
