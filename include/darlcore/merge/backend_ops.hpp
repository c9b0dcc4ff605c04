// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "darlcore/merge/ieee_mode.hpp"
#include "darlcore/merge/scalar_ops.hpp"
#include "darlcore/merge/tensor_backend.hpp"

// The operations that a backend may leave out, and the outer step over any backend.
namespace darlcore {

namespace detail {

/// Host copies of a backend's views, in pieces, for operations that the backend lacks.
template <tensor_backend B>
class host_mirror {
public:
    host_mirror(B& backend, typename B::queue& q) : backend_(backend), q_(q) {}

    result<const_tensor_view> fetch(const const_tensor_view& view) {
        if (!view.present()) return view;
        auto& bytes = copies_.emplace_back(view.size_bytes());
        if (auto ok = backend_.copy_out(q_, view, bytes); !ok) return ok.error();
        if (auto ok = backend_.wait(q_); !ok) return ok.error();
        return const_tensor_view{bytes.data(), view.elements, view.dtype};
    }
    tensor_view room_for(const tensor_view& view) {
        auto& bytes = copies_.emplace_back(view.size_bytes());
        return {bytes.data(), view.elements, view.dtype};
    }
    result<void> bring_back(const tensor_view& mirrored, const tensor_view& view) {
        if (view.elements == 0) return {};
        const std::span<const std::byte> bytes(static_cast<const std::byte*>(mirrored.data), mirrored.size_bytes());
        if (auto ok = backend_.copy_in(q_, bytes, view); !ok) return ok;
        return backend_.wait(q_);
    }

private:
    B& backend_;
    typename B::queue& q_;
    std::vector<std::vector<std::byte>> copies_;  // moving an inner vector keeps its address
};

}  // namespace detail

/// out = in, converted; bits are copied when the types are equal. Preconditions (asserted): merge types, equal counts.
template <tensor_backend B>
result<void> convert(B& backend, typename B::queue& q, const const_tensor_view& in, const tensor_view& out) {
    DARLCORE_ASSERT(enters_merge(in.dtype) && enters_merge(out.dtype) && in.elements == out.elements);
    if constexpr (requires {
                      { backend.convert(q, in, out) } -> std::same_as<result<void>>;
                  }) {
        return backend.convert(q, in, out);
    } else {
        detail::host_mirror<B> host(backend, q);
        const auto source = host.fetch(in);
        if (!source) return source.error();
        const tensor_view target = host.room_for(out);
        scalar_ops::convert(*source, target);
        return host.bring_back(target, out);
    }
}

/// out = y + a x, product and sum rounded separately; y absent: out = a x. x may be f32, bf16 or f16, y and out are
/// f32. Aliasing: out may be exactly x or y.
template <tensor_backend B>
result<void> axpy(B& backend, typename B::queue& q, float a, const const_tensor_view& x, const const_tensor_view& y,
                  const tensor_view& out) {
    DARLCORE_ASSERT(enters_merge(x.dtype) && x.elements == out.elements && out.dtype == dtype::f32);
    DARLCORE_ASSERT(!y.present() || (y.dtype == dtype::f32 && y.elements == out.elements));
    if constexpr (requires {
                      { backend.axpy(q, a, x, y, out) } -> std::same_as<result<void>>;
                  }) {
        return backend.axpy(q, a, x, y, out);
    } else {
        detail::host_mirror<B> host(backend, q);
        const auto x_host = host.fetch(x);
        if (!x_host) return x_host.error();
        const auto y_host = host.fetch(y);
        if (!y_host) return y_host.error();
        const tensor_view target = host.room_for(out);
        {
            const ieee_mode guard;
            scalar_ops::axpy(a, *x_host, *y_host, target);
        }
        return host.bring_back(target, out);
    }
}

/// out = a - b, rounded to f32; what a site's delta is made with.
template <tensor_backend B>
result<void> subtract(B& backend, typename B::queue& q, const const_tensor_view& a, const const_tensor_view& b,
                      const tensor_view& out) {
    DARLCORE_ASSERT(enters_merge(a.dtype) && enters_merge(b.dtype) && out.dtype == dtype::f32);
    DARLCORE_ASSERT(a.elements == out.elements && b.elements == out.elements);
    if constexpr (requires {
                      { backend.subtract(q, a, b, out) } -> std::same_as<result<void>>;
                  }) {
        return backend.subtract(q, a, b, out);
    } else {
        detail::host_mirror<B> host(backend, q);
        const auto a_host = host.fetch(a);
        if (!a_host) return a_host.error();
        const auto b_host = host.fetch(b);
        if (!b_host) return b_host.error();
        const tensor_view target = host.room_for(out);
        {
            const ieee_mode guard;
            scalar_ops::subtract(*a_host, *b_host, target);
        }
        return host.bring_back(target, out);
    }
}

/// Sum of (a - b)^2, the difference rounded to f32, the sum in the order of scan_accumulator.hpp.
template <tensor_backend B>
result<double> sum_squares_of_difference(B& backend, typename B::queue& q, const const_tensor_view& a,
                                         const const_tensor_view& b) {
    DARLCORE_ASSERT(enters_merge(a.dtype) && enters_merge(b.dtype) && a.elements == b.elements);
    if constexpr (requires {
                      { backend.sum_squares_of_difference(q, a, b) } -> std::same_as<result<double>>;
                  }) {
        return backend.sum_squares_of_difference(q, a, b);
    } else {
        detail::host_mirror<B> host(backend, q);
        const auto a_host = host.fetch(a);
        if (!a_host) return a_host.error();
        const auto b_host = host.fetch(b);
        if (!b_host) return b_host.error();
        const tensor_view difference = host.room_for({nullptr, a.elements, dtype::f32});
        scan_accumulator sum;
        const ieee_mode guard;
        scalar_ops::subtract(*a_host, *b_host, difference);
        sum.feed(difference);
        return sum.finish().sum_squares;
    }
}

namespace detail {

/// Memory of a backend, taken when first needed.
template <tensor_backend B>
result<tensor_view> scratch(B& backend, std::vector<typename B::buffer>& owned, std::uint64_t elements) {
    auto memory = backend.allocate(elements * sizeof(float));
    if (!memory) return memory.error();
    owned.push_back(*std::move(memory));
    return tensor_view{owned.back().data(), elements, dtype::f32};
}

/// sum = (sum_in or nothing) + p_1 d_1 + ...
template <tensor_backend B>
result<void> composed_sum(B& backend, typename B::queue& q, const outer_step_args& args, const tensor_view& scaled,
                          const tensor_view& sum) {
    const_tensor_view so_far = args.sum_in;
    for (const weighted_delta& d : args.deltas) {
        const_tensor_view x = d.delta;
        if (d.scale != 1.0F) {
            if (auto ok = axpy(backend, q, d.scale, x, {}, scaled); !ok) return ok;
            x = scaled;
        }
        if (auto ok = axpy(backend, q, d.share, x, so_far, sum); !ok) return ok;
        so_far = sum;
    }
    return args.deltas.empty() && args.sum_in.present() ? convert(backend, q, args.sum_in, sum) : result<void>{};
}

/// The outer step from single operations: same order, same roundings, same bits as a fused one.
template <tensor_backend B>
result<void> composed_outer_step(B& backend, typename B::queue& q, const outer_step_args& args) {
    const std::uint64_t n = args.elements();
    std::vector<typename B::buffer> owned;
    const auto sum = scratch(backend, owned, n);
    if (!sum) return sum.error();
    const auto ahead = scratch(backend, owned, n);
    if (!ahead) return ahead.error();
    if (auto ok = composed_sum(backend, q, args, *ahead, *sum); !ok) return ok;
    if (args.rule.mode == step_mode::sum_only) {
        if (auto ok = convert(backend, q, *sum, args.v_out); !ok) return ok;
        return backend.wait(q);
    }
    if (auto ok = axpy(backend, q, args.rule.eta, *sum, args.w, *ahead); !ok) return ok;
    if (args.rule.mode == step_mode::plain) {
        if (auto ok = convert(backend, q, *ahead, args.w_out); !ok) return ok;
    } else {
        // w is still needed where v is absent, so the difference is taken before w_out is written.
        if (auto ok = subtract(backend, q, *ahead, args.v.present() ? args.v : args.w, *sum); !ok) return ok;
        if (auto ok = axpy(backend, q, args.rule.beta, *sum, *ahead, args.w_out); !ok) return ok;
    }
    if (auto ok = convert(backend, q, *ahead, args.v_out); !ok) return ok;
    if (args.wire.present())
        if (auto ok = convert(backend, q, args.w_out, args.wire); !ok) return ok;
    return backend.wait(q);  // the scratch memory is given back on return
}

/// Deltas whose type the backend does not read are converted to f32 first.
template <tensor_backend B>
result<std::vector<weighted_delta>> readable(B& backend, typename B::queue& q, const backend_caps& caps,
                                             std::span<const weighted_delta> deltas,
                                             std::vector<typename B::buffer>& owned) {
    std::vector<weighted_delta> out(deltas.begin(), deltas.end());
    for (weighted_delta& d : out) {
        if (caps.dtypes.contains(d.delta.dtype)) continue;
        const auto wide = scratch(backend, owned, d.delta.elements);
        if (!wide) return wide.error();
        if (auto ok = convert(backend, q, d.delta, *wide); !ok) return ok.error();
        d.delta = *wide;
    }
    return out;
}

}  // namespace detail

/// The outer step on any backend: fused where the backend can, folded in groups above contributions_max, else composed.
/// Promises, shapes and preconditions: outer_step_args.
/// Errors: errc::out_of_memory, and what the backend's own operations report.
template <tensor_backend B>
result<void> run_outer_step(B& backend, typename B::queue& q, const outer_step_args& args) {
    DARLCORE_ASSERT(well_formed(args));
    if (args.elements() == 0) return {};
    const backend_caps caps = backend.caps();
    if (!caps.fused_outer) return detail::composed_outer_step(backend, q, args);
    std::vector<typename B::buffer> owned;
    const auto deltas = detail::readable(backend, q, caps, args.deltas, owned);
    if (!deltas) return deltas.error();
    const std::size_t group =
        caps.contributions_max == 0 ? deltas->size() : static_cast<std::size_t>(caps.contributions_max);
    outer_step_args step = args;
    std::span<const weighted_delta> rest(*deltas);
    while (rest.size() > group) {
        outer_step_args fold = step;
        fold.deltas = rest.first(group);
        fold.rule.mode = step_mode::sum_only;
        const auto sum = detail::scratch(backend, owned, args.elements());
        if (!sum) return sum.error();
        fold.v_out = *sum;
        if (auto ok = backend.outer_step(q, fold); !ok) return ok;
        step.sum_in = *sum;
        rest = rest.subspan(group);
    }
    step.deltas = rest;
    if (auto ok = backend.outer_step(q, step); !ok) return ok;
    return backend.wait(q);  // scratch memory is given back on return
}

}  // namespace darlcore
