// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "darlcore/lease/requests.hpp"
#include "darlcore/units.hpp"

namespace darlcore::site {

/// A lease as its holder sees it.
/// Order: done_end <= trained <= planned <= lease.reserved_end (as replied) <= lease.end.
struct holding {
    lease::lease_record lease;
    position trained;              // end of what an applied step of this phase has finished
    position planned;              // end of what groups of this phase were given
    std::int64_t deadline_ms = 0;  // site time: sending time of the last renewing call + ttl
};

/// What a group asks of one lease before it may be read.
struct reservation {
    lease_seq lease;
    position through;
};

/// Part of a group: positions of one lease.
struct group_part {
    lease_seq lease;
    darlcore::span span;
};

/// The leases a site holds, in grant order, and what of them the running phase uses.
/// Promise: a group holds only positions below a *replied* reserved_end.
class holdings {
public:
    /// A lease as granted. Preconditions (asserted): not held yet.
    void add(const lease::lease_record& granted, std::int64_t sent_ms) {
        DARLCORE_ASSERT(find(granted.seq) == nullptr);
        held_.push_back({granted, granted.done_end, granted.done_end, sent_ms + granted.ttl_ms});
    }

    [[nodiscard]] bool empty() const { return held_.empty(); }
    [[nodiscard]] const std::vector<holding>& all() const { return held_; }

    [[nodiscard]] holding* find(lease_seq seq) {
        const auto it = std::find_if(held_.begin(), held_.end(), [&](const holding& h) { return h.lease.seq == seq; });
        return it == held_.end() ? nullptr : &*it;
    }

    /// Blocks that no group of this phase has been given yet.
    [[nodiscard]] std::uint64_t unplanned() const {
        std::uint64_t sum = 0;
        for (const auto& h : held_) sum += h.lease.end.count - h.planned.count;
        return sum;
    }

    /// A new phase begins: nothing is planned or trained; every lease starts at its done_end again.
    void begin_phase() {
        for (auto& h : held_) h.trained = h.planned = h.lease.done_end;
    }

    /// The next `want` unplanned positions, in grant order, as far as they lie in leases whose local deadline is ahead.
    [[nodiscard]] std::vector<reservation> next(std::uint64_t want, std::int64_t now_ms) const {
        std::vector<reservation> out;
        for (const auto& h : held_) {
            if (want == 0) break;
            if (h.deadline_ms <= now_ms) continue;
            const std::uint64_t take = std::min(want, h.lease.end.count - h.planned.count);
            if (take == 0) continue;
            out.push_back({h.lease.seq, position{h.planned.count + take}});
            want -= take;
        }
        return out;
    }

    [[nodiscard]] bool is_reserved(const reservation& r) {
        const holding* h = find(r.lease);
        return h != nullptr && h->lease.reserved_end >= r.through;
    }

    /// Watermarks as a reply says them. A lower end is obeyed; it never lies below what is reserved.
    void adopt(lease_seq seq, position reserved_end, position end) {
        holding* h = find(seq);
        if (h == nullptr) return;
        h->lease.reserved_end = std::max(h->lease.reserved_end, reserved_end);
        h->lease.end = std::max(std::min(h->lease.end, end), h->lease.reserved_end);
    }

    void renew(lease_seq seq, std::int64_t deadline_ms) {
        if (holding* h = find(seq); h != nullptr) h->deadline_ms = std::max(h->deadline_ms, deadline_ms);
    }

    /// Gives the reserved part of these wishes to a group: what a thief took meanwhile is left out.
    std::vector<group_part> take(const std::vector<reservation>& wishes) {
        std::vector<group_part> parts;
        for (const auto& wish : wishes) {
            holding* h = find(wish.lease);
            if (h == nullptr) continue;
            const position through = std::min(wish.through, h->lease.reserved_end);
            if (through <= h->planned) continue;
            parts.push_back({wish.lease, {h->planned, through}});
            h->planned = through;
        }
        return parts;
    }

    void mark_trained(const std::vector<group_part>& parts) {
        for (const auto& part : parts)
            if (holding* h = find(part.lease); h != nullptr) h->trained = std::max(h->trained, part.span.end);
    }

    /// Claims of everything trained in this phase.
    [[nodiscard]] std::vector<lease::claim> claims() const {
        std::vector<lease::claim> out;
        for (const auto& h : held_)
            if (h.trained > h.lease.done_end) out.push_back({lease::ref_to(h.lease), h.lease.done_end, h.trained});
        return out;
    }

    /// These claims left the leases (pledged, or returned to the pool by a rejection).
    void settle(const std::vector<lease::claim>& claims) {
        for (const auto& c : claims)
            if (holding* h = find(c.lease.seq); h != nullptr)
                h->lease.done_end = std::max(h->lease.done_end, c.through);
        std::erase_if(held_, [](const holding& h) { return h.lease.done_end >= h.lease.end; });
        begin_phase();
    }

    void drop(lease_seq seq) {
        std::erase_if(held_, [&](const holding& h) { return h.lease.seq == seq; });
    }
    void clear() { held_.clear(); }

private:
    std::vector<holding> held_;
};

}  // namespace darlcore::site
