// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace darlcore::formats {

/// The printable character that stands for each byte in the files of byte-level tokenizers.
/// Source: GPT-2's bytes_to_unicode: printable Latin-1 bytes stand for themselves, the others for U+0100 and up in
/// order.
constexpr std::array<char32_t, 256> byte_level_characters() {
    std::array<char32_t, 256> out{};
    char32_t next = 0x100;
    for (std::uint32_t b = 0; b < 256; ++b) {
        const bool printable = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        out[b] = printable ? b : next++;
    }
    return out;
}

/// The bytes that a token of such a file stands for; nothing when a character stands for no byte.
/// Preconditions: token is valid UTF-8.
std::optional<std::string> byte_level_bytes(std::string_view token);

}  // namespace darlcore::formats
