// SPDX-License-Identifier: Apache-2.0
// Included once per instruction set, with DARLCORE_VECTOR_BYTES (16, 32, 64) and DARLCORE_KERNELS (name of the table)
// defined. Nothing here has external linkage and no inline function of a library header is used in a loop: else the
// linker could keep the copy that was compiled for another instruction set.
#include <cstddef>
#include <cstdint>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "backends/host/kernels.hpp"

namespace darlcore::host {
namespace {

constexpr std::size_t width_bytes = DARLCORE_VECTOR_BYTES;
constexpr std::size_t lanes_f32 = width_bytes / 4;

using f32v = float __attribute__((vector_size(width_bytes)));
using u32v = std::uint32_t __attribute__((vector_size(width_bytes)));
using u16v = std::uint16_t __attribute__((vector_size(width_bytes / 2)));
// The f64 accumulators of one vector of f32.
using f64v = double __attribute__((vector_size(width_bytes)));
using f32half = float __attribute__((vector_size(width_bytes / 2)));

#define DARLCORE_INLINE inline __attribute__((always_inline))

template <class V>
DARLCORE_INLINE V load(const void* from) {
    V v;
    __builtin_memcpy(&v, from, sizeof v);
    return v;
}
template <class V>
DARLCORE_INLINE void store(void* to, V v) {
    __builtin_memcpy(to, &v, sizeof v);
}
DARLCORE_INLINE f32v splat(float x) { return x - f32v{}; }  // x - 0 keeps every x, also -0

// --- element types: how a vector of f32 is read and written
// -------------------------------------------------------------------

struct as_f32 {
    static constexpr std::size_t bytes = 4;
    static DARLCORE_INLINE f32v read(const std::byte* from) { return load<f32v>(from); }
    static DARLCORE_INLINE void write(std::byte* to, f32v x) { store(to, x); }
};

struct as_bf16 {
    static constexpr std::size_t bytes = 2;
    static DARLCORE_INLINE f32v read(const std::byte* from) {
        return (f32v)(__builtin_convertvector(load<u16v>(from), u32v) << 16);
    }
    static DARLCORE_INLINE u16v narrow(f32v x) {
        const u32v bits = (u32v)x;
        const u32v nan = (u32v)((bits & 0x7fffffffU) > 0x7f800000U);
        const u32v rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
        const u32v quiet = (bits >> 16) | 0x40U;
        return __builtin_convertvector((nan & quiet) | (~nan & rounded), u16v);
    }
    static DARLCORE_INLINE void write(std::byte* to, f32v x) { store(to, narrow(x)); }
};

struct as_f16 {
    static constexpr std::size_t bytes = 2;
#if DARLCORE_VECTOR_BYTES == 64
    static DARLCORE_INLINE f32v read(const std::byte* from) { return (f32v)_mm512_cvtph_ps(load<__m256i>(from)); }
    static DARLCORE_INLINE u16v narrow(f32v x) { return (u16v)_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT); }
#elif DARLCORE_VECTOR_BYTES == 32
    static DARLCORE_INLINE f32v read(const std::byte* from) { return (f32v)_mm256_cvtph_ps(load<__m128i>(from)); }
    static DARLCORE_INLINE u16v narrow(f32v x) { return (u16v)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT); }
#else
    static f32v read(const std::byte* from) {
        f32v x;
        for (std::size_t i = 0; i < lanes_f32; ++i) x[i] = f32_from_f16(load<std::uint16_t>(from + 2 * i));
        return x;
    }
    static u16v narrow(f32v x) {
        u16v words;
        for (std::size_t i = 0; i < lanes_f32; ++i) words[i] = f16_from_f32(x[i]);
        return words;
    }
#endif
    static DARLCORE_INLINE void write(std::byte* to, f32v x) { store(to, narrow(x)); }
};

/// Calls f with the element type.
template <class F>
DARLCORE_INLINE void with_type(dtype type, F&& f) {
    if (type == dtype::bf16)
        f(as_bf16{});
    else if (type == dtype::f16)
        f(as_f16{});
    else
        f(as_f32{});
}

DARLCORE_INLINE void copy_bytes(std::byte* to, const std::byte* from, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) to[i] = from[i];
}

/// Up to one vector at the end of a tensor, by way of a padded copy: the tail then takes the same instructions as the
/// rest.
template <class T>
DARLCORE_INLINE f32v read_tail(const std::byte* from, std::size_t n) {
    alignas(64) std::byte padded[width_bytes] = {};
    copy_bytes(padded, from, n * T::bytes);
    return T::read(padded);
}
template <class T>
DARLCORE_INLINE void write_tail(std::byte* to, std::size_t n, f32v x) {
    alignas(64) std::byte padded[width_bytes];
    T::write(padded, x);
    copy_bytes(to, padded, n * T::bytes);
}

