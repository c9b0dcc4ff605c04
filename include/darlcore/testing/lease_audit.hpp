// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "darlcore/lease/requests.hpp"

namespace darlcore::testing {

/// The readers' audit: what the sites could have read by the replies they got, against what the merges took in; and the
/// books of each site by the event stream. It believes neither the table's states nor its counters.
/// Promises checked: a block is merged at most once per epoch, and exactly once when the epoch is complete, less what
/// is quarantined; nothing is merged that was not replied as reserved; no reply lowers a reservation; granted = merged
/// or pledged + returned + still held + moved by theft, per site.
class lease_audit {
public:
    explicit lease_audit(std::uint64_t num_blocks) : merged_(num_blocks) {}

    /// What a reply lets its reader do.
    template <class Request, class Outcome, class Table>
    std::optional<std::string> reply(const Request& request, const Outcome& out, const Table& table) {
        using namespace darlcore::lease;
        if (!out.ok()) return std::nullopt;
        if constexpr (std::is_same_v<Request, acquire>) {
            for (const auto& l : out.reply().leases)
                if (auto wrong = may_read(l.seq, l.reserved_end)) return wrong;
            if (out.reply().status == acquire_status::epoch_complete && out.reply().reason == acquire_reason::complete)
                return check_complete(out.reply().quarantined);
        } else if constexpr (std::is_same_v<Request, reserve>) {
            return may_read(request.lease.seq, out.reply().reserved_end);
        } else if constexpr (std::is_same_v<Request, heartbeat>) {
            for (const auto& b : out.reply().leases)
                if (b.valid)
                    if (auto wrong = may_read(b.lease.seq, b.reserved_end)) return wrong;
        } else if constexpr (std::is_same_v<Request, pledge>) {
            if (out.reply().repeated || out.reply().status != contribution_status::pledged) return std::nullopt;
            auto& spans = pledged_[request.id.text];
            spans.clear();
            for (const auto& c : request.claims) {
                if (c.through > readable_[c.lease.seq.count])
                    return "a contribution holds blocks nobody was told to read";
                spans.push_back({c.from, c.through});
            }
        } else if constexpr (std::is_same_v<Request, resolve>) {
            if (out.reply().repeated) return std::nullopt;
            for (const auto& id : request.merged)
                for (const span s : pledged_[id.text])
                    if (auto wrong = count(s)) return wrong;
        } else if constexpr (std::is_same_v<Request, commit>) {
            position& done = committed_[request.lease.seq.count];
            const position from = std::max(done, request.lease.start);
            if (out.reply().committed_end <= from) return std::nullopt;
            done = out.reply().committed_end;
            if (done > readable_[request.lease.seq.count]) return "a commit holds blocks nobody was told to read";
            return count({from, done});
        }
        (void)table;
        return std::nullopt;
    }

    /// The books of each site.
    std::optional<std::string> event(const lease::event& e) {
        using namespace darlcore::lease::events;
        if (const auto* g = std::get_if<granted>(&e)) {
            for (const auto& l : g->leases) {
                if (l.seq.count <= last_seq_) return "a lease sequence did not increase";
                last_seq_ = l.seq.count;
                open_[l.seq.count] = {l.site.count, l.at_risk().size()};
                books_[l.site.count].granted += l.at_risk().size();
            }
            for (const auto& s : g->steals) move(s.victim, s.old_end.count - s.new_end.count, &book::moved);
        } else if (const auto* c = std::get_if<committed>(&e)) {
            if (!c->late) move(c->lease, c->through.count - c->from.count, &book::counted);
        } else if (const auto* p = std::get_if<pledged>(&e)) {
            for (const auto& s : p->spans)
                if (!s.late) move(s.lease, s.span.size(), &book::counted);
        } else if (const auto* r = std::get_if<contribution_rejected>(&e)) {
            for (const auto& s : r->spans)
                if (!s.late) move(s.lease, s.span.size(), &book::returned);
        } else if (const auto* back = std::get_if<released>(&e)) {
            for (const auto& l : back->leases) move(l.lease, l.old_end.count - l.from.count, &book::returned);
        } else if (const auto* lost = std::get_if<expired>(&e)) {
            for (const auto& l : lost->lost) move(l.lease, l.end.count - l.done_end.count, &book::returned);
        } else if (const auto* old = std::get_if<superseded>(&e)) {
            for (const auto& l : old->lost) move(l.lease, l.end.count - l.done_end.count, &book::returned);
        } else if (std::holds_alternative<epoch_advanced>(e)) {
            std::fill(merged_.begin(), merged_.end(), std::uint8_t{0});
            for (auto& [seq, held] : open_) books_[held.site].returned += held.blocks;
            open_.clear();
        }
        return check_books();
    }

private:
    struct book {
        std::uint64_t granted = 0, counted = 0, returned = 0, moved = 0;
    };
    struct held_blocks {
        std::uint32_t site = 0;
        std::uint64_t blocks = 0;
    };

    std::optional<std::string> may_read(lease_seq seq, position reserved_end) {
        position& known = readable_[seq.count];
        if (reserved_end < known) return "a reply lowered a reservation";
        known = reserved_end;
        return std::nullopt;
    }
    std::optional<std::string> count(span s) {
        for (position p = s.start; p < s.end; ++p.count)
            if (++merged_[p.count] > 1) return "block " + std::to_string(p.count) + " reached the model twice";
        return std::nullopt;
    }
    std::optional<std::string> check_complete(const std::vector<span>& quarantined) const {
        for (std::uint64_t p = 0; p < merged_.size(); ++p) {
            const bool aside =
                std::any_of(quarantined.begin(), quarantined.end(), [&](span s) { return s.contains(position{p}); });
            if (merged_[p] != (aside ? 0 : 1))
                return "complete, but block " + std::to_string(p) + " was merged " + std::to_string(merged_[p]) +
                       " times";
        }
        return std::nullopt;
    }
    void move(lease_seq seq, std::uint64_t blocks, std::uint64_t book::*column) {
        held_blocks& h = open_[seq.count];
        h.blocks -= blocks;
        books_[h.site].*column += blocks;
    }
    std::optional<std::string> check_books() const {
        std::map<std::uint32_t, std::uint64_t> held;
        for (const auto& [seq, h] : open_) held[h.site] += h.blocks;
        for (const auto& [site, b] : books_) {
            const auto it = held.find(site);
            const std::uint64_t still = it == held.end() ? 0 : it->second;
            if (b.granted != b.counted + b.returned + b.moved + still) return "the books of a site do not add up";
        }
        return std::nullopt;
    }

    std::vector<std::uint8_t> merged_;
    std::map<std::uint64_t, position> readable_;   // by lease
    std::map<std::uint64_t, position> committed_;  // by lease
    std::map<std::string, std::vector<span>> pledged_;
    std::map<std::uint64_t, held_blocks> open_;
    std::map<std::uint32_t, book> books_;
    std::uint64_t last_seq_ = 0;
};

}  // namespace darlcore::testing
