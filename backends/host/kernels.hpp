// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "darlcore/merge/dtype.hpp"

// Inner loops of the host backend. One source (kernel_body.hpp) is compiled once per instruction set; each gives the
// same bits, because no operation is fused, reassociated or approximated. Callers hold an ieee_mode.
namespace darlcore::host {

/// Second half of an outer step: from the weighted sum in `s` to w', v' and the wire copy.
struct finish_args {
    const float* s = nullptr;
    const float* w = nullptr;
    const float* v = nullptr;  ///< null: v := w
    float* w_out = nullptr;
    float* v_out = nullptr;
    void* wire = nullptr;  ///< null: none
    dtype wire_type = dtype::bf16;
    float eta = 0;
    float beta = 0;
    bool plain = false;           ///< w' = v'
    bool non_temporal = false;    ///< outputs are not read again soon: write around the caches
    std::size_t ahead_bytes = 0;  ///< distance at which w and v are prefetched; 0 = not
};

/// One delta of a weighted sum.
struct delta_source {
    const void* x = nullptr;
    float share = 1;
    float scale = 1;
};

struct kernel_table {
    const char* name;
    /// s = share (scale x) of the first source when `start`, else s + share (scale x), then the next: 1, 2 or 4 sources
    /// of one type.
    void (*accumulate)(float* s, const delta_source* sources, std::size_t count, dtype type, std::size_t n, bool start,
                       std::size_t ahead_bytes);
    void (*finish)(const finish_args& args, std::size_t n);
    /// Makes stores around the caches visible; once after the last `finish`.
    void (*fence)();
    /// Adds squares to 16 lanes; the first element belongs to lane `phase`. Raises max_bits to the largest magnitude as
    /// a bit pattern.
    void (*scan)(const void* x, dtype type, std::size_t n, std::size_t phase, double* lanes, std::uint32_t* max_bits);
    void (*convert)(const void* in, dtype in_type, void* out, dtype out_type, std::size_t n);
    /// out = a x, or y + a x.
    void (*axpy)(float a, const void* x, dtype type, const float* y, float* out, std::size_t n);
    /// out = a - b
    void (*subtract)(const void* a, dtype a_type, const void* b, dtype b_type, float* out, std::size_t n);
    /// Adds products to 16 lanes; the first element belongs to lane 0.
    void (*dot)(const float* a, const float* b, std::size_t n, double* lanes);
};

const kernel_table& baseline_kernels();
#if defined(__x86_64__)
const kernel_table& avx2_kernels();
const kernel_table& avx512_kernels();
#endif

}  // namespace darlcore::host
