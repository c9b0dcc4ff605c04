// SPDX-License-Identifier: Apache-2.0
// The pieces of the table against plain vectors.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <thread>
#include <vector>

#include "darlcore/lease/block_map.hpp"
#include "darlcore/lease/cow.hpp"
#include "darlcore/lease/indexed_heap.hpp"
#include "darlcore/lease/paged_vector.hpp"
#include "darlcore/lease/seq_table.hpp"
#include "darlcore/lease/suspects.hpp"
#include "darlcore/lease/ttl.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::lease;

struct splitmix {
    std::uint64_t state;
    std::uint64_t operator()(std::uint64_t below) {
        state += 0x9E3779B97F4A7C15ULL;
        std::uint64_t z = state;
        z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9ULL;
        z = (z ^ (z >> 27U)) * 0x94D049BB133111EBULL;
        return (z ^ (z >> 31U)) % below;
    }
};

std::uint64_t plain_next(const std::vector<int>& states, std::uint64_t from) {
    while (from < states.size() && states[from] != 0) ++from;
    return from;
}

TEST(lease_block_map, agrees_with_a_plain_vector_for_every_size_around_the_borders_of_words_and_pages) {
    for (const std::uint64_t size : {1U, 63U, 64U, 65U, 4095U, 4096U, 4097U, 16384U, 16385U, 70000U}) {
        block_map map(size);
        std::vector<int> plain(size, 0);  // 0 free, 1 held, 2 committed
        splitmix random{size};
        for (int i = 0; i < 600; ++i) {
            const std::uint64_t start = random(size);
            std::uint64_t end = start;
            const int from = plain[start];
            const std::uint64_t length = 1 + random(random(2) == 0 ? 9 : size);
            while (end < size && end - start < length && plain[end] == from) ++end;
            if (from == 0)
                map.take(make_span(start, end));
            else if (from == 1 && random(2) == 0)
                map.give_back(make_span(start, end));
            else if (from == 1)
                map.commit(make_span(start, end));
            else
                continue;
            const int to = map.is_free(position{start}) ? 0 : map.is_committed(position{start}) ? 2 : 1;
            for (std::uint64_t p = start; p < end; ++p) plain[p] = to;
            const std::uint64_t probe = random(size);
            ASSERT_EQ(map.next_free(probe), plain_next(plain, probe)) << size;
            std::uint64_t run_end = probe;
            while (run_end < size && plain[run_end] == 0) ++run_end;
            ASSERT_EQ(map.free_run_end(probe, size), run_end);
            if (i % 20 != 0) continue;
            ASSERT_TRUE(map.is_consistent()) << size << " after " << i;
        }
        EXPECT_TRUE(map.is_consistent());
        bit_pages::words::graveyard old;
        map.reset(old);
        EXPECT_EQ(map.free_count(), size);
        EXPECT_TRUE(map.is_consistent());
    }
}

TEST(lease_block_map, stays_under_two_and_a_fifth_bits_per_block_with_every_second_block_committed) {
    constexpr std::uint64_t size = 4000000;
    block_map map(size);
    for (std::uint64_t p = 0; p < size; p += 2) {
        map.take(make_span(p, p + 1));
        map.commit(make_span(p, p + 1));
    }
    EXPECT_EQ(map.fragments(), size / 2);
    EXPECT_LE(static_cast<double>(map.bytes()) * 8 / static_cast<double>(size), 2.2);
}

TEST(lease_block_map, equal_sets_have_equal_fingerprints_and_a_moved_block_another) {
    block_map a(1000);
    block_map b(1000);
    a.take(make_span(10, 20));
    a.take(make_span(20, 400));
    b.take(make_span(300, 400));
    b.take(make_span(10, 300));
    EXPECT_EQ(a.free_print(), b.free_print());
    b.give_back(make_span(10, 11));
    b.take(make_span(9, 10));
    EXPECT_EQ(a.free_count(), b.free_count());
    EXPECT_NE(a.free_print(), b.free_print());
}

TEST(lease_cow, a_copy_keeps_its_values_while_the_original_writes_on_in_another_thread) {
    cow_array<std::uint64_t, 8> array(10000, 7);
    for (std::size_t i = 0; i < 5000; ++i) array.write(i) = i;
    auto copy = array;
    std::uint64_t sum = 0;
    std::thread reader([&, taken = std::move(copy)] {
        for (std::size_t i = 0; i < 10000; ++i) sum += taken[i];
    });
    for (std::size_t i = 0; i < 10000; ++i) array.write(i) = 1;
    reader.join();
    EXPECT_EQ(sum, 4999U * 5000U / 2U + 7U * 5000U);
    EXPECT_EQ(array[9999], 1U);
}

