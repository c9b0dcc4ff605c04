// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace darl {

/// Number of single-character insertions, deletions and replacements that lead from a to b.
/// Complexity: O(|a| |b|).
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::size_t diagonal = row[0];
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            diagonal = row[j];
            row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
        }
    }
    return row[b.size()];
}

/// The known name nearest to a misspelt one, or nothing when none is near enough to be meant (distance at most a third
/// of its length).
template <class Names>
std::string did_you_mean(std::string_view misspelt, const Names& known) {
    std::string best;
    std::size_t best_distance = std::max<std::size_t>(1, misspelt.size() / 3) + 1;
    for (const auto& name : known) {
        const std::size_t distance = edit_distance(misspelt, name);
        if (distance < best_distance) {
            best_distance = distance;
            best = std::string(name);
        }
    }
    return best;
}

}  // namespace darl
