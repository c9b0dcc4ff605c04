// SPDX-License-Identifier: Apache-2.0
// Operations of the lease table at M = 10^4, 10^6 and 10^8 blocks with 1 000 open leases of 100 sites, beside what the
// machine can do at best: an empty call that makes the same reply and event, and a miss of the caches.
#include <benchmark/benchmark.h>

#include <ctime>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "darlcore/lease/table.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::lease;

constexpr std::uint32_t num_sites = 100;

struct loaded_table {
    explicit loaded_table(std::uint64_t blocks, commit_policy policy = commit_policy::on_checkpoint)
        : table(make(blocks, policy)) {
        for (std::uint32_t n = 0; n < num_sites; ++n) {
            register_site in;
            in.who = who(n);
            if (policy == commit_policy::on_checkpoint && n == 0) {
                in.who.incarnation = {};
                in.mode = site_mode::legacy;
            }
            table.apply(in, now);
        }
        for (std::uint32_t i = 0; i < 1000; ++i) {
            acquire in;
            in.who = who(1 + i % (num_sites - 1));
            in.want = 4;
            const auto out = table.apply(in, now);
            for (const auto& l : out.reply().leases) held.push_back(l);
        }
    }
    static lease::table make(std::uint64_t blocks, commit_policy policy) {
        settings s;
        s.commit_policy = policy;
        s.max_epochs = 1U << 31U;
        s.first_grant_fraction = 1;
        s.max_leases_per_site = 1024;
        s.max_attempts = 0;
        return lease::table::create({blocks, ""}, s).value();
    }
    static caller who(std::uint32_t n) { return {site_id{"site-" + std::to_string(n)}, {7, n + 1}}; }
    static caller legacy() { return {site_id{"site-0"}, {}}; }

    lease::table table;
    ledger_time now{1000000};
    std::vector<lease_record> held;
};

double pairs_in_use(benchmark::State& state) { return static_cast<double>(state.iterations()); }

// --- ceilings ---------------------------------------------------------------------------------------------------

[[gnu::noinline]] outcome<acquire_reply> make_empty_answer(const acquire& in, ledger_time now) {
    outcome<acquire_reply> out;
    events::granted e;
    e.request_id = in.request_id;
    e.leases.resize(1);
    e.leases[0].granted_at = now;
    acquire_reply reply;
    reply.leases = e.leases;
    out.events.emplace_back(std::move(e));
    out.answer = std::move(reply);
    return out;
}

void ceiling_empty_call(benchmark::State& state) {
    acquire in;
    for (auto _ : state) benchmark::DoNotOptimize(make_empty_answer(in, {1}));
    state.counters["calls/s"] = benchmark::Counter(pairs_in_use(state), benchmark::Counter::kIsRate);
}
BENCHMARK(ceiling_empty_call);

void ceiling_cache_miss(benchmark::State& state) {
    std::vector<std::uint32_t> next(1U << 24U);
    std::uint32_t at = 0;
    for (std::uint32_t i = 0; i < next.size(); ++i) next[i] = (i * 2654435761U + 12345U) & ((1U << 24U) - 1);
    for (auto _ : state) benchmark::DoNotOptimize(at = next[at]);
}
BENCHMARK(ceiling_cache_miss);

// --- operations -------------------------------------------------------------------------------------------------

// When the pool is used up, the table starts again from a copy, outside the clock.
void acquire_and_commit(benchmark::State& state) {
    loaded_table t(static_cast<std::uint64_t>(state.range(0)));
    const auto full = t.table;
    acquire in;
    in.who = t.legacy();
    in.want = 4;
    commit done;
    done.who = in.who;
    for (auto _ : state) {
        if (t.table.counts().unassigned < in.want) {
            state.PauseTiming();
            t.table = full;
            state.ResumeTiming();
        }
        const auto out = t.table.apply(in, t.now);
        for (const auto& l : out.reply().leases) {
            done.lease = ref_to(l);
            done.through = l.end;
            benchmark::DoNotOptimize(t.table.apply(done, t.now));
        }
    }
    state.counters["pairs/s"] = benchmark::Counter(pairs_in_use(state), benchmark::Counter::kIsRate);
}
BENCHMARK(acquire_and_commit)->Arg(10000)->Arg(1000000)->Arg(100000000);

void acquire_and_release(benchmark::State& state) {
    loaded_table t(static_cast<std::uint64_t>(state.range(0)));
    acquire in;
    in.who = t.who(1);
    in.want = 4;
    for (auto _ : state) {
        const auto out = t.table.apply(in, t.now);
        if (out.reply().leases.empty()) continue;
        benchmark::DoNotOptimize(t.table.apply(release{in.who, ref_to(out.reply().leases[0]), false}, t.now));
    }
}
BENCHMARK(acquire_and_release)->Arg(10000)->Arg(1000000)->Arg(100000000);

