// SPDX-License-Identifier: Apache-2.0
// Out of memory at every call of the allocator. A process that runs out of memory ends (nothing catches it below
// main), so the promise is that of a kill: what was acknowledged is recovered, and nothing half done is. This program
// replaces the allocator.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>

#include "darlcore/ledger/record_codec.hpp"
#include "toy_ledger.hpp"

namespace {

std::int64_t calls_until_failure = -1;  // < 0: never
std::uint64_t calls_made = 0;

void* allocate(std::size_t bytes) {
    ++calls_made;
    if (calls_until_failure >= 0 && calls_until_failure-- == 0) throw std::bad_alloc();
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

namespace {

using namespace darlcore;
using namespace darlcore::storage;
using sim::disk;

/// Runs `body` with the allocator failing at its n-th call; true when it ran out of memory.
template <class Body>
bool fails_at(std::uint64_t n, Body&& body) {
    calls_until_failure = static_cast<std::int64_t>(n);
    bool failed = false;
    try {
        body();
    } catch (const std::bad_alloc&) {
        failed = true;
    }
    calls_until_failure = -1;
    return failed;
}

struct knowledge {
    toy::state acked;
    toy::state intended;
};

/// What is known is copied with the allocator at peace: the process that dies takes its own copy along.
toy::state at_peace(const toy::state& s) {
    const auto failing = calls_until_failure;
    calls_until_failure = -1;
    toy::state copy = s;
    calls_until_failure = failing;
    return copy;
}

void serve(disk& on, knowledge& known) {
    auto opened = toy::server::open(on, toy::run_path, toy::options(1024));
    for (int i = 0; opened && i < 12; ++i) {
        for (int n = 0; n <= i % 3; ++n) {
            opened->apply();
            known.intended = at_peace(opened->now());
        }
        if (!opened->commit()) return;
        known.acked = at_peace(opened->acked());
        if (i == 7 && !opened->snapshot()) return;
    }
}

TEST(OutOfMemory, AtAnyAllocationOfAServerNoAcknowledgedRecordIsLost) {
    calls_made = 0;
    {
        disk on;
        knowledge known;
        serve(on, known);
    }
    const std::uint64_t calls = calls_made;
    std::uint64_t failures = 0;
    for (std::uint64_t n = 0; n < calls; ++n) {
        disk on;
        knowledge known;
        failures += fails_at(n, [&] { serve(on, known); }) ? 1 : 0;
        // an operation of the simulated disk itself may have been cut short: a kill at that call
        disk after(on.image());
        const auto found = toy::start_on(after);
        if (!found.outcome && known.acked == toy::state{}) continue;
        ASSERT_TRUE(found.outcome) << "allocation " << n << ": " << to_text(found.outcome.error());
        ASSERT_TRUE(known.acked.is_prefix_of(found.found)) << "allocation " << n << ": an acknowledged record is lost";
    }
    std::printf("%llu allocations failed one by one\n", static_cast<unsigned long long>(failures));
    EXPECT_GT(failures, 100U);
}

TEST(OutOfMemory, AtAnyAllocationOfARecoveryTheFilesStayGood) {
    disk on;
    knowledge known;
    serve(on, known);
    const auto image = on.image();
    calls_made = 0;
    toy::start_on(on);
    const std::uint64_t calls = calls_made;
    for (std::uint64_t n = 0; n < calls; ++n) {
        disk damaged(image);
        fails_at(n, [&] { toy::start_on(damaged); });
        disk after(damaged.image());
        const auto found = toy::start_on(after);
        ASSERT_TRUE(found.outcome) << "allocation " << n << ": " << to_text(found.outcome.error());
        ASSERT_TRUE(known.acked.is_prefix_of(found.found)) << "allocation " << n;
    }
    std::printf("%llu allocations of a recovery\n", static_cast<unsigned long long>(calls));
}

TEST(OutOfMemory, AtAnyAllocationOfTheRecordCodecNothingIsReadOrWrittenWrong) {
    ledger::records::pledged fact;
    fact.contribution.contribution.site = site_id{"a-site-with-a-name-that-is-long-enough"};
    fact.contribution.contribution.id = contribution_id{"a-contribution-with-a-name-that-is-long-enough"};
    fact.contribution.contribution.sha256 = std::string(64, 'a');
    fact.contribution.contribution.codec = "f32";
    fact.named = {lease_seq{1}, lease_seq{2}};
    const ledger::record record(fact);
    const std::string whole = ledger::encode(record);
    std::uint64_t failures = 0;
    for (std::uint64_t n = 0;; ++n) {
        std::string bytes;
        const bool failed = fails_at(n, [&] {
            bytes = ledger::encode(record);
            const auto read = ledger::decode(ledger::type_number(record), whole);
            if (!read || !(*read == record)) bytes = "wrong";
        });
        if (!failed) {
            EXPECT_EQ(bytes, whole);
            break;
        }
        ++failures;
    }
    EXPECT_GT(failures, 3U);
}

}  // namespace
