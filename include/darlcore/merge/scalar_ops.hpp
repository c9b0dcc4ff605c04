// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>

#include "darlcore/merge/conversions.hpp"
#include "darlcore/merge/scan_accumulator.hpp"
#include "darlcore/merge/tensor_view.hpp"

// Plain loops over host memory: the default of every operation that a backend leaves out. Callers hold an ieee_mode.
namespace darlcore::scalar_ops {

/// a x, rounded to f32, whatever flags the caller compiles with: a fused multiply-add would skip the rounding, so the
/// value passes through a place that the compiler cannot see into.
inline float product(float a, float x) {
    float p = a * x;
#if defined(__GNUC__)
    asm("" : "+m"(p));
    return p;
#else
    volatile float rounded = p;
    return rounded;
#endif
}

inline void store(const tensor_view& out, std::uint64_t index, float value) {
    auto* bytes = static_cast<std::byte*>(out.data) + index * size_of(out.dtype);
    if (out.dtype == dtype::f32) {
        std::memcpy(bytes, &value, 4);
        return;
    }
    const std::uint16_t word16 = out.dtype == dtype::bf16 ? bf16_from_f32(value) : f16_from_f32(value);
    std::memcpy(bytes, &word16, 2);
}

/// out = a x (y absent) or y + a x.
inline void axpy(float a, const const_tensor_view& x, const const_tensor_view& y, const tensor_view& out) {
    for (std::uint64_t i = 0; i < out.elements; ++i) {
        const float p = product(a, element_as_f32(x, i));
        store(out, i, y.present() ? element_as_f32(y, i) + p : p);
    }
}

inline void subtract(const const_tensor_view& a, const const_tensor_view& b, const tensor_view& out) {
    for (std::uint64_t i = 0; i < out.elements; ++i) store(out, i, element_as_f32(a, i) - element_as_f32(b, i));
}

/// Copies bits when the types are equal, else converts by way of f32.
inline void convert(const const_tensor_view& in, const tensor_view& out) {
    if (in.dtype == out.dtype) {
        if (in.elements > 0 && in.data != out.data) std::memmove(out.data, in.data, in.size_bytes());
        return;
    }
    for (std::uint64_t i = 0; i < out.elements; ++i) store(out, i, element_as_f32(in, i));
}

}  // namespace darlcore::scalar_ops
