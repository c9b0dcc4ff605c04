// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "darlcore/assert.hpp"

namespace darlcore {

/// BLAKE2b (RFC 7693) without key, salt or personalisation; any output of 1 to 64 bytes. The size is part of the hash:
/// a short output is no prefix of a long one.
/// Determinism: independent of how the input is cut into updates and of the byte order of the host.
/// Complexity: O(bytes), no allocation; usable in constant expressions.
/// Thread-safety: a value; copy it to hash several continuations of one prefix.
class blake2b {
public:
    static constexpr std::size_t block_bytes = 128;
    static constexpr std::size_t output_bytes_max = 64;

private:
    // Private functions come first: in constant expressions clang 14 calls only templates that it has read already.
    static constexpr std::array<std::uint64_t, 8> initial = {
        0x6a09e667f3bcc908U, 0xbb67ae8584caa73bU, 0x3c6ef372fe94f82bU, 0xa54ff53a5f1d36f1U,
        0x510e527fade682d1U, 0x9b05688c2b3e6c1fU, 0x1f83d9abfb41bd6bU, 0x5be0cd19137e2179U};
    static constexpr std::uint8_t sigma[10][16] = {
        {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
        {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
        {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
        {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
        {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};
    using words = std::array<std::uint64_t, 16>;

    constexpr void count_bytes(std::size_t more) {
        counted_low_ += more;
        if (counted_low_ < more) ++counted_high_;
    }

    template <class Byte>
    static constexpr std::uint64_t load_word(const Byte* p) {
        std::uint64_t word = 0;
        if constexpr (std::endian::native == std::endian::little) {
            if (!std::is_constant_evaluated()) {
                std::memcpy(&word, p, sizeof word);
                return word;
            }
        }
        for (unsigned i = 0; i < 8; ++i) word |= std::uint64_t{static_cast<std::uint8_t>(p[i])} << (8U * i);
        return word;
    }

    static constexpr void mix(words& v, std::size_t a, std::size_t b, std::size_t c, std::size_t d, std::uint64_t x,
                              std::uint64_t y) {
        v[a] = v[a] + v[b] + x;
        v[d] = std::rotr(v[d] ^ v[a], 32);
        v[c] = v[c] + v[d];
        v[b] = std::rotr(v[b] ^ v[c], 24);
        v[a] = v[a] + v[b] + y;
        v[d] = std::rotr(v[d] ^ v[a], 16);
        v[c] = v[c] + v[d];
        v[b] = std::rotr(v[b] ^ v[c], 63);
    }

    // The round number is a template argument so that the message order is a constant and the words stay in registers.
    template <std::size_t Round>
    static constexpr void mix_round(words& v, const words& m) {
        constexpr auto& s = sigma[Round % 10];
        mix(v, 0, 4, 8, 12, m[s[0]], m[s[1]]);
        mix(v, 1, 5, 9, 13, m[s[2]], m[s[3]]);
        mix(v, 2, 6, 10, 14, m[s[4]], m[s[5]]);
        mix(v, 3, 7, 11, 15, m[s[6]], m[s[7]]);
        mix(v, 0, 5, 10, 15, m[s[8]], m[s[9]]);
        mix(v, 1, 6, 11, 12, m[s[10]], m[s[11]]);
        mix(v, 2, 7, 8, 13, m[s[12]], m[s[13]]);
        mix(v, 3, 4, 9, 14, m[s[14]], m[s[15]]);
    }

    template <std::size_t... Rounds>
    static constexpr void mix_rounds(words& v, const words& m, std::index_sequence<Rounds...>) {
        (mix_round<Rounds>(v, m), ...);
    }

    template <class Byte>
    constexpr void compress(const Byte* block, bool last) {
        words m{};
        for (std::size_t i = 0; i < 16; ++i) m[i] = load_word(block + 8 * i);
        words v{};
        for (std::size_t i = 0; i < 8; ++i) v[i] = chain_[i];
        for (std::size_t i = 0; i < 8; ++i) v[8 + i] = initial[i];
        v[12] ^= counted_low_;
        v[13] ^= counted_high_;
        if (last) v[14] = ~v[14];
        mix_rounds(v, m, std::make_index_sequence<12>{});
        for (std::size_t i = 0; i < 8; ++i) chain_[i] ^= v[i] ^ v[8 + i];
    }

    template <class Byte>
    constexpr blake2b& absorb(const Byte* data, std::size_t size) {
        // The last block is kept back: only `finish` knows that it is the last.
        while (size > 0) {
            if (filled_ == block_bytes) {
                count_bytes(block_bytes);
                compress(buffer_.data(), false);
                filled_ = 0;
            }
            if (filled_ == 0) {
                for (; size > block_bytes; data += block_bytes, size -= block_bytes) {
                    count_bytes(block_bytes);
                    compress(data, false);
                }
            }
            const std::size_t taken = std::min(block_bytes - filled_, size);
            for (std::size_t i = 0; i < taken; ++i) buffer_[filled_ + i] = static_cast<std::uint8_t>(data[i]);
            filled_ += taken;
            data += taken;
            size -= taken;
        }
        return *this;
    }

public:
    /// Preconditions (asserted): 1 <= output_bytes <= 64.
    constexpr explicit blake2b(std::size_t output_bytes) : output_bytes_(output_bytes) {
        DARLCORE_ASSERT(output_bytes >= 1 && output_bytes <= output_bytes_max);
        chain_[0] ^= 0x01010000U ^ output_bytes;
    }

    constexpr blake2b& update(std::string_view text) { return absorb(text.data(), text.size()); }
    constexpr blake2b& update(std::span<const std::uint8_t> bytes) { return absorb(bytes.data(), bytes.size()); }
    constexpr blake2b& update(std::span<const std::byte> bytes) { return absorb(bytes.data(), bytes.size()); }

    /// Writes the digest; the object must not be used afterwards.
    /// Preconditions (asserted): out.size() is the output size given at construction.
    constexpr void finish(std::span<std::uint8_t> out) {
        DARLCORE_ASSERT(out.size() == output_bytes_);
        std::fill(buffer_.begin() + static_cast<std::ptrdiff_t>(filled_), buffer_.end(), std::uint8_t{0});
        count_bytes(filled_);
        compress(buffer_.data(), true);
        for (std::size_t i = 0; i < out.size(); ++i)
            out[i] = static_cast<std::uint8_t>(chain_[i / 8] >> (8U * (i % 8U)));
    }

private:
    std::array<std::uint64_t, 8> chain_ = initial;
    std::array<std::uint8_t, block_bytes> buffer_{};
    std::uint64_t counted_low_ = 0;
    std::uint64_t counted_high_ = 0;
    std::size_t filled_ = 0;
    std::size_t output_bytes_;
};

}  // namespace darlcore
