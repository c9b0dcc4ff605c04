// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "darlcore/merge/outer_policy.hpp"
#include "darlcore/merge/tensor_view.hpp"

namespace darlcore {

/// One used contribution: its delta, the factor of the clip option (1 = none) and its share. Summed in the order given.
struct weighted_delta {
    const_tensor_view delta;
    float share = 1.0F;
    float scale = 1.0F;
};

/// Outer step: moves the global model along the token-weighted mean of the sites' deltas.
///
///     s  = p_1 d_1 + p_2 d_2 + ...       ascending site id; starts with p_1 d_1 itself (or with sum_in + p_1 d_1)
///     v' = w + eta s
///     w' = v' + beta (v' - v)            v absent: v := w
///
/// Shapes: w, v, each delta, v_out, w_out, wire [P]; P >= 0. w, v, sum_in, w_out, v_out are f32; deltas f32, bf16 or
/// f16; wire (may be absent) bf16 or f16, a rounded copy of w'. mode sum_only writes s to v_out and uses neither w, v,
/// w_out nor wire. Sign: delta = site - global. A delta with scale c counts as c d, rounded to f32, before its share.
/// Determinism: deltas become f32 first; every product and sum is rounded to f32 separately, in the written order,
/// never fused; so chunking, threads and vector widths change no bit. Preconditions (asserted): at least one delta or
/// sum_in; equal element counts; outputs apart from every input, except exactly w_out = w and v_out = v. Source: paper
/// equation 1; differs: the solo and first-step policies are explicit (outer_policy.hpp).
struct outer_step_args {
    const_tensor_view w;
    const_tensor_view v;
    const_tensor_view sum_in;
    std::span<const weighted_delta> deltas;
    step_rule rule;
    tensor_view w_out;
    tensor_view v_out;
    tensor_view wire;

    [[nodiscard]] std::uint64_t elements() const { return v_out.elements; }
};

namespace detail {

inline bool is_f32_of(const const_tensor_view& view, std::uint64_t elements) {
    return view.dtype == dtype::f32 && view.elements == elements;
}

inline bool output_is_apart(const tensor_view& out, const outer_step_args& args) {
    bool apart = !overlap(out, args.sum_in);
    for (const weighted_delta& d : args.deltas) apart = apart && !overlap(out, d.delta);
    return apart;
}

}  // namespace detail

/// True when the arguments keep the promises of outer_step_args; backends assert it.
inline bool well_formed(const outer_step_args& args) {
    const std::uint64_t n = args.elements();
    bool ok = args.v_out.dtype == dtype::f32 && (!args.deltas.empty() || args.sum_in.present() || n == 0);
    for (const weighted_delta& d : args.deltas) ok = ok && enters_merge(d.delta.dtype) && d.delta.elements == n;
    ok = ok && (!args.sum_in.present() || detail::is_f32_of(args.sum_in, n)) &&
         detail::output_is_apart(args.v_out, args);
    if (args.rule.mode == step_mode::sum_only) return ok;
    ok = ok && detail::is_f32_of(args.w, n) && (!args.v.present() || detail::is_f32_of(args.v, n));
    ok = ok && detail::is_f32_of(args.w_out, n) && detail::output_is_apart(args.w_out, args);
    ok = ok && may_alias(args.w_out, args.w) && may_alias(args.v_out, args.v) && !overlap(args.w_out, args.v_out);
    ok = ok && !overlap(args.w_out, args.v) && !overlap(args.v_out, args.w);
    if (!args.wire.present()) return ok;
    const bool wire_type = args.wire.dtype == dtype::bf16 || args.wire.dtype == dtype::f16;
    return ok && wire_type && args.wire.elements == n && detail::output_is_apart(args.wire, args) &&
           !overlap(args.wire, args.w) && !overlap(args.wire, args.v) && !overlap(args.wire, args.w_out) &&
           !overlap(args.wire, args.v_out);
}

/// The same step on elements [first, first + count) only.
/// `deltas` must hold as many entries as args.deltas and outlive the result.
inline outer_step_args part_of(const outer_step_args& args, std::uint64_t first, std::uint64_t count,
                               std::span<weighted_delta> deltas) {
    DARLCORE_ASSERT_CMP(deltas.size(), ==, args.deltas.size());
    const auto cut = [&](const auto& view) { return view.present() ? view.part(first, count) : view; };
    outer_step_args part = args;
    for (std::size_t i = 0; i < deltas.size(); ++i) {
        deltas[i] = args.deltas[i];
        deltas[i].delta = args.deltas[i].delta.part(first, count);
    }
    part.deltas = deltas;
    part.w = cut(args.w);
    part.v = cut(args.v);
    part.sum_in = cut(args.sum_in);
    part.w_out = cut(args.w_out);
    part.v_out = cut(args.v_out);
    part.wire = cut(args.wire);
    return part;
}

}  // namespace darlcore
