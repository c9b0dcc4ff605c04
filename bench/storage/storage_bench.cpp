// SPDX-License-Identifier: Apache-2.0
// The journal beside the disk's own speed: fdatasync of 4 KiB appends is the ceiling of one batch, measured in the same
// run.
#include <benchmark/benchmark.h>
#include <stdlib.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "backends/storage/commit_thread.hpp"
#include "backends/storage/crc32c.hpp"
#include "backends/storage/posix.hpp"
#include "backends/storage/sha256.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::storage;

/// A folder that is removed at the end. DARLCORE_BENCH_DIR chooses the disk.
class scratch {
public:
    scratch() {
        const char* where = ::getenv("DARLCORE_BENCH_DIR");
        path_ = std::string(where != nullptr ? where : std::filesystem::temp_directory_path().string()) +
                "/darl-bench-XXXXXX";
        if (::mkdtemp(path_.data()) == nullptr) std::abort();
    }
    ~scratch() { std::filesystem::remove_all(path_); }
    scratch(const scratch&) = delete;
    scratch& operator=(const scratch&) = delete;
    [[nodiscard]] const std::string& path() const { return path_; }

private:
    std::string path_;
};

store_options options() {
    store_options o;
    o.identity = run_identity{};
    return o;
}

/// Counts records: the cost of reading alone.
struct counter {
    std::uint64_t records = 0;
    std::uint64_t sum = 0;
    replay_target target() {
        return {[](const snapshot_info&, std::string_view) -> result<void> { return {}; },
                [this](const record& r) -> result<void> {
                    ++records;
                    sum += r.payload.size();
                    return {};
                }};
    }
};

const std::string payload(64, 'p');

void ceiling_fdatasync(benchmark::State& state) {
    const scratch where;
    posix_file_system files;
    auto opened = files.open(where.path() + "/log", open_mode::create);
    if (!opened || !(*opened)->preallocate(std::uint64_t{64} << 20U)) return state.SkipWithError("no space");
    const std::string page(4096, 'x');
    std::uint64_t at = 0;
    for (auto _ : state) {
        if (!pwrite_all(**opened, page, at) || !(*opened)->fdatasync()) return state.SkipWithError("sync failed");
        at = (at + page.size()) % (std::uint64_t{64} << 20U);
    }
    state.counters["syncs/s"] =
        benchmark::Counter(static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}
BENCHMARK(ceiling_fdatasync)->UseRealTime();

/// One client: each record is durable before the next is made.
void commit_one_record(benchmark::State& state) {
    const scratch where;
    posix_file_system files;
    counter seen;
    auto store = ledger_store::open(files, where.path() + "/run", {}, options(), seen.target());
    if (!store) return state.SkipWithError("cannot open");
    for (auto _ : state) {
        store->append(1, 0, payload);
        if (!store->commit()) return state.SkipWithError("commit failed");
    }
    state.counters["records/s"] =
        benchmark::Counter(static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}
BENCHMARK(commit_one_record)->UseRealTime();

/// `clients` threads, each with one request under way, through the commit thread.
void group_commit_clients(benchmark::State& state) {
    const scratch where;
    posix_file_system files;
    counter seen;
    auto store = ledger_store::open(files, where.path() + "/run", {}, options(), seen.target());
    if (!store) return state.SkipWithError("cannot open");
    const auto clients = static_cast<int>(state.range(0));
    constexpr int calls = 200;
    std::mutex mutex;
    std::condition_variable durable_changed;
    std::uint64_t durable = 0;
    std::uint64_t batches = 0;
    {
        commit_thread commits(
            *store,
            [&](std::uint64_t sequence) {
                {
                    const std::lock_guard held(mutex);
                    durable = sequence;
                }
                durable_changed.notify_all();
            },
            [](const error&) {});
        for (auto _ : state) {
            std::vector<std::thread> threads;
            for (int c = 0; c < clients; ++c)
                threads.emplace_back([&] {
                    for (int i = 0; i < calls; ++i) {
                        const auto sequence = commits.append(1, 0, payload);
                        commits.kick();
                        std::unique_lock held(mutex);
                        durable_changed.wait(held, [&] { return durable >= sequence; });
                    }
                });
            for (auto& t : threads) t.join();
        }
        batches = commits.figures().batches;
    }
    const double records = static_cast<double>(state.iterations()) * clients * calls;
    state.counters["records/s"] = benchmark::Counter(records, benchmark::Counter::kIsRate);
    state.counters["records/batch"] = records / static_cast<double>(batches);
}
BENCHMARK(group_commit_clients)->Arg(1)->Arg(8)->Arg(64)->UseRealTime()->Iterations(5);

/// Appending and sealing without the disk.
void append_and_seal(benchmark::State& state) {
    group_commit batches;
    for (auto _ : state) {
        for (int i = 0; i < 64; ++i) batches.append(1, 0, payload);
        const auto sealed = batches.seal(7);
        benchmark::DoNotOptimize(sealed.bytes.data());
        batches.durable(sealed);
    }
    state.SetItemsProcessed(state.iterations() * 64);
}
BENCHMARK(append_and_seal);

void recover(benchmark::State& state) {
    const scratch where;
    posix_file_system files;
    const auto records = static_cast<std::uint64_t>(state.range(0));
    {
        counter seen;
        auto store = ledger_store::open(files, where.path() + "/run", {}, options(), seen.target());
        if (!store) return state.SkipWithError("cannot open");
        for (std::uint64_t i = 0; i < records; ++i) {
            store->append(1, 0, payload);
            if (i % 1000 == 999 && !store->commit()) return state.SkipWithError("commit failed");
        }
        if (!store->close()) return state.SkipWithError("close failed");
    }
    for (auto _ : state) {
        counter seen;
        const auto read = read_journal(files, where.path() + "/run/journal", seen.target());
        if (!read || seen.records != records) return state.SkipWithError("recovered something else");
    }
    state.counters["records/s"] = benchmark::Counter(
        static_cast<double>(records) * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}
BENCHMARK(recover)->Arg(100'000)->Arg(1'000'000)->Unit(benchmark::kMillisecond)->UseRealTime();

void checksum_crc32c(benchmark::State& state) {
    const std::string bytes(1 << 20, 'x');
    for (auto _ : state) benchmark::DoNotOptimize(crc32c(bytes));
    state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes.size()));
}
BENCHMARK(checksum_crc32c);

void digest_sha256(benchmark::State& state) {
    const std::string bytes(1 << 20, 'x');
    sha256 hash;
    for (auto _ : state) hash.update(bytes);
    benchmark::DoNotOptimize(hash.digest());
    state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes.size()));
}
BENCHMARK(digest_sha256);

}  // namespace

BENCHMARK_MAIN();
