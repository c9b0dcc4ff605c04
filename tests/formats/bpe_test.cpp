// SPDX-License-Identifier: Apache-2.0
#include "adapters/formats/bpe.hpp"

#include <algorithm>

#include <gtest/gtest.h>

#include "darlcore/random.hpp"
#include "darlcore/testing/property.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::formats;
using id_list = std::vector<std::uint32_t>;

// Bytes are their own ids; each merge makes the next id from 256 on.
struct table {
    std::array<std::uint32_t, 256> byte_ids{};
    std::vector<bpe::merge> merges;
};

// Merges of random earlier ids over an alphabet of four letters, so that words meet them often.
table random_table(std::uint64_t seed, std::size_t count) {
    table t;
    for (std::uint32_t b = 0; b < 256; ++b) t.byte_ids[b] = b;
    xoshiro256 random(seed);
    id_list pool = {'a', 'b', 'c', 'd'};
    for (std::uint32_t id = 256; t.merges.size() < count; ++id) {
        const bpe::merge m{pool[random.below(pool.size())], pool[random.below(pool.size())], id};
        const bool known = std::any_of(t.merges.begin(), t.merges.end(),
                                       [&](const bpe::merge& o) { return o.left == m.left && o.right == m.right; });
        if (known) continue;
        t.merges.push_back(m);
        pool.push_back(id);
    }
    return t;
}

// The plain second version: for the best merge that occurs anywhere, join its leftmost occurrence; again.
id_list plain_encode(const table& t, const std::string& word) {
    id_list ids;
    for (const char c : word) ids.push_back(t.byte_ids[static_cast<unsigned char>(c)]);
    for (bool changed = true; changed;) {
        changed = false;
        for (const bpe::merge& m : t.merges) {
            for (std::size_t i = 0; i + 1 < ids.size() && !changed; ++i) {
                if (ids[i] != m.left || ids[i + 1] != m.right) continue;
                ids[i] = m.joined;
                ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(i) + 1);
                changed = true;
            }
            if (changed) break;
        }
    }
    return ids;
}

std::string random_word(xoshiro256& random, std::size_t bytes) {
    std::string word;
    for (std::size_t i = 0; i < bytes; ++i) word += static_cast<char>('a' + random.below(4));
    return word;
}

// 0 ... 120 bytes: both ways of joining (the border is at 48). Red when stale candidates are not dropped, when equal
// ranks are not taken from the left, or when a neighbour's pair is not looked up again.
DARLCORE_PROPERTY(byte_pairs, are_joined_as_the_plain_version_joins_them, 1000,
                  (std::uint64_t seed, std::uint16_t size)) {
    const table t = random_table(seed, 40);
    const bpe fast(t.byte_ids, t.merges);
    xoshiro256 random(seed + 1);
    const std::string word = random_word(random, size % 121U);
    id_list ids;
    fast.encode(word, ids);
    RC_CLASSIFY(word.size() > 48, "long");
    RC_ASSERT(ids == plain_encode(t, word));
}

TEST(byte_pairs, of_one_long_word_take_no_quadratic_time) {
    const table t = random_table(7, 40);
    const bpe fast(t.byte_ids, t.merges);
    xoshiro256 random(8);
    const std::string word = random_word(random, 1'000'000);  // hours if every join moved the rest
    id_list ids;
    fast.encode(word, ids);
    EXPECT_LT(ids.size(), word.size());
    EXPECT_GT(ids.size(), word.size() / 100);
}

TEST(word_caches, hold_what_was_kept_and_nothing_else) {
    word_cache cache;
    auto& place = cache.place("the");
    EXPECT_FALSE(word_cache::holds(place, "the"));
    word_cache::keep(place, "the", id_list{1, 2});
    EXPECT_TRUE(word_cache::holds(place, "the"));
    EXPECT_FALSE(word_cache::holds(place, "thy"));
    EXPECT_FALSE(word_cache::holds(place, "th"));
    word_cache::keep(place, "thy", id_list{1, 2, 3, 4, 5, 6, 7});  // too many: the old one stays
    EXPECT_TRUE(word_cache::holds(place, "the"));
}

}  // namespace
