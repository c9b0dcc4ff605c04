// SPDX-License-Identifier: Apache-2.0
// Codec and replay of 10^6 records of a plausible run: 8 sites, a million blocks, rounds of 8 contributions.
#include <benchmark/benchmark.h>

#include <string>
#include <utility>
#include <vector>

#include "darlcore/ledger/machine.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::ledger;

struct journal {
    run_settings settings;
    std::vector<std::pair<record, ledger_time>> records;
    std::vector<std::pair<std::uint16_t, std::string>> bytes;
    std::size_t size = 0;
    digest16 digest{};
};

struct writer_of_journals {
    machine m;
    journal& out;
    ledger_time now{1'000};

    template <class Request>
    auto call(const Request& r) {
        auto answer = m.handle(r, now);
        for (const auto& x : answer.records) out.records.emplace_back(x, now);
        return answer;
    }
    void round(std::uint64_t number) {
        for (std::uint64_t s = 0; s < 8; ++s) {
            const caller who{{std::string(1, static_cast<char>('a' + s))}, {7, s + 1}};
            (void)call(poll_request{who, m.rounds().current(), round::site_activity::idle, 0, 0});
            lease::acquire a;
            a.who = who;
            a.want = 16;
            a.report.macro_step_s = 60;
            a.request_id = std::to_string(number) + "-" + std::to_string(s);
            const auto granted = call(a);
            contribute_request c;
            c.who = who;
            c.id = {a.request_id};
            c.base = m.rounds().current();
            c.sha256 = std::string(64, 'f');
            c.codec = "bf16";
            c.tokens = 1'000'000;
            c.steps = 500;
            for (const auto& l : granted.reply().leases.leases) {
                for (std::uint64_t p = l.start.count + 4; p <= l.end.count; p += 4)
                    (void)call(lease::reserve{who, lease::ref_to(l), position{p}});
                (void)call(lease::reserve{who, lease::ref_to(l), l.end});
                c.leases.push_back({lease::ref_to(l), l.start, l.end});
            }
            now = now + 10;
            (void)call(c);
        }
        merge_done done;
        done.next = generation{m.rounds().current().count + 1};
        done.files.wire = {std::string(64, 'e'), 1'000'000};
        (void)call(done);
    }
};

const journal& a_million_records() {
    static const journal made = [] {
        journal j;
        j.settings.run_id = "bench";
        j.settings.space.num_samples = 4'000'000;
        j.settings.space.block_size = 1;
        j.settings.lease.answer_generations = 10;
        writer_of_journals w{machine(j.settings), j};
        j.records.emplace_back(w.m.first_record(), w.now);
        (void)w.m.replay(j.records.back().first, w.now);
        (void)w.call(start_input{term{1}});
        for (std::uint64_t s = 0; s < 8; ++s) {
            const caller who{{std::string(1, static_cast<char>('a' + s))}, {7, s + 1}};
            register_request r;
            r.who = who;
            r.protocol = 2;
            (void)w.call(r);
            (void)w.call(join_request{who, {}, {"", "s", 8, {"bf16"}}, ""});
        }
        (void)w.call(model_initialised{std::nullopt, "", {}, 1});
        blob_verified b;
        b.sha256 = std::string(64, 'f');
        (void)w.call(b);
        for (std::uint64_t n = 0; j.records.size() < 1'000'000; ++n) w.round(n);
        for (const auto& [r, at] : j.records) {
            j.bytes.emplace_back(type_number(r), encode(r));
            j.size += j.bytes.back().second.size();
        }
        j.digest = w.m.digest();
        return j;
    }();
    return made;
}

void encode_records(benchmark::State& state) {
    const auto& j = a_million_records();
    for (auto _ : state)
        for (const auto& [r, at] : j.records) benchmark::DoNotOptimize(encode(r));
    state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations() * j.records.size()));
    state.counters["bytes_per_record"] = static_cast<double>(j.size) / static_cast<double>(j.records.size());
}
void decode_records(benchmark::State& state) {
    const auto& j = a_million_records();
    for (auto _ : state)
        for (const auto& [type, bytes] : j.bytes) benchmark::DoNotOptimize(decode(type, bytes));
    state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations() * j.records.size()));
}
/// Target: 10^6 records in less than 5 s.
void decode_and_replay(benchmark::State& state) {
    const auto& j = a_million_records();
    for (auto _ : state) {
        machine m(j.settings);
        for (std::size_t i = 0; i < j.bytes.size(); ++i) {
            const auto r = decode(j.bytes[i].first, j.bytes[i].second);
            if (!r || !m.replay(*r, j.records[i].second)) return state.SkipWithError("a record does not replay");
        }
        if (m.digest() != j.digest) return state.SkipWithError("another state");
    }
    state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations() * j.records.size()));
}
void snapshot_of_4M_blocks(benchmark::State& state) {
    const auto& j = a_million_records();
    machine m(j.settings);
    for (const auto& [r, at] : j.records) (void)m.replay(r, at);
    std::size_t size = 0;
    for (auto _ : state) {
        const auto bytes = m.snapshot();
        size = bytes.size();
        benchmark::DoNotOptimize(bytes);
    }
    state.counters["bytes"] = static_cast<double>(size);
}
void freeze_of_4M_blocks(benchmark::State& state) {
    const auto& j = a_million_records();
    machine m(j.settings);
    for (const auto& [r, at] : j.records) (void)m.replay(r, at);
    for (auto _ : state) benchmark::DoNotOptimize(freeze(m));
}

BENCHMARK(encode_records)->Unit(benchmark::kMillisecond);
BENCHMARK(decode_records)->Unit(benchmark::kMillisecond);
BENCHMARK(decode_and_replay)->Unit(benchmark::kMillisecond);
BENCHMARK(snapshot_of_4M_blocks)->Unit(benchmark::kMillisecond);
BENCHMARK(freeze_of_4M_blocks)->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
