// SPDX-License-Identifier: Apache-2.0
// Out of memory at every allocation of a merge: an error or a whole merge, never half of one. This program replaces
// the allocators.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "tests/host/merge_fixture.hpp"

namespace {

std::atomic<std::int64_t> calls_until_failure{-1};  // < 0: never
std::atomic<bool> fails_for_good{false};            // from then on every call fails
std::atomic<std::uint64_t> calls_made{0};

bool refuses() {
    ++calls_made;
    if (calls_until_failure < 0) return false;
    const auto left = calls_until_failure.fetch_sub(1);
    if (left > 0) return false;
    if (fails_for_good) calls_until_failure = 0;
    return true;
}

void* allocate(std::size_t bytes) {
    if (!refuses())
        if (void* p = std::malloc(bytes == 0 ? 1 : bytes)) return p;
    throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }

// The buffers of the host backend.
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
    void* p = nullptr;
    return refuses() || ::posix_memalign(&p, alignment, bytes) != 0 ? nullptr : p;
}

namespace {

using namespace darlcore;
using namespace darlcore::merge_fixture;

/// The same deltas were used, and each was scanned.
bool same_findings(const host::merge_report& a, const host::merge_report& b) {
    return a.merged == b.merged && a.rejected.size() == b.rejected.size() &&
           std::equal(a.used.begin(), a.used.end(), b.used.begin(), b.used.end(),
                      [](const auto& x, const auto& y) { return x.path == y.path && x.scan == y.scan; });
}

/// One merge whose n-th allocation fails, and all after it when `for_good`; true when it found what `whole` did.
result<bool> merge_with_failure(const host::merge_request& request, std::uint64_t n, bool for_good,
                                const host::merge_report& whole) {
    fails_for_good = for_good;
    calls_until_failure = static_cast<std::int64_t>(n);
    const auto report = host::merge_files(request);
    calls_until_failure = -1;
    if (!report) return report.error();
    return same_findings(*report, whole);
}

std::size_t files_in(const std::string& folder) {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

void expect_old_or_new_at_every_allocation(int threads, bool for_good) {
    scene s;
    s.write();
    s.request.threads = threads;
    s.request.cosines = true;
    s.request.memory_budget_bytes = 4U << 20U;
    const std::size_t inputs = files_in(s.dir.path());
    const auto undisturbed = host::merge_files(s.request);
    ASSERT_TRUE(undisturbed && undisturbed->merged && undisturbed->rejected.empty());
    const std::string whole = s.output_bytes();
    std::uint64_t failures = 0;
    bool failed = true;
    for (std::uint64_t n = 0; failed; ++n) {
        s.name_outputs("try");
        for (const auto& path : {s.request.weights_out, *s.request.velocity_out, *s.request.wire_out})
            std::filesystem::remove(path);
        const std::uint64_t before = calls_made;
        const auto merged = merge_with_failure(s.request, n, for_good, *undisturbed);
        // a thread that could not be started is no failure: the others do its work
        failed = calls_made - before > n;
        if (merged) {
            ASSERT_TRUE(*merged) << "allocation " << n
                                 << ": a delta was rejected or not scanned for our lack of memory";
            ASSERT_TRUE(s.output_bytes() == whole) << "allocation " << n;
            continue;
        }
        ++failures;
        ASSERT_EQ(merged.error().code, errc::out_of_memory) << "allocation " << n << ": " << to_text(merged.error());
        ASSERT_EQ(files_in(s.dir.path()), inputs + 3) << "allocation " << n << ": something was left behind";
    }
    std::printf("%llu allocations failed one by one\n", static_cast<unsigned long long>(failures));
    EXPECT_GT(failures, 100U);
}

TEST(merge_memory, when_any_allocation_fails_the_merge_is_an_error_that_leaves_nothing_or_whole) {
    expect_old_or_new_at_every_allocation(1, false);
}
TEST(merge_memory, when_all_allocations_fail_from_some_point_on_the_same_holds) {
    expect_old_or_new_at_every_allocation(1, true);
}
TEST(merge_memory, with_two_threads_the_same_holds) { expect_old_or_new_at_every_allocation(2, false); }

}  // namespace
