// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "darlcore/block_space.hpp"
#include "darlcore/lease/settings.hpp"
#include "darlcore/round/types.hpp"

namespace darlcore::ledger {

/// How contributions move the model (40 section 6); the ledger only carries it to the merge and to the sites.
enum class solo_policy : std::uint8_t { full, outer, adopt };
enum class first_step_policy : std::uint8_t { nesterov, plain };

constexpr std::string_view word(solo_policy p) noexcept {
    return p == solo_policy::full ? "full" : p == solo_policy::outer ? "outer" : "adopt";
}
constexpr std::string_view word(first_step_policy p) noexcept {
    return p == first_step_policy::nesterov ? "nesterov" : "plain";
}

struct outer_policy {
    double eta = 0.7;
    double beta = 0.9;
    solo_policy solo = solo_policy::full;
    first_step_policy first_step = first_step_policy::nesterov;
    friend bool operator==(const outer_policy&, const outer_policy&) = default;
};

/// Limits of the guards, as they are pinned.
struct guard_settings {
    double growth_max = 1'000;
    double norm_outlier = 100;
    double norm_warning = 10;
    std::uint32_t norm_samples_min = 8;
    std::optional<double> clip;
    friend bool operator==(const guard_settings&, const guard_settings&) = default;
};

/// Everything that a run pins in its first record. A restart takes it from there.
struct run_settings {
    std::string run_id;  // 32 hex digits
    space_parameters space;
    std::uint64_t seq_len = 0;  // tokens per window; 0 = not known (lease-only runs: claims are not capped)
    std::string corpus;         // identity and content of the corpus, empty = the first site that tells decides
    std::string corpus_content;
    lease::settings lease;
    round::settings round;
    outer_policy outer;
    guard_settings guards;
    bool rounds = true;  // false: a ledger for leases only; no model, no rounds
    friend bool operator==(const run_settings&, const run_settings&) = default;
};

/// Checks settings at the door.
/// Errors: errc::invalid_argument, errc::too_many_blocks; the text names the setting.
inline result<void> check(const run_settings& s) {
    if (auto ok = block_space::check(s.space); !ok) return ok.error();
    if (auto ok = lease::check(s.lease); !ok) return ok.error();
    if (auto ok = round::check(s.round); !ok) return ok.error();
    const auto bad = [](const char* text) { return fail(errc::invalid_argument, text); };
    if (!is_valid_name(s.run_id)) return bad("run_id must be 1 to 64 letters, digits, '.', '_' or '-'");
    if (!std::isfinite(s.outer.eta) || s.outer.eta <= 0) return bad("outer.eta must be a number above 0");
    if (!(s.outer.beta >= 0) || s.outer.beta >= 1) return bad("outer.beta must be in [0, 1)");
    for (const double x : {s.guards.growth_max, s.guards.norm_outlier, s.guards.norm_warning})
        if (!std::isfinite(x) || x <= 0) return bad("guard limits must be numbers above 0");
    if (s.guards.clip && (!std::isfinite(*s.guards.clip) || *s.guards.clip <= 0))
        return bad("guards.clip must be a number above 0");
    if (s.lease.answer_generations != s.round.keep_generations + s.round.answers_generations)
        return bad("lease.answer_generations must equal round.keep_generations + round.answers_generations");
    return {};
}

}  // namespace darlcore::ledger
