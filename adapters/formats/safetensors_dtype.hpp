// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>

#include "darlcore/merge/dtype.hpp"

namespace darlcore::formats {

/// The name of a dtype in safetensors headers.
constexpr std::string_view safetensors_word(dtype type) noexcept {
    switch (type) {
        case dtype::f32:
            return "F32";
        case dtype::bf16:
            return "BF16";
        case dtype::f16:
            return "F16";
        case dtype::f64:
            return "F64";
        case dtype::i8:
            return "I8";
        case dtype::i32:
            return "I32";
        case dtype::i64:
            return "I64";
        case dtype::u8:
            return "U8";
        case dtype::boolean:
            return "BOOL";
    }
    return "F32";
}

constexpr std::optional<dtype> dtype_from_safetensors(std::string_view text) noexcept {
    for (const dtype type : all_dtypes)
        if (safetensors_word(type) == text) return type;
    return std::nullopt;
}

}  // namespace darlcore::formats
