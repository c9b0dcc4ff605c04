// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "darlcore/error.hpp"

namespace darlcore::storage {

/// How a file is opened: for reading; for reading and writing; made anew (errc::already_exists if it is there); opened
/// or made.
enum class open_mode : std::uint8_t { read, read_write, create_new, create };

/// An open file. Closing (the destructor) makes nothing durable.
/// Errors of every call: errc::io_error, errc::no_space; the context names the file.
/// Thread-safety: as the file system it came from.
class file {
public:
    file() = default;
    file(const file&) = delete;
    file& operator=(const file&) = delete;
    virtual ~file() = default;

    /// Reads at most `into.size()` bytes; fewer is legal, 0 only at the end of the file.
    virtual result<std::size_t> pread(std::span<char> into, std::uint64_t offset) = 0;
    /// Writes at least one and at most `bytes.size()` bytes; fewer is legal.
    virtual result<std::size_t> pwrite(std::string_view bytes, std::uint64_t offset) = 0;
    virtual result<void> fsync() = 0;
    virtual result<void> fdatasync() = 0;
    virtual result<void> truncate(std::uint64_t size_bytes) = 0;
    /// Makes the file at least `size_bytes` long, the new part zeros, and sets that space aside on the disk.
    virtual result<void> preallocate(std::uint64_t size_bytes) = 0;
    virtual result<std::uint64_t> size_bytes() = 0;
};

/// An exclusive lock, held until it is destroyed or its process dies.
class file_lock {
public:
    file_lock() = default;
    file_lock(const file_lock&) = delete;
    file_lock& operator=(const file_lock&) = delete;
    virtual ~file_lock() = default;
};

enum class entry_kind : std::uint8_t { file, directory, other };

struct directory_entry {
    std::string name;
    entry_kind kind = entry_kind::file;
    friend bool operator==(const directory_entry&, const directory_entry&) = default;
};

/// The few calls on files that storage needs. Two implementations: `posix_file_system` and the simulated disk of
/// backends/sim; the code above it is the same on both. Errors: errc::not_found, already_exists, locked, no_space,
/// io_error; the context names the path.
class file_system {
public:
    file_system() = default;
    file_system(const file_system&) = delete;
    file_system& operator=(const file_system&) = delete;
    virtual ~file_system() = default;

    virtual result<std::unique_ptr<file>> open(const std::string& path, open_mode mode) = 0;
    /// Replaces `to` if it is a file. Atomic; durable once the directory of `to` is synced.
    virtual result<void> rename(const std::string& from, const std::string& to) = 0;
    virtual result<void> unlink(const std::string& path) = 0;
    /// A second name for a file; errc::unsupported where the file system has none.
    virtual result<void> link(const std::string& from, const std::string& to) = 0;
    /// Makes one directory; errc::already_exists if it is there.
    virtual result<void> mkdir(const std::string& path) = 0;
    /// Removes an empty directory.
    virtual result<void> rmdir(const std::string& path) = 0;
    /// Entries in ascending order of their names.
    virtual result<std::vector<directory_entry>> list(const std::string& path) = 0;
    virtual result<void> sync_dir(const std::string& path) = 0;
    /// Bytes that an unprivileged writer may still use.
    virtual result<std::uint64_t> free_bytes(const std::string& path) = 0;
    /// Exclusive lock on the file `path` (made if missing); errc::locked when somebody has it.
    virtual result<std::unique_ptr<file_lock>> lock(const std::string& path) = 0;
};

// Helpers over the interface. All loop over short reads and writes.

std::string join(std::string_view directory, std::string_view name);
std::string parent_directory(std::string_view path);

result<void> pwrite_all(file& to, std::string_view bytes, std::uint64_t offset);
/// Reads `into.size()` bytes or up to the end of the file; gives what was read.
result<std::size_t> pread_all(file& from, std::span<char> into, std::uint64_t offset);
/// Errors: those of the calls; errc::too_large when the file is longer than `bytes_max`.
result<std::string> read_file(file_system& fs, const std::string& path,
                              std::uint64_t bytes_max = std::uint64_t{1} << 40U);
bool exists(file_system& fs, const std::string& path);
/// Makes the directory if it is missing and syncs its parent.
result<void> ensure_directory(file_system& fs, const std::string& path);
/// Temp file, fsync, rename, directory fsync: after success the file has its new content for good; at every instant
/// before it has the old or the new one.
result<void> replace_file(file_system& fs, const std::string& path, std::string_view bytes);
/// A second name for a finished file, or a copy of it where the file system has no links or `to` lies on another one.
/// A copy appears whole and synced. The name is durable once the directory of `to` is synced.
/// Errors: errc::already_exists, those of the calls.
result<void> link_or_copy(file_system& fs, const std::string& from, const std::string& to);
/// Removes a file, or a directory with all it holds. Missing is success.
result<void> remove_tree(file_system& fs, const std::string& path);

}  // namespace darlcore::storage
