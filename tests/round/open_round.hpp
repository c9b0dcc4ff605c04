// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/round/world.hpp"

namespace darlcore::round::testing {

/// A run with members; at the end of each test replay must give the same state.
struct open_round : ::testing::Test {
    world w;
    void with(const std::vector<std::string>& sites) {
        for (const auto& s : sites) w.join(s);
        w.init();
    }
    void TearDown() override { EXPECT_EQ(w.replayed(), w.m.durable()) << "replay gives another state"; }
};

}  // namespace darlcore::round::testing
