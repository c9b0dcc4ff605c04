// SPDX-License-Identifier: Apache-2.0
// Included once per vector width: DARLCORE_VECTOR_BYTES and DARLCORE_MOVE are defined by the file that includes it.
#include <cstdint>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "bench/host/ceiling.hpp"

namespace darlcore::bench {
namespace {

constexpr std::size_t width = DARLCORE_VECTOR_BYTES;
constexpr std::size_t lanes = width / 4;
constexpr std::size_t unroll = 64 / lanes;
using words = std::uint32_t __attribute__((vector_size(width)));
using halves = std::uint16_t __attribute__((vector_size(width / 2)));

template <class V>
inline V load(const void* p) {
    V v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

inline void stream(void* p, words v) {
#if DARLCORE_VECTOR_BYTES == 64
    _mm512_stream_si512(static_cast<__m512i*>(p), (__m512i)v);
#elif defined(__x86_64__)
    _mm_stream_si128(static_cast<__m128i*>(p), (__m128i)v);
#else
    __builtin_memcpy(p, &v, sizeof v);
#endif
}

template <int Count, bool Half>
inline words sum_at(const traffic& t, std::size_t k) {
    words s{};
    for (int i = 0; i < Count; ++i) {
        const char* d = static_cast<const char*>(t.deltas[i]);
        if constexpr (Half)
            s += __builtin_convertvector(load<halves>(d + 2 * k), words);
        else
            s += load<words>(d + 4 * k);
    }
    return s;
}

template <int Count, bool Half>
void move(const traffic& t, std::size_t first, std::size_t end) {
    for (std::size_t k = first; k < end; k += 64) {
        words x[unroll], y[unroll];
        for (std::size_t u = 0; u < unroll; ++u) {
            x[u] = load<words>(t.w + k + u * lanes) + sum_at<Count, Half>(t, k + u * lanes);
            y[u] = x[u] - load<words>(t.v + k + u * lanes);
        }
        for (std::size_t u = 0; u < unroll; ++u) {
            const std::size_t at = k + u * lanes;
            if (t.w_out != nullptr) {
                stream(t.w_out + at, y[u]);
                stream(t.v_out + at, x[u]);
            } else {
                __builtin_memcpy(t.w + at, &y[u], width);
                __builtin_memcpy(t.v + at, &x[u], width);
            }
            if (t.wire != nullptr) {
                const halves low = __builtin_convertvector(y[u], halves);
                __builtin_memcpy(static_cast<char*>(t.wire) + 2 * at, &low, sizeof low);
            }
        }
    }
#if defined(__x86_64__)
    if (t.w_out != nullptr) _mm_sfence();
#endif
}

template <int Count>
void move_count(const traffic& t, std::size_t first, std::size_t end) {
    if (t.half)
        move<Count, true>(t, first, end);
    else
        move<Count, false>(t, first, end);
}

}  // namespace

void DARLCORE_MOVE(const traffic& t, std::size_t first, std::size_t end) {
    switch (t.count) {
        case 1:
            return move_count<1>(t, first, end);
        case 2:
            return move_count<2>(t, first, end);
        case 3:
            return move_count<3>(t, first, end);
        default:
            return move_count<8>(t, first, end);
    }
}

}  // namespace darlcore::bench
