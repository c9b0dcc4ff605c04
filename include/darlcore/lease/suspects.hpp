// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "darlcore/assert.hpp"
#include "darlcore/lease/cow.hpp"
#include "darlcore/lease/types.hpp"

namespace darlcore::lease {

/// Adds one loss by `site` to a run's history. `lost_run`: length of the reserved run it was part of.
inline void add_loss(suspect_run& r, site_number site, std::uint64_t lost_run, bool every_loss_is_a_site = false) {
    ++r.losses;
    r.lost_run = lost_run;
    const std::size_t kept = std::min<std::size_t>(r.distinct_sites, suspect_run::sites_max);
    const auto last = r.sites.begin() + static_cast<std::ptrdiff_t>(kept);
    const auto place = std::lower_bound(r.sites.begin(), last, site.count);
    const bool known = place != last && *place == site.count;
    if (every_loss_is_a_site && known) ++r.distinct_sites;
    if (known || kept == suspect_run::sites_max) return;
    std::move_backward(place, last, last + 1);
    *place = site.count;
    ++r.distinct_sites;
}

/// True where a history reaches the limits of the settings.
inline bool reaches_limit(const suspect_run& r, std::uint32_t max_attempts, std::uint32_t max_losses) {
    return max_attempts > 0 && (r.distinct_sites >= max_attempts || r.losses >= max_losses || r.last_chance);
}

/// The blocks that were lost in this epoch, as maximal runs of equal history, in position order.
/// Shapes: chunks of at most 32 runs. Complexity: search O(log n); a change of k runs O(k * chunk + n / chunk);
/// copies share chunks until they write.
class suspects {
public:
    [[nodiscard]] bool empty() const noexcept { return chunks_.empty(); }
    [[nodiscard]] std::uint64_t quarantined_blocks() const noexcept { return quarantined_; }

    /// The run that holds p or the first one behind it; null where there is none.
    [[nodiscard]] const suspect_run* at_or_after(position p) const {
        const std::size_t c = chunk_for(p);
        if (c == chunks_.size()) return nullptr;
        const chunk& k = *chunks_[c].data.get();
        return std::partition_point(k.begin(), k.end(), [&](const suspect_run& r) { return r.span.end <= p; });
    }
    [[nodiscard]] bool touches(span s) const {
        if (empty()) return false;
        const suspect_run* const r = at_or_after(s.start);
        return r != nullptr && r->span.start < s.end;
    }
    template <class Fn>
    void for_each(Fn&& fn) const {
        for (const auto& c : chunks_)
            for (const suspect_run& r : *c.data.get()) fn(r);
    }
    template <class Fn>
    void for_overlaps(span s, Fn&& fn) const {
        if (s.empty()) return;
        for (const suspect_run* r = at_or_after(s.start); r != nullptr && r->span.start < s.end;
             r = at_or_after(r->span.end))
            fn(*r);
    }
    /// Calls fn(run) for the pieces of s in order; pieces without a history come as a run without losses.
    template <class Fn>
    void for_pieces(span s, Fn&& fn) const {
        position at = s.start;
        for_overlaps(s, [&](const suspect_run& r) {
            if (at < r.span.start) fn(bare({at, r.span.start}));
            suspect_run piece = r;
            piece.span = {std::max(at, r.span.start), std::min(s.end, r.span.end)};
            at = piece.span.end;
            fn(piece);
        });
        if (at < s.end) fn(bare({at, s.end}));
    }

    /// Replaces the history of every piece of s by change(piece).
    template <class Fn>
    void change(span s, Fn&& change) {
        std::vector<suspect_run> pieces;
        for_pieces(s, [&](const suspect_run& piece) {
            pieces.push_back(piece);
            change(pieces.back());
        });
        erase(s);
        for (const suspect_run& piece : pieces) insert(piece);
    }
    /// Forgets the history of s.
    void erase(span s) {
        if (!touches(s)) return;
        std::vector<suspect_run> kept;
        std::vector<position> gone;
        for_overlaps(s, [&](const suspect_run& r) {
            gone.push_back(r.span.start);
            if (r.span.start < s.start) kept.push_back(cut(r, {r.span.start, s.start}));
            if (s.end < r.span.end) kept.push_back(cut(r, {s.end, r.span.end}));
        });
        for (const position start : gone) remove(start);
        for (const suspect_run& r : kept) put(r);
    }
    /// Adds a run behind all others, as an exported state lists them.
    void append(const suspect_run& r) { put(r); }
    void clear() {
        chunks_.clear();
        quarantined_ = 0;
    }

private:
    struct chunk {
        static constexpr std::uint32_t room = 32;
        std::uint32_t size = 0;
        std::array<suspect_run, room> runs;
        [[nodiscard]] const suspect_run* begin() const { return runs.data(); }
        [[nodiscard]] const suspect_run* end() const { return runs.data() + size; }
    };
    struct chunk_ref {
        position end;  // of its last run
        cow_ptr<chunk> data;
    };

