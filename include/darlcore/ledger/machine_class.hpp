// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "darlcore/assert.hpp"
#include "darlcore/block_space.hpp"
#include "darlcore/lease/table.hpp"
#include "darlcore/ledger/books.hpp"
#include "darlcore/ledger/record_codec.hpp"
#include "darlcore/ledger/requests.hpp"
#include "darlcore/round/status.hpp"

namespace darlcore::ledger {

/// Steps of the composition that a test may take away, to see that their tests notice. All on in every real run.
struct order_switches {
    bool pledge_before_merge = true;  // blocks are pledged with the contribution, not after its merge
    round::rule_switches rounds;
};

/// The ledger as a value: lease table, rounds, guards, corpus pins. Requests in; replies, journal records and effects
/// out. The server, the simulator and the tests drive this same code.
/// Promises: every change is a record; `replay` of the records gives an equal state. What must be true together is one
/// record. A refused request changes nothing but the expiry of leases that had run out.
/// Use: make the records of an outcome durable, in order, then send the reply and carry out the effects. A reply, also
/// of a read, must not leave before everything it may depend on is durable.
/// Units: ledger time; it never goes back.
/// Thread-safety: none; a copy (cheap, see `lease::table`) may be read by another thread.
class machine {
public:
    /// A new run. Its first record is `first_record()`.
    /// Preconditions (asserted): check(settings).
    explicit machine(run_settings settings);

    [[nodiscard]] record first_record() const { return records::run_created{settings_}; }

    /// A server start: new term, restart grace. Also tells again the effects that are still wanted.
    outcome<ok_reply> handle(const start_input& in, ledger_time now);

    // Leases.
    outcome<register_reply> handle(const register_request& in, ledger_time now);
    outcome<acquire_reply> handle(const acquire_request& in, ledger_time now);
    outcome<reserve_reply> handle(const reserve_request& in, ledger_time now);
    outcome<heartbeat_reply> handle(const heartbeat_request& in, ledger_time now);
    outcome<commit_reply> handle(const commit_request& in, ledger_time now);
    outcome<release_reply> handle(const release_request& in, ledger_time now);
    outcome<advance_reply> handle(const advance_request& in, ledger_time now);

    // Rounds.
    outcome<join_reply> handle(const join_request& in, ledger_time now);
    outcome<poll_reply> handle(const poll_request& in, ledger_time now);
    outcome<contribute_reply> handle(const contribute_request& in, ledger_time now);
    outcome<ok_reply> handle(const decline_request& in, ledger_time now);
    outcome<evaluation_reply> handle(const evaluation_request& in, ledger_time now);
    outcome<ok_reply> handle(const leave_request& in, ledger_time now);
    outcome<state_reply> handle(const pause_request& in, ledger_time now);
    outcome<state_reply> handle(const resume_request& in, ledger_time now);
    outcome<state_reply> handle(const stop_request& in, ledger_time now);

    // Blobs.
    outcome<ok_reply> handle(const announce_upload& in, ledger_time now);
    outcome<ok_reply> handle(const upload_progress& in, ledger_time now);
    outcome<ok_reply> handle(const blob_verified& in, ledger_time now);
    outcome<ok_reply> handle(const blob_gone& in, ledger_time now);

    // Answers to effects, time, operator.
    outcome<ok_reply> handle(const model_initialised& in, ledger_time now);
    outcome<ok_reply> handle(const init_failed& in, ledger_time now);
    outcome<ok_reply> handle(const merge_done& in, ledger_time now);
    outcome<ok_reply> handle(const merge_failed& in, ledger_time now);
    outcome<ok_reply> handle(const tick_input& in, ledger_time now);
    outcome<ok_reply> handle(const change_outer_policy& in, ledger_time now);

    /// Applies a record of the journal. Decides nothing.
    /// Errors: errc::corrupt when a state digest differs; errc::refused for a second run_created.
    /// Preconditions (asserted): the records of this run, in order, each with its ledger time.
    result<void> replay(const record& r, ledger_time at);

    /// Takes an epoch's order that was built elsewhere (effect prepare_epoch), so that no request has to build it.
    void adopt(std::shared_ptr<const epoch_map> prepared);

    [[nodiscard]] const run_settings& settings() const { return settings_; }
    [[nodiscard]] const lease::table& leases() const { return leases_; }
    [[nodiscard]] const round::machine& rounds() const { return rounds_; }
    [[nodiscard]] const books& kept() const { return books_; }
    [[nodiscard]] darlcore::term term() const { return books_.term; }
    [[nodiscard]] epoch_index epoch() const;
    [[nodiscard]] const std::string& space_digest() const { return space_digest_; }
    /// Digest of the running epoch's order. Complexity: O(num_blocks) once per epoch.
    [[nodiscard]] const std::string& epoch_digest() const;

    /// What the rounds know of the leases now; `asker` may be empty.
    [[nodiscard]] round::lease_facts facts(const site_id* asker = nullptr) const;
    /// Everything of GET /round, with `waiting_for`.
    [[nodiscard]] round::status_report round_status(ledger_time now) const;

    /// Digest of all that a restart keeps.
    [[nodiscard]] digest16 digest() const;
    /// Checks the books against each other; an error names the first contradiction. O(num_blocks); for snapshots, on a
    /// copy.
    [[nodiscard]] result<void> verify() const;

    /// The state as bytes, and back. Promises: from_snapshot(snapshot()) has the same digest.
    [[nodiscard]] std::string snapshot() const;
    /// Errors: errc::corrupt, errc::unsupported.
    static result<machine> from_snapshot(std::string_view bytes, ledger_time now);

    /// When `tick_input` must be handled at the latest, even if nothing happens; nothing = the next whole second will
    /// do.
    [[nodiscard]] std::optional<ledger_time> next_tick(ledger_time now) const;

    void set_switches_for_testing(const order_switches& switches) {
        switches_ = switches;
        rounds_.set_rules_for_testing(switches.rounds);
    }

private:
    friend struct access;  // the functions behind `handle`, in the headers below

    run_settings settings_;
    lease::table leases_;
    round::machine rounds_;
    books books_;
    block_space space_;
    std::string space_digest_;

    // What a restart forgets.
    std::map<std::string, blob_facts> blobs_;
    ledger_time last_lease_tick_;
    mutable std::shared_ptr<const epoch_map> map_;
    mutable std::shared_ptr<const epoch_map> next_map_;  // of the following epoch, when it was prepared
    epoch_index asked_for_;                              // last epoch of a prepare_epoch
    mutable std::string epoch_digest_;
    order_switches switches_;
};

}  // namespace darlcore::ledger
