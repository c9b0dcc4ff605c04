// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "darlcore/assert.hpp"

namespace darlcore::plan {

/// Learning rate of the run: linear warm-up, constant, cosine down over the last `decay_ratio` of the steps.
struct lr_schedule {
    std::uint64_t warmup = 0;
    std::uint64_t total_steps = 0;
    double peak_lr = 0;
    double decay_ratio = 0;
    double min_factor = 0;
};

/// Learning rate at a step (0-based; the warm-up is at (step + 1) / warmup of the peak).
/// Preconditions (asserted): total_steps >= 1, 0 <= decay_ratio <= 1.
inline double lr_at(const lr_schedule& s, std::uint64_t step) {
    DARLCORE_ASSERT(s.total_steps >= 1 && s.decay_ratio >= 0 && s.decay_ratio <= 1);
    if (step < s.warmup) return s.peak_lr * static_cast<double>(step + 1) / static_cast<double>(s.warmup);
    const auto total = static_cast<double>(s.total_steps);
    const double decay_steps = total * s.decay_ratio;
    const double into = static_cast<double>(step) - (total - decay_steps);
    if (into <= 0 || decay_steps <= 0) return s.peak_lr;
    const double progress = std::min(1.0, into / decay_steps);
    const double low = s.peak_lr * s.min_factor;
    constexpr double pi = 3.14159265358979323846;
    return low + (s.peak_lr - low) * 0.5 * (1.0 + std::cos(pi * progress));
}

/// Inner steps grow as the learning rate falls: H = h0 * (lr_ref / lr)^2 from the end of the warm-up on.
struct qsr_schedule {
    std::uint32_t h0 = 1;
    std::uint32_t h_max = 1;
    lr_schedule lr;
};

/// Inner steps of the round that begins at `step`. The ratio lr_ref / lr is at most 1000; rounding is to nearest, ties
/// to even. Preconditions (asserted): 1 <= h0 <= h_max.
inline std::uint32_t qsr_inner_steps(const qsr_schedule& q, std::uint64_t step) {
    DARLCORE_ASSERT(q.h0 >= 1 && q.h0 <= q.h_max);
    if (step < q.lr.warmup) return q.h0;
    const double lr = lr_at(q.lr, step);
    const double ratio = lr > 0 ? std::min(1e3, q.lr.peak_lr / lr) : 1e3;
    const double grown = static_cast<double>(q.h0) * ratio * ratio;
    const double floor = std::floor(grown);
    const double rest = grown - floor;
    const bool up = rest > 0.5 || (rest == 0.5 && std::fmod(floor, 2.0) == 1.0);
    const double rounded = floor + (up ? 1.0 : 0.0);
    return static_cast<std::uint32_t>(std::clamp(rounded, 1.0, static_cast<double>(q.h_max)));
}

/// Inner steps replayed from a finished run; each round draws the next one, the last one repeats.
struct h_trace {
    std::vector<std::uint32_t> steps;
};

/// Inner steps per round: one number, by learning rate, or replayed.
using h_schedule = std::variant<std::uint32_t, qsr_schedule, h_trace>;

/// Inner steps of round `round` (0-based) that begins at inner step `step`. Asked once per round.
inline std::uint32_t inner_steps_of(const h_schedule& h, std::uint64_t round, std::uint64_t step) {
    if (const auto* fixed = std::get_if<std::uint32_t>(&h)) return *fixed;
    if (const auto* q = std::get_if<qsr_schedule>(&h)) return qsr_inner_steps(*q, step);
    const auto& trace = std::get<h_trace>(h).steps;
    DARLCORE_ASSERT(!trace.empty());
    return trace[static_cast<std::size_t>(std::min<std::uint64_t>(round, trace.size() - 1))];
}

}  // namespace darlcore::plan
