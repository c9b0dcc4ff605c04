// SPDX-License-Identifier: Apache-2.0
// Copy this folder, rename, and replace the bodies by calls of your library. It works as it stands, slowly, on the
// host.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>

#include "darlcore/merge/backend_ops.hpp"
#include "darlcore/merge/tensor_backend.hpp"

namespace skeleton {

using darlcore::const_tensor_view;
using darlcore::result;
using darlcore::tensor_view;

class backend {
public:
    /// What orders work on your device: a stream, a command queue. Must be default constructible.
    struct queue {};

    /// Memory of your device, owned and movable. `data()` may be an address that only the device understands.
    class buffer {
    public:
        explicit buffer(std::size_t bytes) : memory_(std::make_unique<std::byte[]>(bytes + 1)), bytes_(bytes) {}
        [[nodiscard]] void* data() const { return memory_.get(); }
        [[nodiscard]] std::size_t size_bytes() const { return bytes_; }

    private:
        std::unique_ptr<std::byte[]> memory_;
        std::size_t bytes_;
    };

    /// Be honest here: callers decide by these values. Without a fused step the core composes one, in more passes.
    [[nodiscard]] darlcore::backend_caps caps() const {
        darlcore::backend_caps caps;
        caps.memory = darlcore::memory_kind::host;
        caps.fused_outer = false;
        caps.dtypes = {darlcore::dtype::f32};
        caps.bit_exact = true;
        return caps;
    }

    result<buffer> allocate(std::size_t bytes) { return buffer(bytes); }

    result<void> copy_in(queue&, std::span<const std::byte> host, const tensor_view& view) {
        if (!host.empty()) std::memcpy(view.data, host.data(), host.size());
        return {};
    }
    result<void> copy_out(queue&, const const_tensor_view& view, std::span<std::byte> host) {
        if (!host.empty()) std::memcpy(host.data(), view.data, host.size());
        return {};
    }

    /// Finite? Largest magnitude? Sum of squares, in the fixed order that scan_accumulator.hpp defines: norms are
    /// compared to the bit.
    result<darlcore::delta_scan> scan(queue&, const const_tensor_view& view) {
        const darlcore::ieee_mode guard;
        darlcore::scan_accumulator sum;
        sum.feed(view);
        return sum.finish();
    }

    /// Never called while caps().fused_outer is false. When you write one: every product and sum rounded to f32 on its
    /// own, in the order of outer_step.hpp, no fused multiply-add.
    result<void> outer_step(queue&, const darlcore::outer_step_args&) {
        return darlcore::fail(darlcore::errc::unsupported, "this backend composes its outer step");
    }

    /// Afterwards the host sees the results.
    result<void> wait(queue&) { return {}; }
};

static_assert(darlcore::tensor_backend<backend>);

}  // namespace skeleton
