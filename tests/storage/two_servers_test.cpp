// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "toy_ledger.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::storage;
using sim::disk;
using sim::loss;

TEST(TwoServers, TheSecondIsRefusedAndToldWhoHoldsTheDirectory) {
    disk on;
    toy::state into;
    auto first = ledger_store::open(on, toy::run_path, {4711, "boot", "login1", 0, "127.0.0.1:8760"}, toy::options(),
                                    toy::target_of(into));
    ASSERT_TRUE(first.has_value());
    const auto second = toy::server::open(on, toy::run_path, toy::options());
    ASSERT_FALSE(second.has_value());
    EXPECT_EQ(second.error().code, errc::locked);
    for (const char* word : {"4711", "login1", "127.0.0.1:8760"})
        EXPECT_NE(second.error().context.find(word), std::string::npos) << second.error().context;
}

TEST(TwoServers, ADeadOwnersLockIsNoObstacle) {
    disk on;
    { ASSERT_TRUE(toy::server::open(on, toy::run_path, toy::options()).has_value()); }
    EXPECT_TRUE(toy::server::open(on, toy::run_path, toy::options()).has_value());
}

struct story {
    toy::state first_acked;
    toy::state second_acked;
    bool first_stopped_by_fence = false;
    bool second_started = false;
    std::uint64_t calls_of_first = 0;
};

/// A first server works; behind its I/O call number `at` (0: never) a second one starts on the same directory and
/// commits.
story run_two(disk& on, std::uint64_t at, storage_mutants mutants) {
    story told;
    on.ignore_locks(true);
    auto first = toy::server::open(on, toy::run_path, toy::options(1024, mutants), 1);
    if (!first) return told;
    std::optional<toy::server> second;
    bool nested = false;
    on.on_call([&](const sim::io_call& call) {
        if (nested || call.number != at) return;
        nested = true;
        auto opened = toy::server::open(on, toy::run_path, toy::options(1024, mutants), 2);
        if (!opened) return;
        told.second_started = true;
        second.emplace(std::move(*opened));
        second->apply();
        if (second->commit()) told.second_acked = second->acked();
    });
    for (int i = 0; i < 12; ++i) {
        first->apply();
        const auto done = first->commit();
        if (!done) {
            told.first_stopped_by_fence = done.error().code == errc::fenced;
            break;
        }
        told.first_acked = first->acked();
        if (i % 4 == 3 && !first->snapshot() && first->store().writer().failed()) break;
        if (second) {
            second->apply();
            if (second->commit()) told.second_acked = second->acked();
        }
    }
    on.on_call({});
    told.calls_of_first = on.calls();
    return told;
}

std::string judge(const disk& on, const story& told) {
    for (const loss mode : {loss::kept, loss::dropped, loss::random_512}) {
        disk after(on.image().after_power_cut(mode, 3));
        const auto found = toy::start_on(after);
        if (!found.outcome) return "refused: " + to_text(found.outcome.error());
        if (!told.first_acked.is_prefix_of(found.found)) return "an acknowledgement of the first server is lost";
        if (!told.second_acked.is_prefix_of(found.found)) return "an acknowledgement of the second server is lost";
    }
    return {};
}

std::string first_violation(storage_mutants mutants, int& starts, int& fenced) {
    disk undisturbed;
    const std::uint64_t calls = run_two(undisturbed, 0, {}).calls_of_first;
    for (std::uint64_t at = 1; at <= calls; ++at) {
        disk on;
        const auto told = run_two(on, at, mutants);
        starts += told.second_started ? 1 : 0;
        fenced += told.first_stopped_by_fence ? 1 : 0;
        if (const auto what = judge(on, told); !what.empty())
            return "second start behind call " + std::to_string(at) + ": " + what;
    }
    return {};
}

TEST(TwoServers, WhereLocksDoNothingTheFirstStopsAtItsNextBatchAndNoAcknowledgementOfEitherIsLost) {
    int starts = 0;
    int fenced = 0;
    EXPECT_EQ(first_violation({}, starts, fenced), "");
    EXPECT_GT(starts, 100);
    EXPECT_GT(fenced, 80);
}

TEST(TwoServers, WithoutReadingTheTermAgainAcknowledgementsAreLost) {
    int starts = 0;
    int fenced = 0;
    EXPECT_NE(first_violation({.skip_term_check = true}, starts, fenced), "");
}

}  // namespace