TEST(lease_suspects, agree_with_one_history_per_block) {
    constexpr std::uint64_t size = 500;
    suspects runs;
    std::vector<std::optional<suspect_run>> plain(size);
    splitmix random{5};
    for (int i = 0; i < 4000; ++i) {
        const std::uint64_t start = random(size);
        const std::uint64_t end = std::min(size, start + 1 + random(random(3) == 0 ? 200 : 4));
        const site_number site{static_cast<std::uint32_t>(random(4))};
        const bool forget = random(3) == 0;
        if (forget)
            runs.erase(make_span(start, end));
        else
            runs.change(make_span(start, end), [&](suspect_run& r) { add_loss(r, site, end - start); });
        for (std::uint64_t p = start; p < end; ++p) {
            suspect_run r = plain[p].value_or(suspect_run{});
            add_loss(r, site, end - start);
            plain[p] = forget ? std::nullopt : std::optional(r);
        }
        for (int probe = 0; probe < 4; ++probe) {
            const position p{random(size)};
            const suspect_run* const r = runs.at_or_after(p);
            const bool inside = r != nullptr && r->span.contains(p);
            ASSERT_EQ(inside, plain[p.count].has_value());
            if (!inside) continue;
            ASSERT_EQ(r->losses, plain[p.count]->losses);
            ASSERT_EQ(r->sites, plain[p.count]->sites);
            ASSERT_EQ(r->lost_run, plain[p.count]->lost_run);
        }
    }
    position last;
    std::optional<suspect_run> previous;
    runs.for_each([&](const suspect_run& r) {
        EXPECT_GE(r.span.start, last);
        if (previous && previous->span.end == r.span.start) {
            previous->span = r.span;
            EXPECT_FALSE(*previous == r) << "two neighbours with one history at " << r.span;
        }
        last = r.span.end;
        previous = r;
    });
}

struct small_key {
    std::uint64_t value;
    [[nodiscard]] bool before(const small_key& o) const { return value < o.value; }
};

TEST(lease_indexed_heap, gives_the_smallest_whatever_was_moved_or_removed) {
    indexed_heap<small_key> heap;
    std::map<std::uint32_t, std::uint64_t> plain;
    splitmix random{9};
    for (int i = 0; i < 20000; ++i) {
        const auto slot = static_cast<std::uint32_t>(random(200));
        if (random(3) == 0) {
            heap.erase(slot);
            plain.erase(slot);
        } else {
            const std::uint64_t key = random(1000000);
            heap.set(slot, {key});
            plain[slot] = key;
        }
        ASSERT_EQ(heap.size(), plain.size());
        if (plain.empty()) continue;
        std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
        for (const auto& [s, key] : plain) least = std::min(least, key);
        ASSERT_EQ(heap.top().key.value, least);
    }
    EXPECT_TRUE(heap.is_consistent());
}

TEST(lease_seq_table, finds_what_was_inserted_and_nothing_else) {
    seq_table table;
    std::map<std::uint64_t, std::uint32_t> plain;
    splitmix random{3};
    for (int i = 0; i < 20000; ++i) {
        const std::uint64_t seq = 1 + random(400);
        if (plain.count(seq) != 0) {
            table.erase(seq);
            plain.erase(seq);
        } else {
            table.insert(seq, static_cast<std::uint32_t>(i));
            plain[seq] = static_cast<std::uint32_t>(i);
        }
        const std::uint64_t probe = 1 + random(400);
        ASSERT_EQ(table.find(probe), plain.count(probe) != 0 ? plain[probe] : seq_table::none);
    }
}

// More sequences than one bucket holds, so that buckets split and the directory doubles; odd gaps, so that neighbours
// that share a bucket meet others there.
TEST(lease_seq_table, keeps_every_sequence_while_it_grows_shrinks_and_is_forgotten) {
    seq_table table;
    std::map<std::uint64_t, std::uint32_t> plain;
    splitmix random{5};
    for (int epoch = 0; epoch < 3; ++epoch) {
        std::uint64_t seq = 1 + random(1000);
        for (std::uint32_t i = 0; i < 20000; ++i) {
            seq += 1 + (random(4) == 0 ? random(50) : 0);
            table.insert(seq, i);
            plain[seq] = i;
            if (i % 3 == 0) {
                const auto gone = plain.lower_bound(random(seq));
                table.erase(gone->first);
                plain.erase(gone);
            }
        }
        const seq_table copy = table;
        for (std::uint64_t s = 1; s <= seq; ++s) {
            const auto it = plain.find(s);
            ASSERT_EQ(table.find(s), it == plain.end() ? seq_table::none : it->second) << s;
        }
        ASSERT_EQ(table.size(), plain.size());
        table.clear();
        ASSERT_EQ(table.size(), 0U);
        ASSERT_EQ(table.find(plain.begin()->first), seq_table::none);
        ASSERT_EQ(copy.find(plain.begin()->first), plain.begin()->second) << "a copy is a value of its own";
        plain.clear();
    }
}

TEST(lease_paged_vector, agrees_with_a_plain_vector_and_never_moves_an_element) {
    paged_vector<int, 4> list;
    std::vector<int> plain;
    splitmix random{9};
    const int* first = nullptr;
    for (int i = 0; i < 5000; ++i) {
        if (random(3) != 0 || plain.empty()) {
            list.push_back(i);
            plain.push_back(i);
        } else {
            list.pop_back();
            plain.pop_back();
        }
        if (first == nullptr) first = &list[0];
        ASSERT_EQ(list.size(), plain.size());
        if (plain.empty()) continue;
        ASSERT_EQ(list.back(), plain.back());
    }
    EXPECT_EQ(&list[0], first);
    paged_vector<int, 4> copy = list;
    list[0] = -1;
    list.resize(list.size() + 9, 7);
    EXPECT_EQ(list.back(), 7);
    ASSERT_EQ(copy.size(), plain.size());
    for (std::size_t i = 0; i < plain.size(); ++i) ASSERT_EQ(copy[i], plain[i]);
    list.clear();
    EXPECT_TRUE(list.empty());
}

