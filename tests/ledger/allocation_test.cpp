// SPDX-License-Identifier: Apache-2.0
// The n-th allocation of a request fails, for every n: nothing is acknowledged, the state before it is untouched and
// comes back from the journal, and the request then goes through as if nothing had been.
#include <atomic>
#include <cstdlib>
#include <new>

#include <gtest/gtest.h>

#include "tests/ledger/world.hpp"

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
using namespace darlcore::ledger;
using ledger::testing::world;

/// True when `work` ran to its end without the n-th allocation.
template <class Work>
bool survives(long n, const Work& work) {
    allocations_left = n;
    try {
        work();
    } catch (const std::bad_alloc&) {
        allocations_left = -1;
        return false;
    }
    allocations_left = -1;
    return true;
}

/// A server that runs out of memory at every place of every request, ends, and starts again from its journal.
class starved {
public:
    template <class Request>
    auto call(const Request& request) {
        std::optional<decltype(w.m.handle(request, w.now))> done;
        for (long n = 0; !done; ++n) {
            const auto before = w.m.digest();
            machine tried = w.m;  // shares what it does not change
            std::vector<std::string> bytes;
            const bool survived = survives(n, [&] {
                auto out = tried.handle(request, w.now);
                for (const auto& r : out.records) bytes.push_back(encode(r));
                done.emplace(std::move(out));
            });
            if (survived) {
                w.m = std::move(tried);
                break;
            }
            done.reset();
            ++failures;
            EXPECT_EQ(w.m.digest(), before) << "request " << calls << ", allocation " << n;
            if (n % 10 == 0) EXPECT_EQ(w.replayed()->digest(), before);
        }
        ++calls;
        for (const auto& r : done->records) w.journal.emplace_back(r, w.now);
        return *std::move(done);
    }

    world w;
    int calls = 0;
    int failures = 0;
};

register_request registration(const world& w) {
    register_request r;
    r.who = world::who("a");
    r.protocol = 2;
    r.digest = w.m.space_digest();
    return r;
}

acquire_request four_blocks() {
    acquire_request r;
    r.who = world::who("a");
    r.want = 4;
    r.report.macro_step_s = 10;
    r.request_id = "r1";
    return r;
}

TEST(a_ledger_without_memory, acknowledges_nothing_and_loses_nothing_whichever_allocation_fails) {
    starved s;
    ASSERT_TRUE(s.call(registration(s.w)).ok());
    ASSERT_TRUE(s.call(join_request{world::who("a"), {}, world::pins(), "test"}).ok());
    s.w.init();
    ASSERT_TRUE(s.call(poll_request{world::who("a"), s.w.m.rounds().current(), round::site_activity::idle, 0, 0}).ok());
    const auto granted = s.call(four_blocks());
    ASSERT_TRUE(granted.ok());
    const auto leases = granted.reply().leases.leases;
    ASSERT_FALSE(leases.empty());
    for (const auto& l : leases) ASSERT_TRUE(s.call(reserve_request{world::who("a"), lease::ref_to(l), l.end}).ok());
    const auto claim = s.w.claim("a", leases);
    s.w.store_blob("a", claim.sha256);
    const auto pledged = s.call(claim);
    ASSERT_TRUE(pledged.ok());
    merge_done merged;
    merged.next = generation{1};
    merged.files.wire = {"wire1", 1'000};
    merged.max_abs_weight = 1;
    if (s.w.merging()) ASSERT_TRUE(s.call(merged).ok());
    EXPECT_EQ(s.w.replayed()->digest(), s.w.m.digest());
    EXPECT_GT(s.failures, 100);
}

TEST(the_codec_without_memory, never_calls_good_bytes_bad) {
    world w;
    w.enter("a");
    w.init();
    (void)w.poll("a");
    ASSERT_TRUE(w.contribute("a", w.acquire("a", 4)).ok());
    int failures = 0;
    for (const auto& [r, at] : w.journal) {
        const std::string bytes = encode(r);
        for (long n = 0;; ++n) {
            std::optional<result<record>> read;
            if (survives(n, [&] { read.emplace(decode(type_number(r), bytes)); })) {
                ASSERT_TRUE(read->has_value()) << type_name(r) << ", allocation " << n;
                ASSERT_EQ(encode(**read), bytes);
                break;
            }
            ++failures;
        }
    }
    EXPECT_GT(failures, 10);
}

}  // namespace
