// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace darlcore::lease {

/// Faults that tests plant on purpose, to see that they are found. Production tables have none of them and pay nothing.
enum class mutant : std::uint8_t {
    none,
    steal_from_done_end,
    reserve_replies_before_its_event,
    expiry_counts_unreserved,
    commit_through_end,
    pledge_from_not_compared,
    rejected_stays_pledged,
    stale_resolve_accepted,
    release_counts_attempt,
    deadline_reached_expires,
    renewal_shortens,
    superseded_may_heartbeat,
    token_not_compared,
    late_pledge_with_a_lost_block,
    pledged_blocks_expire,
    closed_commit_is_an_error,
    request_id_per_server,
    stale_grant_repeated,
    attempts_per_loss,
    advance_with_open_pledge,
    cursor_kept_over_epochs,
    take_stops_one_interval_early,
    rate_over_commit_gaps,
    complete_counts_pledged,
    double_free_merges,
    seq_restarts,
    hold_renewed_by_heartbeats,
    second_chance_for_ever,
};

/// The policy of production tables.
struct no_mutation {
    static constexpr bool planted(mutant) noexcept { return false; }
};

}  // namespace darlcore::lease
