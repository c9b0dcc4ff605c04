// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "darlcore/lease/book.hpp"
#include "darlcore/lease/events.hpp"
#include "darlcore/lease/indexed_heap.hpp"
#include "darlcore/lease/meter.hpp"
#include "darlcore/lease/mutants.hpp"
#include "darlcore/lease/paged_vector.hpp"
#include "darlcore/lease/requests.hpp"
#include "darlcore/lease/seq_table.hpp"
#include "darlcore/lease/settings.hpp"
#include "darlcore/lease/state.hpp"
#include "darlcore/lease/ttl.hpp"
#include "darlcore/lease/types.hpp"

namespace darlcore::lease {

/// What is known of a site, for status pages and for the round.
struct site_view {
    site_number number;
    site_id id;
    darlcore::incarnation incarnation;
    std::uint32_t incarnations = 1;
    site_mode mode = site_mode::full;
    std::uint32_t ranks = 0;
    ledger_time first_seen;
    ledger_time last_seen;
    bool live = false;
    double macro_step_s = 0;
    double rtt_s = 0;
    double rate_blocks_per_s = 0;  // 0: not measured
    position cursor;
    site_counters counters;
    std::uint32_t fruitless = 0;
    std::uint32_t open_leases = 0;
    std::uint64_t held = 0;
    std::uint64_t reserved = 0;
    std::uint64_t pledged = 0;
    std::uint64_t committed_now = 0;
    acquire_reason waiting = acquire_reason::none;  // of its last acquire, when that gave nothing
};

/// The lease table: within an epoch each position reaches the global model exactly once, whatever sites do, as long as
/// they train only what they reserved.
/// A value without threads, clock, I/O or randomness. `apply` decides, changes the state and returns the events to make
/// durable before the reply leaves; `replay` applies such events to another table and decides nothing. Heartbeats'
/// renewals and reports live outside the replayed state until a tick writes them down.
/// Determinism: the reply depends on the state, the request and `now` only. `now` never decreases.
/// Errors: bad requests are refused, never asserted; replay of an event that does not fit gives errc::corrupt.
/// Complexity: O(log n) in leases and fragments plus 1 / 64 per position touched; verify and export O(M).
/// Thread-safety: none; a `snapshot` may be read by another thread.
/// Source: paper, data leasing; differs: reserve before reading, theft by estimated finish (docs/leases.md).
template <class Mutation = no_mutation>
class basic_table {
public:
    /// Errors: what check(settings) and check(geometry) find.
    static result<basic_table> create(const lease::geometry& g, const lease::settings& s, Mutation mutation = {});

    outcome<registered_reply> apply(const register_site& in, ledger_time now);
    outcome<acquire_reply> apply(const acquire& in, ledger_time now);
    outcome<reserve_reply> apply(const reserve& in, ledger_time now);
    outcome<heartbeat_reply> apply(const heartbeat& in, ledger_time now);
    outcome<commit_reply> apply(const commit& in, ledger_time now);
    outcome<pledge_reply> apply(const pledge& in, ledger_time now);
    outcome<resolve_reply> apply(const resolve& in, ledger_time now);
    outcome<release_reply> apply(const release& in, ledger_time now);
    outcome<expire_reply> apply(const expire& in, ledger_time now);
    outcome<advance_reply> apply(const advance_epoch& in, ledger_time now);
    outcome<tick_reply> apply(const tick& in, ledger_time now);
    outcome<restart_reply> apply(const restart& in, ledger_time now);

    /// Applies an event that some table gave at time `at`.
    /// Errors: errc::corrupt where it does not fit this state; the state is then unchanged.
    result<void> replay(const event& e, ledger_time at);

    /// What resolve would do, as the event that a merge's own record can carry; nothing where it is already done.
    /// The state is unchanged; give the event to `replay` when the merge's record is written.
    std::variant<std::optional<events::resolved>, refusal> decide(const resolve& in) const;

