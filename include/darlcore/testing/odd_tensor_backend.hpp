// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "darlcore/merge/backend_ops.hpp"
#include "darlcore/merge/tensor_backend.hpp"

namespace darlcore::testing {

/// Odd on purpose, to prove that generic code assumes nothing: works in chunks of 7 elements, takes one delta at a
/// time, reads f32 only, lacks every optional operation, and hands out addresses that crash when anybody else looks
/// inside. Fused = false: has no outer step at all. Fused = true: has one, for one delta.
template <bool Fused>
class odd_tensor_backend {
    // Addresses are hidden by one high bit: adding offsets still works, looking inside is a fault.
    static constexpr std::uintptr_t hidden_bit = std::uintptr_t{1} << (8 * sizeof(std::uintptr_t) - 2);

    template <class T>
    static T* flip(T* address) {
        return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(address) ^ hidden_bit);
    }
    template <class View>
    static View seen(View view) {
        if (view.present()) view.data = flip(view.data);
        return view;
    }

public:
    struct queue {};

    class buffer {
    public:
        explicit buffer(std::size_t bytes) : memory_(std::make_unique<std::byte[]>(bytes + 1)), bytes_(bytes) {}
        [[nodiscard]] void* data() const { return flip(static_cast<void*>(memory_.get())); }
        [[nodiscard]] std::size_t size_bytes() const { return bytes_; }

    private:
        std::unique_ptr<std::byte[]> memory_;
        std::size_t bytes_ = 0;
    };

    [[nodiscard]] backend_caps caps() const {
        backend_caps caps;
        caps.memory = memory_kind::device;
        caps.fused_outer = Fused;
        caps.contributions_max = 1;
        caps.dtypes = {dtype::f32};
        caps.chunk_elements_preferred = 7;
        caps.alignment_bytes = 1;
        caps.bit_exact = true;
        return caps;
    }

    result<buffer> allocate(std::size_t bytes) { return buffer(bytes); }

    result<void> copy_in(queue&, std::span<const std::byte> host, const tensor_view& view) {
        DARLCORE_ASSERT_CMP(host.size(), ==, view.size_bytes());
        if (!host.empty()) std::memcpy(seen(view).data, host.data(), host.size());
        return {};
    }
    result<void> copy_out(queue&, const const_tensor_view& view, std::span<std::byte> host) {
        DARLCORE_ASSERT_CMP(host.size(), ==, view.size_bytes());
        if (!host.empty()) std::memcpy(host.data(), seen(view).data, host.size());
        return {};
    }
    result<void> wait(queue&) { return {}; }

    result<delta_scan> scan(queue&, const const_tensor_view& view) {
        const const_tensor_view here = seen(view);
        scan_accumulator sum;
        const ieee_mode guard;
        for (std::uint64_t first = 0; first < here.elements; first += 7)
            sum.feed(here.part(first, std::min<std::uint64_t>(7, here.elements - first)));
        return sum.finish();
    }

    result<void> outer_step(queue&, const outer_step_args& args) {
        if (!Fused) return fail(errc::unsupported, "the odd backend has no outer step");
        DARLCORE_ASSERT(args.deltas.size() <= 1);
        const ieee_mode guard;
        for (std::uint64_t i = 0; i < args.elements(); ++i) step_one(args, i);
        return {};
    }

private:
    static float sum_at(const outer_step_args& args, std::uint64_t i) {
        if (args.deltas.empty()) return element_as_f32(seen(args.sum_in), i);
        const weighted_delta& d = args.deltas.front();
        const float x = scalar_ops::product(d.scale, element_as_f32(seen(d.delta), i));
        const float p = scalar_ops::product(d.share, x);
        return args.sum_in.present() ? element_as_f32(seen(args.sum_in), i) + p : p;
    }

    static void step_one(const outer_step_args& args, std::uint64_t i) {
        const float s = sum_at(args, i);
        if (args.rule.mode == step_mode::sum_only) return scalar_ops::store(seen(args.v_out), i, s);
        const float w = element_as_f32(seen(args.w), i);
        const float before = args.v.present() ? element_as_f32(seen(args.v), i) : w;
        const float ahead = w + scalar_ops::product(args.rule.eta, s);
        const float next =
            args.rule.mode == step_mode::plain ? ahead : ahead + scalar_ops::product(args.rule.beta, ahead - before);
        scalar_ops::store(seen(args.v_out), i, ahead);
        scalar_ops::store(seen(args.w_out), i, next);
        if (args.wire.present()) scalar_ops::store(seen(args.wire), i, next);
    }
};

}  // namespace darlcore::testing
