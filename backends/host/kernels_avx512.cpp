// SPDX-License-Identifier: Apache-2.0
#define DARLCORE_VECTOR_BYTES 64
#define DARLCORE_KERNELS avx512_kernels
#include "backends/host/kernel_body.hpp"
