// SPDX-License-Identifier: Apache-2.0
// Counts what the block space allocates: 4 bytes per block and epoch, at most two epochs, nothing per window of a phase
// but the order of one group.
#include <atomic>
#include <cstdlib>
#include <new>
#include <type_traits>

#include <gtest/gtest.h>

#include "darlcore/block_space.hpp"
#include "darlcore/phase.hpp"

namespace {

std::atomic<std::size_t> live_bytes{0};
std::atomic<std::size_t> peak_bytes{0};
constexpr std::size_t header_bytes = alignof(std::max_align_t);

void* counted_new(std::size_t size) {
    void* raw = std::malloc(size + header_bytes);
    if (raw == nullptr) throw std::bad_alloc();
    *static_cast<std::size_t*>(raw) = size;
    const std::size_t now = live_bytes += size;
    std::size_t seen = peak_bytes;
    while (now > seen && !peak_bytes.compare_exchange_weak(seen, now)) {
    }
    return static_cast<char*>(raw) + header_bytes;
}

void counted_delete(void* p) noexcept {
    if (p == nullptr) return;
    void* raw = static_cast<char*>(p) - header_bytes;
    live_bytes -= *static_cast<std::size_t*>(raw);
    std::free(raw);
}

}  // namespace

void* operator new(std::size_t size) { return counted_new(size); }
void* operator new[](std::size_t size) { return counted_new(size); }
void operator delete(void* p) noexcept { counted_delete(p); }
void operator delete[](void* p) noexcept { counted_delete(p); }
void operator delete(void* p, std::size_t) noexcept { counted_delete(p); }
void operator delete[](void* p, std::size_t) noexcept { counted_delete(p); }

namespace {

using namespace darlcore;

constexpr std::size_t slack_bytes = 64 * 1024;

struct allocation_peak {
    std::size_t before = live_bytes;
    allocation_peak() { peak_bytes = live_bytes.load(); }
    [[nodiscard]] std::size_t bytes() const { return peak_bytes - before; }
};

static_assert(sizeof(std::remove_cvref_t<decltype(permutation_view{}[0])>) == 4);

TEST(memory, of_an_epoch_is_four_bytes_per_block) {
    constexpr std::uint64_t blocks = 4'000'000;
    const allocation_peak peak;
    const auto map = block_space::build({.num_samples = 2 * blocks - 1, .block_size = 2}, epoch_index{0}).value();
    (void)map->digest();
    EXPECT_GE(peak.bytes(), 4 * blocks);
    EXPECT_LE(peak.bytes(), 4 * blocks + slack_bytes);
}

TEST(memory, never_holds_three_epochs) {
    constexpr std::uint64_t blocks = 1'000'000;
    auto space = block_space::make({.num_samples = blocks}).value();
    const allocation_peak peak;
    for (std::uint32_t e = 0; e < 4; ++e) (void)space.map(epoch_index{e}).value();
    EXPECT_LE(peak.bytes(), 8 * blocks + slack_bytes);
}

TEST(memory, of_feistel_and_identity_does_not_grow) {
    const allocation_peak peak;
    const auto feistel =
        block_space::build({.num_samples = std::uint64_t{1} << 60U, .scheme = permutation_scheme::feistel_1},
                           epoch_index{0})
            .value();
    const auto identity =
        block_space::build({.num_samples = std::uint64_t{1} << 30U, .shuffle = false}, epoch_index{0}).value();
    (void)feistel->digest();
    (void)identity->digest();
    EXPECT_LE(peak.bytes(), slack_bytes);
}

TEST(memory, of_a_phase_is_one_group_at_a_time) {
    constexpr std::uint64_t group_windows = 250'000;
    const auto map = block_space::build({.num_samples = 4 * group_windows, .block_size = 1000}, epoch_index{0}).value();
    std::vector<phase_group> groups;
    for (std::uint64_t g = 0; g < 4; ++g) groups.push_back({g, {make_span(250 * g, 250 * (g + 1))}});
    const auto plan = phase_plan::make(map, groups, {8, 4, 1}).value();
    const allocation_peak peak;
    phase_reader reader(plan);
    std::vector<std::uint64_t> batch;
    for (std::uint64_t s = 0; s < plan.num_steps(); ++s)
        for (std::uint64_t r = 0; r < 4; ++r) ASSERT_GT(reader.read(r, s, 0, batch), 0U);
    EXPECT_LE(peak.bytes(), 4 * group_windows + slack_bytes);
}

}  // namespace
