// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "backends/torch/device/device_library.hpp"
#include "darlcore/merge/backend_ops.hpp"

namespace darlcore::device {

/// The fused call of device_abi.h for these arguments.
inline darl_device_step step_of(const outer_step_args& args) {
    const auto floats = [](const const_tensor_view& view) { return static_cast<const float*>(view.data); };
    darl_device_step step{};
    step.w = floats(args.w);
    step.v = floats(args.v);
    step.sum_in = floats(args.sum_in);
    step.w_out = static_cast<float*>(args.w_out.data);
    step.v_out = static_cast<float*>(args.v_out.data);
    step.wire = args.wire.data;
    step.elements = args.elements();
    step.wire_dtype = static_cast<std::uint32_t>(args.wire.dtype);
    step.mode = args.rule.mode == step_mode::plain      ? DARL_DEVICE_PLAIN
                : args.rule.mode == step_mode::sum_only ? DARL_DEVICE_SUM_ONLY
                                                        : DARL_DEVICE_NESTEROV;
    step.eta = args.rule.eta;
    step.beta = args.rule.beta;
    step.deltas = static_cast<std::uint32_t>(args.deltas.size());
    DARLCORE_ASSERT_CMP(args.deltas.size(), <=, DARL_DEVICE_DELTAS_MAX);
    for (std::size_t i = 0; i < args.deltas.size(); ++i) {
        const weighted_delta& d = args.deltas[i];
        step.delta[i] = {d.delta.data, static_cast<std::uint32_t>(d.delta.dtype), d.share, d.scale};
    }
    return step;
}

static_assert(static_cast<unsigned>(dtype::f32) == DARL_DEVICE_F32 &&
              static_cast<unsigned>(dtype::bf16) == DARL_DEVICE_BF16 &&
              static_cast<unsigned>(dtype::f16) == DARL_DEVICE_F16);

/// Facts of blocks that a device found, folded in index order.
inline delta_scan fold(std::span<const darl_device_block> blocks) {
    delta_scan all;
    for (const darl_device_block& block : blocks)
        all.append(block.max_bits >= 0x7f800000U
                       ? delta_scan{false, 0.0F, 0.0}
                       : delta_scan{true, std::bit_cast<float>(block.max_bits), block.sum_squares});
    return all;
}

/// Device memory and fused kernels as a tensor backend, by way of the C interface: works beside any libtorch, and
/// without one. Determinism: the bits of the host backend. Thread-safety: as the vendor's runtime.
class device_backend {
public:
    struct queue {
        void* stream = nullptr;
    };

    class buffer {
    public:
        buffer(const device_library* library, void* memory, std::size_t bytes)
            : memory_(memory, release{library}), bytes_(bytes) {}
        [[nodiscard]] void* data() const { return memory_.get(); }
        [[nodiscard]] std::size_t size_bytes() const { return bytes_; }

    private:
        struct release {
            const device_library* library;
            void operator()(void* memory) const { static_cast<void>(library->release(memory)); }
        };
        std::unique_ptr<void, release> memory_;
        std::size_t bytes_;
    };

    /// `library` must outlive the backend and its buffers.
    explicit device_backend(const device_library& library) : library_(&library) {}

    [[nodiscard]] backend_caps caps() const {
        backend_caps caps;
        caps.memory = memory_kind::device;
        caps.fused_outer = true;
        caps.contributions_max = DARL_DEVICE_DELTAS_MAX;
        caps.dtypes = {dtype::f32, dtype::bf16, dtype::f16};
        caps.chunk_elements_preferred = std::uint64_t{1} << 24U;
        caps.alignment_bytes = 16;
        caps.bit_exact = true;
        caps.async_copy = true;
        return caps;
    }

    result<buffer> allocate(std::size_t bytes) {
        void* memory = nullptr;
        if (auto ok = library_->check(library_->allocate(bytes, &memory), "allocate"); !ok) return ok.error();
        return buffer(library_, memory, bytes);
    }
    result<void> copy_in(queue& q, std::span<const std::byte> host, const tensor_view& view) {
        return library_->check(library_->copy_in(view.data, host.data(), host.size(), q.stream), "copy in");
    }
    result<void> copy_out(queue& q, const const_tensor_view& view, std::span<std::byte> host) {
        return library_->check(library_->copy_out(host.data(), view.data, host.size(), q.stream), "copy out");
    }
    result<void> wait(queue& q) { return library_->check(library_->wait(q.stream), "wait"); }

    result<delta_scan> scan(queue& q, const const_tensor_view& view) {
        std::vector<darl_device_block> blocks(
            static_cast<std::size_t>((view.elements + DARL_DEVICE_BLOCK_ELEMENTS - 1) / DARL_DEVICE_BLOCK_ELEMENTS));
        if (blocks.empty()) return delta_scan{};
        auto memory = allocate(blocks.size() * sizeof(darl_device_block));
        if (!memory) return memory.error();
        const auto type = static_cast<std::uint32_t>(view.dtype);
        const int started =
            library_->scan(view.data, type, view.elements, static_cast<darl_device_block*>(memory->data()), q.stream);
        if (auto ok = library_->check(started, "scan"); !ok) return ok.error();
        const const_tensor_view found{memory->data(), memory->size_bytes(), dtype::u8};
        if (auto ok = copy_out(q, found, std::as_writable_bytes(std::span(blocks))); !ok) return ok.error();
        if (auto ok = wait(q); !ok) return ok.error();
        return fold(blocks);
    }

    result<void> outer_step(queue& q, const outer_step_args& args) {
        const darl_device_step step = step_of(args);
        return library_->check(library_->outer_step(&step, q.stream), "outer step");
    }

    result<void> convert(queue& q, const const_tensor_view& in, const tensor_view& out) {
        if (in.data == out.data) return {};
        const int started = library_->convert(in.data, static_cast<std::uint32_t>(in.dtype), out.data,
                                              static_cast<std::uint32_t>(out.dtype), out.elements, q.stream);
        return library_->check(started, "convert");
    }

private:
    const device_library* library_;
};

static_assert(tensor_backend<device_backend>);

}  // namespace darlcore::device
