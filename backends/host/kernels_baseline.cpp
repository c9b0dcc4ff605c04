// SPDX-License-Identifier: Apache-2.0
// Vectors of 16 bytes: what every 64-bit processor of the two families has.
#include "darlcore/merge/conversions.hpp"

#define DARLCORE_VECTOR_BYTES 16
#define DARLCORE_KERNELS baseline_kernels
#include "backends/host/kernel_body.hpp"
