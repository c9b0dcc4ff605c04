// SPDX-License-Identifier: Apache-2.0
#include "backends/torch/communicator.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <thread>

#include "darlcore/merge/conversions.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::training;

using rank_body = std::function<void(communicator&)>;

void on_threads(std::size_t ranks, const rank_body& body) {
    auto all = thread_communicators(ranks);
    std::vector<std::thread> threads;
    for (auto& c : all) threads.emplace_back([&body, &c] { body(*c); });
    for (std::thread& t : threads) t.join();
}

// Every rank has its own sockets, as it would in a process of its own.
void on_gloo(std::size_t ranks, const rank_body& body) {
    const auto meeting = gloo_rendezvous::open();
    ASSERT_TRUE(meeting) << to_text(meeting.error());
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < ranks; ++r) {
        threads.emplace_back([&, r] {
            auto c = gloo_communicator({"127.0.0.1", meeting->port(), r, ranks, 20'000});
            ASSERT_TRUE(c) << to_text(c.error());
            body(**c);
        });
    }
    for (std::thread& t : threads) t.join();
}

class communicators : public testing::TestWithParam<std::pair<const char*, std::size_t>> {
protected:
    void run(const rank_body& body) const {
        if (std::string(GetParam().first) == "gloo")
            on_gloo(GetParam().second, body);
        else
            on_threads(GetParam().second, body);
    }
    [[nodiscard]] std::size_t ranks() const { return GetParam().second; }
};

TEST_P(communicators, collectives_give_the_exact_answers) {
    const auto n = ranks();
    const double id_sum = static_cast<double>(n * (n - 1)) / 2;
    run([&](communicator& c) {
        double id = static_cast<double>(c.rank());
        ASSERT_TRUE(c.all_reduce_sum(std::span<double>(&id, 1)));
        EXPECT_EQ(id, id_sum);
        std::vector<double> ones(1U << 16U, 1.0);
        ASSERT_TRUE(c.all_reduce_sum(std::span<double>(ones)));
        EXPECT_EQ(std::accumulate(ones.begin(), ones.end(), 0.0), static_cast<double>(n * ones.size()));
        auto large = static_cast<std::int64_t>(1) << 40U;
        ASSERT_TRUE(c.all_reduce_sum(std::span<std::int64_t>(&large, 1)));
        EXPECT_EQ(large, static_cast<std::int64_t>(n) << 40U);

        const std::vector<float> part{static_cast<float>(c.rank()), static_cast<float>(10 * c.rank())};
        std::vector<float> all(2 * n);
        ASSERT_TRUE(c.all_gather(part, all));
        for (std::size_t r = 0; r < n; ++r) EXPECT_EQ(all[2 * r + 1], static_cast<float>(10 * r));

        std::vector<float> ramp(3 * n), mine(3);
        std::iota(ramp.begin(), ramp.end(), static_cast<float>(c.rank()));
        ASSERT_TRUE(c.reduce_scatter_sum(ramp, mine));
        for (std::size_t i = 0; i < 3; ++i)
            EXPECT_EQ(mine[i], static_cast<float>(n * (3 * c.rank() + i)) + static_cast<float>(id_sum));

        std::vector<std::uint16_t> halves{bf16_from_f32(0.5F + static_cast<float>(c.rank()))};
        ASSERT_TRUE(c.all_reduce_sum_bf16(halves));
        EXPECT_EQ(f32_from_bf16(halves[0]), 0.5F * static_cast<float>(n) + static_cast<float>(id_sum));
        ASSERT_TRUE(c.barrier());
    });
}

TEST_P(communicators, a_broadcast_brings_its_size_along) {
    run([&](communicator& c) {
        for (const std::size_t size : {0U, 1U, 1000U}) {
            std::vector<std::byte> bytes(c.rank() == ranks() - 1 ? size : 3 * c.rank(),
                                         std::byte{static_cast<unsigned char>(c.rank())});
            ASSERT_TRUE(c.broadcast(bytes, ranks() - 1));
            EXPECT_EQ(bytes, std::vector<std::byte>(size, std::byte{static_cast<unsigned char>(ranks() - 1)}));
        }
    });
}

TEST_P(communicators, a_rank_that_gives_up_ends_the_waiting_of_the_others) {
    if (ranks() == 1) GTEST_SKIP() << "one rank has nobody to wait for";
    run([&](communicator& c) {
        if (c.rank() == 0) return c.abort();
        float x = 1.0F;
        const auto ended = c.all_reduce_sum(std::span<float>(&x, 1));
        ASSERT_FALSE(ended);
        EXPECT_EQ(ended.error().code, errc::unreachable);
        EXPECT_FALSE(c.barrier());
    });
}

INSTANTIATE_TEST_SUITE_P(kinds, communicators,
                         testing::Values(std::pair("threads", std::size_t{1}), std::pair("threads", std::size_t{4}),
                                         std::pair("gloo", std::size_t{1}), std::pair("gloo", std::size_t{2}),
                                         std::pair("gloo", std::size_t{3})),
                         [](const auto& one) { return one.param.first + std::to_string(one.param.second); });

}  // namespace
