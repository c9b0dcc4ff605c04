// SPDX-License-Identifier: Apache-2.0
#include "backends/host/cpu_backend.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

#include "darlcore/merge/ieee_mode.hpp"
#include "darlcore/merge/scan_accumulator.hpp"

namespace darlcore::host {

namespace {

// Weighted sums of this many elements stay in the first-level cache while the deltas stream by one after the other.
constexpr std::uint64_t step_elements = 2048;

int usable_processors() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (::sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

std::uint64_t last_cache_bytes() {
    static const std::uint64_t bytes = [] {
        const long l3 = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
        const long l2 = ::sysconf(_SC_LEVEL2_CACHE_SIZE);
        const long known = std::max({l3, l2, 8L << 20L});
        return static_cast<std::uint64_t>(known);
    }();
    return bytes;
}

float* floats(const tensor_view& view) { return static_cast<float*>(view.data); }
const float* floats(const const_tensor_view& view) { return static_cast<const float*>(view.data); }

// An unsigned offset that cannot overflow: the caller has checked first + count against the view.
template <class View>
View cut(const View& view, std::uint64_t first, std::uint64_t count) {
    return view.present() ? view.part(first, count) : view;
}

/// Deltas from `at` on that one call of the kernel takes: 4, 2 or 1 of one type.
std::size_t group_at(std::span<const weighted_delta> deltas, std::size_t at) {
    std::size_t same = 1;
    while (same < 4 && at + same < deltas.size() && deltas[at + same].delta.dtype == deltas[at].delta.dtype) ++same;
    return same == 3 ? 2 : same;
}

void weighted_sum(const kernel_table& kernels, const outer_step_args& args, std::uint64_t first, std::uint64_t count,
                  float* s, bool prefetch) {
    bool start = !args.sum_in.present();
    if (!start) std::memcpy(s, floats(args.sum_in) + first, count * sizeof(float));
    for (std::size_t at = 0; at < args.deltas.size();) {
        const std::size_t group = group_at(args.deltas, at);
        const dtype type = args.deltas[at].delta.dtype;
        const std::size_t bytes = size_of(type);
        std::array<delta_source, 4> sources;
        for (std::size_t k = 0; k < group; ++k) {
            const weighted_delta& d = args.deltas[at + k];
            sources[k] = {static_cast<const std::byte*>(d.delta.data) + first * bytes, d.share, d.scale};
        }
        kernels.accumulate(s, sources.data(), group, type, count, start, prefetch ? step_elements * bytes : 0);
        start = false;
        at += group;
    }
}

finish_args finish_of(const outer_step_args& args, std::uint64_t first, const float* s, bool non_temporal,
                      bool prefetch) {
    finish_args f;
    f.s = s;
    f.w = floats(args.w) + first;
    f.v = args.v.present() ? floats(args.v) + first : nullptr;
    f.w_out = floats(args.w_out) + first;
    f.v_out = floats(args.v_out) + first;
    if (args.wire.present()) f.wire = static_cast<std::byte*>(args.wire.data) + 2 * first;
    f.wire_type = args.wire.dtype;
    f.eta = args.rule.eta;
    f.beta = args.rule.beta;
    f.plain = args.rule.mode == step_mode::plain;
    f.non_temporal = non_temporal;
    f.ahead_bytes = prefetch ? step_elements * sizeof(float) : 0;
    return f;
}

/// Lanes of one block that is scanned piece by piece.
struct running_block {
    std::array<double, scan_lanes> lanes{};
    std::uint32_t max_bits = 0;

    void feed(const kernel_table& kernels, const float* x, std::uint64_t first, std::uint64_t count) {
        kernels.scan(x, dtype::f32, count, first % scan_lanes, lanes.data(), &max_bits);
    }
    [[nodiscard]] delta_scan finish() const {
        if (max_bits >= 0x7f800000U) return {false, 0.0F, 0.0};
        double sum = lanes[0];
        for (std::size_t lane = 1; lane < scan_lanes; ++lane) sum += lanes[lane];
        return {true, std::bit_cast<float>(max_bits), sum};
    }
};

}  // namespace

delta_scan scan_block(const kernel_table& kernels, const const_tensor_view& block) {
    DARLCORE_ASSERT_CMP(block.elements, <=, scan_block_elements);
    running_block sums;
    kernels.scan(block.data, block.dtype, block.elements, 0, sums.lanes.data(), &sums.max_bits);
    return sums.finish();
}

void outer_step_serial(const kernel_table& kernels, const outer_step_args& args, bool non_temporal, step_sums* sums) {
    alignas(64) std::array<float, step_elements> s;
    running_block mean, before, after;
    const std::uint64_t n = args.elements();
    DARLCORE_ASSERT(sums == nullptr || n <= scan_block_elements);
    for (std::uint64_t first = 0; first < n; first += step_elements) {
        const std::uint64_t count = std::min(step_elements, n - first);
        const bool prefetch = n - first > 2 * step_elements;
        weighted_sum(kernels, args, first, count, s.data(), prefetch);
        if (sums != nullptr) mean.feed(kernels, s.data(), first, count);
        if (args.rule.mode == step_mode::sum_only) {
            std::memcpy(floats(args.v_out) + first, s.data(), count * sizeof(float));
            continue;
        }
        if (sums != nullptr) before.feed(kernels, floats(args.w) + first, first, count);
        kernels.finish(finish_of(args, first, s.data(), non_temporal, prefetch), count);
        if (sums != nullptr) after.feed(kernels, floats(args.w_out) + first, first, count);
    }
    if (non_temporal) kernels.fence();
    if (sums != nullptr) *sums = {mean.finish(), before.finish(), after.finish()};
}

void cpu_backend::buffer::release::operator()(void* memory) const { std::free(memory); }

cpu_backend::cpu_backend(const cpu_options& options)
    : kernels_(options.instructions ? &kernels_of(*options.instructions) : &best_kernels()),
      threads_(options.threads > 0 ? options.threads : usable_processors()),
      chunk_elements_(std::max<std::uint64_t>(1, options.chunk_elements)),
      stores_(options.stores) {}

backend_caps cpu_backend::caps() const {
    backend_caps caps;
    caps.memory = memory_kind::host;
    caps.fused_outer = true;
    caps.contributions_max = 0;
    caps.dtypes = {dtype::f32, dtype::bf16, dtype::f16};
    caps.chunk_elements_preferred = chunk_elements_;
    caps.alignment_bytes = 64;
    caps.bit_exact = true;
    caps.async_copy = false;
    return caps;
}

/// Static split at multiples of the chunk. When the system has no thread left the calling one does the work.
void cpu_backend::split(std::uint64_t elements, const std::function<void(std::uint64_t, std::uint64_t)>& work) const {
    const std::uint64_t chunks = elements / chunk_elements_ + (elements % chunk_elements_ != 0 ? 1 : 0);
    const std::uint64_t parts =
        std::min<std::uint64_t>(static_cast<std::uint64_t>(threads_), std::max<std::uint64_t>(chunks, 1));
    const auto border = [&](std::uint64_t part) {
        return part == parts ? elements : chunks * part / parts * chunk_elements_;
    };
    const auto run = [&](std::uint64_t part) {
        const ieee_mode guard;
        work(border(part), border(part + 1));
    };
    std::vector<std::thread> helpers;
    helpers.reserve(static_cast<std::size_t>(parts));
    std::uint64_t started = 1;
    try {
        for (; started < parts; ++started) helpers.emplace_back(run, started);
    } catch (const std::system_error&) {
        for (std::uint64_t part = started; part < parts; ++part) run(part);
    }
    run(0);
    for (std::thread& helper : helpers) helper.join();
}

result<cpu_backend::buffer> cpu_backend::allocate(std::size_t bytes) {
    buffer memory;
    const std::size_t rounded = (bytes + 63) / 64 * 64;
    if (rounded < bytes) return fail(errc::out_of_memory, "a buffer of " + std::to_string(bytes) + " bytes");
    memory.memory_.reset(std::aligned_alloc(64, std::max<std::size_t>(rounded, 64)));
    if (memory.memory_ == nullptr) return fail(errc::out_of_memory, "a buffer of " + std::to_string(bytes) + " bytes");
    memory.bytes_ = bytes;
    return memory;
}

result<void> cpu_backend::copy_in(queue&, std::span<const std::byte> host, const tensor_view& view) {
    DARLCORE_ASSERT_CMP(host.size(), ==, view.size_bytes());
    if (!host.empty()) std::memcpy(view.data, host.data(), host.size());
    return {};
}

result<void> cpu_backend::copy_out(queue&, const const_tensor_view& view, std::span<std::byte> host) {
    DARLCORE_ASSERT_CMP(host.size(), ==, view.size_bytes());
    if (!host.empty()) std::memcpy(host.data(), view.data, host.size());
    return {};
}

result<delta_scan> cpu_backend::scan(queue&, const const_tensor_view& view) {
    DARLCORE_ASSERT(enters_merge(view.dtype));
    block_sums sums(view.elements);
    const std::uint64_t blocks = (view.elements + scan_block_elements - 1) / scan_block_elements;
    // Work is split in blocks, since a block's sum belongs to one thread.
    cpu_backend by_block(*this);
    by_block.chunk_elements_ = 1;
    by_block.split(blocks, [&](std::uint64_t first, std::uint64_t end) {
        for (std::uint64_t block = first; block < end; ++block) {
            const std::uint64_t at = block * scan_block_elements;
            const std::uint64_t count = std::min(scan_block_elements, view.elements - at);
            sums.set(block, scan_block(*kernels_, view.part(at, count)));
        }
    });
    return sums.total();
}

result<void> cpu_backend::outer_step(queue&, const outer_step_args& args) {
    DARLCORE_ASSERT(well_formed(args));
    const bool in_place = args.w_out.data == args.w.data;
    // Two f32 outputs; in place the lines are read anyway, so that writing around the caches would save nothing.
    const bool large = args.elements() > last_cache_bytes() / 8;
    const bool non_temporal =
        stores_ == store_kind::non_temporal || (stores_ == store_kind::by_size && large && !in_place);
    split(args.elements(), [&](std::uint64_t first, std::uint64_t end) {
        std::vector<weighted_delta> deltas(args.deltas.size());
        outer_step_serial(*kernels_, part_of(args, first, end - first, deltas), non_temporal, nullptr);
    });
    return {};
}

result<void> cpu_backend::convert(queue&, const const_tensor_view& in, const tensor_view& out) {
    split(out.elements, [&](std::uint64_t first, std::uint64_t end) {
        const auto from = in.part(first, end - first);
        const auto to = out.part(first, end - first);
        if (from.elements == 0) return;
        if (in.dtype == out.dtype)
            std::memmove(to.data, from.data, from.size_bytes());
        else
            kernels_->convert(from.data, from.dtype, to.data, to.dtype, to.elements);
    });
    return {};
}

result<void> cpu_backend::axpy(queue&, float a, const const_tensor_view& x, const const_tensor_view& y,
                               const tensor_view& out) {
    split(out.elements, [&](std::uint64_t first, std::uint64_t end) {
        const auto y_part = cut(y, first, end - first);
        kernels_->axpy(a, x.part(first, end - first).data, x.dtype, y.present() ? floats(y_part) : nullptr,
                       floats(out.part(first, end - first)), end - first);
    });
    return {};
}

result<void> cpu_backend::subtract(queue&, const const_tensor_view& a, const const_tensor_view& b,
                                   const tensor_view& out) {
    split(out.elements, [&](std::uint64_t first, std::uint64_t end) {
        const std::uint64_t count = end - first;
        kernels_->subtract(a.part(first, count).data, a.dtype, b.part(first, count).data, b.dtype,
                           floats(out.part(first, count)), count);
    });
    return {};
}

result<double> cpu_backend::sum_squares_of_difference(queue&, const const_tensor_view& a, const const_tensor_view& b) {
    block_sums sums(a.elements);
    const std::uint64_t blocks = (a.elements + scan_block_elements - 1) / scan_block_elements;
    cpu_backend by_block(*this);
    by_block.chunk_elements_ = 1;
    by_block.split(blocks, [&](std::uint64_t first, std::uint64_t end) {
        alignas(64) std::array<float, step_elements> difference;
        for (std::uint64_t block = first; block < end; ++block) {
            const std::uint64_t at = block * scan_block_elements;
            const std::uint64_t count = std::min(scan_block_elements, a.elements - at);
            running_block running;
            for (std::uint64_t i = 0; i < count; i += step_elements) {
                const std::uint64_t n = std::min(step_elements, count - i);
                kernels_->subtract(a.part(at + i, n).data, a.dtype, b.part(at + i, n).data, b.dtype, difference.data(),
                                   n);
                running.feed(*kernels_, difference.data(), i, n);
            }
            sums.set(block, running.finish());
        }
    });
    return sums.total().sum_squares;
}

}  // namespace darlcore::host
