// SPDX-License-Identifier: Apache-2.0
// The rows of the table in docs/performance.md, section Placement. The ceiling of the campaign: the price of its
// rounds, computed one by one.
#include <benchmark/benchmark.h>

#include "darlcore/plan/campaign_report.hpp"
#include "darlcore/plan/campaign_run.hpp"
#include "darlcore/plan/monte_carlo.hpp"
#include "darlcore/plan/queue_sim.hpp"
#include "darlcore/plan/search.hpp"
#include "darlcore/plan/waterfill.hpp"
#include "darlcore/random.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::plan;

calibration measured() {
    calibration c;
    c.merge_s = 17;
    c.transfer_s = {{"snellius", 33.5}, {"lumi", 64.2}, {"third", 40}};
    c.eval_fixed_s = {{"snellius", 23.6}, {"lumi", 34.7}, {"third", 30}};
    c.join_stall_s = 378;
    c.seq_len = 2048;
    c.block_windows = 1024;
    c.geometries = {{"snellius@4", {89.8, 32}},
                    {"snellius@1", {24.4, 8}},
                    {"lumi@8", {38.2, 64}},
                    {"lumi@1", {4.75, 8}},
                    {"third@4", {60, 32}}};
    c.regimes = {{"snellius@4", quality::identified},
                 {"lumi@8", quality::identified},
                 {"lumi@8+snellius@4", quality::identified}};
    return c;
}

plan_option option(const std::string& site, std::uint32_t gpus, double wait_s, double walltime_s, std::uint32_t links) {
    plan_option o;
    o.site = site;
    o.gpus = gpus;
    o.shape = std::to_string(gpus) + "g" + std::to_string(static_cast<int>(walltime_s));
    o.wait_s = wait_s;
    o.walltime_s = walltime_s;
    o.startup_s = 108;
    o.links = links;
    o.chain = chain_policy::self;
    return o;
}

campaign_config config(double horizon_s, double blocks) {
    campaign_config k;
    k.horizon_s = horizon_s;
    k.blocks_unassigned = blocks;
    return k;
}

void one_plan(benchmark::State& state, const std::vector<plan_option>& options, const campaign_config& k) {
    const calibration c = measured();
    std::uint64_t rounds = 0;
    for (auto _ : state) {
        const auto m = make_campaign(c, options, k);
        const auto out = simulate(*m, k);
        rounds = out.federated_rounds + out.solo_rounds;
        benchmark::DoNotOptimize(out.windows);
    }
    state.counters["rounds"] = static_cast<double>(rounds);
}

void plan_48h_2_sites_8_links(benchmark::State& state) {
    one_plan(state, {option("snellius", 4, 1800, 6 * 3600, 8), option("lumi", 8, 600, 6 * 3600, 8)},
             config(172800, 1e6));
}
BENCHMARK(plan_48h_2_sites_8_links)->Unit(benchmark::kMicrosecond);

// ceiling: the same rounds, priced one by one, without any state
void ceiling_price_of_the_rounds(benchmark::State& state) {
    const calibration c = measured();
    const std::vector<member_cost> members{*cost_of(c, "snellius", 4), *cost_of(c, "lumi", 8)};
    for (auto _ : state) {
        double t = 0;
        for (int i = 0; i < 500; ++i) t += price_round(c, members, {}, 100, 0).period_s;
        benchmark::DoNotOptimize(t);
    }
}
BENCHMARK(ceiling_price_of_the_rounds)->Unit(benchmark::kMicrosecond);

void plan_168h_60_links_47684_blocks(benchmark::State& state) {
    one_plan(state, {option("snellius", 4, 1800, 8 * 3600, 20), option("lumi", 8, 600, 4 * 3600, 40)},
             config(604800, 47684));
}
BENCHMARK(plan_168h_60_links_47684_blocks)->Unit(benchmark::kMicrosecond);

