// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "darlcore/assert.hpp"

namespace darlcore {
namespace detail {

inline constexpr std::array<std::uint64_t, 80> sha512_constants = {
    0x428a2f98d728ae22U, 0x7137449123ef65cdU, 0xb5c0fbcfec4d3b2fU, 0xe9b5dba58189dbbcU, 0x3956c25bf348b538U,
    0x59f111f1b605d019U, 0x923f82a4af194f9bU, 0xab1c5ed5da6d8118U, 0xd807aa98a3030242U, 0x12835b0145706fbeU,
    0x243185be4ee4b28cU, 0x550c7dc3d5ffb4e2U, 0x72be5d74f27b896fU, 0x80deb1fe3b1696b1U, 0x9bdc06a725c71235U,
    0xc19bf174cf692694U, 0xe49b69c19ef14ad2U, 0xefbe4786384f25e3U, 0x0fc19dc68b8cd5b5U, 0x240ca1cc77ac9c65U,
    0x2de92c6f592b0275U, 0x4a7484aa6ea6e483U, 0x5cb0a9dcbd41fbd4U, 0x76f988da831153b5U, 0x983e5152ee66dfabU,
    0xa831c66d2db43210U, 0xb00327c898fb213fU, 0xbf597fc7beef0ee4U, 0xc6e00bf33da88fc2U, 0xd5a79147930aa725U,
    0x06ca6351e003826fU, 0x142929670a0e6e70U, 0x27b70a8546d22ffcU, 0x2e1b21385c26c926U, 0x4d2c6dfc5ac42aedU,
    0x53380d139d95b3dfU, 0x650a73548baf63deU, 0x766a0abb3c77b2a8U, 0x81c2c92e47edaee6U, 0x92722c851482353bU,
    0xa2bfe8a14cf10364U, 0xa81a664bbc423001U, 0xc24b8b70d0f89791U, 0xc76c51a30654be30U, 0xd192e819d6ef5218U,
    0xd69906245565a910U, 0xf40e35855771202aU, 0x106aa07032bbd1b8U, 0x19a4c116b8d2d0c8U, 0x1e376c085141ab53U,
    0x2748774cdf8eeb99U, 0x34b0bcb5e19b48a8U, 0x391c0cb3c5c95a63U, 0x4ed8aa4ae3418acbU, 0x5b9cca4f7763e373U,
    0x682e6ff3d6b2b8a3U, 0x748f82ee5defb2fcU, 0x78a5636f43172f60U, 0x84c87814a1f0ab72U, 0x8cc702081a6439ecU,
    0x90befffa23631e28U, 0xa4506cebde82bde9U, 0xbef9a3f7b2c67915U, 0xc67178f2e372532bU, 0xca273eceea26619cU,
    0xd186b8c721c0c207U, 0xeada7dd6cde0eb1eU, 0xf57d4f7fee6ed178U, 0x06f067aa72176fbaU, 0x0a637dc5a2c898a6U,
    0x113f9804bef90daeU, 0x1b710b35131c471bU, 0x28db77f523047d84U, 0x32caab7b40c72493U, 0x3c9ebe0a15c9bebcU,
    0x431d67c49c100d4cU, 0x4cc5d4becb3e42b6U, 0x597f299cfc657e2aU, 0x5fcb6fab3ad6faecU, 0x6c44198c4a475817U};

struct sha512_traits {
    using word = std::uint64_t;
    static constexpr std::size_t rounds = 80;
    static constexpr std::array<word, 8> initial = {0x6a09e667f3bcc908U, 0xbb67ae8584caa73bU, 0x3c6ef372fe94f82bU,
                                                    0xa54ff53a5f1d36f1U, 0x510e527fade682d1U, 0x9b05688c2b3e6c1fU,
                                                    0x1f83d9abfb41bd6bU, 0x5be0cd19137e2179U};
    static constexpr word constant(std::size_t round) { return sha512_constants[round]; }
    static constexpr word big0(word x) { return std::rotr(x, 28) ^ std::rotr(x, 34) ^ std::rotr(x, 39); }
    static constexpr word big1(word x) { return std::rotr(x, 14) ^ std::rotr(x, 18) ^ std::rotr(x, 41); }
    static constexpr word small0(word x) { return std::rotr(x, 1) ^ std::rotr(x, 8) ^ (x >> 7U); }
    static constexpr word small1(word x) { return std::rotr(x, 19) ^ std::rotr(x, 61) ^ (x >> 6U); }
};

// The 64 round constants of SHA-256 are the upper halves of the first 64 of SHA-512, and so are the initial words.
struct sha256_traits {
    using word = std::uint32_t;
    static constexpr std::size_t rounds = 64;
    static constexpr std::array<word, 8> initial = {0x6a09e667U, 0xbb67ae85U, 0x3c6ef372U, 0xa54ff53aU,
                                                    0x510e527fU, 0x9b05688cU, 0x1f83d9abU, 0x5be0cd19U};
    static constexpr word constant(std::size_t round) { return static_cast<word>(sha512_constants[round] >> 32U); }
    static constexpr word big0(word x) { return std::rotr(x, 2) ^ std::rotr(x, 13) ^ std::rotr(x, 22); }
    static constexpr word big1(word x) { return std::rotr(x, 6) ^ std::rotr(x, 11) ^ std::rotr(x, 25); }
    static constexpr word small0(word x) { return std::rotr(x, 7) ^ std::rotr(x, 18) ^ (x >> 3U); }
    static constexpr word small1(word x) { return std::rotr(x, 17) ^ std::rotr(x, 19) ^ (x >> 10U); }
};

}  // namespace detail

/// SHA-2 (FIPS 180-4) with the word size of Traits; see `sha256` and `sha512`.
/// Determinism: independent of how the input is cut into updates and of the byte order of the host.
/// Complexity: O(bytes), no allocation; usable in constant expressions. Inputs up to 2^61 - 1 bytes.
template <class Traits>
class sha2 {
    using word = typename Traits::word;

public:
    static constexpr std::size_t output_bytes = 8 * sizeof(word);
    static constexpr std::size_t block_bytes = 16 * sizeof(word);
    using digest_type = std::array<std::uint8_t, output_bytes>;

