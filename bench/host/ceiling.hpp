// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace darlcore::bench {

/// The memory traffic of an outer step with hardly any arithmetic: what the machine allows. Reads w, v and the deltas,
/// writes w and v in place (or w_out and v_out around the caches) and, when asked for, a wire copy of two bytes per
/// element.
struct traffic {
    float* w = nullptr;
    float* v = nullptr;
    float* w_out = nullptr;  ///< null: in place
    float* v_out = nullptr;
    void* wire = nullptr;  ///< null: none
    const void* const* deltas = nullptr;
    int count = 1;
    bool half = false;  ///< deltas of two bytes
};

/// Elements [first, end), both multiples of 64.
using traffic_kernel = void (*)(const traffic&, std::size_t first, std::size_t end);

void move_16(const traffic& t, std::size_t first, std::size_t end);
void move_64(const traffic& t, std::size_t first, std::size_t end);

}  // namespace darlcore::bench
