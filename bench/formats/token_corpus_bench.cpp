// SPDX-License-Identifier: Apache-2.0
// Reading windows of token shards beside plain reads of the same bytes, both from the page cache.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "adapters/formats/posix_file.hpp"
#include "adapters/formats/token_corpus.hpp"
#include "adapters/formats/token_writer.hpp"
#include "darlcore/random.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::formats;

constexpr std::uint64_t seq_len = 2047;
constexpr std::uint64_t corpus_bytes = std::uint64_t{512} << 20U;  // more than the caches hold
constexpr std::uint64_t windows_per_read = 128;

std::uint64_t windows_of(std::int64_t vocab_size) {
    return corpus_bytes / (seq_len + 1) / (vocab_size < 65536 ? 2 : 4);
}

// A corpus of corpus_bytes, removed at the end of the program.
class bench_corpus {
public:
    explicit bench_corpus(std::uint64_t vocab_size) {
        std::string pattern = (std::filesystem::temp_directory_path() / "darl-bench-XXXXXX").string();
        if (::mkdtemp(pattern.data()) == nullptr) std::abort();
        folder_ = pattern;
        token_writer_settings s;
        s.seq_len = seq_len;
        s.vocab_size = vocab_size;
        auto writer = token_writer::create(folder_, s).value();
        xoshiro256 random(1);
        std::vector<std::uint32_t> ids(static_cast<std::size_t>(seq_len + 1));
        for (auto& id : ids) id = static_cast<std::uint32_t>(random.below(vocab_size));
        for (std::uint64_t w = 0; w < windows_of(static_cast<std::int64_t>(vocab_size)); ++w) {
            std::rotate(ids.begin(), ids.begin() + 1, ids.end());
            writer.append(ids).value();
        }
        (void)writer.finish().value();
    }
    bench_corpus(const bench_corpus&) = delete;
    bench_corpus& operator=(const bench_corpus&) = delete;
    ~bench_corpus() {
        std::error_code ignored;
        std::filesystem::remove_all(folder_, ignored);
    }
    [[nodiscard]] const std::string& folder() const { return folder_; }

private:
    std::string folder_;
};

const bench_corpus& corpus_of(std::int64_t vocab_size) {
    static const bench_corpus narrow(50'000);
    static const bench_corpus wide(150'000);
    return vocab_size < 65536 ? narrow : wide;
}

void plain_read(benchmark::State& state) {
    const auto& corpus = corpus_of(state.range(0));
    const auto file = posix_file::open_for_reading(corpus.folder() + "/tokens-00000.bin").value();
    const std::uint64_t bytes = windows_per_read * (seq_len + 1) * (state.range(0) < 65536 ? 2 : 4);
    std::vector<std::byte> raw(static_cast<std::size_t>(bytes));
    std::uint64_t at = 0;
    for (auto _ : state) {
        file.read_at(at * bytes, raw).value();
        benchmark::DoNotOptimize(raw.data());
        at = (at + 1) % (windows_of(state.range(0)) / windows_per_read);
    }
    state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes));
}
BENCHMARK(plain_read)->Arg(50'000)->Arg(150'000);

// As the files hold them.
void read_stored(benchmark::State& state) {
    const auto corpus = token_corpus::open(corpus_of(state.range(0)).folder()).value();
    std::vector<std::byte> raw(static_cast<std::size_t>(windows_per_read * corpus.manifest().window_bytes()));
    std::uint64_t at = 0;
    for (auto _ : state) {
        corpus.read_stored(at * windows_per_read, windows_per_read, raw).value();
        benchmark::DoNotOptimize(raw.data());
        at = (at + 1) % (windows_of(state.range(0)) / windows_per_read);
    }
    state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(raw.size()));
}
BENCHMARK(read_stored)->Arg(50'000)->Arg(150'000);

// As numbers of 32 bits.
void read_windows(benchmark::State& state) {
    const auto corpus = token_corpus::open(corpus_of(state.range(0)).folder()).value();
    std::vector<std::uint32_t> ids(static_cast<std::size_t>(windows_per_read * (seq_len + 1)));
    std::uint64_t at = 0;
    for (auto _ : state) {
        corpus.read_windows(at * windows_per_read, windows_per_read, ids).value();
        benchmark::DoNotOptimize(ids.data());
        at = (at + 1) % (windows_of(state.range(0)) / windows_per_read);
    }
    const auto bytes = static_cast<std::int64_t>(windows_per_read * corpus.manifest().window_bytes());
    state.SetBytesProcessed(state.iterations() * bytes);
}
BENCHMARK(read_windows)->Arg(50'000)->Arg(150'000);

// Plain reads of single windows, in the order of read_single_windows.
void plain_read_single(benchmark::State& state) {
    const auto& corpus = corpus_of(state.range(0));
    const auto file = posix_file::open_for_reading(corpus.folder() + "/tokens-00000.bin").value();
    std::vector<std::byte> raw(static_cast<std::size_t>((seq_len + 1) * (state.range(0) < 65536 ? 2 : 4)));
    xoshiro256 random(2);
    for (auto _ : state) {
        file.read_at(random.below(windows_of(state.range(0))) * raw.size(), raw).value();
        benchmark::DoNotOptimize(raw.data());
    }
    state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(raw.size()));
}
BENCHMARK(plain_read_single)->Arg(50'000)->Arg(150'000);

// As a trainer reads: one window here, one there.
void read_single_windows(benchmark::State& state) {
    const auto corpus = token_corpus::open(corpus_of(state.range(0)).folder()).value();
    std::vector<std::uint32_t> ids(static_cast<std::size_t>(seq_len + 1));
    xoshiro256 random(2);
    for (auto _ : state) {
        corpus.read_window(random.below(windows_of(state.range(0))), ids).value();
        benchmark::DoNotOptimize(ids.data());
    }
    const auto bytes = static_cast<std::int64_t>(corpus.manifest().window_bytes());
    state.SetBytesProcessed(state.iterations() * bytes);
}
BENCHMARK(read_single_windows)->Arg(50'000)->Arg(150'000);

}  // namespace

BENCHMARK_MAIN();
