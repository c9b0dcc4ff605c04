// SPDX-License-Identifier: Apache-2.0
// Fused outer step, scan and conversion for CUDA and HIP (and, thread by thread, for the host: device_vendor.hpp).
// Shapes: everything [P]; a delta f32, bf16 or f16; wire bf16 or f16.
// Determinism: every product and sum rounded to f32 on its own, in the order of darlcore/merge/outer_step.hpp; sums of
// squares in the blocks and lanes of scan_accumulator.hpp.
#include "backends/torch/device/device_values.hpp"

namespace darl_device {
namespace {

constexpr unsigned threads_per_block = 256;
constexpr std::uint64_t blocks_max = 16384;
constexpr unsigned lanes = 16;
constexpr unsigned scans_per_block = 4;  // of 16 threads each

// --- outer step ---

/// How P elements fall apart: scalars up to the first address of 16 bytes, groups of eight, scalars.
struct division {
    std::uint64_t head;
    std::uint64_t groups;
    std::uint64_t items;  ///< groups first, then the scalars
};

DARL_ANYWHERE void finish_one(const darl_device_step& a, float s, float w, float before, float& next, float& ahead) {
    ahead = sum(w, product(a.eta, s));
    next = a.mode == DARL_DEVICE_PLAIN ? ahead : sum(ahead, product(a.beta, sum(ahead, -before)));
}

DARL_ANYWHERE void step_one(const darl_device_step& a, std::uint64_t i) {
    float s = a.sum_in != nullptr ? a.sum_in[i] : 0.0F;
    for (unsigned d = 0; d < a.deltas; ++d) {
        const float x = product(a.delta[d].scale, read_one(a.delta[d].data, a.delta[d].dtype, i));
        const float p = product(a.delta[d].share, x);
        s = d == 0 && a.sum_in == nullptr ? p : sum(s, p);
    }
    if (a.mode == DARL_DEVICE_SUM_ONLY) {
        a.v_out[i] = s;
        return;
    }
    float next, ahead;
    const float w = a.w[i];
    finish_one(a, s, w, a.v != nullptr ? a.v[i] : w, next, ahead);
    a.v_out[i] = ahead;
    a.w_out[i] = next;
    if (a.wire != nullptr) write_one(a.wire, a.wire_dtype, i, next);
}

DARL_ANYWHERE void step_group(const darl_device_step& a, std::uint64_t i) {
    float s[group_elements], x[group_elements], w[group_elements], next[group_elements];
    if (a.sum_in != nullptr) read_group(a.sum_in, DARL_DEVICE_F32, i, s);
    for (unsigned d = 0; d < a.deltas; ++d) {
        read_group(a.delta[d].data, a.delta[d].dtype, i, x);
        const bool first = d == 0 && a.sum_in == nullptr;
        for (unsigned k = 0; k < group_elements; ++k) {
            const float p = product(a.delta[d].share, product(a.delta[d].scale, x[k]));
            s[k] = first ? p : sum(s[k], p);
        }
    }
    if (a.mode == DARL_DEVICE_SUM_ONLY) return write_group(a.v_out, DARL_DEVICE_F32, i, s);
    read_group(a.w, DARL_DEVICE_F32, i, w);
    read_group(a.v != nullptr ? a.v : a.w, DARL_DEVICE_F32, i, x);
    for (unsigned k = 0; k < group_elements; ++k) finish_one(a, s[k], w[k], x[k], next[k], s[k]);
    write_group(a.v_out, DARL_DEVICE_F32, i, s);
    write_group(a.w_out, DARL_DEVICE_F32, i, next);
    if (a.wire != nullptr) write_group(a.wire, a.wire_dtype, i, next);
}

DARL_ANYWHERE void step_thread(const darl_device_step& a, const division& cut, place at) {
    for (std::uint64_t item = at.index; item < cut.items; item += at.count) {
        if (item < cut.groups) {
            step_group(a, cut.head + item * group_elements);
            continue;
        }
        const std::uint64_t scalar = item - cut.groups;
        step_one(a, scalar < cut.head ? scalar : scalar + cut.groups * group_elements);
    }
}

// --- scan ---

DARL_ANYWHERE darl_device_block scan_lane(const void* x, std::uint32_t type, std::uint64_t elements,
                                          std::uint64_t block, unsigned lane) {
    const std::uint64_t begin = block * DARL_DEVICE_BLOCK_ELEMENTS;
    const std::uint64_t left = elements - begin;
    const std::uint64_t end = begin + (left < DARL_DEVICE_BLOCK_ELEMENTS ? left : DARL_DEVICE_BLOCK_ELEMENTS);
    darl_device_block sums{0.0, 0, 0};
    for (std::uint64_t i = begin + lane; i < end; i += lanes) {
        const float value = read_one(x, type, i);
        const std::uint32_t magnitude = bits_of(value) & 0x7fffffffU;
        if (magnitude > sums.max_bits) sums.max_bits = magnitude;
        const double wide = static_cast<double>(value);
        sums.sum_squares += wide * wide;  // the square of an f32 is exact, so fusing the two changes nothing
    }
    return sums;
}

DARL_ANYWHERE darl_device_block add_lanes(const darl_device_block* lane) {
    darl_device_block all = lane[0];
    for (unsigned k = 1; k < lanes; ++k) {
        all.sum_squares += lane[k].sum_squares;
        if (lane[k].max_bits > all.max_bits) all.max_bits = lane[k].max_bits;
    }
    return all;
}

// --- conversion ---

DARL_ANYWHERE void convert_thread(const void* in, std::uint32_t in_type, void* out, std::uint32_t out_type,
                                  std::uint64_t elements, place at) {
    for (std::uint64_t i = at.index; i < elements; i += at.count) write_one(out, out_type, i, read_one(in, in_type, i));
}

// --- launches ---

#if defined(DARL_EMULATED)

/// A few threads one after the other: enough for the strides to matter.
constexpr std::uint64_t emulated_threads = 3;

int launch_step(const darl_device_step& a, const division& cut, stream) {
    const exact_mode guard;
    for (std::uint64_t t = 0; t < emulated_threads; ++t) step_thread(a, cut, {t, emulated_threads});
    return 0;
}
int launch_scan(const void* x, std::uint32_t type, std::uint64_t elements, darl_device_block* blocks,
                std::uint64_t count, stream) {
    const exact_mode guard;
    darl_device_block lane[lanes];
    for (std::uint64_t block = 0; block < count; ++block) {
        for (unsigned k = 0; k < lanes; ++k) lane[k] = scan_lane(x, type, elements, block, k);
        blocks[block] = add_lanes(lane);
    }
    return 0;
}
int launch_convert(const void* in, std::uint32_t in_type, void* out, std::uint32_t out_type, std::uint64_t elements,
                   stream) {
    const exact_mode guard;
    for (std::uint64_t t = 0; t < emulated_threads; ++t)
        convert_thread(in, in_type, out, out_type, elements, {t, emulated_threads});
    return 0;
}

#else

__device__ __forceinline__ place my_place() {
    return {static_cast<std::uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x,
            static_cast<std::uint64_t>(gridDim.x) * blockDim.x};
}
__global__ void step_kernel(darl_device_step a, division cut) { step_thread(a, cut, my_place()); }
__global__ void scan_kernel(const void* x, std::uint32_t type, std::uint64_t elements, darl_device_block* blocks,
                            std::uint64_t count) {
    __shared__ darl_device_block lane[lanes * scans_per_block];
    for (std::uint64_t first = static_cast<std::uint64_t>(blockIdx.x) * scans_per_block; first < count;
         first += static_cast<std::uint64_t>(gridDim.x) * scans_per_block) {
        const std::uint64_t block = first + threadIdx.x / lanes;
        if (block < count) lane[threadIdx.x] = scan_lane(x, type, elements, block, threadIdx.x % lanes);
        __syncthreads();
        if (block < count && threadIdx.x % lanes == 0) blocks[block] = add_lanes(lane + threadIdx.x);
        __syncthreads();
    }
}
__global__ void convert_kernel(const void* in, std::uint32_t in_type, void* out, std::uint32_t out_type,
                               std::uint64_t elements) {
    convert_thread(in, in_type, out, out_type, elements, my_place());
}

unsigned blocks_for(std::uint64_t items, std::uint64_t per_block) {
    const std::uint64_t wanted = (items + per_block - 1) / per_block;
    return static_cast<unsigned>(wanted < blocks_max ? wanted : blocks_max);
}
// clang-format off
int launch_step(const darl_device_step& a, const division& cut, stream s) {
    step_kernel<<<blocks_for(cut.items, threads_per_block), threads_per_block, 0, s>>>(a, cut);
    return last_status();
}
int launch_scan(const void* x, std::uint32_t type, std::uint64_t elements, darl_device_block* blocks,
                std::uint64_t count, stream s) {
    scan_kernel<<<blocks_for(count, scans_per_block), lanes * scans_per_block, 0, s>>>(x, type, elements, blocks, count);
    return last_status();
}
int launch_convert(const void* in, std::uint32_t in_type, void* out, std::uint32_t out_type, std::uint64_t elements,
                   stream s) {
    convert_kernel<<<blocks_for(elements, threads_per_block), threads_per_block, 0, s>>>(in, in_type, out, out_type, elements);
    return last_status();
}
// clang-format on

#endif

// --- host side ---

thread_local const char* last_text = "no error";

int told(int status) {
    if (status != 0) last_text = text_of(status);
    return status;
}
int refused(const char* reason) {
    last_text = reason;
    return DARL_DEVICE_BAD_ARGUMENT;
}

std::uint64_t bytes_of(std::uint32_t type) { return type == DARL_DEVICE_F32 ? 4 : 2; }
bool is_type(std::uint32_t type) { return type <= DARL_DEVICE_F16; }

/// True when element `head` of the array stands at a multiple of 16 bytes.
bool stands(const void* data, std::uint32_t type, std::uint64_t head) {
    return data == nullptr || (reinterpret_cast<std::uintptr_t>(data) + head * bytes_of(type)) % 16 == 0;
}

division divide(const darl_device_step& a) {
    const std::uint64_t past = reinterpret_cast<std::uintptr_t>(a.v_out) % 16;
    const std::uint64_t head = past == 0 ? 0 : (16 - past) / 4;
    bool together = past % 4 == 0 && head < a.elements && stands(a.sum_in, DARL_DEVICE_F32, head);
    if (a.mode != DARL_DEVICE_SUM_ONLY)
        together = together && stands(a.w, DARL_DEVICE_F32, head) && stands(a.v, DARL_DEVICE_F32, head) &&
                   stands(a.w_out, DARL_DEVICE_F32, head) && stands(a.wire, a.wire_dtype, head);
    for (unsigned d = 0; d < a.deltas; ++d) together = together && stands(a.delta[d].data, a.delta[d].dtype, head);
    if (!together) return {a.elements, 0, a.elements};
    const std::uint64_t groups = (a.elements - head) / group_elements;
    return {head, groups, groups + a.elements - groups * group_elements};
}

const char* wrong_with(const darl_device_step& a) {
    if (a.deltas > DARL_DEVICE_DELTAS_MAX) return "more deltas than one step takes";
    if (a.mode > DARL_DEVICE_SUM_ONLY) return "unknown mode";
    if (a.v_out == nullptr || (a.deltas == 0 && a.sum_in == nullptr)) return "v_out, or anything to sum, is missing";
    for (unsigned d = 0; d < a.deltas; ++d)
        if (a.delta[d].data == nullptr || !is_type(a.delta[d].dtype)) return "a delta is missing or of unknown type";
    if (a.mode == DARL_DEVICE_SUM_ONLY) return nullptr;
    if (a.w == nullptr || a.w_out == nullptr) return "w or w_out is missing";
    if (a.wire != nullptr && a.wire_dtype != DARL_DEVICE_BF16 && a.wire_dtype != DARL_DEVICE_F16)
        return "the wire copy must be bf16 or f16";
    return nullptr;
}

}  // namespace
}  // namespace darl_device

