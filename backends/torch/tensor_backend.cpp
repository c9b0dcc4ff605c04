// SPDX-License-Identifier: Apache-2.0
#include "backends/torch/tensor_backend.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "backends/host/cpu_backend.hpp"
#include "backends/torch/compat.hpp"
#include "backends/torch/device/device_backend.hpp"
#include "darlcore/merge/ieee_mode.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace darlcore::torch_backend {

namespace {

at::ScalarType scalar_type(dtype type) {
    switch (type) {
        case dtype::f32:
            return at::kFloat;
        case dtype::bf16:
            return at::kBFloat16;
        case dtype::f16:
            return at::kHalf;
        default:
            return at::kByte;
    }
}

at::Tensor tensor_of(const const_tensor_view& view, const std::string& device) {
    const auto options = at::TensorOptions().dtype(scalar_type(view.dtype)).device(at::Device(device));
    return at::from_blob(const_cast<void*>(view.data), {static_cast<std::int64_t>(view.elements)}, options);
}

/// libtorch throws; a backend returns.
template <class Work>
auto caught(const char* action, const Work& work) -> decltype(work()) {
    try {
        const ieee_mode guard;
        return work();
    } catch (const c10::Error& failure) {
        // libtorch adds pages of its own state after the first line
        const std::string whole = failure.what_without_backtrace();
        const std::string text = whole.substr(0, whole.find('\n'));
        const bool memory = text.find("memory") != std::string::npos;
        return fail(memory ? errc::out_of_memory : errc::io_error, std::string("libtorch: ") + action + ": " + text);
    }
}

/// Pieces of [0, elements) on libtorch's threads; borders are multiples of the grain. A thread of the pool may have
/// been left with denormals flushed.
template <class Work>
void in_parallel(std::uint64_t elements, std::uint64_t grain, const Work& work) {
    const auto pieces = static_cast<std::int64_t>((elements + grain - 1) / grain);
    at::parallel_for(0, pieces, 1, [&](std::int64_t first, std::int64_t end) {
        const ieee_mode guard;
        const std::uint64_t begin = static_cast<std::uint64_t>(first) * grain;
        work(begin, std::min(static_cast<std::uint64_t>(end) * grain, elements) - begin);
    });
}

constexpr std::uint64_t grain_elements = 65536;

const float* floats(const const_tensor_view& view) { return static_cast<const float*>(view.data); }
float* floats(const tensor_view& view) { return static_cast<float*>(view.data); }

/// The fused kernels run on the default stream: what libtorch's current one holds comes before, what follows waits.
template <class Work>
auto beside_libtorch(const std::string& device, const device::device_library& kernels, const Work& work)
    -> decltype(work(std::declval<device::device_backend&>(), std::declval<device::device_backend::queue&>())) {
    const at::Device where(device);
    c10::impl::VirtualGuardImpl(where.type()).getStream(where).synchronize();
    device::device_backend fused(kernels);
    device::device_backend::queue q;
    auto done = work(fused, q);
    if (!done) return done;
    if (auto ok = fused.wait(q); !ok) return ok.error();
    return done;
}

}  // namespace

backend::buffer::buffer() = default;
backend::buffer::buffer(buffer&&) noexcept = default;
backend::buffer& backend::buffer::operator=(buffer&&) noexcept = default;
backend::buffer::~buffer() = default;
void* backend::buffer::data() const { return tensor_ == nullptr ? nullptr : tensor_->data_ptr(); }

result<backend> backend::make(const backend_options& options) {
    backend made(options);
    if (made.on_cpu()) return made;
    auto tried = made.allocate(16);
    if (!tried) return fail(errc::not_found, "no device " + options.device + ": " + tried.error().context);
    return made;
}

backend_caps backend::caps() const {
    backend_caps caps;
    caps.memory = on_cpu() ? memory_kind::host : memory_kind::device;
    caps.fused_outer = host_kernels() || options_.kernels != nullptr;
    caps.contributions_max = host_kernels() || options_.kernels == nullptr ? 0 : DARL_DEVICE_DELTAS_MAX;
    caps.dtypes = {dtype::f32, dtype::bf16, dtype::f16};
    caps.chunk_elements_preferred = on_cpu() ? grain_elements : std::uint64_t{1} << 24U;
    caps.alignment_bytes = 64;
    caps.bit_exact = true;
    return caps;
}

result<backend::buffer> backend::allocate(std::size_t bytes) {
    return caught("allocate", [&]() -> result<buffer> {
        buffer made;
        const auto options = at::TensorOptions().dtype(at::kByte).device(at::Device(options_.device));
        // never empty: a view without an address would be an absent one
        made.tensor_ = std::make_unique<at::Tensor>(
            at::empty({static_cast<std::int64_t>(std::max<std::size_t>(bytes, 1))}, options));
        made.bytes_ = bytes;
        return made;
    });
}

result<void> backend::copy_in(queue&, std::span<const std::byte> host, const tensor_view& view) {
    if (host.empty()) return {};
    return caught("copy in", [&]() -> result<void> {
        const const_tensor_view from{host.data(), host.size(), dtype::u8};
        const const_tensor_view to{view.data, host.size(), dtype::u8};
        tensor_of(to, options_.device).copy_(tensor_of(from, "cpu"));
        return {};
    });
}

