// SPDX-License-Identifier: Apache-2.0
// The n-th allocation of a merge fails, for every n: a clean error or the right bits, never anything half done.
#include <atomic>
#include <cstdlib>
#include <new>

#include "darlcore/digest.hpp"
#include "tests/host/merge_fixture.hpp"

namespace {

/// Allocations until one fails; negative: none does.
std::atomic<long> allocations_left{-1};

void* allocate(std::size_t bytes) {
    if (allocations_left.load() >= 0 && allocations_left.fetch_sub(1) == 0) throw std::bad_alloc();
    if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
    throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

using namespace darlcore;
using namespace darlcore::merge_fixture;

TEST(a_merge_without_memory, ends_with_a_clean_error_or_the_right_bits_whichever_allocation_fails) {
    scene s;
    s.request.cosines = true;
    s.request.threads = 2;
    s.write();
    const auto undisturbed = host::merge_files(s.request);
    ASSERT_TRUE(undisturbed && undisturbed->merged);
    const digest32 expected = sha256_of(s.output_bytes());
    int errors = 0;
    bool was_reached = true;
    for (long n = 0; was_reached; n += n < 300 ? 1 : 5) {
        ASSERT_LT(n, 100'000);
        s.name_outputs("n" + std::to_string(n));
        allocations_left = n;
        const auto report = host::merge_files(s.request);
        was_reached = allocations_left.exchange(-1) < 0;
        if (report) {
            ASSERT_TRUE(report->merged && report->rejected.empty()) << n << ": a delta was blamed";
            ASSERT_EQ(sha256_of(s.output_bytes()), expected) << n;
        } else {
            ++errors;
            ASSERT_EQ(report.error().code, errc::out_of_memory) << n << ' ' << to_text(report.error());
        }
        for (const auto& path : {s.request.weights_out, *s.request.velocity_out, *s.request.wire_out}) {
            ASSERT_EQ(std::filesystem::exists(path), report.has_value()) << n;
            std::filesystem::remove(path);
        }
    }
    EXPECT_GT(errors, 100);
}

}  // namespace