void reserve_one_block(benchmark::State& state) {
    loaded_table t(static_cast<std::uint64_t>(state.range(0)));
    acquire in;
    in.who = t.who(1);
    in.want = static_cast<std::uint64_t>(state.range(0)) / 4;
    auto lease = t.table.apply(in, t.now).reply().leases.at(0);
    std::uint64_t through = lease.start.count;
    for (auto _ : state) {
        if (through == lease.end.count) {
            state.PauseTiming();
            t.table.apply(release{in.who, ref_to(lease), false}, t.now);
            lease = t.table.apply(in, t.now).reply().leases.at(0);
            through = lease.start.count;
            state.ResumeTiming();
        }
        benchmark::DoNotOptimize(t.table.apply(reserve{in.who, ref_to(lease), position{++through}}, t.now));
    }
}
BENCHMARK(reserve_one_block)->Arg(10000)->Arg(1000000)->Arg(100000000);

void heartbeat_with_four_leases(benchmark::State& state) {
    loaded_table t(static_cast<std::uint64_t>(state.range(0)));
    heartbeat in;
    in.who = t.who(1);
    in.report.macro_step_s = 30;
    for (const auto& l : t.table.leases_of(*t.table.find_site("site-1")))
        if (in.leases.size() < 4) in.leases.push_back({ref_to(l), l.start, {}});
    for (auto _ : state) {
        ++t.now.ms;
        benchmark::DoNotOptimize(t.table.apply(in, t.now));
    }
}
BENCHMARK(heartbeat_with_four_leases)->Arg(10000)->Arg(1000000)->Arg(100000000);

void one_expiry_and_its_regrant(benchmark::State& state) {
    loaded_table t(static_cast<std::uint64_t>(state.range(0)));
    acquire in;
    in.who = t.who(1);
    in.want = 4;
    in.report.ttl_s = 900;
    for (auto _ : state) {
        t.now.ms += 910;  // a thousand leases of 900 s: about one expires each time
        benchmark::DoNotOptimize(t.table.apply(in, t.now));
    }
}
BENCHMARK(one_expiry_and_its_regrant)->Arg(10000)->Arg(1000000)->Arg(100000000);

void steal_from_a_thousand(benchmark::State& state) {
    loaded_table t(static_cast<std::uint64_t>(state.range(0)), commit_policy::on_merge);
    acquire all;
    for (std::uint32_t n = 2; t.table.counts().unassigned > 0; n = 2 + (n - 1) % 98) {
        all.who = t.who(n);
        all.want = static_cast<std::uint64_t>(state.range(0));
        t.table.apply(all, t.now);
    }
    acquire in;
    in.who = t.who(1);
    in.want = 2;
    in.max_spans = 1;
    const auto full = t.table;
    for (auto _ : state) {
        const auto out = t.table.apply(in, t.now);
        if (out.reply().leases.empty() || t.table.open_leases() > 1900) {
            state.PauseTiming();
            t.table = full;
            state.ResumeTiming();
        }
    }
}
BENCHMARK(steal_from_a_thousand)->Arg(10000)->Arg(1000000);

void pledge_and_merge(benchmark::State& state) {
    loaded_table t(static_cast<std::uint64_t>(state.range(0)), commit_policy::on_merge);
    acquire in;
    in.who = t.who(1);
    in.want = 4;
    std::uint64_t id = 0;
    for (auto _ : state) {
        const auto leases = t.table.apply(in, t.now).reply().leases;
        pledge p;
        p.who = in.who;
        p.id = {"c" + std::to_string(++id)};
        p.base = t.table.generation();
        for (const auto& l : leases) {
            t.table.apply(reserve{in.who, ref_to(l), l.end}, t.now);
            p.claims.push_back({ref_to(l), l.start, l.end});
        }
        if (p.claims.empty()) continue;
        t.table.apply(p, t.now);
        benchmark::DoNotOptimize(t.table.apply(resolve{p.base, {p.id}, {}}, t.now));
    }
}
BENCHMARK(pledge_and_merge)->Arg(1000000)->Arg(100000000);

void snapshot_copy(benchmark::State& state) {
    loaded_table t(static_cast<std::uint64_t>(state.range(0)));
    for (auto _ : state) benchmark::DoNotOptimize(t.table.snapshot());
}
BENCHMARK(snapshot_copy)->Arg(10000)->Arg(1000000)->Arg(100000000);