template <class T>
DARLCORE_INLINE void prefetch(const std::byte* from, std::size_t ahead_bytes) {
    if (ahead_bytes != 0) __builtin_prefetch(from + ahead_bytes, 0, 2);
}

DARLCORE_INLINE const std::byte* raw(const void* p) { return static_cast<const std::byte*>(p); }
DARLCORE_INLINE std::byte* raw(void* p) { return static_cast<std::byte*>(p); }

// --- weighted sum
// ----------------------------------------------------------------------------------------------------------------

/// Several deltas in one go spare the sum its way to the first-level cache and back; the order of additions is the
/// same.
template <class T, std::size_t Count, bool Start, bool Scaled>
void accumulate_as(float* s, const delta_source* sources, std::size_t n, std::size_t ahead_bytes) {
    const std::byte* x[Count];
    f32v p[Count], c[Count];
    for (std::size_t k = 0; k < Count; ++k) {
        x[k] = raw(sources[k].x);
        p[k] = splat(sources[k].share);
        c[k] = splat(sources[k].scale);
    }
    const auto weighted = [&](std::size_t k, f32v value) {
        if constexpr (Scaled) value = c[k] * value;
        return p[k] * value;
    };
    std::size_t i = 0;
    for (; i + lanes_f32 <= n; i += lanes_f32) {
        f32v sum = Start ? f32v{} : load<f32v>(s + i);
        for (std::size_t k = 0; k < Count; ++k) {
            const std::byte* from = x[k] + i * T::bytes;
            if (i * T::bytes % 64 < lanes_f32 * T::bytes) prefetch<T>(from, ahead_bytes);
            const f32v one = weighted(k, T::read(from));
            sum = Start && k == 0 ? one : sum + one;
        }
        store(s + i, sum);
    }
    if (i == n) return;
    f32v sum = Start ? f32v{} : read_tail<as_f32>(raw(s + i), n - i);
    for (std::size_t k = 0; k < Count; ++k) {
        const f32v one = weighted(k, read_tail<T>(x[k] + i * T::bytes, n - i));
        sum = Start && k == 0 ? one : sum + one;
    }
    write_tail<as_f32>(raw(s + i), n - i, sum);
}

template <class T, std::size_t Count>
void accumulate_count(float* s, const delta_source* sources, std::size_t n, bool start, std::size_t ahead_bytes) {
    bool scaled = false;
    for (std::size_t k = 0; k < Count; ++k) scaled = scaled || sources[k].scale != 1.0F;
    if (start && !scaled)
        accumulate_as<T, Count, true, false>(s, sources, n, ahead_bytes);
    else if (start)
        accumulate_as<T, Count, true, true>(s, sources, n, ahead_bytes);
    else if (!scaled)
        accumulate_as<T, Count, false, false>(s, sources, n, ahead_bytes);
    else
        accumulate_as<T, Count, false, true>(s, sources, n, ahead_bytes);
}

void accumulate(float* s, const delta_source* sources, std::size_t count, dtype type, std::size_t n, bool start,
                std::size_t ahead_bytes) {
    with_type(type, [&](auto t) {
        using T = decltype(t);
        if (count == 4)
            accumulate_count<T, 4>(s, sources, n, start, ahead_bytes);
        else if (count == 2)
            accumulate_count<T, 2>(s, sources, n, start, ahead_bytes);
        else
            accumulate_count<T, 1>(s, sources, n, start, ahead_bytes);
    });
}

// --- the step
// ----------------------------------------------------------------------------------------------------------------------

DARLCORE_INLINE void stream(float* to, f32v x) {
#if DARLCORE_VECTOR_BYTES == 64
    _mm512_stream_ps(to, (__m512)x);
#elif DARLCORE_VECTOR_BYTES == 32
    _mm256_stream_ps(to, (__m256)x);
#elif defined(__x86_64__)
    _mm_stream_ps(to, (__m128)x);
#else
    store(to, x);
#endif
}

struct stepped {
    f32v next;
    f32v ahead;
};

template <bool Plain>
DARLCORE_INLINE stepped step(f32v s, f32v w, f32v before, f32v eta, f32v beta) {
    const f32v move = eta * s;
    const f32v ahead = w + move;
    if constexpr (Plain) return {ahead, ahead};
    const f32v velocity = ahead - before;
    const f32v carried = beta * velocity;
    return {ahead + carried, ahead};
}

struct no_wire {
    static constexpr std::size_t bytes = 0;
};

template <class Wire, bool Plain, bool Stream>
DARLCORE_INLINE void put(const finish_args& a, std::size_t i, const stepped& result) {
    if constexpr (Stream) {
        stream(a.w_out + i, result.next);
        stream(a.v_out + i, result.ahead);
    } else {
        store(a.w_out + i, result.next);
        store(a.v_out + i, result.ahead);
    }
    if constexpr (Wire::bytes == 2) Wire::write(raw(a.wire) + 2 * i, result.next);
}

