// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "darlcore/lease/settings.hpp"

namespace darlcore::lease {

/// Seconds that a client claims, as whole milliseconds: NaN, infinite and negative values count as 0, and above
/// `max_s` it is `max_s`.
inline std::int64_t claimed_ms(double seconds, double max_s) {
    if (!std::isfinite(seconds) || seconds <= 0) return 0;
    return static_cast<std::int64_t>(std::llround(std::min(seconds, max_s) * 1000.0));
}

inline constexpr double macro_step_max_s = 86400;
inline constexpr double rtt_max_s = 60;

inline std::int64_t setting_ms(double seconds) { return static_cast<std::int64_t>(std::llround(seconds * 1000.0)); }

/// Time to live of a lease: clamp(alpha * phase + beta * rtt, min, max), or the requested one clamped the same. Without
/// a phase time yet it is at least the default, also when one was requested. Units: milliseconds; 0 = not said.
inline std::int64_t ttl_ms(const settings& s, std::int64_t requested_ms, std::int64_t macro_step_ms,
                           std::int64_t rtt_ms) {
    const double wanted =
        requested_ms > 0 ? static_cast<double>(requested_ms)
                         : s.ttl_alpha * static_cast<double>(macro_step_ms) + s.ttl_beta * static_cast<double>(rtt_ms);
    double ms = std::clamp(wanted, s.min_ttl_s * 1000, s.max_ttl_s * 1000);
    if (macro_step_ms == 0) ms = std::max(ms, s.default_ttl_s * 1000);
    return static_cast<std::int64_t>(std::llround(ms));
}

/// How long a lease may make no progress although its holder beats.
inline std::int64_t hold_limit_ms(const settings& s, std::int64_t macro_step_ms) {
    if (macro_step_ms == 0) return setting_ms(s.hold_max_s);
    const double ms = s.hold_factor * static_cast<double>(macro_step_ms);
    return static_cast<std::int64_t>(std::llround(std::clamp(ms, s.hold_min_s * 1000, s.hold_max_s * 1000)));
}

/// How long a site without a lease still counts as live after its last call.
inline std::int64_t live_window_ms(const settings& s, std::int64_t rtt_ms) {
    return std::max(setting_ms(s.min_ttl_s), 10 * std::min<std::int64_t>(rtt_ms, 60000));
}

/// After how long of draining a legacy site that still holds blocks is told to finish its phase.
inline std::int64_t drain_breaker_ms(std::int64_t macro_step_ms) {
    return std::max<std::int64_t>(2 * macro_step_ms, 60000);
}

}  // namespace darlcore::lease