void state_digest(benchmark::State& state) {
    loaded_table t(static_cast<std::uint64_t>(state.range(0)));
    for (auto _ : state) benchmark::DoNotOptimize(t.table.digest());
}
BENCHMARK(state_digest)->Arg(1000000)->Arg(100000000);

void verify_all(benchmark::State& state) {
    loaded_table t(static_cast<std::uint64_t>(state.range(0)));
    for (auto _ : state) benchmark::DoNotOptimize(t.table.verify().has_value());
}
BENCHMARK(verify_all)->Arg(1000000)->Arg(100000000)->Unit(benchmark::kMillisecond);

void replay_events(benchmark::State& state) {
    loaded_table t(static_cast<std::uint64_t>(state.range(0)));
    const auto start = t.table;
    std::vector<event> log;
    for (std::uint32_t i = 0; log.size() < 100000; ++i) {
        acquire in;
        in.who = t.who(1 + i % 99);
        in.want = 4;
        for (auto& e : t.table.apply(in, t.now).events) log.push_back(std::move(e));
        for (const auto& l : t.table.leases_of(site_number{1 + i % 99})) {
            for (auto& e : t.table.apply(reserve{in.who, ref_to(l), l.end}, t.now).events) log.push_back(std::move(e));
            for (auto& e : t.table.apply(commit{in.who, ref_to(l), l.end}, t.now).events) log.push_back(std::move(e));
        }
    }
    for (auto _ : state) {
        state.PauseTiming();
        auto copy = start;
        state.ResumeTiming();
        for (const event& e : log) benchmark::DoNotOptimize(copy.replay(e, t.now).has_value());
    }
    state.counters["events/s"] =
        benchmark::Counter(static_cast<double>(log.size() * state.iterations()), benchmark::Counter::kIsRate);
}
BENCHMARK(replay_events)->Arg(1000000)->Unit(benchmark::kMillisecond);

// --- memory -----------------------------------------------------------------------------------------------------

void memory_with_every_second_block_committed(benchmark::State& state) {
    const auto blocks = static_cast<std::uint64_t>(state.range(0));
    const loaded_table t(blocks);
    block_map map(blocks);
    for (auto _ : state)
        for (std::uint64_t p = 0; p < blocks; p += 2) {
            map.take(make_span(p, p + 1));
            map.commit(make_span(p, p + 1));
        }
    state.counters["table_bytes"] = static_cast<double>(t.table.bytes());
    state.counters["bits/block"] = static_cast<double>(map.bytes()) * 8 / static_cast<double>(blocks);
}
BENCHMARK(memory_with_every_second_block_committed)
    ->Arg(10000)
    ->Arg(1000000)
    ->Arg(100000000)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

// --- the longest request ----------------------------------------------------------------------------------------

// Time this thread worked: what other programs take from the machine meanwhile is not the table's.
double thread_us() {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) / 1e3;
}

double number_from_environment(const char* name, double otherwise) {
    const char* text = std::getenv(name);
    return text == nullptr ? otherwise : std::atof(text);
}

enum kind : std::uint8_t { an_acquire, a_reserve, a_heartbeat, a_release, a_pledge, a_merge, a_tick, a_snapshot };
constexpr std::array<const char*, 8> kind_names{"acquire", "reserve", "heartbeat", "release",
                                                "pledge",  "merge",   "tick",      "snapshot"};

// Arithmetic that touches no memory and takes about as long as a request: what the clock shows beyond that is what the
// machine (interrupts, other guests) adds to any work.
[[gnu::noinline]] std::uint64_t spin(std::uint64_t x) {
    for (int i = 0; i < 600; ++i) x = (x ^ (x >> 29U)) * 0x9E3779B97F4A7C15ULL + 1;
    return x;
}

/// One mixed run: the same requests in the same order each time. Units: microseconds of thread time.
struct mixed_run {
    std::vector<float> took;
    std::vector<kind> kinds;
    std::vector<float> control;
    std::uint64_t spun = 1;

    template <class Call>
    auto timed(kind k, Call&& call) {
        const double start = thread_us();
        auto out = call();
        took.push_back(static_cast<float>(thread_us() - start));
        kinds.push_back(k);
        const double again = thread_us();
        spun = spin(spun);
        control.push_back(static_cast<float>(thread_us() - again));
        return out;
    }

    /// Runs for `seconds` of thread time, or `rounds` rounds where that is not 0; returns the rounds done.
    std::uint32_t go(std::uint64_t blocks, double seconds, std::uint32_t rounds) {
        loaded_table t(blocks, commit_policy::on_merge);
        book copy = t.table.snapshot();
        const double end = thread_us() + seconds * 1e6;
        std::uint32_t i = 0;
        for (; rounds != 0 ? i < rounds : thread_us() < end; ++i) {
            round(t, i);
            if (i % 1600 == 0) timed(a_tick, [&] { return t.table.apply(tick{}, t.now); });
            if (i % 20000 == 0) {
                book old = timed(a_snapshot, [&] { return t.table.snapshot(); });
                std::swap(copy, old);  // the old copy is freed by the thread that wrote it out
            }
        }
        return i;
    }

