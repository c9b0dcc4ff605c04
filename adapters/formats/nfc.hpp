// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "darlcore/error.hpp"

namespace darlcore::formats {

/// Unicode normalisation form C by utf8proc. Texts without a character from U+0300 on are in that form already and are
/// given back as they are; of others only the runs around such characters pass through the library.
/// `buffer` holds the result where it differs from the input; the view points to it or to the input.
/// Errors: errc::too_large (a run beyond the library's limit). Preconditions: text is valid UTF-8.
/// Thread-safety: as the buffer.
result<std::string_view> to_nfc(std::string_view text, std::string& buffer);

}  // namespace darlcore::formats
