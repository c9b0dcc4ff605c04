// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "darlcore/error.hpp"
#include "darlcore/site/session.hpp"

/// The note of a finished contribution that no server has answered yet: `unsent.json` in the site's folder.
namespace darlcore::client {

/// Written to a staging name, synced, renamed, the folder synced: afterwards a crash loses nothing that was finished.
/// Errors: errc::io_error naming the file.
result<void> write_unsent(const std::string& folder, const site::unsent_contribution& note);

/// The note, if there is one.
/// Errors: errc::corrupt naming the file; errc::io_error.
result<std::optional<site::unsent_contribution>> read_unsent(const std::string& folder);

/// Removes the note if it names this contribution.
void remove_unsent(const std::string& folder, const contribution_id& id);

}  // namespace darlcore::client
