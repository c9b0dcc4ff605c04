// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "darlcore/error.hpp"

namespace darlcore {

/// What a merge with exactly one used contribution does. Numbers: first merge, w = 1, delta = 1, eta 0.7, beta 0.9.
enum class solo_policy : std::uint8_t {
    /// eta 1, beta unchanged: with nobody to average with, eta < 1 only discards progress. v' = 2, w' = 2.9: a solo
    /// first merge moves
    /// 1.9 delta, it does not adopt the local model (with first_step plain: v' = w' = 2).
    full,
    /// eta as configured: bounded influence of a single site. v' = 1.7, w' = 2.33.
    outer,
    /// w' = v' = w + delta: the local model is taken over, momentum restarts. v' = w' = 2.
    adopt,
};

/// What the very first merge does.
enum class first_step_policy : std::uint8_t {
    /// v = w, so that w moves by (1 + beta) eta Delta = 1.33 Delta. This is what the paper's rule does.
    nesterov,
    /// w' = v': moves by eta Delta, for people who want "the first round adopts the average".
    plain,
};

constexpr std::string_view word(solo_policy p) noexcept {
    return p == solo_policy::full ? "full" : p == solo_policy::outer ? "outer" : "adopt";
}
constexpr std::string_view word(first_step_policy p) noexcept {
    return p == first_step_policy::nesterov ? "nesterov" : "plain";
}
constexpr std::optional<solo_policy> solo_policy_from_word(std::string_view text) noexcept {
    for (const auto p : {solo_policy::full, solo_policy::outer, solo_policy::adopt})
        if (word(p) == text) return p;
    return std::nullopt;
}
constexpr std::optional<first_step_policy> first_step_policy_from_word(std::string_view text) noexcept {
    for (const auto p : {first_step_policy::nesterov, first_step_policy::plain})
        if (word(p) == text) return p;
    return std::nullopt;
}

/// The outer optimiser of a run. Stored with each generation; other values after a restart are a different experiment.
/// Units: eta, beta pure numbers. With a constant Delta the move per round tends to eta / (1 - beta) = 7 Delta (10
/// Delta solo). Models with BatchNorm: beta = 0, since momentum leaves the hull of the local models and running
/// statistics do not follow.
struct outer_policy {
    double eta = 0.7;
    double beta = 0.9;
    solo_policy solo = solo_policy::full;
    first_step_policy first_step = first_step_policy::nesterov;

    friend bool operator==(const outer_policy&, const outer_policy&) = default;
};

/// Errors: errc::invalid_argument unless 0 < eta (finite in f32) and 0 <= beta < 1, also after rounding to f32.
inline result<void> validate(const outer_policy& policy) {
    const auto eta = static_cast<float>(policy.eta);
    const auto beta = static_cast<float>(policy.beta);
    if (!std::isfinite(eta) || !(eta > 0)) return fail(errc::invalid_argument, "eta must be a positive number");
    if (!(beta >= 0 && beta < 1)) return fail(errc::invalid_argument, "beta must be at least 0 and below 1");
    return {};
}

/// How w' follows from v'.
enum class step_mode : std::uint8_t {
    nesterov,  ///< w' = v' + beta (v' - v)
    plain,     ///< w' = v'
    sum_only,  ///< no step: the weighted sum itself goes to v'; for folding many contributions in groups
};

/// The step that a policy means for one merge: numbers rounded to f32 once.
struct step_rule {
    float eta = 0.0F;
    float beta = 0.0F;
    step_mode mode = step_mode::nesterov;

    friend bool operator==(const step_rule&, const step_rule&) = default;
};

/// Preconditions (asserted): at least one used contribution; a valid policy.
inline step_rule rule_for(const outer_policy& policy, std::size_t used_count, bool has_velocity) {
    DARLCORE_ASSERT(used_count > 0 && validate(policy).has_value());
    step_rule rule{static_cast<float>(policy.eta), static_cast<float>(policy.beta), step_mode::nesterov};
    const bool solo = used_count == 1;
    if (solo && policy.solo != solo_policy::outer) rule.eta = 1.0F;
    if (solo && policy.solo == solo_policy::adopt) rule.mode = step_mode::plain;
    if (!has_velocity && policy.first_step == first_step_policy::plain) rule.mode = step_mode::plain;
    return rule;
}

/// Shares of the used contributions: float(double(tokens) / double(sum)), in the given order.
/// Errors: errc::overflow unless the sum is below 2^53 (else it is not exact in f64); errc::zero_tokens when it is 0.
inline result<std::vector<float>> shares_of(std::span<const std::uint64_t> tokens) {
    constexpr std::uint64_t bound = std::uint64_t{1} << 53U;
    std::uint64_t sum = 0;
    for (const std::uint64_t t : tokens) {
        if (t >= bound - sum) return fail(errc::overflow, "the tokens of one merge must be below 2^53 in sum");
        sum += t;
    }
    if (sum == 0) return fail(errc::zero_tokens, "nothing was trained");
    std::vector<float> shares;
    shares.reserve(tokens.size());
    for (const std::uint64_t t : tokens)
        shares.push_back(static_cast<float>(static_cast<double>(t) / static_cast<double>(sum)));
    return shares;
}

/// Steps that the run advances: the largest among the used, the only value at which every site can be.
constexpr std::uint64_t step_advance(std::span<const std::uint64_t> steps_of_used) noexcept {
    std::uint64_t largest = 0;
    for (const std::uint64_t steps : steps_of_used)
        if (steps > largest) largest = steps;
    return largest;
}

}  // namespace darlcore
