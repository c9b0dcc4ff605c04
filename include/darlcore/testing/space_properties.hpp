// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <rapidcheck.h>

#include "darlcore/epoch_map.hpp"
#include "darlcore/interval_set.hpp"
#include "darlcore/testing/space_generators.hpp"
#include "darlcore/testing/space_twin.hpp"

// What must hold for one epoch of any block space. Each is the body of a RapidCheck property over a type Map with the
// members of `epoch_map`: construction from (space_parameters, epoch_index), num_blocks, block_at, position_of,
// windows_of, window_count, digest.
namespace darlcore::testing {

/// Every block stands at exactly one position, and position_of leads back.
template <class Map>
void every_block_has_one_position() {
    const Map map(any_space(), any_epoch());
    std::vector<bool> seen(static_cast<std::size_t>(map.num_blocks()), false);
    for (std::uint64_t p = 0; p < map.num_blocks(); ++p) {
        const std::uint64_t block = map.block_at(position{p});
        RC_ASSERT(block < map.num_blocks());
        RC_ASSERT(!seen[static_cast<std::size_t>(block)]);
        seen[static_cast<std::size_t>(block)] = true;
    }
    for (int sample = 0; sample < 20; ++sample) {
        const position p{*rc::gen::inRange<std::uint64_t>(0, map.num_blocks())};
        RC_ASSERT(map.position_of(map.block_at(p)) == p);
    }
}

/// The windows of all positions are [0, N), each once, and counts over any partition into spans add up.
template <class Map>
void every_window_lies_in_one_block() {
    const Map map(any_space(), any_epoch());
    coverage_audit audit;
    for (std::uint64_t p = 0; p < map.num_blocks(); ++p) {
        const window_range windows = map.windows_of(position{p});
        audit.add({windows.begin, windows.end});
        RC_ASSERT(map.window_count(make_span(p, p + 1)) == windows.size());
    }
    RC_ASSERT(audit.report({0, map.parameters().num_samples}).exactly_once());
    std::uint64_t counted = 0;
    for (const span& s : any_partition(map.num_blocks())) counted += map.window_count(s);
    RC_ASSERT(counted == map.parameters().num_samples);
    RC_ASSERT(map.window_count(make_span(map.num_blocks(), map.num_blocks())) == 0);
}

/// Order, counts and digest are those of the twin, which is written from the rules. For `mt-shuffle-1`.
template <class Map>
void agrees_with_the_twin() {
    auto parameters = any_space();
    parameters.shuffle = *rc::gen::inRange(0, 8) != 0;
    const auto epoch = any_epoch();
    const Map map(parameters, epoch);
    const epoch_map_twin<> twin(parameters, epoch);
    RC_ASSERT(map.num_blocks() == twin.num_blocks());
    for (std::uint64_t p = 0; p < map.num_blocks(); ++p)
        RC_ASSERT(map.block_at(position{p}) == twin.block_at(position{p}));
    for (const span& s : any_partition(map.num_blocks())) RC_ASSERT(map.window_count(s) == twin.window_count(s));
    RC_ASSERT(map.digest() == twin.digest());
}

/// Another N, K, seed, shuffle or epoch gives another digest.
template <class Map>
void digest_covers_every_parameter() {
    const auto p = any_space(10'000);
    const auto epoch = any_epoch();
    const auto digest = Map(p, epoch).digest();
    auto more_samples = p;
    more_samples.num_samples += *rc::gen::inRange<std::uint64_t>(1, 5);
    auto larger_blocks = p;
    larger_blocks.block_size += *rc::gen::inRange<std::uint64_t>(1, 5);
    auto next_seed = p;
    next_seed.seed = next_seed.seed == INT64_MAX ? 0 : next_seed.seed + 1;
    RC_ASSERT(Map(more_samples, epoch).digest() != digest);
    RC_ASSERT(Map(larger_blocks, epoch).digest() != digest);
    RC_ASSERT(Map(next_seed, epoch).digest() != digest);
    RC_ASSERT(Map(p, epoch_index{epoch.count + 1}).digest() != digest);
    if (Map(p, epoch).parameters().scheme == permutation_scheme::mt_shuffle_1) {
        auto unshuffled = p;
        unshuffled.shuffle = false;
        RC_ASSERT(Map(unshuffled, epoch).digest() != digest);
    }
}

/// Positions at which two epochs show the same block.
template <class Map>
std::uint64_t agreements(const Map& a, const Map& b) {
    std::uint64_t equal = 0;
    for (std::uint64_t p = 0; p < std::min(a.num_blocks(), b.num_blocks()); ++p)
        if (a.block_at(position{p}) == b.block_at(position{p})) ++equal;
    return equal;
}

/// Neighbouring seeds and epochs agree in about one position (Poisson, mean 1), whatever the size.
template <class Map>
void neighbours_have_nothing_in_common() {
    space_parameters p;
    p.num_samples = *rc::gen::inRange<std::uint64_t>(50, 3000);
    p.seed = *rc::gen::inRange<std::int64_t>(-1'000'000, 1'000'000);
    const auto epoch = any_epoch();
    const Map here(p, epoch);
    auto neighbour = p;
    ++neighbour.seed;
    // A Poisson variable of mean 1 exceeds 14 once in 10^13.
    RC_ASSERT(agreements(here, Map(neighbour, epoch)) <= 14);
    RC_ASSERT(agreements(here, Map(p, epoch_index{epoch.count + 1})) <= 14);
}

/// Upper tail of a chi-square value as a normal deviate (Wilson and Hilferty), for thresholds that hold for any
/// freedom.
inline double chi_square_deviate(double value, double freedom) {
    const double spread = 2.0 / (9.0 * freedom);
    return (std::cbrt(value / freedom) - (1.0 - spread)) / std::sqrt(spread);
}

/// Chi-square value of counts that should be equal.
inline double chi_square(const std::vector<std::uint64_t>& counts) {
    double total = 0;
    for (const std::uint64_t c : counts) total += static_cast<double>(c);
    const double expected = total / static_cast<double>(counts.size());
    double value = 0;
    for (const std::uint64_t c : counts) {
        const double off = static_cast<double>(c) - expected;
        value += off * off / expected;
    }
    return value;
}

/// draw(n) near powers of two is uniform and takes one output per try. Engine: constructible from a text, with `draw`
/// and `output`.
template <class Engine>
void draws_are_uniform() {
    const auto bits = *rc::gen::inRange<std::uint32_t>(1, 8);
    const std::int64_t offset = *rc::gen::inRange<std::int64_t>(-1, 2);
    const auto n = static_cast<std::uint32_t>(std::max<std::int64_t>(2, (std::int64_t{1} << bits) + offset));
    const std::string text = "draws " + std::to_string(*rc::gen::arbitrary<std::uint32_t>());
    Engine engine(text);
    Engine outputs(text);
    unsigned width = 0;
    while ((std::uint64_t{1} << width) <= n) ++width;  // bit length of n
    std::vector<std::uint64_t> counts(n, 0);
    for (std::uint32_t k = 0; k < 30 * n; ++k) {
        const std::uint32_t value = engine.draw(n);
        RC_ASSERT(value < n);
        ++counts[value];
        std::uint32_t tried = outputs.output() >> (32 - width);
        while (tried >= n) tried = outputs.output() >> (32 - width);
        RC_ASSERT(value == tried);
    }
    RC_ASSERT(engine.output() == outputs.output());
    RC_ASSERT(chi_square_deviate(chi_square(counts), static_cast<double>(n - 1)) < 6.5);
}

}  // namespace darlcore::testing
