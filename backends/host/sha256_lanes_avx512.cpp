// SPDX-License-Identifier: Apache-2.0
// Compiled for AVX-512: as in kernel_body.hpp no inline function of a library header is used here.
#include <immintrin.h>

#include "backends/host/sha256_lanes.hpp"

namespace darlcore::host {
namespace {

using words = __m512i;

#define DARLCORE_INLINE inline __attribute__((always_inline))

alignas(64) constexpr std::uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

DARLCORE_INLINE words add(words a, words b) { return _mm512_add_epi32(a, b); }
DARLCORE_INLINE words xor3(words a, words b, words c) { return _mm512_ternarylogic_epi32(a, b, c, 0x96); }
DARLCORE_INLINE words choose(words e, words f, words g) { return _mm512_ternarylogic_epi32(e, f, g, 0xca); }
DARLCORE_INLINE words majority(words a, words b, words c) { return _mm512_ternarylogic_epi32(a, b, c, 0xe8); }
DARLCORE_INLINE words big0(words x) {
    return xor3(_mm512_ror_epi32(x, 2), _mm512_ror_epi32(x, 13), _mm512_ror_epi32(x, 22));
}
DARLCORE_INLINE words big1(words x) {
    return xor3(_mm512_ror_epi32(x, 6), _mm512_ror_epi32(x, 11), _mm512_ror_epi32(x, 25));
}
DARLCORE_INLINE words small0(words x) {
    return xor3(_mm512_ror_epi32(x, 7), _mm512_ror_epi32(x, 18), _mm512_srli_epi32(x, 3));
}
DARLCORE_INLINE words small1(words x) {
    return xor3(_mm512_ror_epi32(x, 17), _mm512_ror_epi32(x, 19), _mm512_srli_epi32(x, 10));
}

/// w[t] = word t of the block of every lane, from rows that hold one lane each.
DARLCORE_INLINE void load_block(words* w, const std::byte* const* from, std::size_t offset) {
    const words big_endian =
        _mm512_broadcast_i32x4(_mm_setr_epi8(3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12));
    words rows[16], pairs[16], quads[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) rows[i] = _mm512_shuffle_epi8(_mm512_loadu_si512(from[i] + offset), big_endian);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
        pairs[2 * i] = _mm512_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
        pairs[2 * i + 1] = _mm512_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        quads[4 * i] = _mm512_unpacklo_epi64(pairs[4 * i], pairs[4 * i + 2]);
        quads[4 * i + 1] = _mm512_unpackhi_epi64(pairs[4 * i], pairs[4 * i + 2]);
        quads[4 * i + 2] = _mm512_unpacklo_epi64(pairs[4 * i + 1], pairs[4 * i + 3]);
        quads[4 * i + 3] = _mm512_unpackhi_epi64(pairs[4 * i + 1], pairs[4 * i + 3]);
    }
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
        const words low0 = _mm512_shuffle_i32x4(quads[k], quads[4 + k], 0x44);
        const words low1 = _mm512_shuffle_i32x4(quads[8 + k], quads[12 + k], 0x44);
        const words high0 = _mm512_shuffle_i32x4(quads[k], quads[4 + k], 0xee);
        const words high1 = _mm512_shuffle_i32x4(quads[8 + k], quads[12 + k], 0xee);
        w[k] = _mm512_shuffle_i32x4(low0, low1, 0x88);
        w[4 + k] = _mm512_shuffle_i32x4(low0, low1, 0xdd);
        w[8 + k] = _mm512_shuffle_i32x4(high0, high1, 0x88);
        w[12 + k] = _mm512_shuffle_i32x4(high0, high1, 0xdd);
    }
}

/// Sixteen rounds; `Extend` makes the next sixteen words of the message as it goes.
template <bool Extend>
DARLCORE_INLINE void sixteen_rounds(words* s, words* w, const std::uint32_t* constants) {
#pragma GCC unroll 16
    for (unsigned t = 0; t < 16; ++t) {
        if constexpr (Extend)
            w[t] = add(add(w[t], small0(w[(t + 1) % 16])), add(w[(t + 9) % 16], small1(w[(t + 14) % 16])));
        const auto at = [t](unsigned k) { return (k + 16 - t) % 8; };
        const words e = s[at(4)], a = s[at(0)];
        const words keyed = add(w[t], _mm512_set1_epi32(static_cast<int>(constants[t])));
        const words first = add(add(s[at(7)], keyed), add(choose(e, s[at(5)], s[at(6)]), big1(e)));
        s[at(3)] = add(s[at(3)], first);
        s[at(7)] = add(first, add(big0(a), majority(a, s[at(1)], s[at(2)])));
    }
}

}  // namespace

void sha256_lanes_update(sha256_lanes& state, const std::byte* const* from, std::size_t blocks) {
    words s[8];
    for (int k = 0; k < 8; ++k) s[k] = _mm512_load_si512(state.words[k]);
    for (std::size_t block = 0; block < blocks; ++block) {
        words w[16], before[8];
        for (int k = 0; k < 8; ++k) before[k] = s[k];
        load_block(w, from, block * 64);
        sixteen_rounds<false>(s, w, round_constants);
        for (int turn = 1; turn < 4; ++turn) sixteen_rounds<true>(s, w, round_constants + 16 * turn);
        for (int k = 0; k < 8; ++k) s[k] = add(s[k], before[k]);
    }
    for (int k = 0; k < 8; ++k) _mm512_store_si512(state.words[k], s[k]);
}

}  // namespace darlcore::host
