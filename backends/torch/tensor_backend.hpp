// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "backends/torch/device/device_library.hpp"
#include "darlcore/merge/tensor_backend.hpp"

namespace at {
class Tensor;
}

namespace darlcore::torch_backend {

struct backend_options {
    /// As libtorch writes it: "cpu", "cuda:0" (ROCm builds call theirs cuda too).
    std::string device = "cpu";
    /// Fused kernels for a device that is not the CPU; must outlive the backend. Without them a step is composed from
    /// libtorch's operations: more passes, same bits.
    const device::device_library* kernels = nullptr;
    /// The CPU too goes through libtorch's operations; for comparing.
    bool compose_on_cpu = false;
};

/// libtorch tensors as a tensor backend: memory, threads and streams are libtorch's. On the CPU the host backend's
/// kernels run on libtorch's threads; on other devices the fused kernels where a library of them is given, else
/// libtorch's elementwise operations. Determinism: the bits of the host backend, NaN payloads apart. Thread-safety:
/// members may be called from several threads at once.
class backend {
public:
    /// Work is ordered on the current stream of the device.
    struct queue {};

    /// Owns a tensor of bytes.
    class buffer {
    public:
        buffer();
        buffer(buffer&&) noexcept;
        buffer& operator=(buffer&&) noexcept;
        ~buffer();
        [[nodiscard]] void* data() const;
        [[nodiscard]] std::size_t size_bytes() const { return bytes_; }

    private:
        friend class backend;
        std::unique_ptr<at::Tensor> tensor_;
        std::size_t bytes_ = 0;
    };

    /// Errors: errc::not_found when this libtorch cannot use the device, with the reason.
    static result<backend> make(const backend_options& options = {});

    [[nodiscard]] backend_caps caps() const;
    /// Errors: errc::out_of_memory.
    result<buffer> allocate(std::size_t bytes);
    result<void> copy_in(queue& q, std::span<const std::byte> host, const tensor_view& view);
    result<void> copy_out(queue& q, const const_tensor_view& view, std::span<std::byte> host);
    result<delta_scan> scan(queue& q, const const_tensor_view& view);
    result<void> outer_step(queue& q, const outer_step_args& args);
    result<void> wait(queue& q);

    result<void> convert(queue& q, const const_tensor_view& in, const tensor_view& out);
    result<void> axpy(queue& q, float a, const const_tensor_view& x, const const_tensor_view& y,
                      const tensor_view& out);
    result<void> subtract(queue& q, const const_tensor_view& a, const const_tensor_view& b, const tensor_view& out);

private:
    explicit backend(backend_options options) : options_(std::move(options)) {}
    [[nodiscard]] bool on_cpu() const { return options_.device == "cpu"; }
    [[nodiscard]] bool host_kernels() const { return on_cpu() && !options_.compose_on_cpu; }

    backend_options options_;
};

/// A contiguous tensor as a view of its memory.
/// Errors: errc::unsupported (a type that does not enter merges), errc::invalid_argument (not contiguous).
result<tensor_view> view_of(const at::Tensor& tensor);

}  // namespace darlcore::torch_backend
