// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "darlcore/lease/requests.hpp"

namespace darlcore::testing {

/// One step of a random history; what it means depends on where the table stands, so that any bytes are a history.
struct lease_command {
    std::uint8_t kind = 0;
    std::uint8_t site = 0;
    std::uint8_t pick = 0;     // which lease, span count or time step
    std::uint8_t flavour = 0;  // 0..199 a correct call, above: stale, foreign, repeated, malformed
    std::uint16_t amount = 0;
};

/// What happened in a history; tests print how often.
struct lease_history_classes {
    bool steal_with_reserve_between = false;
    bool late_work = false;
    bool takeover_with_open_pledge = false;
    bool rejected_contribution = false;
    bool epoch_end_by_quarantine = false;
    bool replayed_request = false;
    bool second_chance = false;
    bool epoch_advanced = false;
    bool finished = false;
    std::array<bool, 256> refusals{};
    std::set<std::uint64_t> reserved;  // leases of which something was reserved

    /// Takes in what one call did.
    template <class Reply, class Table>
    void note(const lease::outcome<Reply>& out, const Table& table) {
        for (const auto& e : out.events) {
            if (const auto* g = std::get_if<lease::events::granted>(&e))
                for (const auto& piece : g->steals)
                    steal_with_reserve_between = steal_with_reserve_between || reserved.count(piece.victim.count) != 0;
            if (const auto* r = std::get_if<lease::events::reserved>(&e)) reserved.insert(r->lease.count);
            if (const auto* p = std::get_if<lease::events::pledged>(&e))
                for (const auto& s : p->spans) late_work = late_work || s.late;
            if (const auto* c = std::get_if<lease::events::committed>(&e)) late_work = late_work || c->late;
            if (const auto* s = std::get_if<lease::events::superseded>(&e))
                takeover_with_open_pledge = takeover_with_open_pledge || table.pledge_of(s->site) != nullptr;
            if (const auto* m = std::get_if<lease::events::resolved>(&e))
                rejected_contribution = rejected_contribution || !m->rejected.empty();
            if (std::holds_alternative<lease::events::contribution_rejected>(e)) rejected_contribution = true;
            if (std::holds_alternative<lease::events::requeued>(e)) second_chance = true;
        }
        if constexpr (std::is_same_v<Reply, lease::acquire_reply>)
            if (out.ok() && out.reply().status == lease::acquire_status::epoch_complete) {
                finished = true;
                if (!out.reply().quarantined.empty()) epoch_end_by_quarantine = true;
            }
    }
};

template <class Reply>
std::string describe_reply(const Reply&) {
    return "a reply";
}
inline std::string describe_reply(const lease::acquire_reply& r) {
    std::string text = "status " + std::to_string(static_cast<int>(r.status)) + ", reason " +
                       std::to_string(static_cast<int>(r.reason)) + ", retry " + std::to_string(r.retry_after_ms) +
                       " ms, held " + std::to_string(r.outstanding_mine) + "+" + std::to_string(r.outstanding_others) +
                       ", pledged " + std::to_string(r.pledged_mine) + "+" + std::to_string(r.pledged_others);
    for (const auto& l : r.leases)
        text += ", " + lease_id(l) + " [" + std::to_string(l.done_end.count) + ", " +
                std::to_string(l.reserved_end.count) + ", " + std::to_string(l.end.count) + ") until " +
                std::to_string(l.deadline.ms) + " hold " + std::to_string(l.hold_deadline.ms);
    return text;
}

/// True where something other than the passage of time changed the state.
inline bool acted(const std::vector<lease::event>& events) {
    return std::any_of(events.begin(), events.end(),
                       [](const auto& e) { return !std::holds_alternative<lease::events::expired>(e); });
}

}  // namespace darlcore::testing
