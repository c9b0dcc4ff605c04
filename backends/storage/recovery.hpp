// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backends/storage/group_commit.hpp"
#include "backends/storage/journal_format.hpp"
#include "backends/storage/state_directory.hpp"

namespace darlcore::storage {

/// The state that a journal is replayed into.
struct replay_target {
    /// Replaces the whole state, or leaves it as it was and says why (the older snapshot is tried then).
    std::function<result<void>(const snapshot_info&, std::string_view payload)> load_snapshot;
    /// Applies one record; a failure (a state digest that differs, a record that cannot follow) refuses the start.
    std::function<result<void>(const record&)> replay;
};

/// What a start has to do to the files before it may append.
struct repair_plan {
    /// Last segment and the length to cut it to; empty when there is none.
    std::string cut_path;
    std::uint64_t cut_bytes = 0;
    /// Where its last batch begins. That batch is written once more: a sync of it may have failed, and then a later one
    /// succeeds without writing what can still be read.
    std::uint64_t rewrite_from = 0;
    /// Segments without any record, leftovers of a crash.
    std::vector<std::string> remove;
};

/// What the journal of a directory says.
struct recovered_journal {
    /// Nothing was ever made durable: a new run.
    bool empty = true;
    std::optional<run_identity> identity;
    journal_position position;
    /// Highest term in the files.
    std::uint32_t term = 0;
    /// 0: replayed from the first record.
    std::uint64_t snapshot_sequence = 0;
    std::uint64_t records_replayed = 0;
    std::uint64_t dropped_bytes = 0;
    /// Sentences for the operator: damaged snapshot passed over, torn tail dropped, `acked` missing.
    std::vector<std::string> warnings;
    repair_plan repair;
};

/// Reads the journal in `directory` (the folder with the segments) into `target`; changes no file.
/// Promises: the result is the exact state of the recovered sequence, which is at least every sequence ever
/// acknowledged; only the torn end of the last, unacknowledged batch is dropped. Errors: errc::corrupt with file,
/// offset and sequence; errc::refused (directories mixed); errc::io_error. Complexity: O(bytes behind the newest
/// snapshot).
result<recovered_journal> read_journal(file_system& fs, const std::string& directory, const replay_target& target,
                                       const storage_mutants& mutants = {});

/// Carries out the plan and makes what was read durable (after a kill it may still be in the page cache only).
result<void> repair(file_system& fs, const std::string& directory, const repair_plan& plan,
                    const storage_mutants& mutants = {});

}  // namespace darlcore::storage
