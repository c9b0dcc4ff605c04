// SPDX-License-Identifier: Apache-2.0
#define DARLCORE_VECTOR_BYTES 32
#define DARLCORE_KERNELS avx2_kernels
#include "backends/host/kernel_body.hpp"
