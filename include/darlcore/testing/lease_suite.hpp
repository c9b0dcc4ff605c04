// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "darlcore/lease/table.hpp"
#include "darlcore/testing/budget.hpp"
#include "darlcore/testing/lease_model.hpp"
#include "darlcore/testing/lease_site.hpp"

namespace darlcore::testing {

/// The contract of a lease table as typed tests, for a table with any settings or a type of your own with its
/// interface. `Config` gives: `using table_type`, `static lease::geometry geometry()` (at most some hundred blocks: the
/// twin looks at each), `static lease::settings rules()`, `static std::uint32_t sites()` (1..6). Use:
/// INSTANTIATE_TYPED_TEST_SUITE_P(mine, lease_suite, my_config). The number of histories follows
/// DARLCORE_PROPERTY_BUDGET.
template <class Config>
class lease_suite : public ::testing::Test {
public:
    using table_type = typename Config::table_type;

    static table_type fresh() { return table_type::create(Config::geometry(), Config::rules()).value(); }
    static std::vector<lease_command> history(std::uint64_t seed, std::size_t length) {
        std::vector<lease_command> commands;
        for (std::size_t i = 0; i < length; ++i) {
            const std::uint64_t r = lease::mixer{}.add(seed).add(i).value();
            commands.push_back({static_cast<std::uint8_t>(r), static_cast<std::uint8_t>(r >> 8U),
                                static_cast<std::uint8_t>(r >> 16U), static_cast<std::uint8_t>(r >> 24U),
                                static_cast<std::uint16_t>(r >> 32U)});
        }
        return commands;
    }
    /// Merges everything that waits.
    static void merge(table_type& table, ledger_time now) {
        lease::resolve in;
        in.base = table.generation();
        for (const auto n : table.pledging()) in.merged.push_back(table.pledge_of(n)->id);
        if (!in.merged.empty()) table.apply(in, now);
    }
};

TYPED_TEST_SUITE_P(lease_suite);

TYPED_TEST_P(lease_suite, agrees_with_the_plain_twin_and_with_its_own_replay) {
    const int runs = property_runs(100);
    for (int run = 0; run < runs; ++run) {
        lease_model<typename TestFixture::table_type> model(TestFixture::fresh(), TypeParam::sites());
        for (const lease_command& c : TestFixture::history(static_cast<std::uint64_t>(run), 200)) {
            const bool good = model.step(c);
            ASSERT_TRUE(good) << "history " << run << ": " << *model.fault();
        }
    }
}

TYPED_TEST_P(lease_suite, ends_its_epochs_with_well_behaved_sites_and_each_block_counted_once) {
    auto table = TestFixture::fresh();
    const std::uint64_t blocks = TypeParam::geometry().num_blocks;
    std::vector<lease_site> sites;
    for (std::uint32_t n = 0; n < TypeParam::sites(); ++n) sites.emplace_back("site-" + std::to_string(n), 1 + 3 * n);
    ledger_time now{0};
    const auto all_finished = [&] {
        for (const lease_site& s : sites)
            if (!s.finished()) return false;
        return true;
    };
    for (std::uint64_t step = 0; step < 1000 + 50 * blocks && !all_finished(); ++step) {
        for (lease_site& s : sites)
            if (!s.finished()) s.step(table, now, [](const lease::event&) {});
        TestFixture::merge(table, now);
        now.ms += 5000;
    }
    ASSERT_TRUE(all_finished());
    EXPECT_EQ(table.counts().committed, blocks);
    EXPECT_EQ(table.epoch().count + 1, TypeParam::rules().max_epochs);
    std::uint64_t read = 0;
    for (const lease_site& s : sites)
        for (const auto& phase : s.phases())
            for (const span p : phase.read) read += p.size();
    EXPECT_EQ(read, blocks * TypeParam::rules().max_epochs) << "nothing was trained twice";
}

TYPED_TEST_P(lease_suite, comes_back_from_an_exported_state_with_the_same_digest) {
    const int runs = property_runs(20);
    for (int run = 0; run < runs; ++run) {
        lease_model<typename TestFixture::table_type> model(TestFixture::fresh(), TypeParam::sites());
        for (const lease_command& c : TestFixture::history(1000U + static_cast<std::uint64_t>(run), 150)) model.step(c);
        const auto copy = TestFixture::table_type::import_state(model.table().export_state());
        ASSERT_TRUE(copy) << to_text(copy.error());
        EXPECT_EQ(copy.value().digest(), model.table().digest());
    }
}

REGISTER_TYPED_TEST_SUITE_P(lease_suite, agrees_with_the_plain_twin_and_with_its_own_replay,
                            ends_its_epochs_with_well_behaved_sites_and_each_block_counted_once,
                            comes_back_from_an_exported_state_with_the_same_digest);

}  // namespace darlcore::testing
