// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <string>

#include "adapters/formats/json.hpp"

namespace plan_test {

namespace json = darlcore::json;

/// A vector file of tests/data, read once per program.
inline json::value read_vectors(const std::string& name) {
    std::ifstream in(std::string(DARLCORE_TEST_DATA) + "/" + name, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    auto parsed = json::parse(text);
    EXPECT_TRUE(parsed.has_value()) << name;
    return parsed.has_value() ? *parsed : json::value();
}

inline const json::value& planner() {
    static const json::value vectors = read_vectors("planner.json");
    return vectors;
}

inline double number(const json::value& object, std::string_view key) { return *object.at(key).as_double(); }
inline std::string text(const json::value& object, std::string_view key) { return *object.at(key).as_string(); }

/// Half a unit of the last decimal that the shortest text of `printed` has: the tolerance of a rounded figure.
inline double half_of_last_digit(double printed) {
    const std::string shown = json::dump(json::value(printed));
    const auto dot = shown.find('.');
    if (dot == std::string::npos || shown.find('e') != std::string::npos) return 0.5;
    return 0.5 * std::pow(10.0, -static_cast<double>(shown.size() - dot - 1)) * (1 + 1e-9);
}

/// Equal to 1e-9 relative, or to the digits printed when the file has rounded the figure.
inline void expect_figure(double computed, double printed, const std::string& what) {
    const double exact = 1e-9 * std::max(1.0, std::abs(printed));
    const double rounded = half_of_last_digit(printed) < 1e-10 ? 0.0 : half_of_last_digit(printed);
    const bool whole = printed == std::floor(printed);
    EXPECT_NEAR(computed, printed, whole ? exact : std::max(exact, rounded)) << what;
}

}  // namespace plan_test
