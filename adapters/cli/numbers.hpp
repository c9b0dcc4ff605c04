// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <string>
#include <string_view>

#include "darlcore/error.hpp"

namespace darl {

/// A whole decimal number and nothing else: no sign for unsigned types, no blanks, no other base.
/// Errors: errc::invalid_argument (not a number), errc::overflow; the context names the option.
template <class Number>
darlcore::result<Number> whole_number(std::string_view option, std::string_view text) {
    Number value{};
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failure == std::errc::result_out_of_range)
        return darlcore::fail(darlcore::errc::overflow,
                              std::string(option) + ": " + std::string(text) + " is out of range");
    if (failure != std::errc() || end != text.data() + text.size())
        return darlcore::fail(darlcore::errc::invalid_argument,
                              std::string(option) + ": `" + std::string(text) + "` is not a whole number");
    return value;
}

}  // namespace darl
