// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <rapidcheck.h>

#include "darlcore/epoch_map.hpp"
#include "darlcore/phase_group.hpp"
#include "darlcore/sizing.hpp"

// Cases for properties of the block space. Call them inside a property.
namespace darlcore::testing {

/// N in 1 ... samples_max (small ones more often), K in 1 ... N + 2 (small ones more often), any seed; shuffled
/// mt-shuffle-1.
inline space_parameters any_space(std::uint64_t samples_max = 100'000) {
    space_parameters p;
    p.num_samples = *rc::gen::weightedOneOf<std::uint64_t>(
        {{5, rc::gen::inRange<std::uint64_t>(1, std::min<std::uint64_t>(samples_max, 3000) + 1)},
         {1, rc::gen::inRange<std::uint64_t>(1, samples_max + 1)}});
    const std::uint64_t block_size_max = p.num_samples + 2;
    p.block_size = *rc::gen::weightedOneOf<std::uint64_t>(
        {{3, rc::gen::inRange<std::uint64_t>(1, std::min<std::uint64_t>(block_size_max, 64) + 1)},
         {1, rc::gen::inRange<std::uint64_t>(1, block_size_max + 1)}});
    p.seed = *rc::gen::arbitrary<std::int64_t>();
    return p;
}

inline epoch_index any_epoch() {
    return epoch_index{*rc::gen::weightedOneOf<std::uint32_t>(
        {{3, rc::gen::inRange<std::uint32_t>(0, 4)}, {1, rc::gen::arbitrary<std::uint32_t>()}})};
}

/// B, W, A in 1 ... 9.
inline batch_shape any_shape() {
    const auto factor = [] { return *rc::gen::inRange<std::uint64_t>(1, 10); };
    return {factor(), factor(), factor()};
}

/// Positions [0, num_blocks) cut into spans at up to `cuts_max` places, ascending, none empty.
inline std::vector<span> any_partition(std::uint64_t num_blocks, std::size_t cuts_max = 12) {
    std::vector<std::uint64_t> borders = {0, num_blocks};
    const auto cuts = *rc::gen::inRange<std::size_t>(0, cuts_max + 1);
    for (std::size_t c = 0; c < cuts; ++c) borders.push_back(*rc::gen::inRange<std::uint64_t>(0, num_blocks + 1));
    std::sort(borders.begin(), borders.end());
    borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
    std::vector<span> spans;
    for (std::size_t i = 0; i + 1 < borders.size(); ++i) spans.push_back(make_span(borders[i], borders[i + 1]));
    return spans;
}

/// A whole epoch of one stream: every position in exactly one group, groups of one or more spans in any order, phases
/// of one or more groups. Some groups are empty.
inline std::vector<std::vector<phase_group>> any_stream(std::uint64_t num_blocks) {
    std::vector<span> spans = any_partition(num_blocks);
    for (std::size_t i = spans.size(); i > 1; --i) std::swap(spans[i - 1], spans[*rc::gen::inRange<std::size_t>(0, i)]);
    std::vector<std::vector<phase_group>> phases(1);
    std::uint64_t counter = *rc::gen::inRange<std::uint64_t>(0, 5);
    for (const span& s : spans) {
        const bool same_group = !phases.back().empty() && *rc::gen::inRange(0, 3) == 0;
        if (same_group) {
            phases.back().back().spans.push_back(s);
            continue;
        }
        if (!phases.back().empty() && *rc::gen::inRange(0, 3) == 0) phases.emplace_back();
        if (*rc::gen::inRange(0, 8) == 0) phases.back().push_back({counter++, {}});
        phases.back().push_back({counter++, {s}});
    }
    return phases;
}

}  // namespace darlcore::testing
