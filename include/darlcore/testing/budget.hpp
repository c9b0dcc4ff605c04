// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <string_view>

namespace darlcore::testing {

/// How much a test run may spend: the environment variable DARLCORE_PROPERTY_BUDGET, one of small, full (default),
/// nightly.
enum class property_budget { small, full, nightly };

/// The budget that a text names; anything but "small" and "nightly" is full, so that a typing error never weakens a
/// test.
constexpr property_budget budget_from_text(std::string_view text) {
    if (text == "small") return property_budget::small;
    if (text == "nightly") return property_budget::nightly;
    return property_budget::full;
}

/// Number of cases under a budget: a tenth (at least one) when small, a hundred times when nightly.
constexpr int scaled_runs(int default_count, property_budget budget) {
    switch (budget) {
        case property_budget::small:
            return default_count >= 10 ? default_count / 10 : 1;
        case property_budget::nightly:
            return default_count * 100;
        case property_budget::full:
            break;
    }
    return default_count;
}

/// Number of cases to run instead of `default_count` in this process.
/// Thread-safety: reads the environment; call it from the test's own thread.
inline int property_runs(int default_count) {
    const char* text = std::getenv("DARLCORE_PROPERTY_BUDGET");
    return scaled_runs(default_count, budget_from_text(text == nullptr ? "" : text));
}

}  // namespace darlcore::testing
