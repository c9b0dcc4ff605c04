// SPDX-License-Identifier: Apache-2.0
// The end of an epoch with the real trainer: whatever the sizes, each block is in the model once, and nobody hangs.
#include <algorithm>

#include <gtest/gtest.h>

#include "darlcore/random.hpp"
#include "darlcore/testing/budget.hpp"
#include "tests/cli/train_world.hpp"

namespace {

using namespace darlcore;
using darl::testing::first_finding;
using darl::testing::train_world;
using namespace std::chrono_literals;

struct running_site {
    std::string name;
    darl::child_process process;
};

TEST(train_random, every_geometry_ends_with_each_block_in_the_model_once) {
    const int runs = std::min(darlcore::testing::property_runs(20), 200);
    for (int seed = 1; seed <= runs; ++seed) {
        xoshiro256 chance(static_cast<std::uint64_t>(seed));
        const auto between = [&](std::uint64_t low, std::uint64_t high) { return low + chance() % (high - low + 1); };
        train_world world(between(20, 160));
        world.config.block_size = static_cast<std::int64_t>(between(1, 9));
        world.config.inner_steps = static_cast<std::int64_t>(between(1, 8));
        world.config.batch = static_cast<std::int64_t>(between(1, 6));
        world.config.groups = static_cast<std::int64_t>(between(0, 5));
        world.serve();
        ASSERT_TRUE(world.ok);
        const std::uint64_t sites = between(1, 3);
        const bool killed = between(0, 1) == 1;
        SCOPED_TRACE("seed " + std::to_string(seed));
        std::vector<running_site> running;
        for (std::uint64_t i = 0; i < sites; ++i) {
            const std::string name = "site" + std::to_string(i);
            const std::string ranks = std::to_string(i == 0 ? between(1, 2) : 1);
            running.push_back(
                {name, world.start(name, {"--ranks", ranks, "--train.accumulate", std::to_string(between(1, 2))})});
        }
        if (killed) {
            (void)running[0].process.read_line(30s);
            running[0].process.kill();
            running[0].process = world.start(running[0].name, {"--take-over"});
        }
        for (auto& site : running) {
            while (site.process.read_line(90s)) {
            }
            EXPECT_EQ(site.process.wait(30s), 0) << train_world::text_of(world.path(site.name + ".log"));
        }
        const auto audit = world.audit();
        EXPECT_TRUE(audit.pass) << first_finding(audit);
        EXPECT_EQ(audit.covered, audit.blocks);
    }
}

}  // namespace