template <class Wire, bool Plain>
DARLCORE_INLINE void finish_tail(const finish_args& a, std::size_t i, std::size_t count) {
    const f32v w = read_tail<as_f32>(raw(a.w + i), count);
    const f32v before = a.v == nullptr ? w : read_tail<as_f32>(raw(a.v + i), count);
    const stepped r = step<Plain>(read_tail<as_f32>(raw(a.s + i), count), w, before, splat(a.eta), splat(a.beta));
    write_tail<as_f32>(raw(a.w_out + i), count, r.next);
    write_tail<as_f32>(raw(a.v_out + i), count, r.ahead);
    if constexpr (Wire::bytes == 2) write_tail<Wire>(raw(a.wire) + 2 * i, count, r.next);
}

template <class Wire, bool Plain, bool Stream>
void finish_body(const finish_args& a, std::size_t i, std::size_t n) {
    const f32v eta = splat(a.eta);
    const f32v beta = splat(a.beta);
    const bool has_v = a.v != nullptr;
    for (; i + lanes_f32 <= n; i += lanes_f32) {
        prefetch<as_f32>(raw(a.w + i), a.ahead_bytes);
        const f32v w = load<f32v>(a.w + i);
        f32v before = w;
        if (has_v) {
            prefetch<as_f32>(raw(a.v + i), a.ahead_bytes);
            before = load<f32v>(a.v + i);
        }
        put<Wire, Plain, Stream>(a, i, step<Plain>(load<f32v>(a.s + i), w, before, eta, beta));
    }
    if (i < n) finish_tail<Wire, Plain>(a, i, n - i);
}

/// Elements before both f32 outputs stand at a whole cache line; n when they never do together.
std::size_t elements_to_line(const finish_args& a, std::size_t n) {
    const auto misaligned = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 64; };
    if (misaligned(a.w_out) != misaligned(a.v_out) || misaligned(a.w_out) % 4 != 0) return n;
    const std::size_t head = (64 - misaligned(a.w_out)) % 64 / 4;
    return head < n ? head : n;
}

template <class Wire, bool Plain>
void finish_as(const finish_args& a, std::size_t n) {
    std::size_t head = a.non_temporal ? elements_to_line(a, n) : n;
    if (head == n) return finish_body<Wire, Plain, false>(a, 0, n);
    for (std::size_t i = 0; i < head; i += lanes_f32)
        finish_tail<Wire, Plain>(a, i, head - i < lanes_f32 ? head - i : lanes_f32);
    finish_body<Wire, Plain, true>(a, head, n);
}

template <class Wire>
void finish_wire(const finish_args& a, std::size_t n) {
    if (a.plain)
        finish_as<Wire, true>(a, n);
    else
        finish_as<Wire, false>(a, n);
}

void finish(const finish_args& a, std::size_t n) {
    if (a.wire == nullptr)
        finish_wire<no_wire>(a, n);
    else if (a.wire_type == dtype::bf16)
        finish_wire<as_bf16>(a, n);
    else
        finish_wire<as_f16>(a, n);
}