    void round(loaded_table& t, std::uint32_t i) {
        t.now.ms += 3;
        acquire in;
        in.who = t.who(1 + (i * 2654435761U) % 99);
        in.want = 4 + i % 13;
        in.request_id = "request-" + std::to_string(i);
        const auto got = timed(an_acquire, [&] { return t.table.apply(in, t.now); });
        pledge p;
        p.who = in.who;
        p.id = {"c" + std::to_string(i)};
        p.base = t.table.generation();
        if (got.ok())
            for (const auto& l : got.reply().leases) {
                timed(a_reserve, [&] { return t.table.apply(reserve{in.who, ref_to(l), l.end}, t.now); });
                p.claims.push_back({ref_to(l), l.start, l.end});
            }
        heartbeat beat;
        beat.who = in.who;
        for (const auto& c : p.claims) beat.leases.push_back({c.lease, {}, {}});
        timed(a_heartbeat, [&] { return t.table.apply(beat, t.now); });
        // Now and then, and where a site has gathered more than the ten leases that the costs are promised for.
        if (i % 7 == 0 || (got.ok() && t.table.site(*t.table.find_site(in.who.site.name), t.now).open_leases > 12))
            timed(a_release, [&] { return t.table.apply(release{in.who, {}, false}, t.now); });
        else if (i % 11 != 0 && !p.claims.empty())
            timed(a_pledge, [&] { return t.table.apply(p, t.now); });
        if (i % 5 != 0) return;
        resolve r;
        r.base = t.table.generation();
        for (const auto s : t.table.pledging()) r.merged.push_back(t.table.pledge_of(s)->id);
        if (!r.merged.empty()) timed(a_merge, [&] { return t.table.apply(r, t.now); });
    }
};

/// The least of what the same request took in each run: chance hits none of them every time.
void keep_least(std::vector<float>& least, const std::vector<float>& other) {
    for (std::size_t i = 0; i < least.size(); ++i) least[i] = std::min(least[i], other[i]);
}
double above(const std::vector<float>& v, float limit) {
    return static_cast<double>(std::count_if(v.begin(), v.end(), [&](float x) { return x > limit; }));
}

void longest_request_of_a_mixed_run(benchmark::State& state) {
    const double seconds = number_from_environment("DARLCORE_BENCH_MIXED_S", 60);
    const auto repeats = static_cast<int>(number_from_environment("DARLCORE_BENCH_MIXED_REPEATS", 3));
    const auto blocks = static_cast<std::uint64_t>(state.range(0));
    for (auto _ : state) {
        mixed_run run;
        const std::uint32_t rounds = run.go(blocks, seconds, 0);
        const std::vector<float> once = run.took;
        const std::vector<float> control_once = run.control;
        for (int r = 1; r < repeats; ++r) {
            mixed_run again;
            again.go(blocks, 0, rounds);
            keep_least(run.took, again.took);
            keep_least(run.control, again.control);
        }
        auto& c = state.counters;
        c["requests"] = static_cast<double>(once.size());
        c["mean_us"] = std::accumulate(once.begin(), once.end(), 0.0) / static_cast<double>(once.size());
        c["one_run_longest_us"] = *std::max_element(once.begin(), once.end());
        c["one_run_above_50us"] = above(once, 50);
        c["one_run_control_longest_us"] = *std::max_element(control_once.begin(), control_once.end());
        c["one_run_control_above_50us"] = above(control_once, 50);
        c["longest_us"] = *std::max_element(run.took.begin(), run.took.end());
        c["above_50us"] = above(run.took, 50);
        c["control_longest_us"] = *std::max_element(run.control.begin(), run.control.end());
        std::array<float, kind_names.size()> longest{};
        for (std::size_t i = 0; i < run.took.size(); ++i)
            longest[run.kinds[i]] = std::max(longest[run.kinds[i]], run.took[i]);
        for (std::size_t k = 0; k < kind_names.size(); ++k)
            c[std::string("longest_us_") + kind_names[k]] = static_cast<double>(longest[k]);
        std::sort(run.took.begin(), run.took.end());
        c["p999_us"] = run.took[run.took.size() - run.took.size() / 1000 - 1];
    }
}
BENCHMARK(longest_request_of_a_mixed_run)->Arg(100000000)->Iterations(1)->Unit(benchmark::kSecond);

}  // namespace

BENCHMARK_MAIN();
