// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "darlcore/assert.hpp"
#include "darlcore/merge/dtype.hpp"

namespace darlcore {

/// Contiguous elements that somebody else owns, to be read. May point to device memory; only the backend it belongs to
/// looks inside. Aligned to its element size at least (tensors in files have no more). A null pointer = absent.
struct const_tensor_view {
    const void* data = nullptr;
    std::uint64_t elements = 0;
    darlcore::dtype dtype = darlcore::dtype::f32;

    [[nodiscard]] constexpr bool present() const { return data != nullptr; }
    [[nodiscard]] constexpr std::uint64_t size_bytes() const { return elements * size_of(dtype); }

    /// Elements [first, first + count).
    /// Preconditions (asserted): inside the view.
    [[nodiscard]] const_tensor_view part(std::uint64_t first, std::uint64_t count) const {
        DARLCORE_ASSERT(first <= elements && count <= elements - first);
        return {present() ? static_cast<const std::byte*>(data) + first * size_of(dtype) : nullptr, count, dtype};
    }
};

/// As const_tensor_view, to be written.
struct tensor_view {
    void* data = nullptr;
    std::uint64_t elements = 0;
    darlcore::dtype dtype = darlcore::dtype::f32;

    [[nodiscard]] constexpr bool present() const { return data != nullptr; }
    [[nodiscard]] constexpr std::uint64_t size_bytes() const { return elements * size_of(dtype); }
    [[nodiscard]] tensor_view part(std::uint64_t first, std::uint64_t count) const {
        DARLCORE_ASSERT(first <= elements && count <= elements - first);
        return {present() ? static_cast<std::byte*>(data) + first * size_of(dtype) : nullptr, count, dtype};
    }
    constexpr operator const_tensor_view() const { return {data, elements, dtype}; }
};

/// Views of host memory.
template <std::size_t N>
const_tensor_view view_of(std::span<const float, N> values) {
    return {values.data(), values.size(), dtype::f32};
}
template <std::size_t N>
tensor_view view_of(std::span<float, N> values) {
    return {values.data(), values.size(), dtype::f32};
}
/// 16-bit words as what they are: reinterpreted, never converted. Preconditions (asserted): a type of 2 bytes.
template <std::size_t N>
const_tensor_view view_of(std::span<const std::uint16_t, N> words, dtype type) {
    DARLCORE_ASSERT(size_of(type) == 2);
    return {words.data(), words.size(), type};
}
template <std::size_t N>
tensor_view view_of(std::span<std::uint16_t, N> words, dtype type) {
    DARLCORE_ASSERT(size_of(type) == 2);
    return {words.data(), words.size(), type};
}

/// True when the two share a byte.
inline bool overlap(const const_tensor_view& a, const const_tensor_view& b) {
    const auto* a_begin = static_cast<const std::byte*>(a.data);
    const auto* b_begin = static_cast<const std::byte*>(b.data);
    if (a.size_bytes() == 0 || b.size_bytes() == 0 || !a.present() || !b.present()) return false;
    const std::less<const std::byte*> before;
    return before(a_begin, b_begin + b.size_bytes()) && before(b_begin, a_begin + a.size_bytes());
}

/// True when writing `out` while reading `in` is allowed: apart, or exactly the same elements.
inline bool may_alias(const tensor_view& out, const const_tensor_view& in) {
    const bool same = out.data == in.data && out.elements == in.elements && out.dtype == in.dtype;
    return same || !overlap(out, in);
}

}  // namespace darlcore
