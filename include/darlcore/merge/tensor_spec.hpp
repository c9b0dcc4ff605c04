// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "darlcore/error.hpp"
#include "darlcore/merge/dtype.hpp"

namespace darlcore {

/// Product of the extents. Rank 0 = one element; a zero extent = no elements.
/// Errors: errc::overflow when the product, taken without the zero extents, exceeds 2^63 - 1 (also if it would be
/// multiplied away: such a shape is a lie).
inline result<std::uint64_t> element_count(std::span<const std::uint64_t> shape) {
    constexpr std::uint64_t max = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    std::uint64_t product = 1;
    bool empty = false;
    for (const std::uint64_t extent : shape) {
        if (extent == 0) {
            empty = true;
            continue;
        }
        if (product > max / extent) return fail(errc::overflow, "the shape has more than 2^63 elements");
        product *= extent;
    }
    return empty ? 0 : product;
}

/// Bytes of `elements` elements.
/// Errors: errc::overflow above 2^63 - 1.
inline result<std::uint64_t> byte_count(std::uint64_t elements, dtype type) {
    constexpr std::uint64_t max = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (elements > max / size_of(type)) return fail(errc::overflow, "the tensor has more than 2^63 bytes");
    return elements * size_of(type);
}

/// Name, element type and shape of a tensor; says nothing about where its data is.
struct tensor_spec {
    std::string name;
    darlcore::dtype dtype = darlcore::dtype::f32;
    std::vector<std::uint64_t> shape;

    friend bool operator==(const tensor_spec&, const tensor_spec&) = default;
};

}  // namespace darlcore
