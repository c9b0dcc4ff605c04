// SPDX-License-Identifier: Apache-2.0
// What one request may cost, in things that can be counted: cells and nodes of the indexes looked at, and memory
// allocated (which is also what is copied). No clock, so a loaded machine changes nothing. Seen red with one bucket
// for a whole index (searches and a split that walk it) and with pages as long as the list (660 KiB in one request).
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>

#include "darlcore/lease/table.hpp"
#include "darlcore/testing/budget.hpp"

namespace {
std::uint64_t allocated = 0;
}

// Every allocation of this program is counted. noinline: a compiler that looks through new and not through delete would
// warn of a mismatch.
[[gnu::noinline]] void* operator new(std::size_t size) {
    allocated += size;
    if (void* p = std::malloc(size)) return p;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace {

using namespace darlcore;
using namespace darlcore::lease;

struct counting {
    struct meter {
        static void touch(std::uint64_t n = 1) noexcept { touched += n; }
        static inline std::uint64_t touched = 0;
    };
    static constexpr bool planted(mutant) noexcept { return false; }
};
using counted_table = basic_table<counting>;

/// The most that one request of a kind has cost.
struct cost {
    std::uint64_t touched = 0;
    std::uint64_t bytes = 0;
};

constexpr std::uint32_t num_sites = 100;

struct world {
    explicit world(std::uint64_t blocks) : table(make(blocks)) {
        for (std::uint32_t n = 0; n < num_sites; ++n) {
            register_site in;
            in.who = who(n);
            table.apply(in, now);
        }
        for (std::uint32_t i = 0; i < 1000; ++i) {
            acquire in;
            in.who = who(i % num_sites);
            in.want = 4;
            table.apply(in, now);
        }
    }
    static counted_table make(std::uint64_t blocks) {
        settings s;
        s.first_grant_fraction = 1;
        s.max_attempts = 0;
        return counted_table::create({blocks, ""}, s).value();
    }
    static caller who(std::uint32_t n) { return {site_id{"site-" + std::to_string(n)}, {7, n + 1}}; }

    template <class Call>
    auto metered(cost& most, Call call) {
        const std::uint64_t touched = counting::meter::touched;
        const std::uint64_t bytes = allocated;
        auto out = call();
        most.touched = std::max(most.touched, counting::meter::touched - touched);
        most.bytes = std::max(most.bytes, allocated - bytes);
        return out;
    }

    /// A site takes blocks, reserves, beats, and contributes or gives back; every fifth round merges.
    void round(std::uint32_t i) {
        now.ms += 3;
        acquire in;
        in.who = who((i * 2654435761U) % num_sites);
        in.want = 4 + i % 13;
        in.request_id = "r" + std::to_string(i);
        const auto got = metered(ask, [&] { return table.apply(in, now); });
        pledge p;
        p.who = in.who;
        p.id = {"c" + std::to_string(i)};
        p.base = table.generation();
        heartbeat beat;
        beat.who = in.who;
        if (got.ok())
            for (const auto& l : got.reply().leases) {
                metered(small, [&] { return table.apply(reserve{in.who, ref_to(l), l.end}, now); });
                p.claims.push_back({ref_to(l), l.start, l.end});
                beat.leases.push_back({ref_to(l), {}, {}});
            }
        metered(small, [&] { return table.apply(beat, now); });
        const bool many = table.site(*table.find_site(in.who.site.name), now).open_leases > 12;
        if (i % 7 == 0 || many)
            metered(give_back, [&] { return table.apply(release{in.who, {}, false}, now); });
        else if (i % 11 != 0 && !p.claims.empty())
            metered(contribute, [&] { return table.apply(p, now); });
        if (i % 5 == 0) merge_all();
        if (i % 2000 == 0) copy = table.snapshot();  // what is written next is copied first
    }
    void merge_all() {
        resolve r;
        r.base = table.generation();
        for (const auto s : table.pledging()) r.merged.push_back(table.pledge_of(s)->id);
        if (!r.merged.empty()) metered(merge, [&] { return table.apply(r, now); });
    }

    counted_table table;
    ledger_time now{1000000};
    book copy;
    cost ask, small, give_back, contribute, merge;
};

TEST(lease_bounds, no_request_costs_more_than_its_leases_times_a_logarithm_however_long_the_run) {
    world w(10000000);
    const auto rounds = static_cast<std::uint32_t>(darlcore::testing::property_runs(100000));
    for (std::uint32_t i = 1; i <= rounds; ++i) w.round(i);
    const auto log_n =
        static_cast<std::uint64_t>(std::bit_width(w.table.open_leases() + w.table.rules().closed_leases));
    const auto within = [&](const char* what, const cost& c, std::uint64_t leases, std::uint64_t kib) {
        std::printf("%s: at most %llu cells, %llu bytes\n", what, static_cast<unsigned long long>(c.touched),
                    static_cast<unsigned long long>(c.bytes));
        EXPECT_LE(c.touched, 16 * leases * log_n) << what;
        EXPECT_LE(c.bytes, kib * 1024) << what;
        EXPECT_GT(c.touched + c.bytes, 0U) << what << " was not run";
    };
    within("acquire", w.ask, 4, 32);
    // no tick comes: the list of renewals must not grow with the run (5 KiB; 65 KiB under the nightly budget)
    within("reserve or heartbeat", w.small, 4, 2);
    within("release of up to 16 leases", w.give_back, 16, 32);
    within("contribution of up to 4 leases", w.contribute, 4, 48);
    within("merge of up to 5 contributions", w.merge, 20, 32);
    EXPECT_TRUE(w.table.verify());
}

}  // namespace
