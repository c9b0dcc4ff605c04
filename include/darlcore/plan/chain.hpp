// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "darlcore/assert.hpp"
#include "darlcore/error.hpp"

namespace darlcore::plan {

/// How the jobs of one lane follow each other. none: one job. self: a job submits its successor while it runs.
/// singleton: the successor enters the queue when its predecessor ends.
enum class chain_policy : std::uint8_t { none, self, singleton };

inline constexpr std::array<std::string_view, 3> chain_words{"none", "self", "singleton"};
constexpr std::string_view word(chain_policy c) { return chain_words[static_cast<std::size_t>(c)]; }
constexpr std::optional<chain_policy> chain_from_word(std::string_view text) {
    for (std::size_t i = 0; i < chain_words.size(); ++i)
        if (chain_words[i] == text) return static_cast<chain_policy>(i);
    return std::nullopt;
}

/// One job of a lane: submitted, running from arrival to end, productive after its startup.
struct link {
    double submit_s = 0;
    double arrival_s = 0;
    double productive_s = 0;
    double end_s = 0;
    bool cold = false;     // must fetch the model first
    bool refused = false;  // would arrive before its predecessor ends; the ledger answers busy until then

    friend bool operator==(const link&, const link&) = default;
};

struct chain_spec {
    double begin_s = 0;
    double wait_s = 0;
    double walltime_s = 0;
    double startup_s = 0;
    double lead_s = 0;  // self: the successor's begin time lies this long before the predecessor's end
    std::uint32_t links = 1;
    chain_policy chain = chain_policy::none;
    bool has_checkpoint = false;
    std::vector<double> waits_s;  // of each link, where they are known one by one; the others wait wait_s
};

/// The links of one lane up to `horizon_s` (links that would arrive later are left out).
/// self: arrival_k = arrival_(k-1) + max(T - lead, w); singleton: arrival_k = end_(k-1) + w.
/// Units: seconds. Preconditions (asserted): finite values, walltime > 0, all others >= 0.
/// Complexity: O(links).
inline std::vector<link> chain_links(const chain_spec& c, double horizon_s) {
    DARLCORE_ASSERT(std::isfinite(c.begin_s) && std::isfinite(c.wait_s) && c.wait_s >= 0 && c.begin_s >= 0);
    DARLCORE_ASSERT(std::isfinite(c.walltime_s) && c.walltime_s > 0 && c.startup_s >= 0 && c.lead_s >= 0);
    std::vector<link> made;
    const std::uint32_t count = c.chain == chain_policy::none ? std::min(c.links, 1U) : c.links;
    for (std::uint32_t k = 0; k < count; ++k) {
        const double wait_s = k < c.waits_s.size() ? c.waits_s[k] : c.wait_s;
        DARLCORE_ASSERT(std::isfinite(wait_s) && wait_s >= 0);
        link l;
        if (k == 0) {
            l.submit_s = c.begin_s;
            l.arrival_s = c.begin_s + wait_s;
            l.cold = !c.has_checkpoint;
        } else if (c.chain == chain_policy::self) {
            l.submit_s = made.back().arrival_s;
            l.arrival_s = l.submit_s + std::max(c.walltime_s - c.lead_s, wait_s);
        } else {
            l.submit_s = made.back().end_s;
            l.arrival_s = l.submit_s + wait_s;
        }
        if (l.arrival_s >= horizon_s) break;
        l.end_s = l.arrival_s + c.walltime_s;
        l.productive_s = l.arrival_s + c.startup_s;
        if (k > 0 && l.arrival_s < made.back().end_s) {
            l.refused = true;
            l.productive_s = std::max(l.productive_s, made.back().end_s);
        }
        made.push_back(l);
    }
    return made;
}

/// Startup below which a chain of short links beats long ones on the same devices: c* of the short length t and the
/// long T. Units: one unit of time for all. Preconditions (asserted): 0 < short < long; the denominator is not 0.
inline double chain_breakeven(double short_t, double long_t, double wait_short, double wait_long) {
    DARLCORE_ASSERT(short_t > 0 && short_t < long_t);
    const double denominator = (long_t - short_t) + wait_long - wait_short;
    DARLCORE_ASSERT(denominator != 0);
    return (short_t * wait_long - long_t * wait_short) / denominator;
}

/// Share of the calendar in which a chain of links of length T trains, when each link queues again.
inline double chain_duty(double walltime, double startup, double wait) {
    return (walltime - startup) / (walltime + wait);
}

}  // namespace darlcore::plan
