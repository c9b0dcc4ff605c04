// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "backends/sim/network.hpp"

namespace {

using namespace darlcore::sim;

TEST(EventLoop, RunsEventsByTimeAndThoseOfOneInstantInTheOrderOfTheirMaking) {
    event_loop loop;
    std::string order;
    loop.at(20, [&] { order += 'c'; });
    loop.at(10, [&] {
        order += 'a';
        loop.after(0, [&] { order += 'b'; });
    });
    const auto cancelled = loop.at(15, [&] { order += 'x'; });
    loop.cancel(cancelled);
    loop.at(20, [&] { order += 'd'; });
    loop.run_until(19);
    EXPECT_EQ(order, "ab");
    EXPECT_EQ(loop.now_ms(), 19);
    loop.at(5, [&] { order += 'p'; });  // a time that has passed is now
    loop.run_until(20);
    EXPECT_EQ(order, "abpcd");
    EXPECT_TRUE(loop.empty());
}

TEST(Process, ItsTimersDieWithItAndStandStillWhileItIsPaused) {
    event_loop loop;
    process p(loop, "a");
    p.start();
    std::string order;
    p.after(10, [&] { order += '1'; });
    p.after(20, [&] { order += '2'; });
    p.after(30, [&] { order += '3'; });
    loop.run_until(10);
    p.pause();
    loop.run_until(25);
    EXPECT_EQ(order, "1");
    p.resume();
    loop.run_until(25);
    EXPECT_EQ(order, "12");
    p.kill();
    p.start();
    loop.run_until(100);
    EXPECT_EQ(order, "12") << "the next life inherits nothing";
    EXPECT_EQ(p.starts(), 2U);
}

TEST(Process, HasClocksOfItsOwn) {
    event_loop loop;
    process p(loop, "a");
    loop.run_until(1000);
    EXPECT_EQ(p.monotonic_ms(), 1000);
    p.set_clock_rate(0.5);
    p.step_wall_clock(-86'400'000);
    loop.run_until(3000);
    EXPECT_EQ(p.monotonic_ms(), 2000);
    EXPECT_EQ(p.wall_ms(), 2000 - 86'400'000);
}

struct traffic {
    std::vector<int> arrived;
    network_counts counts;
};

traffic send_many(std::uint64_t seed, const link_settings& settings, int messages = 1000) {
    event_loop loop;
    network net(loop, seed);
    net.set_default(settings);
    process a(loop, "a");
    process b(loop, "b");
    a.start();
    b.start();
    traffic t;
    for (int i = 0; i < messages; ++i) a.after(i, [&, i] { net.send(a, b, [&t, i] { t.arrived.push_back(i); }); });
    loop.run_until(1'000'000);
    t.counts = net.counts();
    return t;
}

TEST(Network, LosesDuplicatesDelaysAndReordersAsOftenAsItIsToldTo) {
    const auto t = send_many(1, {1, 50, 0.1, 0.2, 0.05});
    EXPECT_NEAR(static_cast<double>(t.counts.lost), 100, 40);
    EXPECT_NEAR(static_cast<double>(t.counts.duplicated), 180, 50);
    EXPECT_GT(t.counts.delayed, 20U);
    EXPECT_EQ(t.arrived.size(), 1000 - t.counts.lost + t.counts.duplicated);
    EXPECT_FALSE(std::is_sorted(t.arrived.begin(), t.arrived.end()));
    EXPECT_EQ(std::set<int>(t.arrived.begin(), t.arrived.end()).size(), 1000 - t.counts.lost);
}

TEST(Network, OneSeedGivesOneRun) {
    const link_settings rough{1, 50, 0.1, 0.2, 0.05};
    EXPECT_EQ(send_many(7, rough).arrived, send_many(7, rough).arrived);
    EXPECT_NE(send_many(7, rough).arrived, send_many(8, rough).arrived);
}

TEST(Network, AQuietLinkLosesNothing) {
    const auto t = send_many(3, {2, 2, 0, 0, 0});
    EXPECT_EQ(t.arrived.size(), 1000U);
    EXPECT_TRUE(std::is_sorted(t.arrived.begin(), t.arrived.end()));
}

TEST(Network, APartitionMayBlockOneDirectionOnlyAndTheDeadHearNothing) {
    event_loop loop;
    network net(loop, 1);
    process a(loop, "a");
    process b(loop, "b");
    a.start();
    b.start();
    int at_a = 0;
    int at_b = 0;
    const auto both = [&] {
        net.send(a, b, [&] { ++at_b; });
        net.send(b, a, [&] { ++at_a; });
        loop.run_until(loop.now_ms() + 100);
    };
    net.cut(a, b);
    both();
    EXPECT_EQ(at_b, 0);
    EXPECT_EQ(at_a, 1);
    net.heal(a, b);
    both();
    EXPECT_EQ(at_b, 1);
    net.send(a, b, [&] { ++at_b; });
    b.kill();
    b.start();
    loop.run_until(loop.now_ms() + 100);
    EXPECT_EQ(at_b, 1) << "the connection ended with the process";
    EXPECT_EQ(net.counts().blocked, 1U);
}

}  // namespace