void fence() {
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

// --- scan
// --------------------------------------------------------------------------------------------------------------------------

constexpr std::size_t sum_lanes = 16;
constexpr std::size_t lanes_f64 = width_bytes / 8;
constexpr std::size_t accumulators = sum_lanes / lanes_f64;
constexpr std::size_t vectors_per_turn = sum_lanes / lanes_f32;

struct lane_sums {
    f64v sum[accumulators];
    u32v max;
};

DARLCORE_INLINE f64v widen(const f32v& x, std::size_t half) {
    f32half part;
    __builtin_memcpy(&part, reinterpret_cast<const char*>(&x) + half * sizeof part, sizeof part);
    return __builtin_convertvector(part, f64v);
}

DARLCORE_INLINE void add_vector(lane_sums& sums, f32v x, std::size_t vector) {
    const u32v magnitude = (u32v)x & 0x7fffffffU;
    const u32v larger = (u32v)(magnitude > sums.max);
    sums.max = (larger & magnitude) | (~larger & sums.max);
    for (std::size_t half = 0; half < 2; ++half) {
        const f64v wide = widen(x, half);
        const f64v square = wide * wide;
        sums.sum[2 * vector + half] = sums.sum[2 * vector + half] + square;
    }
}

DARLCORE_INLINE void scan_one(float value, double& lane, std::uint32_t& max_bits) {
    const std::uint32_t magnitude = __builtin_bit_cast(std::uint32_t, value) & 0x7fffffffU;
    if (magnitude > max_bits) max_bits = magnitude;
    const double wide = static_cast<double>(value);
    lane += wide * wide;
}

template <class T>
void scan_as(const std::byte* x, std::size_t n, std::size_t phase, double* lanes, std::uint32_t* max_bits) {
    std::size_t i = 0;
    std::uint32_t max = *max_bits;
    for (; i < n && phase % sum_lanes != 0; ++i, ++phase)
        scan_one(read_tail<T>(x + i * T::bytes, 1)[0], lanes[phase % sum_lanes], max);
    lane_sums sums;
    for (std::size_t k = 0; k < accumulators; ++k) sums.sum[k] = load<f64v>(lanes + k * lanes_f64);
    sums.max = u32v{} + max;
    for (; i + sum_lanes <= n; i += sum_lanes)
        for (std::size_t vector = 0; vector < vectors_per_turn; ++vector)
            add_vector(sums, T::read(x + (i + vector * lanes_f32) * T::bytes), vector);
    for (std::size_t k = 0; k < accumulators; ++k) store(lanes + k * lanes_f64, sums.sum[k]);
    for (std::size_t k = 0; k < lanes_f32; ++k)
        if (sums.max[k] > max) max = sums.max[k];
    for (std::size_t lane = 0; i < n; ++i, ++lane) scan_one(read_tail<T>(x + i * T::bytes, 1)[0], lanes[lane], max);
    *max_bits = max;
}

void scan(const void* x, dtype type, std::size_t n, std::size_t phase, double* lanes, std::uint32_t* max_bits) {
    with_type(type, [&](auto t) { scan_as<decltype(t)>(raw(x), n, phase, lanes, max_bits); });
}

// --- building blocks
// -------------------------------------------------------------------------------------------------------------

template <class In, class Out, class F>
DARLCORE_INLINE void map(const std::byte* in, std::byte* out, std::size_t n, F&& f) {
    std::size_t i = 0;
    for (; i + lanes_f32 <= n; i += lanes_f32) Out::write(out + i * Out::bytes, f(In::read(in + i * In::bytes)));
    if (i < n) write_tail<Out>(out + i * Out::bytes, n - i, f(read_tail<In>(in + i * In::bytes, n - i)));
}

template <class A, class B, class F>
DARLCORE_INLINE void map2(const std::byte* a, const std::byte* b, std::byte* out, std::size_t n, F&& f) {
    std::size_t i = 0;
    for (; i + lanes_f32 <= n; i += lanes_f32)
        store(out + i * 4, f(A::read(a + i * A::bytes), B::read(b + i * B::bytes)));
    if (i == n) return;
    const f32v result = f(read_tail<A>(a + i * A::bytes, n - i), read_tail<B>(b + i * B::bytes, n - i));
    write_tail<as_f32>(out + i * 4, n - i, result);
}

void convert(const void* in, dtype in_type, void* out, dtype out_type, std::size_t n) {
    with_type(in_type, [&](auto from) {
        with_type(out_type,
                  [&](auto to) { map<decltype(from), decltype(to)>(raw(in), raw(out), n, [](f32v x) { return x; }); });
    });
}

void axpy(float a, const void* x, dtype type, const float* y, float* out, std::size_t n) {
    const f32v factor = splat(a);
    with_type(type, [&](auto t) {
        using T = decltype(t);
        if (y == nullptr) {
            map<T, as_f32>(raw(x), raw(out), n, [&](f32v value) { return factor * value; });
            return;
        }
        map2<T, as_f32>(raw(x), raw(y), raw(out), n, [&](f32v value, f32v before) {
            const f32v weighted = factor * value;
            return before + weighted;
        });
    });
}

void subtract(const void* a, dtype a_type, const void* b, dtype b_type, float* out, std::size_t n) {
    with_type(a_type, [&](auto ta) {
        with_type(b_type, [&](auto tb) {
            map2<decltype(ta), decltype(tb)>(raw(a), raw(b), raw(out), n, [](f32v x, f32v y) { return x - y; });
        });
    });
}

void dot(const float* a, const float* b, std::size_t n, double* lanes) {
    std::size_t i = 0;
    for (; i + sum_lanes <= n; i += sum_lanes)
        for (std::size_t lane = 0; lane < sum_lanes; ++lane)
            lanes[lane] += static_cast<double>(a[i + lane]) * static_cast<double>(b[i + lane]);
    for (std::size_t lane = 0; i < n; ++i, ++lane) lanes[lane] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
}

#undef DARLCORE_INLINE

}  // namespace

#define DARLCORE_TEXT_OF(x) #x
#define DARLCORE_TEXT(x) DARLCORE_TEXT_OF(x)

const kernel_table& DARLCORE_KERNELS() {
    static constexpr kernel_table table{
        DARLCORE_TEXT(DARLCORE_KERNELS), &accumulate, &finish, &fence, &scan, &convert, &axpy, &subtract, &dot};
    return table;
}

}  // namespace darlcore::host
