// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "darlcore/error.hpp"
#include "darlcore/merge/delta_scan.hpp"
#include "darlcore/merge/outer_step.hpp"
#include "darlcore/merge/tensor_view.hpp"

namespace darlcore {

/// Where a backend's buffers live: whether the host may look inside (host, unified) or staging is needed (device).
enum class memory_kind : std::uint8_t { host, device, unified };

/// A small set of dtypes.
class dtype_set {
public:
    constexpr dtype_set() = default;
    constexpr dtype_set(std::initializer_list<dtype> types) {
        for (const dtype type : types) bits_ |= 1U << static_cast<unsigned>(type);
    }
    [[nodiscard]] constexpr bool contains(dtype type) const {
        return ((bits_ >> static_cast<unsigned>(type)) & 1U) != 0;
    }
    friend constexpr bool operator==(const dtype_set&, const dtype_set&) = default;

private:
    std::uint32_t bits_ = 0;
};

/// What a backend can do. Callers decide by these, never by the name of a chip.
struct backend_caps {
    memory_kind memory = memory_kind::host;
    /// Has an outer step of one pass. Otherwise it is composed from axpy: more passes, same bits.
    bool fused_outer = false;
    /// Deltas that one fused step takes; 0 = any number. More are folded in groups through an f32 sum, in site order.
    int contributions_max = 0;
    /// Deltas that are read without converting them first.
    dtype_set dtypes{dtype::f32};
    /// Hints only: any chunk must work.
    std::uint64_t chunk_elements_preferred = 65536;
    std::size_t alignment_bytes = 64;
    /// Honours the order of outer_step_args to the bit. A server refuses others unless told to allow inexact merges,
    /// because a replay could not be compared.
    bool bit_exact = false;
    /// Copies run beside computation.
    bool async_copy = false;
};

/// What other hardware or another tensor library brings along to take part in merges.
///
/// Required:
///   buffer, queue          owning, move-only memory with data() and size_bytes(); an ordering token (CPU: an empty
///   struct) caps()                 backend_caps allocate(bytes)        result<buffer>; errc::out_of_memory copy_in(q,
///   host, view), copy_out(q, view, host)     bytes between host memory and a view, ordered on the queue scan(q, view)
///   result<delta_scan>: of one tensor from its first element, in the order of scan_accumulator.hpp outer_step(q, args)
///   result<void>: outer_step.hpp; called when caps().fused_outer, with at most contributions_max deltas whose
///                          types are in dtypes
///   wait(q)                result<void>: afterwards results are visible to the host
/// Optional, found by name; backend_ops.hpp has a plain default for each:
///   convert(q, in, out) . axpy(q, a, x, y, out) . subtract(q, a, b, out) . sum_squares_of_difference(q, a, b)
/// Views that a backend gets point into its own memory. Contract suite: darlcore/testing/tensor_backend_contract.hpp.
template <class B>
concept tensor_backend =
    std::movable<typename B::buffer> && !std::copyable<typename B::buffer> &&
    std::default_initializable<typename B::queue> &&
    requires(B & backend, typename B::buffer& memory, typename B::queue& q, std::span<const std::byte> in,
             std::span<std::byte> out, const const_tensor_view& source, const tensor_view& target,
             const outer_step_args& args) {
    { backend.caps() } -> std::same_as<backend_caps>;
    { backend.allocate(std::size_t{}) } -> std::same_as<result<typename B::buffer>>;
    { memory.data() } -> std::same_as<void*>;
    { memory.size_bytes() } -> std::convertible_to<std::size_t>;
    { backend.copy_in(q, in, target) } -> std::same_as<result<void>>;
    { backend.copy_out(q, source, out) } -> std::same_as<result<void>>;
    { backend.scan(q, source) } -> std::same_as<result<delta_scan>>;
    { backend.outer_step(q, args) } -> std::same_as<result<void>>;
    { backend.wait(q) } -> std::same_as<result<void>>;
};

}  // namespace darlcore
