// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backends/storage/group_commit.hpp"
#include "backends/storage/journal_writer.hpp"
#include "backends/storage/recovery.hpp"
#include "backends/storage/snapshot_store.hpp"
#include "backends/storage/state_directory.hpp"

namespace darlcore::storage {

struct store_options {
    journal_options journal;
    storage_mutants mutants;
    /// What the caller knows of the run. Needed when the directory is new; else it must agree with what the journal
    /// says.
    std::optional<run_identity> identity;
    /// A directory without a run is an error (errc::not_found) instead of a new run, so that a wrong path never starts
    /// a second one.
    bool resume_only = false;
};

/// The durable half of a ledger: a state directory, its recovered journal, the open batch. The plain driver: `commit`
/// writes the open batch and returns when it is durable. The server wraps it in a commit_thread; simulation calls it
/// from the event loop. Example:
///     auto store = ledger_store::open(fs, "/srv/run", self, options, {load, replay});   // state replayed into the
///     target const auto sequence = store->append(type, now_ms, payload); if (auto done = store->commit(); !done)
///     stop_serving(done.error());                 // exit 1; the next start replays reply(); // durable up to
///     `sequence`
/// Errors of open: errc::locked, corrupt, refused (exit 3), not_found (resume_only), invalid_argument (no identity for
/// a new run). Thread-safety: none.
class ledger_store {
public:
    static result<ledger_store> open(file_system& fs, const std::string& path, lock_owner self, store_options options,
                                     const replay_target& target);
    // may run out of memory: the queue of closed batches allocates when it moves
    ledger_store(ledger_store&&) = default;
    ledger_store& operator=(ledger_store&&) = default;

    [[nodiscard]] const recovered_journal& recovered() const { return recovered_; }
    /// True when this start made the run: the caller appends run_created first.
    [[nodiscard]] bool is_new() const { return recovered_.empty; }
    [[nodiscard]] const run_identity& identity() const { return identity_; }
    [[nodiscard]] std::uint32_t term() const { return state_->term(); }
    [[nodiscard]] state_directory& state() { return *state_; }
    [[nodiscard]] journal_writer& writer() { return *writer_; }
    [[nodiscard]] group_commit& batches() { return batches_; }

    std::uint64_t append(std::uint16_t type, std::int64_t ledger_ms, std::string_view payload) {
        return batches_.append(type, ledger_ms, payload);
    }
    /// Makes everything appended durable; success when there is nothing. Any failure is final.
    result<void> commit();
    /// False when the disk is full: refuse what changes anything (503 disk_full_ack) and suspend expiry until it is
    /// true again. Asks the disk for space when less than `bytes` is set aside beyond the open batch.
    bool has_room(std::uint64_t bytes);

    /// Snapshot of the state after the last durable record: rotates, writes, removes what is superseded.
    /// Preconditions (asserted): nothing is open or under way.
    result<void> snapshot(std::string_view payload);
    /// Head of a snapshot taken now.
    [[nodiscard]] snapshot_info snapshot_head() const;

    /// Clean stop: commits, cuts the segment, syncs `acked`.
    result<void> close();

private:
    ledger_store() = default;
    result<void> check(const store_options& options) const;

    std::unique_ptr<state_directory> state_;
    recovered_journal recovered_;
    run_identity identity_;
    std::unique_ptr<journal_writer> writer_;
    group_commit batches_;
};

}  // namespace darlcore::storage
