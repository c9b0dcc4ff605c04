// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <charconv>
#include <compare>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "darlcore/error.hpp"
#include "darlcore/units.hpp"

/// Leases: who may train which position of an epoch, and when it counts.
namespace darlcore::lease {

/// Index of a site in order of first registration; never reused. Events and leases name sites by it.
using site_number = strong<struct site_number_tag, std::uint32_t>;

/// Where a block of the current epoch stands.
enum class block_state : std::uint8_t { unassigned, leased, pledged, committed, quarantined };

/// When a block counts: with the merge that holds it, or with its site's durable checkpoint. One policy per run.
enum class commit_policy : std::uint8_t { on_merge, on_checkpoint };

/// full: reserves before it reads. legacy: everything granted counts as reserved, and it can only be told "complete".
enum class site_mode : std::uint8_t { full, legacy };

/// Why a lease is no longer open.
enum class close_reason : std::uint8_t { committed, pledged, rejected, released, expired, taken_over, dropped };

/// How a contribution stands.
enum class contribution_status : std::uint8_t { pledged, merged, rejected };

constexpr std::string_view word(block_state s) noexcept {
    constexpr std::array<std::string_view, 5> words{"unassigned", "leased", "pledged", "committed", "quarantined"};
    return words[static_cast<std::size_t>(s)];
}
constexpr std::string_view word(commit_policy p) noexcept {
    return p == commit_policy::on_merge ? "on_merge" : "on_checkpoint";
}
constexpr std::string_view word(site_mode m) noexcept { return m == site_mode::full ? "full" : "legacy"; }
constexpr std::string_view word(close_reason r) noexcept {
    constexpr std::array<std::string_view, 7> words{"committed", "pledged",    "rejected", "released",
                                                    "expired",   "taken_over", "dropped"};
    return words[static_cast<std::size_t>(r)];
}
constexpr std::string_view word(contribution_status s) noexcept {
    constexpr std::array<std::string_view, 3> words{"pledged", "merged", "rejected"};
    return words[static_cast<std::size_t>(s)];
}
inline std::ostream& operator<<(std::ostream& out, block_state s) { return out << word(s); }

/// An open lease.
/// Watermarks: span.start <= done_end <= reserved_end <= span.end. [start, done_end) has left the lease; [done_end,
/// reserved_end) may have been read; [reserved_end, end) is certainly unread. At risk on expiry: [done_end, end).
/// Units: times in ledger milliseconds.
struct lease_record {
    lease_seq seq;
    darlcore::term term;  // of the grant; (term, seq) is the fencing token
    site_number site;
    epoch_index epoch;
    position start;
    position done_end;
    position reserved_end;
    position end;
    ledger_time granted_at;
    ledger_time deadline;
    ledger_time hold_deadline;  // by then something of it must have been reserved, pledged or committed
    std::int64_t ttl_ms = 0;
    lease_seq grant;  // first lease of the answer it came with
    site_mode mode = site_mode::full;
    bool stolen = false;
    bool seen_in_term = false;

    [[nodiscard]] constexpr fencing_token token() const { return {term, seq.count}; }
    [[nodiscard]] constexpr span at_risk() const { return {done_end, end}; }
    [[nodiscard]] constexpr span maybe_read() const { return {done_end, reserved_end}; }
    [[nodiscard]] constexpr span unread() const { return {reserved_end, end}; }
    friend bool operator==(const lease_record&, const lease_record&) = default;
};

/// How a request names a lease: the parts of its wire id, and the token if the client sends one.
struct lease_ref {
    epoch_index epoch;
    position start;
    lease_seq seq;
    std::optional<fencing_token> token;