result<void> backend::copy_out(queue&, const const_tensor_view& view, std::span<std::byte> host) {
    if (host.empty()) return {};
    return caught("copy out", [&]() -> result<void> {
        const const_tensor_view from{view.data, host.size(), dtype::u8};
        const const_tensor_view to{host.data(), host.size(), dtype::u8};
        tensor_of(to, "cpu").copy_(tensor_of(from, options_.device));
        return {};
    });
}

result<delta_scan> backend::scan(queue& q, const const_tensor_view& view) {
    if (on_cpu()) {
        host::block_sums sums(view.elements);
        const auto& kernels = host::best_kernels();
        in_parallel(view.elements, scan_block_elements, [&](std::uint64_t first, std::uint64_t count) {
            for (std::uint64_t at = first; at < first + count; at += scan_block_elements)
                sums.set(at / scan_block_elements,
                         host::scan_block(kernels, view.part(at, std::min(scan_block_elements, first + count - at))));
        });
        return sums.total();
    }
    if (options_.kernels != nullptr)
        return caught("scan", [&] {
            return beside_libtorch(options_.device, *options_.kernels,
                                   [&](auto& fused, auto& stream) { return fused.scan(stream, view); });
        });
    std::vector<std::byte> bytes(view.size_bytes());
    if (auto ok = copy_out(q, view, bytes); !ok) return ok.error();
    host::cpu_backend host;
    host::cpu_backend::queue host_queue;
    return host.scan(host_queue, {bytes.data(), view.elements, view.dtype});
}

result<void> backend::outer_step(queue&, const outer_step_args& args) {
    if (!host_kernels()) {
        DARLCORE_ASSERT(options_.kernels != nullptr);
        return caught("outer step", [&] {
            return beside_libtorch(options_.device, *options_.kernels,
                                   [&](auto& fused, auto& stream) { return fused.outer_step(stream, args); });
        });
    }
    in_parallel(args.elements(), grain_elements, [&](std::uint64_t first, std::uint64_t count) {
        std::vector<weighted_delta> deltas(args.deltas.size());
        host::outer_step_serial(host::best_kernels(), part_of(args, first, count, deltas), false, nullptr);
    });
    return {};
}

result<void> backend::wait(queue&) {
    if (on_cpu()) return {};
    // A copy to the host waits for everything before it on the stream.
    return caught("wait", [&]() -> result<void> {
        const auto options = at::TensorOptions().dtype(at::kByte).device(at::Device(options_.device));
        static_cast<void>(at::empty({1}, options).cpu());
        return {};
    });
}

result<void> backend::convert(queue&, const const_tensor_view& in, const tensor_view& out) {
    if (out.elements == 0 || in.data == out.data) return {};
    if (host_kernels() && in.dtype != out.dtype) {
        in_parallel(out.elements, grain_elements, [&](std::uint64_t first, std::uint64_t count) {
            host::best_kernels().convert(in.part(first, count).data, in.dtype, out.part(first, count).data, out.dtype,
                                         count);
        });
        return {};
    }
    return caught("convert", [&]() -> result<void> {
        tensor_of(out, options_.device).copy_(tensor_of(in, options_.device));
        return {};
    });
}

// Product and sum are two operations of libtorch, so that each is rounded.
result<void> backend::axpy(queue&, float a, const const_tensor_view& x, const const_tensor_view& y,
                           const tensor_view& out) {
    if (out.elements == 0) return {};
    if (host_kernels()) {
        in_parallel(out.elements, grain_elements, [&](std::uint64_t first, std::uint64_t count) {
            const float* before = y.present() ? floats(y) + first : nullptr;
            host::best_kernels().axpy(a, x.part(first, count).data, x.dtype, before, floats(out) + first, count);
        });
        return {};
    }
    return caught("axpy", [&]() -> result<void> {
        at::Tensor to = tensor_of(out, options_.device);
        const at::Tensor product = tensor_of(x, options_.device).to(at::kFloat) * at::full({1}, a, to.options());
        if (y.present())
            to.copy_(tensor_of(y, options_.device) + product);
        else
            to.copy_(product);
        return {};
    });
}

result<void> backend::subtract(queue&, const const_tensor_view& a, const const_tensor_view& b, const tensor_view& out) {
    if (out.elements == 0) return {};
    if (host_kernels()) {
        in_parallel(out.elements, grain_elements, [&](std::uint64_t first, std::uint64_t count) {
            host::best_kernels().subtract(a.part(first, count).data, a.dtype, b.part(first, count).data, b.dtype,
                                          floats(out) + first, count);
        });
        return {};
    }
    return caught("subtract", [&]() -> result<void> {
        const at::Tensor x = tensor_of(a, options_.device).to(at::kFloat);
        const at::Tensor y = tensor_of(b, options_.device).to(at::kFloat);
        tensor_of(out, options_.device).copy_(x - y);
        return {};
    });
}

result<tensor_view> view_of(const at::Tensor& tensor) {
    if (!tensor.is_contiguous()) return fail(errc::invalid_argument, "the tensor is not contiguous: call contiguous()");
    const auto elements = static_cast<std::uint64_t>(tensor.numel());
    for (const dtype type : {dtype::f32, dtype::bf16, dtype::f16})
        if (scalar_type(type) == tensor.scalar_type()) return tensor_view{tensor.data_ptr(), elements, type};
    return fail(errc::unsupported, "tensors of this type do not enter merges; f32, bf16 and f16 do");
}

}  // namespace darlcore::torch_backend
