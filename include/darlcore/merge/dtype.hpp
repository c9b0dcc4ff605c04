// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string_view>

namespace darlcore {

/// Element type of a tensor. Only f32, bf16 and f16 enter a merge; the others may travel in files.
enum class dtype : std::uint8_t { f32, bf16, f16, f64, i8, i32, i64, u8, boolean };

inline constexpr std::array all_dtypes{dtype::f32, dtype::bf16, dtype::f16, dtype::f64,    dtype::i8,
                                       dtype::i32, dtype::i64,  dtype::u8,  dtype::boolean};

/// Bytes of one element.
constexpr std::size_t size_of(dtype type) noexcept {
    switch (type) {
        case dtype::f64:
        case dtype::i64:
            return 8;
        case dtype::f32:
        case dtype::i32:
            return 4;
        case dtype::bf16:
        case dtype::f16:
            return 2;
        case dtype::i8:
        case dtype::u8:
        case dtype::boolean:
            return 1;
    }
    return 0;
}

/// The stable word of a dtype, as it stands in layout digests and texts.
constexpr std::string_view word(dtype type) noexcept {
    switch (type) {
        case dtype::f32:
            return "f32";
        case dtype::bf16:
            return "bf16";
        case dtype::f16:
            return "f16";
        case dtype::f64:
            return "f64";
        case dtype::i8:
            return "i8";
        case dtype::i32:
            return "i32";
        case dtype::i64:
            return "i64";
        case dtype::u8:
            return "u8";
        case dtype::boolean:
            return "bool";
    }
    return "f32";
}

/// The dtype of a stable word; anything else is nothing.
constexpr std::optional<dtype> dtype_from_word(std::string_view text) noexcept {
    for (const dtype type : all_dtypes)
        if (word(type) == text) return type;
    return std::nullopt;
}

/// True for the types that a merge reads as deltas.
constexpr bool enters_merge(dtype type) noexcept {
    return type == dtype::f32 || type == dtype::bf16 || type == dtype::f16;
}

inline std::ostream& operator<<(std::ostream& out, dtype type) { return out << word(type); }

}  // namespace darlcore
