// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "darlcore/lease/events.hpp"
#include "darlcore/lease/types.hpp"

// What can be asked of a lease table, and what it answers.
namespace darlcore::lease {

/// A refusal is a normal answer: nothing changed except that expired leases were closed.
/// `context` is a sentence that names the fix and never echoes free text of the caller.
struct refusal {
    errc code = errc::bad_request;
    std::string context;
    std::int64_t retry_after_ms = 0;                   // > 0: worth asking again then
    std::optional<darlcore::incarnation> incarnation;  // cluster_busy: the process that holds the id
    friend bool operator==(const refusal&, const refusal&) = default;
};

/// Who calls. A legacy client sends no incarnation; then it is not checked.
struct caller {
    site_id site;
    darlcore::incarnation incarnation;
    friend bool operator==(const caller&, const caller&) = default;
};

/// What a site says of itself. Units: seconds. NaN, infinite and negative values count as 0 = not said.
struct site_report {
    double ttl_s = 0;         // > 0 replaces the formula, clamped the same
    double macro_step_s = 0;  // of its last phase
    double rtt_s = 0;
};

// --- requests ---------------------------------------------------------------------------------------------------

struct register_site {
    caller who;
    site_mode mode = site_mode::full;
    std::string space_digest;  // empty: not sent (legacy)
    std::string corpus;        // empty: not sent
    std::uint32_t ranks = 0;
    std::optional<darlcore::incarnation> take_over;  // the process to replace, as cluster_busy named it
};

struct acquire {
    caller who;
    std::uint64_t want = 1;
    std::uint32_t max_spans = 4;  // 1..64
    site_report report;
    std::string request_id;  // <= 64 bytes; empty: not repeatable
};

struct reserve {
    caller who;
    lease_ref lease;
    position through;
};

struct beat {
    lease_ref lease;
    std::optional<position> trained;
    std::optional<position> reserve_through;
};

struct heartbeat {
    caller who;
    std::vector<beat> leases;  // <= 256
    site_report report;
};

/// Policy on_checkpoint.
struct commit {
    caller who;
    lease_ref lease;
    position through;
};

struct claim {
    lease_ref lease;
    position from;     // must be the ledger's done_end
    position through;  // trained watermark
};

/// Policy on_merge. `fault`: a content fault found by the guards; the blocks then go back instead.
struct pledge {
    caller who;
    contribution_id id;
    generation base;
    std::vector<claim> claims;
    std::optional<errc> fault;
};

/// The outcome of the merge of `base`. With anything merged every pledge must be named, as the generation moves on.
struct resolve {
    generation base;
    std::vector<contribution_id> merged;
    std::vector<events::turned_down> rejected;
};

struct release {
    caller who;
    std::optional<lease_ref> lease;  // nothing: all
    bool keep_reserved = false;
};

struct expire {};

struct advance_epoch {
    std::optional<epoch_index> from;  // nothing: the current one. Not the current one: already done
    bool force = false;
};

struct tick {};

struct restart {
    darlcore::term term;
};

// --- replies ----------------------------------------------------------------------------------------------------

struct registered_reply {
    site_number site;
    darlcore::incarnation incarnation;
    std::uint32_t incarnations = 1;  // processes this site has had
    std::uint64_t committed = 0;     // blocks of the current epoch, all sites
    epoch_index epoch;
    bool superseded = false;
    friend bool operator==(const registered_reply&, const registered_reply&) = default;
};

enum class acquire_status : std::uint8_t { granted, drain, epoch_complete };
/// Why: pool_empty, pledges_outstanding (only merges can free or end it), answered_before (its leases are gone),
/// after_others (gives back too often), quarantine, complete, finish_phase (legacy: commit what you hold).
enum class acquire_reason : std::uint8_t {
    none,
    pool_empty,
    pledges_outstanding,
    answered_before,
    after_others,
    complete,
    finish_phase
};

struct acquire_reply {
    acquire_status status = acquire_status::drain;
    acquire_reason reason = acquire_reason::none;
    std::vector<lease_record> leases;
    std::int64_t retry_after_ms = 0;
    std::uint64_t outstanding_mine = 0;
    std::uint64_t outstanding_others = 0;
    std::uint64_t pledged_mine = 0;
    std::uint64_t pledged_others = 0;
    epoch_index epoch;
    block_counts counts;            // with epoch_complete
    std::vector<span> quarantined;  // with epoch_complete
    friend bool operator==(const acquire_reply&, const acquire_reply&) = default;
};

/// The trainer may read positions below reserved_end only.
struct reserve_reply {
    position reserved_end;
    position end;
    friend bool operator==(const reserve_reply&, const reserve_reply&) = default;
};

struct beat_reply {
    lease_ref lease;
    bool valid = false;
    errc reason = errc::lease_gone;  // when not valid: lease_gone, not_owner or fenced
    position end;
    position committed_end;
    position reserved_end;
    friend bool operator==(const beat_reply&, const beat_reply&) = default;
};

struct heartbeat_reply {
    std::int64_t ttl_ms = 0;
    std::vector<beat_reply> leases;  // one per lease named, in that order
    bool epoch_complete = false;
    friend bool operator==(const heartbeat_reply&, const heartbeat_reply&) = default;
};

struct commit_reply {
    position committed_end;
    bool lease_closed = false;
    bool late = false;
    std::uint64_t committed = 0;  // blocks of the current epoch, all sites
    bool epoch_complete = false;
    friend bool operator==(const commit_reply&, const commit_reply&) = default;
};

/// The same for a repeated id, then with the outcome of its merge.
struct pledge_reply {
    contribution_status status = contribution_status::pledged;
    std::uint64_t blocks = 0;
    generation base;
    errc reason = errc::not_finite;  // when rejected
    bool repeated = false;
    friend bool operator==(const pledge_reply&, const pledge_reply&) = default;
};

struct resolve_reply {
    darlcore::generation generation;  // current afterwards
    std::uint64_t committed = 0;      // blocks this merge committed
    std::uint64_t returned = 0;       // blocks that went back or were set aside
    bool repeated = false;
    friend bool operator==(const resolve_reply&, const resolve_reply&) = default;
};

struct release_reply {
    std::uint64_t released = 0;  // blocks
    friend bool operator==(const release_reply&, const release_reply&) = default;
};

struct expire_reply {
    std::uint64_t leases = 0;
    friend bool operator==(const expire_reply&, const expire_reply&) = default;
};

struct advance_reply {
    bool advanced = false;
    epoch_index epoch;
    friend bool operator==(const advance_reply&, const advance_reply&) = default;
};

struct tick_reply {
    friend bool operator==(const tick_reply&, const tick_reply&) = default;
};

struct restart_reply {
    std::uint64_t extended = 0;  // leases
    friend bool operator==(const restart_reply&, const restart_reply&) = default;
};

/// Reply or refusal, and the events to make durable before it leaves (in order; most inputs give none or one, an
/// `expired` may come first).
template <class Reply>
struct outcome {
    std::variant<Reply, refusal> answer;
    std::vector<event> events;

