// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "darlcore/error.hpp"

namespace darl {

/// What two runs must share before their scores can be compared.
struct run_figures {
    std::uint64_t tokens = 0;
    std::uint64_t steps = 0;

    [[nodiscard]] double tokens_per_step() const {
        return steps == 0 ? 0.0 : static_cast<double>(tokens) / static_cast<double>(steps);
    }
};

/// A larger difference in any figure, relative to the sites', is no match. Source: 60 section 10.
inline constexpr double match_tolerance = 0.005;

/// Each figure of the baseline that differs from the sites' by more than the tolerance, with both values; none: a
/// match. Batches are the mean tokens of a step, told in windows of `window_tokens`.
std::vector<std::string> match_differences(const run_figures& baseline, const run_figures& sites,
                                           std::uint64_t window_tokens);

/// Both sides on one line.
std::string match_text(const run_figures& baseline, const run_figures& sites, std::uint64_t window_tokens);

/// What a generation was made of: `path` is its folder, or a copy of its meta.json.
/// Errors: errc::not_found, errc::parse_error naming the file.
darlcore::result<run_figures> figures_of_generation(const std::string& path);

}  // namespace darl
