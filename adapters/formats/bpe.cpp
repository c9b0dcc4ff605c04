// SPDX-License-Identifier: Apache-2.0
#include "adapters/formats/bpe.hpp"

#include <algorithm>
#include <bit>
#include <queue>

#include "darlcore/assert.hpp"

namespace darlcore::formats {

namespace {

constexpr std::size_t short_bytes_max = 48;

std::uint64_t pair_of(std::uint32_t left, std::uint32_t right) { return std::uint64_t{left} << 32U | right; }

std::uint64_t spread(std::uint64_t pair) {
    pair *= 0x9e3779b97f4a7c15ULL;
    return pair ^ pair >> 32U;
}

// A pair of neighbours that may be joined; stale when the ids at its place have changed since.
struct candidate {
    std::uint32_t rank = 0;
    std::uint32_t at = 0;
    std::uint64_t pair = 0;
    std::uint32_t joined = 0;
    friend bool operator<(const candidate& a, const candidate& b) {  // the queue gives the largest first
        return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
    }
};

struct symbol {
    std::uint32_t id = bpe::no_id;  // no_id: joined to its left neighbour
    std::uint32_t previous = bpe::no_id;
    std::uint32_t next = bpe::no_id;
};

}  // namespace

bpe::bpe(const std::array<std::uint32_t, 256>& byte_ids, std::span<const merge> merges) : byte_ids_(byte_ids) {
    slots_.resize(std::bit_ceil(2 * merges.size() + 1));
    mask_ = slots_.size() - 1;
    for (std::size_t rank = 0; rank < merges.size(); ++rank) {
        const merge& m = merges[rank];
        const std::uint64_t pair = pair_of(m.left, m.right);
        std::uint64_t at = spread(pair) & mask_;
        while (slots_[at].rank != no_id && slots_[at].pair != pair) at = (at + 1) & mask_;
        slots_[at] = slot{pair, static_cast<std::uint32_t>(rank), m.joined};
    }
}

const bpe::slot& bpe::find(std::uint32_t left, std::uint32_t right) const {
    const std::uint64_t pair = pair_of(left, right);
    std::uint64_t at = spread(pair) & mask_;
    while (slots_[at].rank != no_id && slots_[at].pair != pair) at = (at + 1) & mask_;
    return slots_[at];
}

void bpe::encode(std::string_view word, std::vector<std::uint32_t>& ids) const {
    if (word.size() <= short_bytes_max)
        encode_short(word, ids);
    else
        encode_long(word, ids);
}

void bpe::encode_short(std::string_view word, std::vector<std::uint32_t>& ids) const {
    std::array<std::uint32_t, short_bytes_max> id{};
    std::array<const slot*, short_bytes_max> pair{};  // pair[i]: of id[i] and id[i + 1]
    std::size_t count = word.size();
    for (std::size_t i = 0; i < count; ++i) id[i] = byte_ids_[static_cast<unsigned char>(word[i])];
    for (std::size_t i = 0; i + 1 < count; ++i) pair[i] = &find(id[i], id[i + 1]);
    while (count > 1) {
        std::size_t best = 0;
        for (std::size_t i = 1; i + 1 < count; ++i)
            if (pair[i]->rank < pair[best]->rank) best = i;
        if (pair[best]->rank == no_id) break;
        id[best] = pair[best]->joined;
        std::copy(id.begin() + static_cast<std::ptrdiff_t>(best) + 2, id.begin() + static_cast<std::ptrdiff_t>(count),
                  id.begin() + static_cast<std::ptrdiff_t>(best) + 1);
        std::copy(pair.begin() + static_cast<std::ptrdiff_t>(best) + 1,
                  pair.begin() + static_cast<std::ptrdiff_t>(count) - 1,
                  pair.begin() + static_cast<std::ptrdiff_t>(best));
        --count;
        if (best > 0) pair[best - 1] = &find(id[best - 1], id[best]);
        if (best + 1 < count) pair[best] = &find(id[best], id[best + 1]);
    }
    ids.insert(ids.end(), id.begin(), id.begin() + static_cast<std::ptrdiff_t>(count));
}

void bpe::encode_long(std::string_view word, std::vector<std::uint32_t>& ids) const {
    DARLCORE_ASSERT_CMP(word.size(), <, no_id);
    std::vector<symbol> symbols(word.size());
    std::priority_queue<candidate> queue;
    const auto offer = [&](std::uint32_t left) {
        const std::uint32_t right = symbols[left].next;
        if (right == no_id) return;
        const slot& s = find(symbols[left].id, symbols[right].id);
        if (s.rank != no_id) queue.push({s.rank, left, s.pair, s.joined});
    };
    const auto count = static_cast<std::uint32_t>(word.size());
    for (std::uint32_t i = 0; i < count; ++i)
        symbols[i] = {byte_ids_[static_cast<unsigned char>(word[i])], i == 0 ? no_id : i - 1,
                      i + 1 == count ? no_id : i + 1};
    for (std::uint32_t i = 0; i < count; ++i) offer(i);
    while (!queue.empty()) {
        const candidate c = queue.top();
        queue.pop();
        symbol& left = symbols[c.at];
        if (left.id == no_id || left.next == no_id || pair_of(left.id, symbols[left.next].id) != c.pair) continue;
        symbol& right = symbols[left.next];
        left.id = c.joined;
        left.next = right.next;
        right.id = no_id;
        if (left.next != no_id) symbols[left.next].previous = c.at;
        if (left.previous != no_id) offer(left.previous);
        offer(c.at);
    }
    for (const symbol& s : symbols)
        if (s.id != no_id) ids.push_back(s.id);
}

}  // namespace darlcore::formats
