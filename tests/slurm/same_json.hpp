// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>

#include "adapters/formats/json.hpp"

namespace slurm_test {

/// The answer fulfils the expectation: lists are contained, objects are subsets, numbers are equal to 1e-9, or to the
/// nine digits printed.
inline bool same(const darlcore::json::value& actual, const darlcore::json::value& expected) {
    if (expected.is_number())
        return actual.is_number() && std::abs(*actual.as_double() - *expected.as_double()) <=
                                         1e-9 * std::max(1.0, std::abs(*expected.as_double()));
    if (expected.is_array()) {
        if (!actual.is_array()) return false;
        for (const auto& e : *expected.as_array()) {
            const auto& all = *actual.as_array();
            if (std::none_of(all.begin(), all.end(), [&](const auto& a) { return same(a, e); })) return false;
        }
        return true;
    }
    if (!expected.is_object()) return actual == expected;
    if (!actual.is_object()) return false;
    for (const auto& [key, e] : *expected.as_object()) {
        const darlcore::json::value* a = actual.find(key);
        if (a == nullptr || !same(*a, e)) return false;
    }
    return true;
}

}  // namespace slurm_test
