// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/torch/device/device_abi.h"
#include "backends/torch/device/device_vendor.hpp"

// Elements of the three types on a device: read, written, converted. The rules are those of
// darlcore/merge/conversions.hpp, which device compilers cannot call.
namespace darl_device {

constexpr unsigned group_elements = 8;  ///< read and written by one thread in accesses of 16 bytes

struct alignas(16) words16 {
    std::uint32_t word[4];
};

DARL_ANYWHERE std::uint32_t bits_of(float value) {
    std::uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}
DARL_ANYWHERE float float_of(std::uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

DARL_ANYWHERE float widen_f16(std::uint32_t half) {
    const std::uint32_t sign = (half & 0x8000U) << 16U;
    const std::uint32_t exponent = (half >> 10U) & 0x1fU;
    const std::uint32_t mantissa = half & 0x3ffU;
    if (exponent == 0x1fU) return float_of(sign | 0x7f800000U | (mantissa == 0 ? 0U : 0x400000U) | (mantissa << 13U));
    if (exponent != 0) return float_of(sign | ((exponent + 112U) << 23U) | (mantissa << 13U));
    // A multiple of 2^-24: both the number and the product are exact.
    return float_of(sign | bits_of(product(static_cast<float>(mantissa), 5.9604644775390625e-8F)));
}

DARL_ANYWHERE std::uint32_t narrow_bf16(std::uint32_t bits) {
    if ((bits & 0x7fffffffU) > 0x7f800000U) return ((bits >> 16U) | 0x40U) & 0xffffU;
    return ((bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U) & 0xffffU;
}

DARL_ANYWHERE std::uint32_t narrow_f16(std::uint32_t bits) {
    const std::uint32_t sign = (bits >> 16U) & 0x8000U;
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    if (magnitude > 0x7f800000U) return sign | 0x7e00U | ((magnitude >> 13U) & 0x3ffU);
    if (magnitude >= 0x477ff000U) return sign | 0x7c00U;
    if (magnitude >= 0x38800000U)
        return sign | ((magnitude - (112U << 23U) + 0xfffU + ((magnitude >> 13U) & 1U)) >> 13U);
    if (magnitude <= 0x33000000U) return sign;
    const std::uint32_t shift = 126U - (magnitude >> 23U);
    const std::uint32_t significand = (magnitude & 0x7fffffU) | 0x800000U;
    const std::uint32_t kept = significand >> shift;
    const std::uint32_t rest = significand & ((1U << shift) - 1U);
    const std::uint32_t half = 1U << (shift - 1U);
    return sign | (kept + (rest > half || (rest == half && (kept & 1U) != 0) ? 1U : 0U));
}

DARL_ANYWHERE float widen(std::uint32_t word, std::uint32_t type) {
    return type == DARL_DEVICE_BF16 ? float_of(word << 16U) : widen_f16(word);
}
DARL_ANYWHERE std::uint32_t narrow(float value, std::uint32_t type) {
    return type == DARL_DEVICE_BF16 ? narrow_bf16(bits_of(value)) : narrow_f16(bits_of(value));
}

DARL_ANYWHERE float read_one(const void* data, std::uint32_t type, std::uint64_t i) {
    if (type == DARL_DEVICE_F32) return static_cast<const float*>(data)[i];
    return widen(static_cast<const std::uint16_t*>(data)[i], type);
}
DARL_ANYWHERE void write_one(void* data, std::uint32_t type, std::uint64_t i, float value) {
    if (type == DARL_DEVICE_F32)
        static_cast<float*>(data)[i] = value;
    else
        static_cast<std::uint16_t*>(data)[i] = static_cast<std::uint16_t>(narrow(value, type));
}

/// Eight elements from `i` on, whose address is a multiple of 16 bytes.
DARL_ANYWHERE void read_group(const void* data, std::uint32_t type, std::uint64_t i, float* x) {
    if (type == DARL_DEVICE_F32) {
        const auto* from = reinterpret_cast<const words16*>(static_cast<const float*>(data) + i);
        const words16 low = from[0], high = from[1];
        for (unsigned k = 0; k < 4; ++k) {
            x[k] = float_of(low.word[k]);
            x[4 + k] = float_of(high.word[k]);
        }
        return;
    }
    const words16 all = *reinterpret_cast<const words16*>(static_cast<const std::uint16_t*>(data) + i);
    for (unsigned k = 0; k < 4; ++k) {
        x[2 * k] = widen(all.word[k] & 0xffffU, type);
        x[2 * k + 1] = widen(all.word[k] >> 16U, type);
    }
}
DARL_ANYWHERE void write_group(void* data, std::uint32_t type, std::uint64_t i, const float* x) {
    words16 low, high;
    if (type == DARL_DEVICE_F32) {
        for (unsigned k = 0; k < 4; ++k) {
            low.word[k] = bits_of(x[k]);
            high.word[k] = bits_of(x[4 + k]);
        }
        auto* to = reinterpret_cast<words16*>(static_cast<float*>(data) + i);
        to[0] = low;
        to[1] = high;
        return;
    }
    for (unsigned k = 0; k < 4; ++k) low.word[k] = narrow(x[2 * k], type) | (narrow(x[2 * k + 1], type) << 16U);
    *reinterpret_cast<words16*>(static_cast<std::uint16_t*>(data) + i) = low;
}

}  // namespace darl_device