    friend bool operator==(const lease_ref&, const lease_ref&) = default;
};

/// The reference under which a lease is known outside.
inline lease_ref ref_to(const lease_record& lease) { return {lease.epoch, lease.start, lease.seq, lease.token()}; }

/// Wire text of a lease: "e<epoch>-b<start>-<seq>". seq never repeats within a run.
inline std::string lease_id(const lease_record& lease) {
    return "e" + std::to_string(lease.epoch.count) + "-b" + std::to_string(lease.start.count) + "-" +
           std::to_string(lease.seq.count);
}

namespace detail {

/// Reads decimal digits up to the first other character; no sign, no leading zero. Advances `text`.
template <class Int>
constexpr bool take_number(std::string_view& text, Int& value) {
    if (text.empty() || text[0] < '0' || text[0] > '9') return false;
    if (text[0] == '0' && text.size() > 1 && text[1] >= '0' && text[1] <= '9') return false;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
    if (read.ec != std::errc{}) return false;
    text.remove_prefix(static_cast<std::size_t>(read.ptr - text.data()));
    return true;
}
constexpr bool take_text(std::string_view& text, std::string_view expected) {
    if (text.substr(0, expected.size()) != expected) return false;
    text.remove_prefix(expected.size());
    return true;
}

}  // namespace detail

/// Reads a lease's wire text; anything else, also "e0-b01-2", is nothing.
inline std::optional<lease_ref> parse_lease_id(std::string_view text) {
    lease_ref ref;
    const bool ok = detail::take_text(text, "e") && detail::take_number(text, ref.epoch.count) &&
                    detail::take_text(text, "-b") && detail::take_number(text, ref.start.count) &&
                    detail::take_text(text, "-") && detail::take_number(text, ref.seq.count) && text.empty();
    return ok ? std::optional(ref) : std::nullopt;
}

/// Wire text of a fencing token: "3:1234".
inline std::string to_text(const fencing_token& token) {
    return std::to_string(token.term.count) + ":" + std::to_string(token.sequence);
}
inline std::optional<fencing_token> parse_token(std::string_view text) {
    fencing_token token;
    const bool ok = detail::take_number(text, token.term.count) && detail::take_text(text, ":") &&
                    detail::take_number(text, token.sequence) && text.empty();
    return ok ? std::optional(token) : std::nullopt;
}

/// Part of a lease inside a contribution. late: the lease was already closed and nothing of the span had been taken.
struct pledged_span {
    lease_seq lease;
    darlcore::span span;
    bool late = false;
    friend bool operator==(const pledged_span&, const pledged_span&) = default;
};

/// A contribution that waits for its merge. Its blocks are PLEDGED and have no deadline.
struct contribution {
    contribution_id id;
    site_number site;
    generation base;
    std::vector<pledged_span> spans;
    ledger_time pledged_at;

    [[nodiscard]] std::uint64_t blocks() const {
        std::uint64_t sum = 0;
        for (const auto& s : spans) sum += s.span.size();
        return sum;
    }
    friend bool operator==(const contribution&, const contribution&) = default;
};

/// Sums over the current run of one site. Units: blocks, except where a name says otherwise.
struct site_counters {
    std::uint64_t grants = 0;       // acquire answers with at least one lease
    std::uint64_t granted = 0;      // blocks
    std::uint64_t committed = 0;    // blocks, all epochs
    std::uint64_t pledged = 0;      // blocks ever pledged
    std::uint64_t lost = 0;         // blocks returned by expiry or takeover
    std::uint64_t released = 0;     // blocks given back
    std::uint64_t stolen_from = 0;  // blocks
    std::uint64_t stolen_by = 0;    // blocks
    std::uint64_t expiries = 0;     // leases
    std::uint64_t rejected = 0;     // contributions
    friend bool operator==(const site_counters&, const site_counters&) = default;
};

/// A run of blocks with one history of losses in this epoch.
/// `sites`: the distinct sites that lost it, ascending, at most `sites_max` kept.
struct suspect_run {
    static constexpr std::size_t sites_max = 8;

    darlcore::span span;
    std::uint64_t lost_run = 0;  // length of the reserved run in which it was last lost
    std::uint32_t losses = 0;
    std::uint32_t distinct_sites = 0;
    std::array<std::uint32_t, sites_max> sites{};
    bool quarantined = false;
    bool last_chance = false;  // came back once; the next counted loss is final

    friend bool operator==(const suspect_run&, const suspect_run&) = default;
};

/// How an epoch ended.
struct epoch_verdict {
    epoch_index epoch;
    std::uint64_t committed = 0;
    std::uint64_t quarantined = 0;  // > 0: complete_except n
    bool forced = false;
    friend bool operator==(const epoch_verdict&, const epoch_verdict&) = default;
};

/// Blocks by state; they sum to the epoch's size.
struct block_counts {
    std::uint64_t unassigned = 0;
    std::uint64_t leased = 0;
    std::uint64_t pledged = 0;
    std::uint64_t committed = 0;
    std::uint64_t quarantined = 0;
    friend bool operator==(const block_counts&, const block_counts&) = default;
};

/// Losses that say something about the data: a process died on reserved blocks, or its delta was bad.
constexpr bool counts_as_attempt(errc reason) noexcept {
    return reason == errc::not_finite || reason == errc::growth || reason == errc::norm_outlier;
}

}  // namespace darlcore::lease
