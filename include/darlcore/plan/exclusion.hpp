// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace darlcore::plan {

/// How the scheduler answered a probe (docs/placement.md).
enum class probe_class : std::uint8_t { accepted, no_estimate, denied, permanent_limit, temporary_limit, outage };

inline constexpr std::array<std::string_view, 6> probe_class_words{"accepted",        "no_estimate",     "denied",
                                                                   "permanent_limit", "temporary_limit", "outage"};

/// The stable word of a class, as it stands in records.
constexpr std::string_view word(probe_class c) { return probe_class_words[static_cast<std::size_t>(c)]; }

/// The class of a word; nothing for an unknown one.
constexpr std::optional<probe_class> probe_class_from_word(std::string_view text) {
    for (std::size_t i = 0; i < probe_class_words.size(); ++i)
        if (probe_class_words[i] == text) return static_cast<probe_class>(i);
    return std::nullopt;
}

/// Why a configured site or shape is not in a plan.
enum class exclusion_code : std::uint8_t {
    over_max_gpus,
    no_probe,
    denied,
    permanent_limit,
    temporary_limit,
    no_estimate,
    probe_too_old,
    wrong_account,
    walltime_above_cap,
    walltime_le_startup_plus_reserve,
    qos_limit,
    no_rate,
    below_min_units,
    not_needed,
};

inline constexpr std::array<std::string_view, 14> exclusion_words{
    "over_max_gpus", "no_probe",      "denied",          "permanent_limit",    "temporary_limit",
    "no_estimate",   "probe_too_old", "wrong_account",   "walltime_above_cap", "walltime_le_startup_plus_reserve",
    "qos_limit",     "no_rate",       "below_min_units", "not_needed"};

constexpr std::string_view word(exclusion_code c) { return exclusion_words[static_cast<std::size_t>(c)]; }

constexpr std::optional<exclusion_code> exclusion_code_from_word(std::string_view text) {
    for (std::size_t i = 0; i < exclusion_words.size(); ++i)
        if (exclusion_words[i] == text) return static_cast<exclusion_code>(i);
    return std::nullopt;
}

/// One thing that was not planned: who, why, the number that decided (with its meaning in `what`), and what to change.
struct exclusion {
    std::string site;
    std::string shape;  // empty: the whole site
    exclusion_code code = exclusion_code::no_probe;
    std::optional<double> number;
    std::string what;
    std::string fix;

    friend bool operator==(const exclusion&, const exclusion&) = default;
};

}  // namespace darlcore::plan
