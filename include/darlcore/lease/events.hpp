// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "darlcore/lease/types.hpp"

// What the journal stores and replay applies. Each event leads by itself from one valid state to another; replaying it
// decides nothing. The time of an event is that of its journal record and is given to replay beside it.
namespace darlcore::lease::events {

/// Positions that reached a limit of losses with this event and are set aside. The sites are those that lost them.
struct quarantined_run {
    darlcore::span span;
    std::uint32_t losses = 0;
    std::vector<site_number> sites;
    friend bool operator==(const quarantined_run&, const quarantined_run&) = default;
};

/// A lease that ended without its holder: [done_end, end) goes back, [done_end, reserved_end) counts as lost.
struct lost_lease {
    lease_seq lease;
    site_number site;
    position done_end;
    position reserved_end;
    position end;
    friend bool operator==(const lost_lease&, const lost_lease&) = default;
};

/// A new site (its number is the next free one), or the same process with new ranks.
struct registered {
    site_number site;
    site_id name;
    darlcore::incarnation incarnation;
    site_mode mode = site_mode::full;
    std::uint32_t ranks = 0;
    friend bool operator==(const registered&, const registered&) = default;
};

/// Another process of a known site takes its place; what the old one held and had not pledged goes back.
struct superseded {
    site_number site;
    darlcore::incarnation before;
    darlcore::incarnation after;
    site_mode mode = site_mode::full;
    std::uint32_t ranks = 0;
    std::vector<lost_lease> lost;
    std::vector<quarantined_run> quarantined;
    friend bool operator==(const superseded&, const superseded&) = default;
};

/// The corpus digest of the first site that names one; later ones must agree.
struct corpus_pinned {
    std::string corpus;
    friend bool operator==(const corpus_pinned&, const corpus_pinned&) = default;
};

/// The end of an open lease moves down: its unreserved tail becomes another lease of the same event.
struct stolen_tail {
    lease_seq victim;
    position old_end;
    position new_end;
    friend bool operator==(const stolen_tail&, const stolen_tail&) = default;
};

/// One acquire answered with leases. `request_id` may be empty. Lease sequences are consecutive.
struct granted {
    site_number site;
    std::string request_id;
    std::vector<lease_record> leases;
    std::vector<stolen_tail> steals;  // steals[i] feeds leases[i] where not empty; either all leases are stolen or none
    position cursor;                  // of the site, afterwards
    friend bool operator==(const granted&, const granted&) = default;
};

struct reserved {
    site_number site;
    lease_seq lease;
    position old_reserved_end;
    position reserved_end;
    ledger_time hold_deadline;
    friend bool operator==(const reserved&, const reserved&) = default;
};

/// Policy on_checkpoint. late: the lease was already closed by expiry or takeover.
struct committed {
    site_number site;
    lease_seq lease;
    position from;
    position through;
    bool late = false;
    ledger_time hold_deadline;
    friend bool operator==(const committed&, const committed&) = default;
};

/// Policy on_merge: all spans at once.
struct pledged {
    site_number site;
    contribution_id id;
    generation base;
    std::vector<pledged_span> spans;
    ledger_time hold_deadline;  // of what is left of the leases named
    friend bool operator==(const pledged&, const pledged&) = default;
};

/// A contribution with a content fault, found when it came: its blocks leave their leases and go back.
struct contribution_rejected {
    site_number site;
    contribution_id id;
    generation base;
    errc reason = errc::not_finite;
    std::vector<pledged_span> spans;
    std::vector<quarantined_run> quarantined;
    ledger_time hold_deadline;
    friend bool operator==(const contribution_rejected&, const contribution_rejected&) = default;
};

/// A pledge that a merge turned down.
struct turned_down {
    contribution_id id;
    errc reason = errc::not_finite;
    friend bool operator==(const turned_down&, const turned_down&) = default;
};

/// The merge of generation `base` into the next one, as far as leases are concerned: part of the merge's own record.
/// With `merged` empty the generation stays and only the rejections happen.
struct resolved {
    generation base;
    std::vector<contribution_id> merged;
    std::vector<turned_down> rejected;
    std::vector<quarantined_run> quarantined;
    friend bool operator==(const resolved&, const resolved&) = default;
};

struct released_lease {
    lease_seq lease;
    position from;     // [from, old_end) goes back
    position old_end;  // closed when from = done_end
    friend bool operator==(const released_lease&, const released_lease&) = default;
};

struct released {
    site_number site;
    std::vector<released_lease> leases;
    bool all = false;  // also ends the site's liveness until its next call
    friend bool operator==(const released&, const released&) = default;
};

struct expired {
    std::vector<lost_lease> lost;
    std::vector<quarantined_run> quarantined;
    friend bool operator==(const expired&, const expired&) = default;
};

/// The second chance: everything quarantined goes back once.
struct requeued {
    std::vector<darlcore::span> spans;
    friend bool operator==(const requeued&, const requeued&) = default;
};

/// A fresh epoch; `dropped` names the leases that a forced advance closed.
struct epoch_advanced {
    epoch_index from;
    epoch_index to;
    bool forced = false;
    std::vector<lease_seq> dropped;
    friend bool operator==(const epoch_advanced&, const epoch_advanced&) = default;
};

struct renewed_lease {
    lease_seq lease;
    ledger_time deadline;
    std::int64_t ttl_ms = 0;
    friend bool operator==(const renewed_lease&, const renewed_lease&) = default;
};

/// What a site was last known to say of itself.
struct sighting {
    site_number site;
    ledger_time last_seen;
    std::int64_t macro_step_ms = 0;  // 0: not reported
    std::int64_t rtt_ms = 0;
    friend bool operator==(const sighting&, const sighting&) = default;
};

/// Deadlines renewed and sites seen since the last tick: heartbeats themselves are not journaled.
struct tick {
    std::vector<renewed_lease> leases;
    std::vector<sighting> sites;
    friend bool operator==(const tick&, const tick&) = default;
};

/// A server start. `extended` names the leases that the grace period moved.
struct term_started {
    darlcore::term term;
    std::vector<renewed_lease> extended;
    friend bool operator==(const term_started&, const term_started&) = default;
};

/// The run went back to an older model, which is generation `to` from now on. Nothing that was given out before counts
/// any more: leases end, pledged blocks are free, no process speaks for a site until one registers, and sequences go on
/// at `next_seq`, above all that were ever given out.
struct rolled_back {
    generation to;
    std::uint64_t next_seq = 1;
    friend bool operator==(const rolled_back&, const rolled_back&) = default;
};

}  // namespace darlcore::lease::events

namespace darlcore::lease {

using event = std::variant<events::registered, events::superseded, events::corpus_pinned, events::granted,
                           events::reserved, events::committed, events::pledged, events::contribution_rejected,
                           events::resolved, events::released, events::expired, events::requeued,
                           events::epoch_advanced, events::tick, events::term_started, events::rolled_back>;

}  // namespace darlcore::lease