    // reads
    [[nodiscard]] Mutation mutation() const { return mutation_; }
    [[nodiscard]] const lease::settings& rules() const { return b_.settings; }
    [[nodiscard]] const lease::geometry& geometry() const { return b_.geometry; }
    [[nodiscard]] darlcore::term term() const { return b_.term; }
    [[nodiscard]] epoch_index epoch() const { return b_.epoch; }
    [[nodiscard]] darlcore::generation generation() const { return b_.generation; }
    [[nodiscard]] const std::string& corpus() const { return b_.corpus; }
    [[nodiscard]] block_counts counts() const { return b_.counts(); }
    [[nodiscard]] std::uint64_t fragments() const { return b_.blocks.fragments(); }
    [[nodiscard]] bool epoch_complete() const { return is_complete(); }
    [[nodiscard]] const std::vector<epoch_verdict>& verdicts() const { return b_.verdicts; }
    [[nodiscard]] std::uint64_t next_seq() const { return b_.next_seq; }
    [[nodiscard]] std::uint64_t open_leases() const { return b_.open_leases; }
    [[nodiscard]] std::uint32_t num_sites() const { return b_.num_sites; }
    /// Complexity: O(log suspects) for committed and free ones, O(open leases) else.
    [[nodiscard]] block_state state_of(position p) const;
    [[nodiscard]] std::optional<site_number> find_site(std::string_view name) const;
    /// Preconditions (asserted): site < num_sites().
    [[nodiscard]] site_view site(site_number n, ledger_time now) const;
    [[nodiscard]] bool is_live(site_number n, ledger_time now) const;
    [[nodiscard]] std::optional<lease_record> find_lease(lease_seq seq) const;
    /// Highest watermark a site reported as trained; for display.
    [[nodiscard]] position trained_end(lease_seq seq) const;
    /// Open leases of a site, ascending seq. Complexity: O(k log k).
    [[nodiscard]] std::vector<lease_record> leases_of(site_number n) const;
    /// All open leases, ascending seq.
    [[nodiscard]] std::vector<lease_record> all_leases() const;
    [[nodiscard]] const std::vector<site_number>& pledging() const { return b_.pledging; }
    /// The pledge of a site that waits for its merge, or null.
    [[nodiscard]] const contribution* pledge_of(site_number n) const { return b_.pledges[n.count].get(); }
    /// How an earlier contribution ended, as long as it is remembered.
    [[nodiscard]] std::optional<contribution_answer> answer_of(site_number n, const contribution_id& id) const;
    [[nodiscard]] std::vector<suspect_run> suspect_runs() const;
    [[nodiscard]] std::vector<span> quarantined() const;
    /// Milliseconds until the next lease can expire, or nothing. May be early, never late.
    [[nodiscard]] std::optional<std::int64_t> next_deadline_in_ms(ledger_time now) const;

    /// Checks every invariant. Errors: errc::corrupt, naming the first that fails. Complexity: O(M / 64 + leases log
    /// leases).
    [[nodiscard]] result<void> verify() const;
    /// Digest of the replayed state. Complexity: O(open leases + sites + suspects).
    [[nodiscard]] std::uint64_t digest() const { return lease::digest(b_); }
    /// A copy for another thread: `export_state`, `digest` and `verify` (state.hpp) work on it. Complexity: O(M / 2^20
    /// + sites / 64).
    [[nodiscard]] book snapshot() const { return b_; }
    [[nodiscard]] exported_state export_state() const { return lease::export_state(b_); }
    /// Errors: errc::corrupt where the parts contradict each other.
    static result<basic_table> import_state(const exported_state& state, Mutation mutation = {});
    /// Memory of the table. Units: bytes, of pages and indexes; an estimate from below.
    [[nodiscard]] std::size_t bytes() const;

private:
    static constexpr std::uint32_t nil = ~std::uint32_t{0};

