// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "backends/storage/journal_format.hpp"
#include "backends/storage/state_directory.hpp"

namespace darlcore::storage {

/// Writes `journal/snapshot-SEQ.bin`: temp, fsync, rename, directory fsync, read back and compare.
/// Preconditions: every record up to `info.sequence` is durable and the journal was rotated behind it.
/// Errors: errc::no_space, errc::io_error, errc::corrupt (what is read back differs); no file is left behind, nothing
/// was deleted. Thread-safety: may run beside a journal_writer of the same directory.
result<void> write_snapshot(const state_directory& state, const snapshot_info& info, std::string_view payload);

/// Removes what no start needs any more: snapshots older than the newest two and segments that end before the older of
/// these. Does nothing while there are fewer than two snapshots, or when another server has taken over.
result<void> remove_superseded(const state_directory& state);

/// Removes temporary files that a crash left in the journal folder.
result<void> remove_leftovers(file_system& fs, const std::string& journal_path);

}  // namespace darlcore::storage
