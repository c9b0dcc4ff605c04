// SPDX-License-Identifier: Apache-2.0
#include "darlcore/testing/lease_model.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "darlcore/testing/budget.hpp"
#include "darlcore/testing/lease_generators.hpp"
#include "darlcore/testing/property.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::testing;

TEST(lease_properties, table_twin_and_replay_agree_on_every_reply_and_every_block) {
    lease_class_counts counts;
    check_property(1000, [&] {
        const auto run = *generate_lease_run();
        lease_model<> model(run.fresh(), run.sites);
        for (const lease_command& c : run.commands)
            if (!model.step(c)) break;
        if (model.fault()) RC_FAIL(*model.fault());
        counts.add(model.classes());
    });
    counts.print();
    if (counts.runs() < 1000) return;  // fewer say nothing about one in a hundred
    for (const auto& [name, share] : counts.shares()) EXPECT_GE(share, 0.01) << name << " is too rare to be tested";
}

}  // namespace