    static suspect_run bare(span s) {
        suspect_run r;
        r.span = s;
        return r;
    }
    static suspect_run cut(const suspect_run& r, span s) {
        suspect_run piece = r;
        piece.span = s;
        return piece;
    }
    static bool same_history(suspect_run a, const suspect_run& b) {
        a.span = b.span;
        return a == b;
    }

    [[nodiscard]] std::size_t chunk_for(position p) const {
        const auto it =
            std::partition_point(chunks_.begin(), chunks_.end(), [&](const chunk_ref& c) { return c.end <= p; });
        return static_cast<std::size_t>(it - chunks_.begin());
    }

    // Joins r with equal neighbours, then puts it.
    void insert(suspect_run r) {
        if (const suspect_run* const right = at_or_after(r.span.end);
            right != nullptr && right->span.start == r.span.end && same_history(*right, r)) {
            const span joined{r.span.start, right->span.end};
            remove(right->span.start);
            r.span = joined;
        }
        if (r.span.start.count > 0) {
            const suspect_run* const left = at_or_after(position{r.span.start.count - 1});
            if (left != nullptr && left->span.end == r.span.start && same_history(*left, r)) {
                const span joined{left->span.start, r.span.end};
                remove(left->span.start);
                r.span = joined;
            }
        }
        put(r);
    }
    void put(const suspect_run& r) {
        if (r.quarantined) quarantined_ += r.span.size();
        std::size_t c = chunk_for(r.span.start);
        if (c == chunks_.size()) {
            if (chunks_.empty()) chunks_.push_back({});
            c = chunks_.size() - 1;
        }
        if (chunk& full = chunks_[c].data.write(); full.size == chunk::room) {
            split(c);
            if (chunks_[c].end <= r.span.start) ++c;
        }
        chunk& k = chunks_[c].data.write();
        auto* const place = std::partition_point(k.runs.data(), k.runs.data() + k.size,
                                                 [&](const suspect_run& x) { return x.span.start < r.span.start; });
        std::move_backward(place, k.runs.data() + k.size, k.runs.data() + k.size + 1);
        *place = r;
        ++k.size;
        chunks_[c].end = k.runs[k.size - 1].span.end;
    }
    void split(std::size_t c) {
        chunk_ref upper;
        chunk& low = chunks_[c].data.write();
        chunk& high = upper.data.write();
        constexpr std::uint32_t half = chunk::room / 2;
        std::copy(low.runs.begin() + half, low.runs.end(), high.runs.begin());
        high.size = chunk::room - half;
        low.size = half;
        upper.end = chunks_[c].end;
        chunks_[c].end = low.runs[half - 1].span.end;
        chunks_.insert(chunks_.begin() + static_cast<std::ptrdiff_t>(c) + 1, std::move(upper));
    }
    void remove(position start) {
        const std::size_t c = chunk_for(start);
        DARLCORE_ASSERT(c < chunks_.size());
        chunk& k = chunks_[c].data.write();
        auto* const place = std::partition_point(k.runs.data(), k.runs.data() + k.size,
                                                 [&](const suspect_run& x) { return x.span.start < start; });
        DARLCORE_ASSERT(place != k.end() && place->span.start == start);
        if (place->quarantined) quarantined_ -= place->span.size();
        std::move(place + 1, k.runs.data() + k.size, place);
        if (--k.size == 0)
            chunks_.erase(chunks_.begin() + static_cast<std::ptrdiff_t>(c));
        else
            chunks_[c].end = k.runs[k.size - 1].span.end;
    }

    std::vector<chunk_ref> chunks_;
    std::uint64_t quarantined_ = 0;
};

}  // namespace darlcore::lease
