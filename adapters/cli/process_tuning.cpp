// SPDX-License-Identifier: Apache-2.0
#include "adapters/cli/process_tuning.hpp"

#include <cstdlib>
#include <string>

#include <unistd.h>

#include "adapters/cli/child_process.hpp"

namespace darl {
namespace {

bool set_if_unset(const char* name, const std::string& value) {
    if (std::getenv(name) != nullptr) return false;
    ::setenv(name, value.c_str(), 1);
    return true;
}

// Kernels by what the processor can do; OpenBLAS picks by model number, which it may not know.
const char* core_type() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw"))
        return "SkylakeX";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "Haswell";
#endif
    return nullptr;
}

}  // namespace

void tune_process_for_training(char** argv, unsigned threads) {
    if (std::getenv("DARL_PROCESS_TUNED") != nullptr) return;
    bool changed = false;
    if (const char* core = core_type()) changed = set_if_unset("OPENBLAS_CORETYPE", core) || changed;
    changed = set_if_unset("OMP_NUM_THREADS", std::to_string(threads == 0 ? 1 : threads)) || changed;
    changed = set_if_unset("OMP_WAIT_POLICY", "passive") || changed;
    if (!changed) return;
    ::setenv("DARL_PROCESS_TUNED", "1", 1);
    const std::string program = own_program();
    ::execv(program.c_str(), argv);
}

}  // namespace darl
