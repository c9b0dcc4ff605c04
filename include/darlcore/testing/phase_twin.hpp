// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "darlcore/epoch_map.hpp"
#include "darlcore/phase.hpp"
#include "darlcore/testing/space_twin.hpp"

namespace darlcore::testing {

/// One step of a phase, written out.
struct step_record {
    std::uint64_t divisor = 0;  ///< of the gradient sum
    /// [rank][micro-batch] -> real windows
    std::vector<std::vector<std::vector<std::uint64_t>>> windows;

    friend bool operator==(const step_record&, const step_record&) = default;
};

/// One phase, written out: what properties look at.
struct phase_record {
    std::vector<step_record> steps;
    std::vector<std::uint64_t> group_trained_after_step;

    friend bool operator==(const phase_record&, const phase_record&) = default;
};

/// The phases of one stream in an epoch: what both versions get.
struct stream_case {
    space_parameters parameters;
    epoch_index epoch;
    std::vector<std::vector<phase_group>> phases;
    batch_shape shape;
};

/// Runs a stream through the code under test: `phase_plan` and one `phase_reader` per rank.
inline std::vector<phase_record> run_stream(const stream_case& c) {
    const auto map = std::make_shared<const epoch_map>(c.parameters, c.epoch);
    std::vector<phase_record> out;
    for (const auto& groups : c.phases) {
        const auto plan = phase_plan::make(map, groups, c.shape).value();
        phase_record phase;
        std::vector<phase_reader> readers(static_cast<std::size_t>(c.shape.ranks), phase_reader(plan));
        std::vector<std::uint64_t> batch;
        for (std::uint64_t s = 0; s < plan.num_steps(); ++s) {
            step_record step{plan.step_windows(s), {}};
            for (std::uint64_t r = 0; r < c.shape.ranks; ++r) {
                auto& micro_batches = step.windows.emplace_back();
                for (std::uint64_t j = 0; j < plan.micro_batches(s); ++j) {
                    const std::size_t real = readers[static_cast<std::size_t>(r)].read(r, s, j, batch);
                    DARLCORE_ASSERT_CMP(batch.size(), ==, c.shape.batch);
                    batch.resize(real);
                    micro_batches.push_back(batch);
                }
            }
            phase.steps.push_back(std::move(step));
        }
        for (std::size_t g = 0; g < groups.size(); ++g)
            phase.group_trained_after_step.push_back(plan.group_trained_after_step(g));
        out.push_back(std::move(phase));
    }
    return out;
}

namespace detail {

inline std::vector<std::uint64_t> group_windows_twin(const stream_case& c, const phase_group& group,
                                                     space_mutant mutant) {
    const epoch_map_twin<> map(c.parameters, c.epoch);
    std::vector<std::uint64_t> plain;
    for (const span& s : group.spans)
        for (std::uint64_t p = s.start.count; p < s.end.count; ++p) {
            const window_range r = map.windows_of(position{p});
            for (std::uint64_t w = r.begin; w < r.end; ++w) plain.push_back(w);
        }
    std::string text = "pww-darl-phase:" + std::to_string(c.parameters.seed);
    if (mutant != space_mutant::phase_text_without_epoch) text += ":" + std::to_string(c.epoch.count);
    std::vector<std::uint64_t> shuffled;
    for (const std::uint64_t i : shuffled_twin(text + ":" + std::to_string(group.counter), plain.size()))
        shuffled.push_back(plain[i]);
    return shuffled;
}

inline step_record step_twin(const std::vector<std::uint64_t>& windows, const batch_shape& shape, space_mutant mutant) {
    step_record step;
    const std::uint64_t whole = shape.batch * shape.ranks * shape.accumulate;
    step.divisor = mutant == space_mutant::divided_by_global_batch ? whole : windows.size();
    std::uint64_t longest = 0;
    std::vector<std::vector<std::uint64_t>> of_rank(shape.ranks);
    for (std::size_t i = 0; i < windows.size(); ++i) of_rank[i % shape.ranks].push_back(windows[i]);
    for (const auto& list : of_rank) longest = std::max<std::uint64_t>(longest, list.size());
    std::uint64_t micro_batches = 0;
    while (micro_batches * shape.batch < longest) ++micro_batches;
    for (const auto& list : of_rank) {
        auto& batches = step.windows.emplace_back(micro_batches);
        for (std::size_t i = 0; i < list.size(); ++i) batches[i / shape.batch].push_back(list[i]);
    }
    return step;
}

}  // namespace detail

/// The same stream from the rules, with every list written out.
inline std::vector<phase_record> run_stream_twin(const stream_case& c, space_mutant mutant = space_mutant::none) {
    const std::uint64_t batch = c.shape.batch * c.shape.ranks * c.shape.accumulate;
    std::vector<phase_record> out;
    std::vector<std::uint64_t> left;  // windows not yet in a step
    for (const auto& groups : c.phases) {
        phase_record phase;
        std::uint64_t read = 0;
        for (const auto& group : groups) {
            const auto windows = detail::group_windows_twin(c, group, mutant);
            left.insert(left.end(), windows.begin(), windows.end());
            read += windows.size();
            std::uint64_t steps = 0;
            while (steps * batch < read) ++steps;
            phase.group_trained_after_step.push_back(steps);
        }
        std::size_t at = 0;
        for (; at + batch <= left.size(); at += batch)
            phase.steps.push_back(detail::step_twin({left.begin() + static_cast<std::ptrdiff_t>(at),
                                                     left.begin() + static_cast<std::ptrdiff_t>(at + batch)},
                                                    c.shape, mutant));
        left.erase(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(at));
        if (mutant != space_mutant::carry_kept_over_phase_end) {
            if (!left.empty() && mutant != space_mutant::ragged_step_dropped)
                phase.steps.push_back(detail::step_twin(left, c.shape, mutant));
            left.clear();
        }
        out.push_back(std::move(phase));
    }
    return out;
}

/// Blocks of a phase, rounded to the nearest, in numbers wide enough for everything; nothing when H B W A needs more
/// than 64 bits.
inline std::optional<std::uint64_t> blocks_nearest_twin(std::uint64_t inner_steps, const batch_shape& s,
                                                        std::uint64_t block_size,
                                                        space_mutant mutant = space_mutant::none) {
    if (mutant == space_mutant::product_of_32_bits) {
        const auto product = static_cast<std::uint32_t>(inner_steps * s.batch * s.ranks * s.accumulate);
        return std::max<std::uint64_t>(1, (2 * std::uint64_t{product} + block_size) / (2 * block_size));
    }
    __extension__ using wide = unsigned __int128;
    wide product = inner_steps;
    for (const std::uint64_t factor : {s.batch, s.ranks, s.accumulate}) {
        product *= factor;
        if (product > UINT64_MAX) return std::nullopt;
    }
    const wide blocks = (2 * product + block_size) / (2 * wide{block_size});
    return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(blocks));
}

}  // namespace darlcore::testing
