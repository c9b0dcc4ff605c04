// SPDX-License-Identifier: Apache-2.0
#include "adapters/cli/simulate_virtual.hpp"

#include <ctime>
#include <map>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "adapters/formats/json.hpp"
#include "backends/sim/simulation.hpp"

namespace darl {
namespace {

using namespace darlcore;

struct finding {
    std::uint64_t seed = 0;
    std::string verdict;
    std::string shrunk_verdict;
    std::vector<std::string> story;
};

struct totals {
    std::uint64_t seeds = 0;
    std::int64_t simulated_ms = 0;
    std::uint64_t merges = 0;
    std::uint64_t server_starts = 0;
    std::uint64_t retrained = 0;
    std::uint64_t stale_refused = 0;
    std::map<std::string, std::uint64_t> faults;
    std::uint64_t digest = 0;
    double cpu_s = 0;
    std::optional<finding> failed;

    [[nodiscard]] double hours() const { return static_cast<double>(simulated_ms) / 3.6e6; }
    [[nodiscard]] double hours_per_cpu_minute() const { return cpu_s > 0 ? hours() * 60 / cpu_s : 0; }
    /// Messages that were lost, doubled or late are counted by kind, but not as fault events.
    [[nodiscard]] std::uint64_t fault_events() const {
        std::uint64_t sum = 0;
        for (const auto& [kind, count] : faults)
            if (!kind.starts_with("message ")) sum += count;
        return sum;
    }
    void add(const sim::simulation_report& r) {
        ++seeds;
        simulated_ms += r.simulated_ms;
        merges += r.merges;
        server_starts += r.starts;
        retrained += r.retrained_blocks;
        stale_refused += r.stale_calls_refused;
        for (const auto& [kind, count] : r.faults) faults[kind] += count;
        digest = digest * 0x100000001b3U ^ r.digest;
    }
};

finding explain(const sim::simulation_settings& set, const sim::simulation_report& failed) {
    finding f{set.seed, failed.verdict(), {}, {}};
    const auto fewest = sim::simulate(sim::shrink(set));
    f.shrunk_verdict = fewest.verdict();
    f.story = fewest.story;
    return f;
}

totals run_seeds(const virtual_options& o) {
    const auto mode = o.liveness ? sim::simulation_mode::liveness : sim::simulation_mode::safety;
    totals sum;
    const std::clock_t begin = std::clock();
    for (std::uint64_t seed = o.first_seed; seed < o.first_seed + o.seeds && !sum.failed; ++seed) {
        auto set = sim::random_simulation(seed, mode);
        set.plant = *sim::planted_from_word(o.plant);
        const auto report = sim::simulate(set);
        sum.add(report);
        if (!report.passed()) sum.failed = explain(set, report);
    }
    sum.cpu_s = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    return sum;
}

json::value to_json(const totals& t, const virtual_options& o) {
    json::value faults{json::object{}};
    for (const auto& [kind, count] : t.faults) faults.set(kind, count);
    auto out = json::make_object({{"verdict", t.failed ? "FAIL" : "PASS"},
                                  {"mode", o.liveness ? "liveness" : "safety"},
                                  {"first_seed", o.first_seed},
                                  {"seeds", t.seeds},
                                  {"simulated_hours", t.hours()},
                                  {"fault_events", t.fault_events()},
                                  {"faults", faults},
                                  {"merges", t.merges},
                                  {"server_starts", t.server_starts},
                                  {"retrained", t.retrained},
                                  {"stale_calls_refused", t.stale_refused},
                                  {"digest", fmt::format("{:016x}", t.digest)},
                                  {"cpu_s", t.cpu_s}});
    if (!t.failed) return out;
    json::value events{json::array{}};
    for (const auto& line : t.failed->story) events.push_back(line);
    out.set("failed_seed", t.failed->seed);
    out.set("finding", t.failed->verdict);
    out.set("shortest_finding", t.failed->shrunk_verdict);
    out.set("shortest_events", events);
    return out;
}

void print(const totals& t, const virtual_options& o) {
    print_line(fmt::format(
        "{}: {} seeds from {}, {:.1f} simulated hours ({:.2f} years), {} fault events, {} merges, {} server starts, {} "
        "blocks read in vain, {} calls of replaced processes refused; {:.1f} s of processor time, {:.0f} simulated "
        "hours per minute of it; digest {:016x}",
        t.failed ? "FAIL" : "PASS", t.seeds, o.first_seed, t.hours(), t.hours() / 8766, t.fault_events(), t.merges,
        t.server_starts, t.retrained, t.stale_refused, t.cpu_s, t.hours_per_cpu_minute(), t.digest));
    for (const auto& [kind, count] : t.faults) print_line(fmt::format("  {:<28} {:>10}", kind, count));
    if (!t.failed) return;
    print_line(fmt::format("seed {} fails: {}", t.failed->seed, t.failed->verdict));
    print_line(
        fmt::format("it still fails with these {} faults ({}):", t.failed->story.size(), t.failed->shrunk_verdict));
    for (const auto& line : t.failed->story) print_line("  " + line);
    print_line(fmt::format("again: darl simulate --virtual --seed {} --seeds 1{}", t.failed->seed,
                           o.liveness ? " --liveness" : ""));
}

}  // namespace

void run_virtual(session& s, const virtual_options& o) {
    if (!sim::planted_from_word(o.plant))
        return report(s, fail(errc::invalid_argument, fmt::format("--plant '{}' is no mechanism", o.plant)));
    const totals sum = run_seeds(o);
    if (s.json)
        print_line(json::dump(to_json(sum, o)));
    else
        print(sum, o);
    if (sum.failed) s.exit_code = exit_failed;
}

}  // namespace darl
