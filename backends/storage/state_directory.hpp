// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "backends/storage/file_system.hpp"
#include "darlcore/error.hpp"

namespace darlcore::storage {

/// Mechanisms that tests take away to see their absence caught. All false in every real run.
struct storage_mutants {
    bool skip_fsync = false;       ///< of batches
    bool skip_file_fsync = false;  ///< of new segments and snapshots
    bool skip_dir_fsync = false;
    bool skip_checksum = false;
    bool skip_acked = false;
    bool ignore_batch_rule = false;
    bool skip_term_check = false;
    bool skip_repair_fsync = false;
    bool skip_tail_rewrite = false;
    bool retry_failed_sync = false;
};

/// What a second server is told about the first.
struct lock_owner {
    std::int64_t pid = 0;
    std::string boot_id;
    std::string host;
    std::uint32_t term = 0;
    std::string address;
};

/// A state directory that this process owns: the lock is held, the term is ours and on the disk.
/// Thread-safety: `check_term` may be called from the committing thread; the rest from one thread.
/// Source: docs/storage.md.
class state_directory {
public:
    /// Makes the directory if needed, takes the lock, raises the term.
    /// Errors: errc::locked (names pid and host of the owner), errc::corrupt (the term file; a term older than the
    /// journal's is found by recovery), those of the file system.
    static result<state_directory> open(file_system& fs, const std::string& path, lock_owner self,
                                        const storage_mutants& mutants = {});

    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] std::string journal_path() const { return join(path_, "journal"); }
    [[nodiscard]] std::uint32_t term() const { return self_.term; }
    [[nodiscard]] file_system& files() const { return *fs_; }
    [[nodiscard]] const storage_mutants& mutants() const { return mutants_; }

    /// errc::fenced when the term file is no longer ours: another server has started on this directory.
    [[nodiscard]] result<void> check_term() const;

    /// Writes the address into the lock file, for `darl status` and for whoever finds the lock taken.
    result<void> tell_address(const std::string& address);

private:
    file_system* fs_ = nullptr;
    std::string path_;
    lock_owner self_;
    storage_mutants mutants_;
    std::unique_ptr<file_lock> lock_;
};

/// Content of the lock file as text of one `key value` pair a line; unknown lines are ignored.
std::string encode(const lock_owner& owner);
lock_owner decode_lock_owner(std::string_view text);

/// Moves journal, model, blobs and term of a stopped run into `superseded-NAME/` of the same directory; nothing is
/// deleted. Errors: errc::locked, errc::already_exists (that name was used).
result<std::string> supersede(file_system& fs, const std::string& path, const std::string& name);

}  // namespace darlcore::storage