using namespace darl_device;

extern "C" {

uint32_t darl_device_abi_version(void) { return DARL_DEVICE_ABI; }

int darl_device_count(int* count) {
    *count = 0;
    const int status = told(get_count(count));
    if (status != 0) *count = 0;
    return status;
}

int darl_device_allocate(uint64_t bytes, void** memory) { return told(allocate(memory, bytes)); }
int darl_device_release(void* memory) { return told(release(memory)); }
int darl_device_copy_in(void* to, const void* host, uint64_t bytes, void* s) {
    return told(copy(to, host, bytes, true, static_cast<stream>(s)));
}
int darl_device_copy_out(void* host, const void* from, uint64_t bytes, void* s) {
    return told(copy(host, from, bytes, false, static_cast<stream>(s)));
}
int darl_device_wait(void* s) { return told(wait(static_cast<stream>(s))); }

int darl_device_outer_step(const struct darl_device_step* step, void* s) {
    if (step->elements == 0) return 0;
    if (const char* reason = wrong_with(*step)) return refused(reason);
    return told(launch_step(*step, divide(*step), static_cast<stream>(s)));
}

int darl_device_scan(const void* x, uint32_t dtype, uint64_t elements, struct darl_device_block* blocks, void* s) {
    if (elements == 0) return 0;
    if (x == nullptr || blocks == nullptr || !is_type(dtype)) return refused("a scan needs a tensor and its blocks");
    const std::uint64_t count = (elements + DARL_DEVICE_BLOCK_ELEMENTS - 1) / DARL_DEVICE_BLOCK_ELEMENTS;
    return told(launch_scan(x, dtype, elements, blocks, count, static_cast<stream>(s)));
}

int darl_device_convert(const void* in, uint32_t in_dtype, void* out, uint32_t out_dtype, uint64_t elements, void* s) {
    if (elements == 0) return 0;
    if (in == nullptr || out == nullptr || !is_type(in_dtype) || !is_type(out_dtype))
        return refused("a conversion needs two tensors of known type");
    return told(launch_convert(in, in_dtype, out, out_dtype, elements, static_cast<stream>(s)));
}

const char* darl_device_error_text(void) { return last_text; }

}  // extern "C"