    constexpr sha2& update(std::string_view text) { return absorb(text.data(), text.size()); }
    constexpr sha2& update(std::span<const std::uint8_t> bytes) { return absorb(bytes.data(), bytes.size()); }
    constexpr sha2& update(std::span<const std::byte> bytes) { return absorb(bytes.data(), bytes.size()); }

    /// The digest; the object must not be used afterwards.
    constexpr digest_type finish() {
        const std::uint64_t bits = 8 * total_bytes_;
        buffer_[filled_++] = 0x80;
        if (filled_ > block_bytes - 2 * sizeof(word)) flush_padded();
        std::fill(buffer_.begin() + static_cast<std::ptrdiff_t>(filled_), buffer_.end(), std::uint8_t{0});
        for (unsigned i = 0; i < 8; ++i) buffer_[block_bytes - 1 - i] = static_cast<std::uint8_t>(bits >> (8U * i));
        compress(buffer_.data());
        digest_type out{};
        for (std::size_t i = 0; i < output_bytes; ++i) {
            const auto shift = static_cast<unsigned>(8 * (sizeof(word) - 1 - i % sizeof(word)));
            out[i] = static_cast<std::uint8_t>(state_[i / sizeof(word)] >> shift);
        }
        return out;
    }

private:
    template <class Byte>
    constexpr sha2& absorb(const Byte* data, std::size_t size) {
        total_bytes_ += size;
        while (size > 0) {
            if (filled_ == 0) {
                for (; size >= block_bytes; data += block_bytes, size -= block_bytes) compress(data);
            }
            const std::size_t taken = std::min(block_bytes - filled_, size);
            for (std::size_t i = 0; i < taken; ++i) buffer_[filled_ + i] = static_cast<std::uint8_t>(data[i]);
            filled_ += taken;
            data += taken;
            size -= taken;
            if (filled_ == block_bytes) {
                compress(buffer_.data());
                filled_ = 0;
            }
        }
        return *this;
    }

    constexpr void flush_padded() {
        std::fill(buffer_.begin() + static_cast<std::ptrdiff_t>(filled_), buffer_.end(), std::uint8_t{0});
        compress(buffer_.data());
        filled_ = 0;
    }

    template <class Byte>
    static constexpr word load_word(const Byte* p) {
        word w = 0;
        for (std::size_t i = 0; i < sizeof(word); ++i)
            w |= word{static_cast<std::uint8_t>(p[i])} << static_cast<unsigned>(8 * (sizeof(word) - 1 - i));
        return w;
    }

    template <class Byte>
    constexpr void compress(const Byte* block) {
        std::array<word, Traits::rounds> w{};
        for (std::size_t i = 0; i < 16; ++i) w[i] = load_word(block + sizeof(word) * i);
        for (std::size_t i = 16; i < Traits::rounds; ++i)
            w[i] = Traits::small1(w[i - 2]) + w[i - 7] + Traits::small0(w[i - 15]) + w[i - 16];
        auto [a, b, c, d, e, f, g, h] = state_;
        for (std::size_t i = 0; i < Traits::rounds; ++i) {
            const word t1 = h + Traits::big1(e) + ((e & f) ^ (~e & g)) + Traits::constant(i) + w[i];
            const word t2 = Traits::big0(a) + ((a & b) ^ (a & c) ^ (b & c));
            h = g;
            g = f;
            f = e;
            e = d + t1;
            d = c;
            c = b;
            b = a;
            a = t1 + t2;
        }
        const std::array<word, 8> sums = {a, b, c, d, e, f, g, h};
        for (std::size_t i = 0; i < 8; ++i) state_[i] += sums[i];
    }

    std::array<word, 8> state_ = Traits::initial;
    std::array<std::uint8_t, block_bytes> buffer_{};
    std::uint64_t total_bytes_ = 0;
    std::size_t filled_ = 0;
};

using sha256 = sha2<detail::sha256_traits>;
using sha512 = sha2<detail::sha512_traits>;

}  // namespace darlcore
