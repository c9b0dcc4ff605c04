// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include <rapidcheck.h>

#include "darlcore/phase.hpp"
#include "darlcore/testing/phase_twin.hpp"
#include "darlcore/testing/space_generators.hpp"

// What must hold for the phases of a stream, as bodies of RapidCheck properties over a function that runs one:
// `run_stream`, its twin, or a trainer's own way of handing windows to ranks.
namespace darlcore::testing {

using stream_runner = std::function<std::vector<phase_record>(const stream_case&)>;

inline stream_case any_stream_case(std::uint64_t samples_max = 100'000) {
    stream_case c;
    c.parameters = any_space(samples_max);
    c.epoch = any_epoch();
    c.shape = any_shape();
    c.phases = any_stream(block_count(c.parameters));
    return c;
}

inline std::vector<std::uint64_t> windows_of_step(const step_record& step) {
    std::vector<std::uint64_t> all;
    for (const auto& rank : step.windows)
        for (const auto& micro_batch : rank) all.insert(all.end(), micro_batch.begin(), micro_batch.end());
    return all;
}

/// Windows of a list of groups, ascending.
inline std::vector<std::uint64_t> windows_of_groups(const stream_case& c, const std::vector<phase_group>& groups) {
    const epoch_map map(c.parameters, c.epoch);
    std::vector<std::uint64_t> all;
    for (const auto& group : groups)
        for (const span& s : group.spans)
            for (std::uint64_t p = s.start.count; p < s.end.count; ++p) {
                const auto r = map.windows_of(position{p});
                for (std::uint64_t w = r.begin; w < r.end; ++w) all.push_back(w);
            }
    std::sort(all.begin(), all.end());
    return all;
}

inline std::vector<std::uint64_t> windows_trained(const phase_record& phase) {
    std::vector<std::uint64_t> all;
    for (const auto& step : phase.steps) {
        const auto windows = windows_of_step(step);
        all.insert(all.end(), windows.begin(), windows.end());
    }
    std::sort(all.begin(), all.end());
    return all;
}

/// Each phase trains exactly the windows of its groups, each once, over all ranks and steps: nothing is carried,
/// dropped or doubled.
inline void phases_train_exactly_their_groups(const stream_runner& run) {
    const auto c = any_stream_case();
    const auto phases = run(c);
    RC_ASSERT(phases.size() == c.phases.size());
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < phases.size(); ++i) {
        const auto trained = windows_trained(phases[i]);
        RC_ASSERT(trained == windows_of_groups(c, c.phases[i]));
        total += trained.size();
    }
    RC_ASSERT(total == c.parameters.num_samples);
}

