// SPDX-License-Identifier: Apache-2.0
#include "darlcore/plan/queue_sim.hpp"

#include <gtest/gtest.h>

#include "darlcore/random.hpp"
#include "darlcore/testing/budget.hpp"
#include "darlcore/testing/queue_twin.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::plan;

std::vector<queued_job> random_jobs(xoshiro256& draw, std::uint64_t most, std::uint32_t nodes) {
    std::vector<queued_job> jobs;
    for (std::uint64_t k = 1 + draw.below(most); k > 0; --k) {
        queued_job j;
        j.submit_s = static_cast<double>(draw.below(30));
        j.limit_s = static_cast<double>(1 + draw.below(12));
        j.run_s = static_cast<double>(1 + draw.below(15));
        j.nodes = 1 + static_cast<std::uint32_t>(draw.below(nodes));
        jobs.push_back(j);
    }
    return jobs;
}

TEST(queue_sim, equals_its_plain_twin_and_keeps_its_promises) {
    xoshiro256 draw(3);
    std::uint64_t backfilled = 0;
    for (int run = 0; run < darlcore::testing::property_runs(20000); ++run) {
        const auto jobs = random_jobs(draw, 12, 4);
        queue_config c{4, draw.below(4) == 0 ? backfill::none : backfill::easy, {}};
        if (draw.below(4) == 0) {
            const double start = static_cast<double>(draw.below(40));
            c.reserved = maintenance{start, start + static_cast<double>(draw.below(20))};
        }
        const auto out = simulate_queue(jobs, c);
        ASSERT_TRUE(out.has_value());
        ASSERT_EQ(out->start_s, darlcore::testing::plain_queue(jobs, c)) << run;
        for (const auto& [job, latest] : out->promises) ASSERT_LE(out->start_s[job], latest) << run;
        for (std::size_t i = 0; i < jobs.size(); ++i) {
            std::uint32_t used = 0;
            for (std::size_t k = 0; k < jobs.size(); ++k)
                if (out->start_s[k] <= out->start_s[i] && out->start_s[i] < out->start_s[k] + jobs[k].lasts_s())
                    used += jobs[k].nodes;
            ASSERT_LE(used, 4U) << run;
            ASSERT_GE(out->start_s[i], jobs[i].submit_s);
            for (std::size_t k = 0; k < jobs.size(); ++k)
                backfilled += jobs[k].submit_s < jobs[i].submit_s && out->start_s[i] < out->start_s[k] ? 1 : 0;
        }
    }
    EXPECT_GT(backfilled, 0U);
}

TEST(queue_sim, equals_its_plain_twin_for_every_queue_of_four_jobs) {
    std::vector<queued_job> kinds;
    for (const double submit : {0.0, 2.0})
        for (const auto& [run, limit] : {std::pair{1.0, 1.0}, {1.0, 3.0}, {3.0, 3.0}})
            for (const std::uint32_t nodes : {1U, 2U, 4U}) kinds.push_back({submit, run, limit, nodes});
    const std::size_t n = kinds.size();
    std::vector<queued_job> jobs(4);
    for (std::size_t all = 0; all < n * n * n * n; ++all) {
        std::size_t rest = all;
        for (queued_job& j : jobs) {
            j = kinds[rest % n];
            rest /= n;
        }
        for (const auto policy : {backfill::none, backfill::easy}) {
            const queue_config c{4, policy, {}};
            ASSERT_EQ(simulate_queue(jobs, c)->start_s, darlcore::testing::plain_queue(jobs, c)) << all;
        }
    }
}

TEST(queue_sim, without_backfill_nobody_overtakes) {
    xoshiro256 draw(4);
    for (int run = 0; run < darlcore::testing::property_runs(2000); ++run) {
        const auto jobs = random_jobs(draw, 12, 4);
        const auto out = simulate_queue(jobs, {4, backfill::none, {}});
        for (std::size_t i = 0; i < jobs.size(); ++i)
            for (std::size_t k = 0; k < jobs.size(); ++k)
                if (jobs[i].submit_s < jobs[k].submit_s) {
                    ASSERT_LE(out->start_s[i], out->start_s[k]) << run;
                }
    }
}

TEST(queue_sim, an_estimate_of_an_idle_machine_is_now_and_two_full_jobs_ahead_add_their_limits) {
    const queue_config c{4, backfill::easy, {}};
    const queued_job shape{0, 3600, 3600, 4};
    EXPECT_EQ(estimate_start_s({}, c, *simulate_queue({}, c), shape, 100), 100);
    const std::vector<queued_job> jobs{{0, 3600, 7200, 4}, {10, 3600, 7200, 4}};
    const auto out = *simulate_queue(jobs, c);
    EXPECT_EQ(estimate_start_s(jobs, c, out, shape, 20), 7200 + 7200);
    EXPECT_EQ(*true_start_s(jobs, c, shape, 20), 3600 + 3600);
}

TEST(queue_sim, the_discount_brings_the_estimate_nearer_to_the_truth_when_jobs_end_early) {
    xoshiro256 draw(8);
    const queue_config c{16, backfill::easy, {}};
    std::vector<queued_job> jobs;
    for (int i = 0; i < 800; ++i)
        jobs.push_back({static_cast<double>(draw.below(200000)), 600 + static_cast<double>(draw.below(3000)), 7200,
                        1 + static_cast<std::uint32_t>(draw.below(8))});
    const auto out = *simulate_queue(jobs, c);
    double raw = 0, discounted = 0;
    int seen = 0;
    for (double t = 5000; t < 200000; t += 7000) {
        const queued_job shape{t, 3600, 7200, 8};
        const double estimate = estimate_start_s(jobs, c, out, shape, t) - t;
        const double truth = *true_start_s(jobs, c, shape, t) - t;
        if (estimate < 1) continue;
        raw += std::abs(estimate - truth);
        discounted += std::abs(estimate * (1 - 0.5 * (1 - 0.29)) - truth);
        ++seen;
    }
    ASSERT_GT(seen, 5);
    EXPECT_LT(discounted, raw);
}

TEST(queue_sim, a_job_that_could_never_start_is_refused_by_name) {
    const std::vector<queued_job> jobs{{0, 1, 1, 1}, {0, 1, 1, 9}};
    const auto out = simulate_queue(jobs, {4, backfill::easy, {}});
    ASSERT_FALSE(out.has_value());
    EXPECT_NE(out.error().context.find("job 1"), std::string::npos);
}

}  // namespace