    [[nodiscard]] bool ok() const noexcept { return answer.index() == 0; }
    /// Preconditions (asserted): ok(). Of a temporary it gives a value, so that loops over its lists are safe.
    [[nodiscard]] const Reply& reply() const& {
        DARLCORE_ASSERT(ok());
        return *std::get_if<0>(&answer);
    }
    [[nodiscard]] Reply reply() && {
        DARLCORE_ASSERT(ok());
        return std::move(*std::get_if<0>(&answer));
    }
    /// Preconditions (asserted): !ok().
    [[nodiscard]] const refusal& refused() const& {
        DARLCORE_ASSERT(!ok());
        return *std::get_if<1>(&answer);
    }
    [[nodiscard]] refusal refused() && {
        DARLCORE_ASSERT(!ok());
        return std::move(*std::get_if<1>(&answer));
    }
};

template <class Request>
struct reply_of;
template <>
struct reply_of<register_site> {
    using type = registered_reply;
};
template <>
struct reply_of<acquire> {
    using type = acquire_reply;
};
template <>
struct reply_of<reserve> {
    using type = reserve_reply;
};
template <>
struct reply_of<heartbeat> {
    using type = heartbeat_reply;
};
template <>
struct reply_of<commit> {
    using type = commit_reply;
};
template <>
struct reply_of<pledge> {
    using type = pledge_reply;
};
template <>
struct reply_of<resolve> {
    using type = resolve_reply;
};
template <>
struct reply_of<release> {
    using type = release_reply;
};
template <>
struct reply_of<expire> {
    using type = expire_reply;
};
template <>
struct reply_of<advance_epoch> {
    using type = advance_reply;
};
template <>
struct reply_of<tick> {
    using type = tick_reply;
};
template <>
struct reply_of<restart> {
    using type = restart_reply;
};
template <class Request>
using reply_t = typename reply_of<Request>::type;

/// Any request.
using request = std::variant<register_site, acquire, reserve, heartbeat, commit, pledge, resolve, release, expire,
                             advance_epoch, tick, restart>;

}  // namespace darlcore::lease