    // What heartbeats change and what can be rebuilt.
    struct live_lease {
        ledger_time deadline;
        std::int64_t ttl_ms = 0;
        position trained;
        std::uint32_t next = nil;
        std::uint32_t previous = nil;
        bool dirty = false;   // renewed since the last tick
        bool listed = false;  // the slot stands in dirty_leases_, whatever became of its lease
    };
    struct live_site {
        ledger_time last_seen = never_seen;
        std::int64_t macro_step_ms = 0;
        std::int64_t rtt_ms = 0;
        ledger_time draining_since = never_seen;
        acquire_reason last_answer = acquire_reason::none;
        std::uint32_t first_lease = nil;
        std::uint32_t open_leases = 0;
        bool dirty = false;
        std::array<std::uint32_t, 64> request_tags{};
    };
    struct due_key {
        ledger_time at;
        [[nodiscard]] bool before(const due_key& other) const { return at < other.at; }
    };
    struct steal_key {
        double order;  // remaining work in seconds, or in blocks where the rate is unknown; most first
        std::uint64_t tail;
        std::uint64_t seq;
        [[nodiscard]] bool before(const steal_key& o) const {
            if (order != o.order) return order > o.order;
            return tail != o.tail ? tail > o.tail : seq < o.seq;
        }
    };
    using meter = meter_of<Mutation>;
    using steal_heap = indexed_heap<steal_key, meter>;
    // Not noexcept, so that the library keeps each hash in its node instead of computing it again on the way.
    struct name_hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
    };
    struct found {                  // a lease that a request names
        std::uint32_t slot = nil;   // open
        std::uint32_t place = nil;  // in the closed ring
        std::optional<errc> refused;
    };
    struct grant_size {
        std::uint64_t blocks = 0;
        std::uint32_t spans = 0;
    };

    explicit basic_table(Mutation mutation) : mutation_(mutation) {}
    [[nodiscard]] bool planted(mutant m) const { return mutation_.planted(m); }

    // table_checks.hpp: who calls, which lease is meant
    template <class Reply>
    static outcome<Reply> refuse(outcome<Reply>&& out, errc code, std::string_view context = {},
                                 std::int64_t retry_after_ms = 0);
    template <class Reply, class Answer>
    static outcome<Reply> answer(outcome<Reply>&& out, Answer&& value);
    std::optional<refusal> check_caller(const caller& who, std::uint32_t& site, bool fence = true) const;
    found find_named(const lease_ref& ref, std::uint32_t site) const;
    static std::string_view explain(errc code);
    void touch(std::uint32_t site, const site_report* report, ledger_time now);
    void begin(ledger_time now);
    template <class Reply, class Event>
    void happen(outcome<Reply>& out, Event&& e, ledger_time now);
    template <class Reply>
    void expire_due(outcome<Reply>& out, ledger_time now);

    // table_register.hpp
    static std::optional<std::string_view> shape_fault(const register_site& in);
    std::optional<errc> pinned_fault(const register_site& in) const;
    std::optional<refusal> stands_in_the_way(const register_site& in, std::uint32_t site, ledger_time now) const;
    events::superseded decide_takeover(const register_site& in, std::uint32_t site) const;
    registered_reply make_registered_reply(std::uint32_t site, bool superseded) const;

    // table_operate.hpp
    template <class Reply>
    reserve_reply reserve_now(std::uint32_t slot, position through, ledger_time now, outcome<Reply>& out);
    beat_reply renew(const beat& b, std::uint32_t site, std::int64_t ttl, ledger_time now,
                     outcome<heartbeat_reply>& out);

