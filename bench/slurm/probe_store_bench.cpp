// SPDX-License-Identifier: Apache-2.0
// GET /estimates and the start of a server after a year of 11 shapes probed every 10 minutes. The peer: reading that
// year's text once.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "backends/slurm/durable_file.hpp"
#include "backends/slurm/probe_store.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::slurm;

constexpr double now_s = 1788000000;
constexpr int shapes = 11, cycles = 365 * 144;

json::value probe(int cycle, int shape) {
    const double at = now_s - 600.0 * (cycles - cycle);
    const std::string name = "shape" + std::to_string(shape);
    return json::make_object({{"schema", 1},
                              {"type", "probe"},
                              {"id", "p-" + std::to_string(cycle) + "-" + std::to_string(shape)},
                              {"site", "site"},
                              {"shape", name},
                              {"args", json::array{"-p", "gpu", "-N", std::to_string(1 + shape), "-t", "8:00:00"}},
                              {"args_digest", name},
                              {"collected_s", at},
                              {"class", "accepted"},
                              {"start_s", at + 60 * shape},
                              {"wait_s", 60 * shape},
                              {"partition", shape % 2 == 0 ? "gpu" : "small"},
                              {"nodes", 1 + shape},
                              {"messages", json::array{}},
                              {"flags", json::array{}}});
}

// A folder with the year, made once and removed at the end.
class year {
public:
    year() {
        std::string pattern = (std::filesystem::temp_directory_path() / "darl-year-XXXXXX").string();
        folder = ::mkdtemp(pattern.data());
        auto store = probe_store::open(folder, now_s);
        const site_rule all = [](std::string_view) { return true; };
        json::array batch;
        for (int c = 0; c < cycles; ++c) {
            for (int s = 0; s < shapes; ++s) batch.push_back(probe(c, s));
            if (batch.size() + shapes <= 1000 && c + 1 < cycles) continue;
            (void)store->post(json::make_object({{"records", batch}}), all, now_s);
            batch.clear();
        }
    }
    ~year() { std::filesystem::remove_all(folder); }
    std::string folder;
};

const year& the_year() {
    static const year made;
    return made;
}

void estimates_after_a_year(benchmark::State& state) {
    const auto store = probe_store::open(the_year().folder, now_s);
    std::size_t rows = 0;
    for (auto _ : state) rows = json::dump(store->estimates(now_s)).size();
    state.counters["bytes"] = static_cast<double>(rows);
    state.counters["records"] = static_cast<double>(store->records());
}
BENCHMARK(estimates_after_a_year)->Unit(benchmark::kMicrosecond);

void open_after_a_year(benchmark::State& state) {
    const std::string folder = the_year().folder;
    for (auto _ : state) benchmark::DoNotOptimize(probe_store::open(folder, now_s)->records());
}
BENCHMARK(open_after_a_year)->Unit(benchmark::kMillisecond)->Iterations(3);

void peer_reads_the_text_of_the_year(benchmark::State& state) {
    std::size_t bytes = 0;
    for (auto _ : state) {
        bytes = 0;
        for (const auto& f : std::filesystem::directory_iterator(the_year().folder))
            bytes += read_whole(f.path().string()).size();
    }
    state.counters["bytes"] = static_cast<double>(bytes);
}
BENCHMARK(peer_reads_the_text_of_the_year)->Unit(benchmark::kMillisecond)->Iterations(3);

}  // namespace

BENCHMARK_MAIN();
