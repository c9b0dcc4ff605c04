// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "backends/host/instruction_set.hpp"
#include "darlcore/merge/tensor_backend.hpp"

namespace darlcore::host {

/// How outputs are written: around the caches when they are larger than the last one, or as told.
enum class store_kind : std::uint8_t { by_size, cached, non_temporal };

struct cpu_options {
    /// 0 = all processors that this process may use.
    int threads = 0;
    /// Border at which work is split between threads; any value gives the same bits.
    std::uint64_t chunk_elements = 65536;
    std::optional<instruction_set> instructions = std::nullopt;
    store_kind stores = store_kind::by_size;
};

/// What an outer step can find out beside its work, from values that are in the cache anyway.
/// Blocks are those of scan_accumulator.hpp: give whole blocks, or a tensor's last.
struct step_sums {
    delta_scan mean_delta;  ///< of Delta
    delta_scan w_before;    ///< of w
    delta_scan w_after;     ///< of w'
};

/// The CPU as a tensor backend: SIMD chosen at run time, threads, one pass over memory. The reference for every other
/// backend. Determinism: equal bits for every instruction set, thread count and chunk. Thread-safety: members may be
/// called from several threads at once.
class cpu_backend {
public:
    struct queue {};

    class buffer {
    public:
        buffer() = default;
        [[nodiscard]] void* data() const { return memory_.get(); }
        [[nodiscard]] std::size_t size_bytes() const { return bytes_; }

    private:
        friend class cpu_backend;
        struct release {
            void operator()(void* memory) const;
        };
        std::unique_ptr<void, release> memory_;
        std::size_t bytes_ = 0;
    };

    explicit cpu_backend(const cpu_options& options = {});

    [[nodiscard]] backend_caps caps() const;
    [[nodiscard]] int threads() const { return threads_; }
    [[nodiscard]] const kernel_table& kernels() const { return *kernels_; }

    /// Aligned to a cache line. Errors: errc::out_of_memory.
    result<buffer> allocate(std::size_t bytes);
    result<void> copy_in(queue& q, std::span<const std::byte> host, const tensor_view& view);
    result<void> copy_out(queue& q, const const_tensor_view& view, std::span<std::byte> host);
    result<delta_scan> scan(queue& q, const const_tensor_view& view);
    result<void> outer_step(queue& q, const outer_step_args& args);
    result<void> wait(queue&) { return {}; }

    result<void> convert(queue& q, const const_tensor_view& in, const tensor_view& out);
    result<void> axpy(queue& q, float a, const const_tensor_view& x, const const_tensor_view& y,
                      const tensor_view& out);
    result<void> subtract(queue& q, const const_tensor_view& a, const const_tensor_view& b, const tensor_view& out);
    result<double> sum_squares_of_difference(queue& q, const const_tensor_view& a, const const_tensor_view& b);

private:
    void split(std::uint64_t elements, const std::function<void(std::uint64_t, std::uint64_t)>& work) const;

    const kernel_table* kernels_;
    int threads_;
    std::uint64_t chunk_elements_;
    store_kind stores_;
};

/// One block of at most 65536 elements of a scan, on the calling thread.
delta_scan scan_block(const kernel_table& kernels, const const_tensor_view& block);

/// The outer step on the calling thread; `sums`, when given, describes this piece (at most 65536 elements then).
void outer_step_serial(const kernel_table& kernels, const outer_step_args& args, bool non_temporal, step_sums* sums);

/// Adds up block sums in index order.
class block_sums {
public:
    explicit block_sums(std::uint64_t elements) : blocks_(static_cast<std::size_t>((elements + 65535) / 65536)) {}
    void set(std::uint64_t block, const delta_scan& scan) { blocks_[static_cast<std::size_t>(block)] = scan; }
    [[nodiscard]] delta_scan total() const {
        delta_scan sum;
        for (const delta_scan& block : blocks_) sum.append(block);
        return sum;
    }

private:
    std::vector<delta_scan> blocks_;
};

}  // namespace darlcore::host
