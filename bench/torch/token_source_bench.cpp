// SPDX-License-Identifier: Apache-2.0
// bench_token_source [FOLDER]: windows as the trainer reads them (stored form, ids compared with the vocabulary) beside
// `pread` of the same windows in the same order, both from the page cache, in turns; processor time. The corpora (512
// MiB each) are made and removed here.
#include <ctime>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "adapters/formats/posix_file.hpp"
#include "adapters/formats/token_writer.hpp"
#include "backends/torch/token_source.hpp"
#include "darlcore/random.hpp"

namespace {

using namespace darlcore;

constexpr std::uint64_t corpus_bytes = std::uint64_t{512} << 20U;
constexpr std::uint64_t batch = 8;

double processor_seconds(const auto& work) {
    const auto now = [] {
        timespec t{};
        ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
    };
    const double begun = now();
    work();
    return now() - begun;
}

void write_corpus(const std::string& folder, std::uint64_t seq_len, std::uint64_t vocab) {
    formats::token_writer_settings s;
    s.seq_len = seq_len;
    s.vocab_size = vocab;
    auto writer = formats::token_writer::create(folder, s).value();
    xoshiro256 random(1);
    std::vector<std::uint32_t> ids(static_cast<std::size_t>(seq_len + 1));
    for (auto& id : ids) id = static_cast<std::uint32_t>(random.below(vocab));
    const std::uint64_t windows = corpus_bytes / (seq_len + 1) / (vocab < 65536 ? 2 : 4);
    for (std::uint64_t w = 0; w < windows; ++w) {
        std::rotate(ids.begin(), ids.begin() + 1, ids.end());
        writer.append(ids).value();
    }
    (void)writer.finish().value();
}

void measure(const std::string& folder, std::uint64_t seq_len, std::uint64_t vocab) {
    write_corpus(folder, seq_len, vocab);
    {
        const auto corpus = std::make_shared<const formats::token_corpus>(formats::token_corpus::open(folder).value());
        const auto source = training::token_source(corpus, static_cast<std::int64_t>(vocab)).value();
        const auto file = formats::posix_file::open_for_reading(folder + "/tokens-00000.bin").value();
        const std::size_t bytes = source->window_bytes();
        std::vector<std::byte> room(batch * bytes);
        const auto for_windows = [&](const auto& read) {
            xoshiro256 random(2);
            for (std::uint64_t i = 0; i < source->num_windows(); ++i)
                read(random.below(source->num_windows()), std::span(room).subspan(i % batch * bytes, bytes));
        };
        double plain = 1e9, own = 1e9;
        for (int round = 0; round < 7; ++round) {
            plain = std::min(plain, processor_seconds([&] {
                                 for_windows([&](std::uint64_t w, auto out) { file.read_at(w * bytes, out).value(); });
                             }));
            own = std::min(own, processor_seconds([&] {
                               for_windows([&](std::uint64_t w, auto out) { source->read(w, out).value(); });
                           }));
        }
        const double size = static_cast<double>(source->num_windows()) * static_cast<double>(bytes) * 1e-9;
        std::printf("windows of %llu ids of %zu bytes: %.2f GB/s, pread of the same windows %.2f GB/s, ratio %.2f\n",
                    static_cast<unsigned long long>(seq_len + 1), source->id_bytes(), size / own, size / plain,
                    plain / own);
    }
    std::filesystem::remove_all(folder);
}

}  // namespace

int main(int count, char** arguments) {
    while (count > 1 && std::string(arguments[count - 1]).starts_with("--benchmark")) --count;  // scripts/bench
    namespace fs = std::filesystem;
    const fs::path folder = count > 1 ? fs::path(arguments[1]) : fs::temp_directory_path() / "darl-bench-source";
    for (const std::uint64_t seq_len : {2047U, 255U})
        for (const std::uint64_t vocab : {50'000U, 150'000U}) measure(folder.string(), seq_len, vocab);
    return 0;
}