    // table_acquire.hpp
    acquire_reply answer_again(const acquire& in, std::uint32_t site, ledger_time now);
    std::optional<std::uint32_t> find_request(std::uint32_t site, std::string_view id) const;
    grant_size size_of_grant(const acquire& in, std::uint32_t site, ledger_time now);
    std::uint64_t live_sites(ledger_time now, std::uint64_t& rate_sum);
    std::uint64_t mean_rate_micro() const;
    std::vector<span> take(std::uint32_t site, grant_size size) const;
    void take_from(std::uint64_t from, std::uint64_t to, grant_size& size, std::optional<bool>& suspect,
                   std::vector<span>& spans) const;
    std::vector<events::stolen_tail> steal(std::uint32_t site, grant_size size) const;
    events::granted make_grant(const acquire& in, std::uint32_t site, ledger_time now, const std::vector<span>& spans,
                               std::vector<events::stolen_tail> steals) const;
    acquire_reply nothing_left(std::uint32_t site, ledger_time now);
    acquire_reply drain_reply(std::uint32_t site, ledger_time now, acquire_reason reason);
    acquire_reply complete_reply(std::uint32_t site, acquire_reason reason) const;
    bool must_stand_back(std::uint32_t site, ledger_time now) const;
    template <class Reply>
    bool finish_epoch(outcome<Reply>& out, ledger_time now);

    // table_contribute.hpp
    std::optional<errc> check_claim(const claim& c, std::uint32_t site, pledged_span& taken) const;
    commit_reply make_commit_reply(position end, bool closed, bool late) const;
    outcome<commit_reply> commit_closed(const commit& in, outcome<commit_reply>&& out, std::uint32_t site,
                                        std::uint32_t place, ledger_time now);
    std::variant<std::vector<pledged_span>, errc> check_claims(const pledge& in, std::uint32_t site) const;
    static std::optional<std::string_view> shape_fault(const pledge& in);
    std::optional<pledge_reply> answered(const pledge& in, std::uint32_t site) const;
    std::vector<events::quarantined_run> preview_losses(const std::vector<std::pair<span, site_number>>& lost) const;

    // table_install.hpp: the only code that changes what events change
    void install(const events::registered& e, ledger_time at);
    void install(const events::superseded& e, ledger_time at);
    void install(const events::corpus_pinned& e, ledger_time at);
    void install(const events::granted& e, ledger_time at);
    void install(const events::reserved& e, ledger_time at);
    void install(const events::committed& e, ledger_time at);
    void install(const events::pledged& e, ledger_time at);
    void install(const events::contribution_rejected& e, ledger_time at);
    void install(const events::resolved& e, ledger_time at);
    void install(const events::released& e, ledger_time at);
    void install(const events::expired& e, ledger_time at);
    void install(const events::requeued& e, ledger_time at);
    void install(const events::epoch_advanced& e, ledger_time at);
    void install(const events::tick& e, ledger_time at);
    void install(const events::term_started& e, ledger_time at);
    void install(const events::rolled_back& e, ledger_time at);  // table_rollback.hpp
    void vacate(std::uint32_t site, ledger_time at);
    void forget_closed();

    void open_lease(const lease_record& record);
    void note_renewal(std::uint32_t slot);
    void forget_renewals();
    void close_lease(std::uint32_t slot, close_reason reason, bool remember);
    void remember(const closed_lease& c);
    void move_done_end(std::uint32_t slot, position through, ledger_time hold_deadline);
    void move_closed_done_end(lease_seq seq, position through);
    void lose(const std::vector<events::lost_lease>& lost, close_reason reason);
    void record_loss(span s, site_number site);
    void set_aside(const std::vector<events::quarantined_run>& runs);
    void add_answer(std::uint32_t site, contribution_answer answer);
    void set_answer(std::uint32_t site, const contribution_id& id, contribution_status status, errc reason);
    void count_fruitless(std::uint32_t site, lease_seq grant);
    void note_seen(std::uint32_t site, ledger_time at);
    void set_last_answer(std::uint32_t site, acquire_reason reason);
    void remember_request(std::uint32_t site, std::string_view id, lease_seq first, std::size_t count);

