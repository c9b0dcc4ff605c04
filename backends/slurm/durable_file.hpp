// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "darlcore/error.hpp"

namespace darlcore::slurm {

/// The last system error as ours: errc::no_space or errc::io_error, with path and what was tried.
error system_failure(const std::string& path, std::string_view what);

/// Writes all of the text at the descriptor's place and syncs its data. Short writes are continued; a failed sync is
/// never repeated. Errors: as system_failure.
result<void> append_durably(int fd, const std::string& path, std::string_view text);

/// Makes the names in a folder durable. Errors: as system_failure.
result<void> sync_folder(const std::string& folder);

/// A new file with the whole text, durable, under its final name only: a crash leaves the old file or the new one.
/// Mode 0600. Errors: as system_failure.
result<void> replace_durably(const std::string& folder, const std::string& name, std::string_view text);

/// The whole file; empty when it cannot be read.
std::string read_whole(const std::string& path);

}  // namespace darlcore::slurm
