// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "darlcore/error.hpp"

namespace darl {

/// The documents of an R lazy-load file (.rdb): each entry that is a character vector, its lines joined by newlines.
/// Entry: 4 bytes big-endian size of the inflated data, then a zlib stream with an XDR serialisation (version 2 or 3).
/// Errors: errc::corrupt naming the entry; errc::too_large when an entry inflates to more than 64 MiB.
/// Source: R Internals, "Serialization Formats".
darlcore::result<std::vector<std::string>> read_r_documents(std::string_view file);

/// The English text that `make setup` unpacks: six novels, one document each.
/// Errors: errc::not_found saying how to get it.
darlcore::result<std::vector<std::string>> demo_novels();

}  // namespace darl
