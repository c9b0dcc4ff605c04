// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sstream>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "darlcore/testing/budget.hpp"

namespace darlcore::testing {

/// Runs a RapidCheck property `property_runs(default_count)` times inside a GoogleTest and fails the test with the
/// counterexample. Seed and sizes come from RC_PARAMS as usual; the report names the seed.
template <class Testable>
void check_property(int default_count, Testable&& testable) {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    rc::detail::TestMetadata metadata;
    metadata.id = std::string(info->test_suite_name()) + "/" + info->name();
    metadata.description = info->name();
    rc::detail::TestParams params = rc::detail::configuration().testParams;
    params.maxSuccess = property_runs(default_count);
    const auto outcome = rc::detail::checkTestable(std::forward<Testable>(testable), metadata, params);
    if (outcome.template is<rc::detail::SuccessResult>()) {
        const auto& success = outcome.template get<rc::detail::SuccessResult>();
        if (!success.distribution.empty()) rc::detail::printResultMessage(outcome, std::cout);
        return;
    }
    std::ostringstream text;
    rc::detail::printResultMessage(outcome, text);
    FAIL() << text.str();
}

/// True when RapidCheck finds a counterexample: how a test states that a planted mutant is caught.
template <class Testable>
bool property_fails(int default_count, Testable&& testable) {
    rc::detail::TestParams params = rc::detail::configuration().testParams;
    params.maxSuccess = property_runs(default_count);
    params.disableShrinking = true;
    const auto outcome =
        rc::detail::checkTestable(std::forward<Testable>(testable), rc::detail::TestMetadata(), params);
    return outcome.template is<rc::detail::FailureResult>();
}

}  // namespace darlcore::testing

// A property of `runs` cases as a GoogleTest: DARLCORE_PROPERTY(suite, name, 1000, (int a, int b)) { RC_ASSERT(a + b ==
// b + a); }
#define DARLCORE_PROPERTY(suite, name, runs, arguments)                                                   \
    static void darlcore_property_##suite##_##name arguments;                                             \
    TEST(suite, name) { ::darlcore::testing::check_property(runs, &darlcore_property_##suite##_##name); } \
    static void darlcore_property_##suite##_##name arguments