/// All ranks run the same number of micro-batches in each step, none above B windows; every step but a phase's last has
/// exactly G windows and A micro-batches; the gradient is divided by the windows that are real.
inline void ranks_run_in_step(const stream_runner& run) {
    const auto c = any_stream_case(20'000);
    const std::uint64_t batch = c.shape.batch * c.shape.ranks * c.shape.accumulate;
    for (const auto& phase : run(c)) {
        for (std::size_t s = 0; s < phase.steps.size(); ++s) {
            const auto& step = phase.steps[s];
            const std::uint64_t windows = windows_of_step(step).size();
            RC_ASSERT(step.divisor == windows);
            RC_ASSERT(windows > 0 && windows <= batch);
            RC_ASSERT(step.windows.size() == c.shape.ranks);
            for (const auto& rank : step.windows) {
                RC_ASSERT(rank.size() == step.windows.front().size());
                for (const auto& micro_batch : rank) RC_ASSERT(micro_batch.size() <= c.shape.batch);
            }
            if (s + 1 < phase.steps.size()) RC_ASSERT(windows == batch);
            if (windows == batch)
                RC_ASSERT(step.windows.front().size() == c.shape.accumulate);
            else
                RC_ASSERT(step.windows.front().size() <= c.shape.accumulate);
        }
    }
}

/// Everything is as the twin has it: order within groups, ranks, micro-batches, watermarks.
inline void streams_equal_the_twin(const stream_runner& run) {
    const auto c = any_stream_case(5'000);
    RC_ASSERT(run(c) == run_stream_twin(c));
}

/// The same phase on other ranks has the same set of windows in each step whenever B W A is equal.
inline void ranks_do_not_change_the_steps(const stream_runner& run) {
    auto c = any_stream_case(20'000);
    auto other = c;
    std::swap(other.shape.ranks, other.shape.batch);
    if (*rc::gen::arbitrary<bool>()) std::swap(other.shape.ranks, other.shape.accumulate);
    const auto a = run(c);
    const auto b = run(other);
    for (std::size_t i = 0; i < a.size(); ++i) {
        RC_ASSERT(a[i].steps.size() == b[i].steps.size());
        for (std::size_t s = 0; s < a[i].steps.size(); ++s) {
            const auto left = windows_of_step(a[i].steps[s]);
            const auto right = windows_of_step(b[i].steps[s]);
            RC_ASSERT(std::set<std::uint64_t>(left.begin(), left.end()) ==
                      std::set<std::uint64_t>(right.begin(), right.end()));
        }
    }
}

/// Ending a phase at the earliest allowed place after any number of applied steps: exactly the windows of the finished
/// groups were trained, the steps applied so far are those of the shortened plan, and the watermarks name exactly the
/// groups' spans.
inline void early_ends_train_whole_groups() {
    const auto c = any_stream_case(5'000);
    const auto map = std::make_shared<const epoch_map>(c.parameters, c.epoch);
    for (std::size_t i = 0; i < c.phases.size(); ++i) {
        const auto plan = phase_plan::make(map, c.phases[i], c.shape).value();
        const auto applied = *rc::gen::inRange<std::uint64_t>(0, plan.num_steps() + 1);
        const phase_end end = plan.earliest_end(applied);
        RC_ASSERT(end.steps >= applied);
        auto shortened = c;
        shortened.phases = {c.phases[i]};
        const auto whole = run_stream(shortened);
        shortened.phases[0].resize(end.groups);
        const auto ended = run_stream(shortened);
        RC_ASSERT(ended[0].steps.size() == end.steps);
        for (std::uint64_t s = 0; s < applied; ++s) RC_ASSERT(ended[0].steps[s] == whole[0].steps[s]);
        RC_ASSERT(windows_trained(ended[0]) == windows_of_groups(c, shortened.phases[0]));
        std::vector<span> spans;
        for (const auto& group : shortened.phases[0]) spans.insert(spans.end(), group.spans.begin(), group.spans.end());
        const auto short_plan = plan.ended_after(end.groups);
        RC_ASSERT(short_plan.num_steps() == end.steps);
        RC_ASSERT(short_plan.trained_spans(end.steps) == spans);
        if (end.groups == 0) continue;
        // One group fewer would leave a window of an unfinished group in an applied step.
        RC_ASSERT(plan.ended_after(end.groups - 1).num_windows() <
                  std::min(applied * plan.global_batch_windows(), plan.num_windows()));
    }
}

/// The trained watermark after each step: the groups all of whose windows were in the steps so far.
inline void watermarks_follow_the_last_window_of_a_group() {
    const auto c = any_stream_case(3'000);
    const auto map = std::make_shared<const epoch_map>(c.parameters, c.epoch);
    const auto plan = phase_plan::make(map, c.phases[0], c.shape).value();
    const auto run = run_stream(c)[0];
    std::set<std::uint64_t> seen;
    for (std::uint64_t s = 0; s <= plan.num_steps(); ++s) {
        std::size_t finished = 0;
        while (finished < c.phases[0].size()) {
            const auto windows = windows_of_groups(c, {c.phases[0][finished]});
            if (!std::all_of(windows.begin(), windows.end(), [&](auto w) { return seen.count(w) == 1; })) break;
            ++finished;
        }
        RC_ASSERT(plan.groups_trained(s) == finished);
        if (s == plan.num_steps()) break;
        for (const auto w : windows_of_step(run.steps[s])) seen.insert(w);
    }
}

/// Sizes are those of wide arithmetic, and an error where 64 bits do not hold H B W A.
inline void sizes_are_exact(
    const std::function<std::optional<std::uint64_t>(std::uint64_t, batch_shape, std::uint64_t)>& nearest) {
    const auto factor = [] {
        return *rc::gen::oneOf(rc::gen::inRange<std::uint64_t>(1, 10), rc::gen::inRange<std::uint64_t>(1, 100'000),
                               rc::gen::map(rc::gen::arbitrary<std::uint64_t>(),
                                            [](std::uint64_t x) { return std::max<std::uint64_t>(1, x); }));
    };
    const std::uint64_t inner_steps = factor();
    const batch_shape shape{factor(), factor(), factor()};
    const std::uint64_t block_size = factor();
    RC_ASSERT(nearest(inner_steps, shape, block_size) == blocks_nearest_twin(inner_steps, shape, block_size));
}

}  // namespace darlcore::testing
