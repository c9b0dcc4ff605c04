// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "backends/storage/file_system.hpp"

namespace darlcore::storage {

/// The operating system's files. Calls interrupted by a signal are repeated; nothing else is.
/// Thread-safety: calls on different files run in parallel; pread and pwrite on one file too.
class posix_file_system final : public file_system {
public:
    result<std::unique_ptr<file>> open(const std::string& path, open_mode mode) override;
    result<void> rename(const std::string& from, const std::string& to) override;
    result<void> unlink(const std::string& path) override;
    result<void> link(const std::string& from, const std::string& to) override;
    result<void> mkdir(const std::string& path) override;
    result<void> rmdir(const std::string& path) override;
    result<std::vector<directory_entry>> list(const std::string& path) override;
    result<void> sync_dir(const std::string& path) override;
    result<std::uint64_t> free_bytes(const std::string& path) override;
    result<std::unique_ptr<file_lock>> lock(const std::string& path) override;
};

/// Name of the file system `path` lies on ("ext4", "nfs", "tmpfs", ...) or its number in hex; for the start-up message.
std::string file_system_type(const std::string& path);

/// What identifies this process to whoever finds its lock: the boot id of the kernel (empty where there is none) and
/// the host name.
std::string boot_id();
std::string host_name();

}  // namespace darlcore::storage
