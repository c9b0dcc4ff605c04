// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "darlcore/assert.hpp"
#include "darlcore/error.hpp"

namespace darlcore::plan {

/// How well a figure is known: measured by itself, by difference of measurements, or never measured in this regime.
enum class quality : std::uint8_t { identified, derived_by_subtraction, extrapolated };

inline constexpr std::array<std::string_view, 3> quality_words{"identified", "derived_by_subtraction", "extrapolated"};
constexpr std::string_view word(quality q) { return quality_words[static_cast<std::size_t>(q)]; }
constexpr std::optional<quality> quality_from_word(std::string_view text) {
    for (std::size_t i = 0; i < quality_words.size(); ++i)
        if (quality_words[i] == text) return static_cast<quality>(i);
    return std::nullopt;
}

/// What one site does with so many GPUs at accumulation 1. The step time is batch / seq_per_s.
struct geometry {
    double seq_per_s = 0;
    std::uint32_t batch = 0;
    [[nodiscard]] double step_s() const { return static_cast<double>(batch) / seq_per_s; }
};

/// Whether the members of a round are served one after the other or side by side.
enum class overhead_rule : std::uint8_t { sum, max };

/// Measured figures of a finished run. Keys of `geometries` are "site@gpus"; keys of `regimes` are those keys,
/// sorted, joined by '+'. A regime that was never measured is extrapolated.
struct calibration {
    double merge_s = 0;
    std::map<std::string, double, std::less<>> transfer_s;
    std::map<std::string, double, std::less<>> eval_fixed_s;
    double eval_windows = 512;
    double eval_speedup = 3;
    double join_stall_s = 0;
    std::uint32_t seq_len = 1;
    std::uint32_t block_windows = 1;
    overhead_rule overhead = overhead_rule::sum;
    std::map<std::string, geometry, std::less<>> geometries;
    std::map<std::string, quality, std::less<>> regimes;
};

/// "site@gpus": the key of a geometry.
inline std::string geometry_key(std::string_view site, std::uint32_t gpus) {
    std::string key(site);
    key += '@';
    key += std::to_string(gpus);
    return key;
}

/// What one member costs a round. Units: seconds at accumulation 1; overhead includes the transfer.
struct member_cost {
    double step_s = 0;
    std::uint32_t batch = 0;
    std::uint32_t accumulation = 1;
    double transfer_s = 0;
    double overhead_s = 0;
};

/// Thirty years: no step and no overhead takes longer.
inline constexpr double seconds_max = 1e9;

/// The cost of (site, gpus) by the calibration: o = transfer + eval_fixed + V / (speedup * seq_per_s).
/// Errors: errc::not_found naming what the calibration lacks; errc::invalid_argument for a figure that is not positive
/// and finite.
inline result<member_cost> cost_of(const calibration& c, std::string_view site, std::uint32_t gpus) {
    const std::string key = geometry_key(site, gpus);
    const auto g = c.geometries.find(key);
    if (g == c.geometries.end())
        return fail(errc::not_found, "no throughput for " + key + "; add calibration.geometry." + key);
    const auto transfer = c.transfer_s.find(site);
    const auto eval = c.eval_fixed_s.find(site);
    if (transfer == c.transfer_s.end() || eval == c.eval_fixed_s.end())
        return fail(errc::not_found, "no overhead for site " + std::string(site) +
                                         "; add calibration.transfer_s and calibration.eval_fixed_s for it");
    const bool rate_ok = std::isfinite(g->second.seq_per_s) && g->second.seq_per_s > 0 && g->second.batch > 0;
    if (!rate_ok)
        return fail(errc::invalid_argument, "throughput and batch of " + key + " must be positive and finite");
    if (!(g->second.step_s() >= 1e-9 && g->second.step_s() <= seconds_max))
        return fail(errc::invalid_argument, "a step of " + key + " (batch / seq_per_s) must take 1e-9 to 1e9 seconds");
    const auto duration_ok = [](double v) { return v >= 0 && v <= seconds_max; };
    if (!duration_ok(transfer->second) || !duration_ok(eval->second) || !duration_ok(c.merge_s) ||
        !duration_ok(c.join_stall_s) || !duration_ok(c.eval_windows) || !(c.eval_speedup > 0) ||
        !duration_ok(c.eval_windows / (c.eval_speedup * g->second.seq_per_s)))
        return fail(errc::invalid_argument, "overheads of site " + std::string(site) + " must lie between 0 and 1e9 s");
    member_cost m;
    m.step_s = g->second.step_s();
    m.batch = g->second.batch;
    m.transfer_s = transfer->second;
    m.overhead_s = transfer->second + eval->second + c.eval_windows / (c.eval_speedup * g->second.seq_per_s);
    return m;
}

/// Accumulation of each member so that steps take about the same time: floor(max_step / step + 1/2), at least 1, at
/// most `cap`. Source: differs from an equal batch per step, which leaves the fast site idle at the barrier.
inline std::vector<std::uint32_t> balanced_accumulation(std::span<const double> step_s, std::uint32_t cap = 8) {
    std::vector<std::uint32_t> made(step_s.size(), 1);
    if (step_s.size() < 2) return made;
    const double slowest = *std::max_element(step_s.begin(), step_s.end());
    for (std::size_t i = 0; i < step_s.size(); ++i) {
        DARLCORE_ASSERT(std::isfinite(step_s[i]) && step_s[i] > 0);
        made[i] = static_cast<std::uint32_t>(std::clamp(std::floor(slowest / step_s[i] + 0.5), 1.0, double(cap)));
    }
    return made;
}

/// One round: what it takes and what it yields. Units: seconds; phase includes the stall.
struct round_price {
    double period_s = 0;
    double phase_s = 0;
    double overhead_s = 0;
    std::uint64_t windows = 0;
    std::uint64_t tokens = 0;
    double blocks = 0;
};

/// period = H * max(a step) + stall + merge + sum of o over members + sum of (o - transfer) over members that only
/// evaluate. With overhead_rule::max the slowest member's overhead counts instead of the sum.
inline round_price price_round(const calibration& c, std::span<const member_cost> members,
                               std::span<const member_cost> eval_only, std::uint32_t inner_steps, double stall_s) {
    round_price p;
    double slowest = 0;
    double others = 0;
    const auto add = [&](double o) { others = c.overhead == overhead_rule::sum ? others + o : std::max(others, o); };
    for (const member_cost& m : members) {
        slowest = std::max(slowest, static_cast<double>(m.accumulation) * m.step_s);
        add(m.overhead_s);
        p.windows += std::uint64_t{inner_steps} * m.accumulation * m.batch;
    }
    for (const member_cost& m : eval_only) add(m.overhead_s - m.transfer_s);
    p.phase_s = static_cast<double>(inner_steps) * slowest + stall_s;
    p.overhead_s = c.merge_s + others;
    p.period_s = p.phase_s + p.overhead_s;
    p.tokens = p.windows * c.seq_len;
    p.blocks = static_cast<double>(p.windows) / static_cast<double>(c.block_windows);
    return p;
}

/// Quality of a regime: the set of (site@gpus) that train together, in any order.
inline quality quality_of(const calibration& c, std::vector<std::string> keys) {
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    std::string joined;
    for (const std::string& k : keys) {
        if (!joined.empty()) joined += '+';
        joined += k;
    }
    const auto found = c.regimes.find(joined);
    return found == c.regimes.end() ? quality::extrapolated : found->second;
}

}  // namespace darlcore::plan
