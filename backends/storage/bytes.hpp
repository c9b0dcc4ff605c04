// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "darlcore/assert.hpp"

namespace darlcore::storage {

/// Appends an integer, least significant byte first.
template <std::integral I>
void put(std::string& to, I value) {
    auto bits = static_cast<std::make_unsigned_t<I>>(value);
    for (std::size_t i = 0; i < sizeof(I); ++i) {
        to.push_back(static_cast<char>(bits & 0xffU));
        bits = static_cast<decltype(bits)>(static_cast<std::uint64_t>(bits) >> 8U);
    }
}

/// Overwrites the integer at `offset`.
template <std::integral I>
void put_at(std::string& to, std::size_t offset, I value) {
    DARLCORE_ASSERT_CMP(offset + sizeof(I), <=, to.size());
    auto bits = static_cast<std::uint64_t>(static_cast<std::make_unsigned_t<I>>(value));
    for (std::size_t i = 0; i < sizeof(I); ++i, bits >>= 8U) to[offset + i] = static_cast<char>(bits & 0xffU);
}

/// The integer at `offset`.
/// Preconditions (asserted): the bytes are there.
template <std::integral I>
I get(std::string_view from, std::size_t offset) {
    DARLCORE_ASSERT_CMP(offset + sizeof(I), <=, from.size());
    std::uint64_t bits = 0;
    for (std::size_t i = sizeof(I); i-- > 0;) bits = (bits << 8U) | static_cast<unsigned char>(from[offset + i]);
    return static_cast<I>(bits);
}

}  // namespace darlcore::storage