    // busy rate
    void end_sample_for_new_work(std::uint32_t site, ledger_time at);
    void add_to_sample(std::uint32_t site, std::uint64_t blocks, ledger_time at);
    void close_sample(site_book& s, std::uint32_t site);
    void reserved_changed(std::uint32_t site, std::uint64_t before, ledger_time at);
    void set_rate(std::uint32_t site, std::uint64_t rate_micro);

    // indexes
    void refresh_due(std::uint32_t slot);
    void refresh_steal(std::uint32_t slot);
    void rebuild_indexes();
    [[nodiscard]] ledger_time due_at(std::uint32_t slot) const {
        return std::min(live_[slot].deadline, b_.leases[slot].hold_deadline);
    }

    // table_replay.hpp: why an event does not fit, if so
    std::optional<std::string_view> lost_misfit(const std::vector<events::lost_lease>& lost) const;
    std::optional<std::string_view> quarantine_misfit(const std::vector<events::quarantined_run>& runs,
                                                      std::vector<span> returned) const;
    std::optional<std::string_view> spans_misfit(const std::vector<pledged_span>& spans, site_number site) const;
    std::optional<std::string_view> renewals_misfit(const std::vector<events::renewed_lease>& list) const;
    const contribution* pledge_with(const contribution_id& id) const;
    std::optional<std::string_view> misfit(const events::registered& e) const;
    std::optional<std::string_view> misfit(const events::superseded& e) const;
    std::optional<std::string_view> misfit(const events::corpus_pinned& e) const;
    std::optional<std::string_view> misfit(const events::granted& e) const;
    std::optional<std::string_view> misfit(const events::reserved& e) const;
    std::optional<std::string_view> misfit(const events::committed& e) const;
    std::optional<std::string_view> misfit(const events::pledged& e) const;
    std::optional<std::string_view> misfit(const events::contribution_rejected& e) const;
    std::optional<std::string_view> misfit(const events::resolved& e) const;
    std::optional<std::string_view> misfit(const events::released& e) const;
    std::optional<std::string_view> misfit(const events::expired& e) const;
    std::optional<std::string_view> misfit(const events::requeued& e) const;
    std::optional<std::string_view> misfit(const events::epoch_advanced& e) const;
    std::optional<std::string_view> misfit(const events::tick& e) const;
    std::optional<std::string_view> misfit(const events::term_started& e) const;
    std::optional<std::string_view> misfit(const events::rolled_back& e) const;
    [[nodiscard]] bool is_unknown(site_number n) const { return n.count >= b_.num_sites; }

    [[nodiscard]] bool is_complete() const;
    [[nodiscard]] lease_record lease_in(std::uint32_t slot) const;

    book b_;
    paged_vector<live_lease> live_;
    paged_vector<std::uint32_t> free_slots_;
    std::vector<live_site> site_live_;
    std::uint32_t draining_sites_ = 0;  // those whose last acquire gave nothing
    std::unordered_map<std::string, std::uint32_t, name_hash, std::equal_to<>> names_;
    basic_seq_table<meter> open_index_;
    basic_seq_table<meter> closed_index_;
    indexed_heap<due_key, meter> due_;  // keys may be early: renewals move them when they come up
    steal_heap steal_measured_;
    steal_heap steal_unmeasured_;
    paged_vector<std::uint32_t> dirty_leases_;
    std::vector<std::uint32_t> dirty_sites_;
    bit_pages::words::graveyard old_pages_;
    [[no_unique_address]] Mutation mutation_;
};

/// The table of production.
using table = basic_table<>;

}  // namespace darlcore::lease

#include "darlcore/lease/table_acquire.hpp"
#include "darlcore/lease/table_checks.hpp"
#include "darlcore/lease/table_contribute.hpp"
#include "darlcore/lease/table_install.hpp"
#include "darlcore/lease/table_operate.hpp"
#include "darlcore/lease/table_read.hpp"
#include "darlcore/lease/table_replay.hpp"
#include "darlcore/lease/table_rollback.hpp"
