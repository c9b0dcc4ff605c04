// SPDX-License-Identifier: Apache-2.0
#define DARLCORE_VECTOR_BYTES 16
#define DARLCORE_MOVE move_16
#include "bench/host/ceiling_body.hpp"