std::vector<site_choices> three_by_five() {
    std::vector<site_choices> sites{{"snellius", {}}, {"lumi", {}}, {"third", {}}};
    for (int k = 0; k < 5; ++k) {
        const double length = 3600.0 * (2 + 3 * k);
        for (const double begin : {0.0, 3600.0, 7200.0}) {
            sites[0].options.push_back(option("snellius", k % 2 == 0 ? 4 : 1, 900.0 * (k + 1), length, 4));
            sites[1].options.push_back(option("lumi", k % 2 == 0 ? 8 : 1, 700.0 * (5 - k), length, 4));
            sites[2].options.push_back(option("third", 4, 500.0 * (k + 2), length, 4));
            for (auto& s : sites) s.options.back().begin_s = begin;
        }
    }
    return sites;
}

void search_3_sites_5_shapes_3_begins_exact(benchmark::State& state) {
    const calibration c = measured();
    const auto sites = three_by_five();
    const campaign_config k = config(172800, 822);
    std::uint64_t nodes = 0, pruned = 0;
    for (auto _ : state) {
        const auto found = search_plans(c, sites, k, {});
        nodes = found->nodes;
        pruned = found->pruned;
        if (!found->exact) state.SkipWithError("not exact");
    }
    state.counters["nodes"] = static_cast<double>(nodes);
    state.counters["pruned"] = static_cast<double>(pruned);
}
BENCHMARK(search_3_sites_5_shapes_3_begins_exact)->Unit(benchmark::kMillisecond);

void waterfill_100_sites_million_units(benchmark::State& state) {
    waterfill_request r;
    r.units = 1000000;
    for (int i = 0; i < 100; ++i) {
        waterfill_shape s;
        s.name = "s";
        s.units_per_h = 1 + i % 17;
        s.wait_h = 0.37 * i;
        r.sites.push_back({"site" + std::to_string(i), {s}, 0, 1});
    }
    for (auto _ : state) benchmark::DoNotOptimize(waterfill(r)->makespan_h);
}
BENCHMARK(waterfill_100_sites_million_units)->Unit(benchmark::kMicrosecond);

void monte_carlo_200_draws_50_plans(benchmark::State& state) {
    const calibration c = measured();
    std::vector<std::vector<plan_option>> plans;
    for (int i = 0; i < 50; ++i) {
        plans.push_back({option("snellius", 4, 1800, 6 * 3600, 8), option("lumi", 8, 600, 6 * 3600, 8)});
        plans.back()[0].begin_s = 300.0 * i;
    }
    const wait_distribution waits({{0, 1}, {3600, 2}, {20000, 1}});
    monte_carlo_settings s;
    s.oracle = false;
    for (auto _ : state) {
        const auto d = monte_carlo(
            c, plans, {}, config(172800, 822), [&](const plan_option&) -> const wait_distribution& { return waits; },
            s);
        benchmark::DoNotOptimize(d->front().p50_s);
    }
}
BENCHMARK(monte_carlo_200_draws_50_plans)->Unit(benchmark::kMillisecond);

void queue_100000_jobs_easy(benchmark::State& state) {
    xoshiro256 draw(1);
    std::vector<queued_job> jobs;
    for (int i = 0; i < 100000; ++i) {
        const double run = 600 + static_cast<double>(draw.below(7200));
        jobs.push_back({static_cast<double>(draw.below(8000000)), run, run * (1 + draw.unit() * 4),
                        1 + static_cast<std::uint32_t>(draw.below(24))});
    }
    const queue_config c{750, backfill::easy, {}};
    std::size_t waited = 0;
    for (auto _ : state) {
        const auto out = simulate_queue(jobs, c);
        waited = 0;
        for (std::size_t i = 0; i < jobs.size(); ++i) waited += out->start_s[i] > jobs[i].submit_s ? 1 : 0;
    }
    state.counters["waited"] = static_cast<double>(waited);
}
BENCHMARK(queue_100000_jobs_easy)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
