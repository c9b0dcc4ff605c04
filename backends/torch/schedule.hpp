// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>

#include "darlcore/digest.hpp"

namespace darlcore::training {

/// Learning rate as a function of the global step: linear warm-up, flat, cosine at the end. No state: every generation
/// sets the position, in both directions, so a joiner never starts its own warm-up.
struct lr_schedule {
    double peak = 3e-4;
    std::uint64_t warmup_steps = 200;
    std::uint64_t total_steps = 20000;
    double decay_fraction = 0.1;  ///< last part of the run that decays; 1 = cosine right after the warm-up
    double floor_fraction = 0.1;  ///< rate at the end, as a part of the peak

    friend bool operator==(const lr_schedule&, const lr_schedule&) = default;
};

/// Rate of the update number `step` (0-based): (s + 1) / warmup in the warm-up, then the peak, then down to the floor,
/// which holds for ever.
inline double learning_rate(const lr_schedule& s, std::uint64_t step) {
    if (step < s.warmup_steps) return s.peak * static_cast<double>(step + 1) / static_cast<double>(s.warmup_steps);
    const auto decay = static_cast<std::uint64_t>(s.decay_fraction * static_cast<double>(s.total_steps));
    const std::uint64_t start = std::max(s.warmup_steps, s.total_steps - std::min(decay, s.total_steps));
    const double floor = s.peak * s.floor_fraction;
    if (step >= s.total_steps) return decay == 0 ? s.peak : floor;
    if (step < start) return s.peak;
    const double along = static_cast<double>(step - start) / static_cast<double>(s.total_steps - start);
    return floor + 0.5 * (s.peak - floor) * (1.0 + std::cos(std::numbers::pi * along));
}

/// What sites compare at join: two schedules that differ anywhere have different digests. 32 hex digits.
inline std::string schedule_digest(const lr_schedule& s) {
    const auto pico = [](double x) { return std::to_string(std::llround(x * 1e12)); };
    return to_hex(blake2b_of<16>("darl-lr-1:" + pico(s.peak) + ":" + std::to_string(s.warmup_steps) + ":" +
                                 std::to_string(s.total_steps) + ":" + pico(s.decay_fraction) + ":" +
                                 pico(s.floor_fraction)));
}

}  // namespace darlcore::training
