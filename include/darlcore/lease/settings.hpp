// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "darlcore/error.hpp"
#include "darlcore/lease/types.hpp"

namespace darlcore::lease {

/// The rules of a run. Pinned when the run is created: a restart with others is an error.
/// Units: _s seconds, _ms milliseconds, counts without suffix are blocks, leases or sites as the name says.
struct settings {
    lease::commit_policy commit_policy = lease::commit_policy::on_merge;

    double ttl_alpha = 2.5;  // times the site's phase seconds
    double ttl_beta = 10.0;  // times its round trip seconds
    double min_ttl_s = 30;
    double max_ttl_s = 21600;
    double default_ttl_s = 900;  // at least this until a site has reported a phase time
    double grace_s = 300;        // restart extension

    // A lease closes when nothing of it was reserved, pledged or committed for clamp(factor * phase, min, max).
    double hold_factor = 10;
    double hold_min_s = 3600;
    double hold_max_s = 86400;  // also before a phase time is known

    std::uint64_t min_blocks = 1;
    std::uint64_t max_blocks = 0;  // 0: as many as there are
    double first_grant_fraction = 0.5;

    bool allow_stealing = true;
    std::uint64_t steal_min_blocks = 2;

    std::uint32_t max_attempts = 3;  // distinct sites; 0: never quarantine
    std::uint32_t max_losses = 12;   // in all
    bool quarantine_second_chance = true;

    std::uint32_t max_epochs = 1;

    std::uint32_t max_sites = 4096;
    std::uint32_t max_leases_per_site = 256;
    std::uint32_t request_ring = 64;        // answered acquires remembered per site
    std::uint32_t closed_leases = 65536;    // closed leases remembered in all
    std::uint32_t answer_generations = 10;  // contributions remembered, in generations

    friend bool operator==(const settings&, const settings&) = default;
};

/// What a run is about: the size of an epoch and the digest that both sides must agree on.
struct geometry {
    std::uint64_t num_blocks = 0;  // M >= 1
    std::string space_digest;      // empty: not compared
    friend bool operator==(const geometry&, const geometry&) = default;
};

namespace detail {

inline bool is_positive(double value) { return std::isfinite(value) && value > 0; }

}  // namespace detail

/// Checks settings before a run is created with them.
/// Errors: errc::invalid_argument, naming the setting, its value's fault and the range.
inline result<void> check(const settings& s) {
    const auto bad = [](const char* text) { return fail(errc::invalid_argument, text); };
    if (!std::isfinite(s.ttl_alpha) || s.ttl_alpha < 0) return bad("ttl_alpha must be finite and >= 0");
    if (!std::isfinite(s.ttl_beta) || s.ttl_beta < 0) return bad("ttl_beta must be finite and >= 0");
    if (!detail::is_positive(s.min_ttl_s)) return bad("min_ttl_s must be > 0");
    if (!std::isfinite(s.max_ttl_s) || s.max_ttl_s < s.min_ttl_s || s.max_ttl_s > 1e9)
        return bad("max_ttl_s must be between min_ttl_s and 1e9");
    if (!std::isfinite(s.default_ttl_s) || s.default_ttl_s < s.min_ttl_s || s.default_ttl_s > s.max_ttl_s)
        return bad("default_ttl_s must be between min_ttl_s and max_ttl_s");
    if (!std::isfinite(s.grace_s) || s.grace_s < 0 || s.grace_s > 1e9) return bad("grace_s must be in [0, 1e9]");
    if (!std::isfinite(s.hold_factor) || s.hold_factor < 0) return bad("hold_factor must be finite and >= 0");
    if (!detail::is_positive(s.hold_min_s)) return bad("hold_min_s must be > 0");
    if (!std::isfinite(s.hold_max_s) || s.hold_max_s < s.hold_min_s || s.hold_max_s > 1e9)
        return bad("hold_max_s must be between hold_min_s and 1e9");
    if (s.min_blocks < 1) return bad("min_blocks must be >= 1");
    if (s.max_blocks != 0 && s.max_blocks < s.min_blocks)
        return bad("max_blocks must be 0 (no limit) or >= min_blocks");
    if (!(s.first_grant_fraction > 0) || s.first_grant_fraction > 1)
        return bad("first_grant_fraction must be in (0, 1]");
    if (s.steal_min_blocks < 1) return bad("steal_min_blocks must be >= 1");
    if (s.max_attempts > suspect_run::sites_max) return bad("max_attempts must be in 0..8 distinct sites");
    if (s.max_attempts != 0 && s.max_losses < s.max_attempts) return bad("max_losses must be >= max_attempts");
    if (s.max_epochs < 1) return bad("max_epochs must be >= 1");
    if (s.max_sites < 1 || s.max_sites > 65536) return bad("max_sites must be in 1..65536");
    if (s.max_leases_per_site < 1 || s.max_leases_per_site > 65536)
        return bad("max_leases_per_site must be in 1..65536");
    if (s.request_ring < 1 || s.request_ring > 64) return bad("request_ring must be in 1..64");
    if (s.closed_leases < 1 || s.closed_leases > (1U << 20)) return bad("closed_leases must be in 1..2^20");
    if (s.answer_generations < 1 || s.answer_generations > 1000) return bad("answer_generations must be in 1..1000");
    return {};
}

/// Checks a geometry. Errors: errc::invalid_argument (no blocks), errc::too_many_blocks (2^40 or more).
inline result<void> check(const geometry& g) {
    if (g.num_blocks < 1) return fail(errc::invalid_argument, "an epoch needs at least one block");
    if (g.num_blocks >= (std::uint64_t{1} << 40))
        return fail(errc::too_many_blocks, "an epoch has at most 2^40 - 1 blocks");
    return {};
}

}  // namespace darlcore::lease
