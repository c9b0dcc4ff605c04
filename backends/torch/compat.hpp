// SPDX-License-Identifier: Apache-2.0
#pragma once

// The only file that knows that libtorch has versions. Included by .cpp files of this folder only: it costs seconds to
// compile. ivalue.h comes first: clang does not parse 1.13's headers in C++20 otherwise.
#include <ATen/core/ivalue.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/version.h>

#include <cstdint>

// Gates ask for what the headers offer, not for a version number.
#if __has_include(<ATen/ops/scaled_dot_product_attention.h>)
#define DARLCORE_TORCH_HAS_SDPA 1
#else
#define DARLCORE_TORCH_HAS_SDPA 0
#endif

namespace darlcore::torch_compat {

/// "1.13.0", as the headers say.
inline constexpr const char* version_text = TORCH_VERSION;

/// The f32 elements of a contiguous CPU tensor, for own kernels. 1.13 has no mutable_data_ptr.
inline float* f32(const at::Tensor& t) { return static_cast<float*>(t.data_ptr()); }
inline const float* const_f32(const at::Tensor& t) { return static_cast<const float*>(t.data_ptr()); }

}  // namespace darlcore::torch_compat
