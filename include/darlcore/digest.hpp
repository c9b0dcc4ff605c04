// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "darlcore/blake2b.hpp"
#include "darlcore/hex.hpp"
#include "darlcore/sha2.hpp"

// The digests of the project (docs/adr/0002): BLAKE2b pins meaning (block space, corpus, layout), SHA-2 checks files
// and seeds.
namespace darlcore {

/// 16 bytes; wire text = 32 lower-case hex digits.
using digest16 = std::array<std::uint8_t, 16>;
/// 32 bytes; wire text = 64 lower-case hex digits.
using digest32 = std::array<std::uint8_t, 32>;

/// BLAKE2b with N bytes of output over one piece of input.
template <std::size_t N>
constexpr std::array<std::uint8_t, N> blake2b_of(std::string_view text) {
    std::array<std::uint8_t, N> out{};
    blake2b(N).update(text).finish(out);
    return out;
}
template <std::size_t N>
constexpr std::array<std::uint8_t, N> blake2b_of(std::span<const std::uint8_t> bytes) {
    std::array<std::uint8_t, N> out{};
    blake2b(N).update(bytes).finish(out);
    return out;
}

/// Finishes a running BLAKE2b of N bytes of output.
template <std::size_t N>
constexpr std::array<std::uint8_t, N> finish_digest(blake2b& hash) {
    std::array<std::uint8_t, N> out{};
    hash.finish(out);
    return out;
}

constexpr sha512::digest_type sha512_of(std::string_view text) { return sha512().update(text).finish(); }
constexpr sha256::digest_type sha256_of(std::string_view text) { return sha256().update(text).finish(); }
constexpr sha256::digest_type sha256_of(std::span<const std::uint8_t> bytes) { return sha256().update(bytes).finish(); }

}  // namespace darlcore
