// SPDX-License-Identifier: Apache-2.0
#include "adapters/formats/byte_level.hpp"

#include "adapters/formats/utf8.hpp"

namespace darlcore::formats {

namespace {

// Bytes of the characters below U+0144; -1 where a character stands for none.
constexpr std::array<std::int16_t, 0x144> byte_of_character() {
    std::array<std::int16_t, 0x144> out{};
    for (auto& b : out) b = -1;
    const auto characters = byte_level_characters();
    for (std::size_t b = 0; b < characters.size(); ++b) out[characters[b]] = static_cast<std::int16_t>(b);
    return out;
}

}  // namespace

std::optional<std::string> byte_level_bytes(std::string_view token) {
    static constexpr auto bytes = byte_of_character();
    std::string out;
    while (!token.empty()) {
        const std::size_t length = first_utf8_part(token).bytes;
        if (length > 2) return std::nullopt;
        const auto lead = static_cast<unsigned char>(token[0]);
        const std::size_t character =
            length == 1 ? lead : (lead & 0x1fU) << 6U | (static_cast<unsigned char>(token[1]) & 0x3fU);
        if (character >= bytes.size() || bytes[character] < 0) return std::nullopt;
        out.push_back(static_cast<char>(bytes[character]));
        token.remove_prefix(length);
    }
    return out;
}

}  // namespace darlcore::formats
