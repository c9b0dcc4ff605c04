// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace darlcore::formats {

/// What starts at a place of a text: a well-formed character, or a maximal ill-formed part (Unicode 15, 3.9, table
/// 3-7).
struct utf8_part {
    std::size_t bytes = 0;
    bool well_formed = false;
};

/// Preconditions: text is not empty.
constexpr utf8_part first_utf8_part(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned char lead = byte(0);
    if (lead < 0x80) return {1, true};
    std::size_t length = 0;
    unsigned char low = 0x80;  // bounds of the second byte; later ones are 80 ... bf
    unsigned char high = 0xbf;
    if (lead >= 0xc2 && lead <= 0xdf)
        length = 2;
    else if (lead >= 0xe0 && lead <= 0xef)
        length = 3;
    else if (lead >= 0xf0 && lead <= 0xf4)
        length = 4;
    else
        return {1, false};
    if (lead == 0xe0) low = 0xa0;
    if (lead == 0xed) high = 0x9f;
    if (lead == 0xf0) low = 0x90;
    if (lead == 0xf4) high = 0x8f;
    for (std::size_t i = 1; i < length; ++i) {
        if (i == text.size() || byte(i) < low || byte(i) > high) return {i, false};
        low = 0x80;
        high = 0xbf;
    }
    return {length, true};
}

/// Offset of the first byte that is not well-formed UTF-8; nothing when all is.
constexpr std::optional<std::size_t> first_invalid_utf8(std::string_view text) {
    for (std::size_t at = 0; at < text.size();) {
        const utf8_part part = first_utf8_part(text.substr(at));
        if (!part.well_formed) return at;
        at += part.bytes;
    }
    return std::nullopt;
}

/// The text with U+FFFD for each maximal ill-formed part; adds how many there were to `replaced`.
inline std::string replace_invalid_utf8(std::string_view text, std::uint64_t& replaced) {
    std::string out;
    out.reserve(text.size());
    for (std::size_t at = 0; at < text.size();) {
        const utf8_part part = first_utf8_part(text.substr(at));
        if (part.well_formed) {
            out.append(text.substr(at, part.bytes));
        } else {
            out.append("\xef\xbf\xbd");
            ++replaced;
        }
        at += part.bytes;
    }
    return out;
}

}  // namespace darlcore::formats
