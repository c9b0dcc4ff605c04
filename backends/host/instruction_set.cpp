// SPDX-License-Identifier: Apache-2.0
#include "backends/host/instruction_set.hpp"

#include <algorithm>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "darlcore/assert.hpp"

namespace darlcore::host {

namespace {

#if defined(__x86_64__)
// clang 14 has no name for it. Source: Intel SDM volume 2, CPUID leaf 1, ECX bit 29.
bool has_f16c() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & (1U << 29U)) != 0;
}
#endif

std::vector<instruction_set> detect() {
    std::vector<instruction_set> sets{instruction_set::baseline};
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && has_f16c();
    if (avx2) sets.push_back(instruction_set::avx2);
    if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        sets.push_back(instruction_set::avx512);
#endif
    return sets;
}

}  // namespace

std::string_view word(instruction_set set) {
    switch (set) {
        case instruction_set::baseline:
            return "baseline";
        case instruction_set::avx2:
            return "avx2";
        case instruction_set::avx512:
            return "avx512";
    }
    return "baseline";
}

const std::vector<instruction_set>& available_instruction_sets() {
    static const std::vector<instruction_set> sets = detect();
    return sets;
}

const kernel_table& kernels_of(instruction_set set) {
    const auto& sets = available_instruction_sets();
    DARLCORE_ASSERT(std::find(sets.begin(), sets.end(), set) != sets.end());
#if defined(__x86_64__)
    if (set == instruction_set::avx512) return avx512_kernels();
    if (set == instruction_set::avx2) return avx2_kernels();
#endif
    return baseline_kernels();
}

const kernel_table& best_kernels() {
    static const kernel_table& table = kernels_of(available_instruction_sets().back());
    return table;
}

}  // namespace darlcore::host
