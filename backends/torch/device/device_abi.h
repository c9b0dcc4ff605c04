// SPDX-License-Identifier: Apache-2.0
/* Fused merge kernels of a graphics processor as plain C functions of a shared library: whatever compiled the library
   and whatever calls it may be different compilers, and callers need not be C++. One source (device_kernels.cu) makes a
   library for CUDA and one for HIP.

   Status: 0 = done; else a number of the vendor's runtime, or a darl_device_ status below. darl_device_error_text says
   more about the last failure of the calling thread. Memory arguments are addresses of the device. A stream is a
   cudaStream_t or hipStream_t; null = the default one. Work is ordered on its stream; darl_device_wait makes results
   visible to the host. Bits: those of darlcore/merge/outer_step.hpp and scan_accumulator.hpp. */
#ifndef DARLCORE_DEVICE_ABI_H
#define DARLCORE_DEVICE_ABI_H

#include <stdint.h>

#define DARL_DEVICE_ABI 1
#define DARL_DEVICE_DELTAS_MAX 16
#define DARL_DEVICE_BLOCK_ELEMENTS 65536

#if defined(_WIN32)
#define DARL_DEVICE_EXPORT __declspec(dllexport)
#else
#define DARL_DEVICE_EXPORT __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* dtypes */
enum { DARL_DEVICE_F32 = 0, DARL_DEVICE_BF16 = 1, DARL_DEVICE_F16 = 2 };
/* modes of a step */
enum { DARL_DEVICE_NESTEROV = 0, DARL_DEVICE_PLAIN = 1, DARL_DEVICE_SUM_ONLY = 2 };
/* own statuses */
enum { DARL_DEVICE_BAD_ARGUMENT = -1 };

struct darl_device_delta {
    const void* data;
    uint32_t dtype;
    float share;
    float scale; /* 1 = none */
};

/* Shapes: w, v, sum_in, w_out, v_out, wire and each delta [elements]; v, sum_in and wire may be null. The step of
   outer_step_args; DARL_DEVICE_SUM_ONLY writes the sum to v_out and uses neither w, v, w_out nor wire. */
struct darl_device_step {
    const float* w;
    const float* v;
    const float* sum_in;
    float* w_out;
    float* v_out;
    void* wire;
    uint64_t elements;
    uint32_t wire_dtype;
    uint32_t mode;
    float eta;
    float beta;
    uint32_t deltas;
    struct darl_device_delta delta[DARL_DEVICE_DELTAS_MAX];
};

/* Facts of 65536 elements of a tensor: largest magnitude as the bits of an f32 (0x7f800000 and above: a nan or inf is
   among them), and the sum of squares in 16 lanes. */
struct darl_device_block {
    double sum_squares;
    uint32_t max_bits;
    uint32_t reserved;
};

/* The version that the library speaks: DARL_DEVICE_ABI of its build. */
DARL_DEVICE_EXPORT uint32_t darl_device_abi_version(void);
/* Devices of this machine; without a driver a status and 0 devices. */
DARL_DEVICE_EXPORT int darl_device_count(int* count);
DARL_DEVICE_EXPORT int darl_device_allocate(uint64_t bytes, void** memory);
DARL_DEVICE_EXPORT int darl_device_release(void* memory);
DARL_DEVICE_EXPORT int darl_device_copy_in(void* to, const void* host, uint64_t bytes, void* stream);
DARL_DEVICE_EXPORT int darl_device_copy_out(void* host, const void* from, uint64_t bytes, void* stream);
DARL_DEVICE_EXPORT int darl_device_wait(void* stream);
/* The struct is read before the call returns. */
DARL_DEVICE_EXPORT int darl_device_outer_step(const struct darl_device_step* step, void* stream);
/* Fills one entry per 65536 elements, the last one for what is left. */
DARL_DEVICE_EXPORT int darl_device_scan(const void* x, uint32_t dtype, uint64_t elements,
                                        struct darl_device_block* blocks, void* stream);
/* Nearest, ties to even; NaN stays NaN. */
DARL_DEVICE_EXPORT int darl_device_convert(const void* in, uint32_t in_dtype, void* out, uint32_t out_dtype,
                                           uint64_t elements, void* stream);
DARL_DEVICE_EXPORT const char* darl_device_error_text(void);

#ifdef __cplusplus
}
#endif

#endif
