// SPDX-License-Identifier: Apache-2.0
// The public lease suite on a table with deliberately odd settings: 17 blocks, tiny rings, steals of single blocks,
// three epochs, one loss is one too many. What holds here holds for yours.
#include <gtest/gtest.h>

#include "darlcore/testing/lease_suite.hpp"

namespace {

struct odd_merges {
    using table_type = darlcore::lease::table;
    static darlcore::lease::geometry geometry() { return {17, ""}; }
    static darlcore::lease::settings rules() {
        darlcore::lease::settings s;
        s.max_blocks = 3;
        s.first_grant_fraction = 0.1;
        s.steal_min_blocks = 1;
        s.max_attempts = 1;
        s.max_losses = 1;
        s.max_epochs = 3;
        s.request_ring = 2;
        s.answer_generations = 1;
        s.min_ttl_s = 1;
        s.default_ttl_s = 7;
        s.max_ttl_s = 8;
        s.grace_s = 0;
        return s;
    }
    static std::uint32_t sites() { return 5; }
};

struct odd_checkpoints : odd_merges {
    static darlcore::lease::settings rules() {
        auto s = odd_merges::rules();
        s.commit_policy = darlcore::lease::commit_policy::on_checkpoint;
        s.allow_stealing = false;
        s.max_leases_per_site = 2;
        s.min_blocks = 2;
        return s;
    }
};

using odd_configurations = ::testing::Types<odd_merges, odd_checkpoints>;

}  // namespace

namespace darlcore::testing {
INSTANTIATE_TYPED_TEST_SUITE_P(odd, lease_suite, odd_configurations);
}  // namespace darlcore::testing
