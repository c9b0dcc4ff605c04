// SPDX-License-Identifier: Apache-2.0
#define DARLCORE_VECTOR_BYTES 64
#define DARLCORE_MOVE move_64
#include "bench/host/ceiling_body.hpp"