TEST(lease_ttl, follows_phase_and_round_trip_and_ignores_nonsense) {
    const settings s;
    EXPECT_EQ(ttl_ms(s, 0, 100000, 1000), 260000);
    EXPECT_EQ(ttl_ms(s, 0, 1000, 0), 30000) << "the minimum";
    EXPECT_EQ(ttl_ms(s, 0, 86400000, 60000), 21600000) << "the maximum";
    EXPECT_EQ(ttl_ms(s, 0, 0, 60000), 900000) << "no phase time yet: the default at least";
    EXPECT_EQ(ttl_ms(s, 100000, 0, 0), 900000) << "also when one is asked for";
    EXPECT_EQ(ttl_ms(s, 5000000, 0, 0), 5000000);
    EXPECT_EQ(ttl_ms(s, 100000, 400000, 0), 100000) << "a requested one replaces the formula";
    EXPECT_EQ(ttl_ms(s, 1, 400000, 0), 30000) << "and is clamped";
    EXPECT_EQ(claimed_ms(std::nan(""), 60), 0);
    EXPECT_EQ(claimed_ms(std::numeric_limits<double>::infinity(), 60), 0);
    EXPECT_EQ(claimed_ms(-3, 60), 0);
    EXPECT_EQ(claimed_ms(61, 60), 60000);
    EXPECT_EQ(hold_limit_ms(s, 0), 86400000);
    EXPECT_EQ(hold_limit_ms(s, 1000), 3600000);
    EXPECT_EQ(hold_limit_ms(s, 1000000), 10000000);
    EXPECT_EQ(live_window_ms(s, 1000), 30000);
    EXPECT_EQ(live_window_ms(s, 60000), 600000);
}

TEST(lease_ids, read_back_what_was_written_and_nothing_else) {
    lease_record l;
    l.epoch = epoch_index{3};
    l.start = position{128};
    l.seq = lease_seq{9007199254740993};
    l.term = term{4};
    EXPECT_EQ(lease_id(l), "e3-b128-9007199254740993");
    const auto ref = parse_lease_id(lease_id(l));
    ASSERT_TRUE(ref);
    EXPECT_EQ(ref->epoch, l.epoch);
    EXPECT_EQ(ref->start, l.start);
    EXPECT_EQ(ref->seq, l.seq);
    EXPECT_EQ(parse_token(to_text(l.token())), l.token());
    for (const char* bad : {"", "e", "e0-99", "e0-b1-", "e0-b01-2", "e-1-b0-1", "e0-b0-1 ", " e0-b0-1", "e0-b0-+1",
                            "e0-b99999999999999999999-1", "E0-B0-1"})
        EXPECT_FALSE(parse_lease_id(bad)) << bad;
    for (const char* bad : {"", ":", "1:", ":1", "1:2:3", "4294967296:1", "a:b", "1:-2"})
        EXPECT_FALSE(parse_token(bad)) << bad;
}

TEST(lease_settings, name_the_setting_that_is_out_of_range) {
    const auto fault = [](auto change) {
        settings s;
        change(s);
        const auto ok = check(s);
        return ok ? std::string("accepted") : ok.error().context;
    };
    EXPECT_TRUE(check(settings{}));
    EXPECT_EQ(fault([](settings& s) { s.min_ttl_s = 0; }).rfind("min_ttl_s", 0), 0U);
    EXPECT_EQ(fault([](settings& s) { s.max_ttl_s = 1; }).rfind("max_ttl_s", 0), 0U);
    EXPECT_EQ(fault([](settings& s) { s.default_ttl_s = 1; }).rfind("default_ttl_s", 0), 0U);
    EXPECT_EQ(fault([](settings& s) { s.ttl_alpha = std::nan(""); }).rfind("ttl_alpha", 0), 0U);
    EXPECT_EQ(fault([](settings& s) { s.first_grant_fraction = 0; }).rfind("first_grant_fraction", 0), 0U);
    EXPECT_EQ(fault([](settings& s) { s.max_attempts = 9; }).rfind("max_attempts", 0), 0U);
    EXPECT_EQ(fault([](settings& s) { s.max_losses = 1; }).rfind("max_losses", 0), 0U);
    EXPECT_EQ(fault([](settings& s) { s.max_blocks = 1, s.min_blocks = 2; }).rfind("max_blocks", 0), 0U);
    EXPECT_EQ(fault([](settings& s) { s.request_ring = 65; }).rfind("request_ring", 0), 0U);
    EXPECT_FALSE(check(geometry{0, ""}));
    EXPECT_FALSE(check(geometry{std::uint64_t{1} << 40U, ""}));
}

}  // namespace
