// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string_view>

namespace darlcore::plan {

/// True if a command-line argument holds only [A-Za-z0-9_.,:=+@%/[]-]: nothing that a shell, a log or a script would
/// read as more than text. Probe text and plan documents come over a network.
constexpr bool is_plain_argument(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) {
        const bool alnum = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        return alnum || std::string_view("_.,:=+@%/[]-").find(c) != std::string_view::npos;
    });
}

}  // namespace darlcore::plan
