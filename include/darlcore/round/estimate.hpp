// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "darlcore/round/state.hpp"

namespace darlcore::round {

/// Full-phase time from a phase of `steps` of `inner_steps` steps; nothing without steps or time.
/// Units: milliseconds. A shortened phase is scaled up, so that it does not lower the next budget.
inline std::optional<std::int64_t> full_phase_ms(std::int64_t phase_ms, std::uint64_t steps,
                                                 std::uint64_t inner_steps) {
    if (phase_ms <= 0 || steps == 0) return std::nullopt;
    const double scaled = static_cast<double>(phase_ms) * static_cast<double>(inner_steps) / static_cast<double>(steps);
    constexpr double longest_ms = 1e12;
    return static_cast<std::int64_t>(std::clamp(scaled, 1.0, longest_ms));
}

/// Smoothed estimate: 0.7 old + 0.3 new; the first sample is taken as it is.
inline std::int64_t smoothed_ms(std::optional<std::int64_t> old_ms, std::int64_t sample_ms) {
    if (!old_ms) return sample_ms;
    return (7 * *old_ms + 3 * sample_ms) / 10;
}

/// The middle value, of an even count the lower one.
inline std::optional<std::int64_t> lower_median(std::vector<std::int64_t> values) {
    if (values.empty()) return std::nullopt;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

/// budget = factor x lower median of the known estimates; nothing while none is known or budgets are off.
inline std::optional<std::int64_t> budget_ms(const settings& set, std::vector<std::int64_t> estimates_ms) {
    if (!set.budget) return std::nullopt;
    const auto median = lower_median(std::move(estimates_ms));
    if (!median) return std::nullopt;
    return std::max<std::int64_t>(1, *median * set.budget_permille / 1'000);
}

/// Expected phase of a site: the shorter of its estimate and its budget; nothing when neither is known.
inline std::optional<std::int64_t> planned_phase_ms(std::optional<std::int64_t> estimate,
                                                    std::optional<std::int64_t> budget) {
    if (estimate && budget) return std::min(*estimate, *budget);
    return estimate ? estimate : budget;
}

/// Download and upload of one generation at the site's last rate.
inline std::int64_t transfer_ms(const settings& set, std::uint64_t bytes_down_and_up, std::uint64_t bytes_per_s) {
    if (bytes_per_s == 0) return set.unknown_transfer_ms;
    const double seconds = static_cast<double>(bytes_down_and_up) / static_cast<double>(bytes_per_s);
    return static_cast<std::int64_t>(std::min(seconds * 1'000.0, 1e12));
}

/// due = start + max(2 p, p + 60 s) + transfer; without an estimate and a budget p is `unknown_phase_ms`, not doubled.
/// Source: differs from the plain rule for a joiner without an estimate: its budget bounds its due, too.
inline round_time due_at(const settings& set, round_time start, std::optional<std::int64_t> planned,
                         std::int64_t transfer, std::int64_t extra_ms) {
    const std::int64_t phase = planned ? std::max(2 * *planned, *planned + 60'000) : set.unknown_phase_ms;
    return start + phase + transfer + extra_ms;
}

}  // namespace darlcore::round
