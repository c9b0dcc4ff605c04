// SPDX-License-Identifier: Apache-2.0
#include "backends/torch/compute_environment.hpp"

#include <dlfcn.h>
#include <malloc.h>
#include <sched.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace darlcore::training {
namespace {

bool variable_is_set(std::string_view name) { return std::getenv(std::string(name).c_str()) != nullptr; }

std::string openblas_core() {
    using name_function = char* (*)();
    void* library = ::dlopen("libopenblas.so.0", RTLD_LAZY | RTLD_NOLOAD);
    void* symbol = ::dlsym(library != nullptr ? library : RTLD_DEFAULT, "openblas_get_corename");
    if (symbol == nullptr) return {};
    return reinterpret_cast<name_function>(symbol)();
}

unsigned usable_cores() {
    cpu_set_t set;
    if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    return static_cast<unsigned>(std::max(1, CPU_COUNT(&set)));
}

std::vector<std::string> own_arguments() {
    std::ifstream in("/proc/self/cmdline", std::ios::binary);
    std::vector<std::string> words;
    for (std::string word; std::getline(in, word, '\0');) words.push_back(word);
    return words;
}

// Every step allocates the same tensors again: memory that was freed is kept, or the kernel clears its pages anew each
// time (a seventh of a small model's step). One arena, because those of other threads give their pages back.
void keep_freed_memory() {
    ::mallopt(M_ARENA_MAX, 1);
    ::mallopt(M_MMAP_THRESHOLD, 32 << 20);
    ::mallopt(M_TRIM_THRESHOLD, 512 << 20);
    ::mallopt(M_TOP_PAD, 16 << 20);
}

}  // namespace

environment worker_environment(const compute_facts& facts, bool (*is_set)(std::string_view)) {
    environment out;
    const unsigned share = std::max(1U, facts.cores / std::max(1U, facts.workers));
    const unsigned threads = facts.threads != 0 ? facts.threads : share;
    if (facts.blas_core == "Prescott" && !is_set("OPENBLAS_CORETYPE")) {
        if (facts.avx512)
            out.emplace_back("OPENBLAS_CORETYPE", "SkylakeX");
        else if (facts.avx2)
            out.emplace_back("OPENBLAS_CORETYPE", "Haswell");
    }
    if (!is_set("OMP_NUM_THREADS")) out.emplace_back("OMP_NUM_THREADS", std::to_string(threads));
    if ((facts.passive_wait_helps || facts.workers * threads > facts.cores) && !is_set("OMP_WAIT_POLICY")) {
        out.emplace_back("OMP_WAIT_POLICY", "passive");
    }
    return out;
}

compute_facts this_machine(unsigned workers, unsigned threads) {
    compute_facts facts;
    facts.torch_version = TORCH_VERSION;
    facts.blas_core = openblas_core();
#if defined(__x86_64__)
    facts.avx2 = __builtin_cpu_supports("avx2") != 0;
    facts.avx512 = __builtin_cpu_supports("avx512f") != 0;
#endif
    facts.cores = usable_cores();
    facts.workers = workers;
    facts.threads = threads;
    facts.passive_wait_helps = TORCH_VERSION_MAJOR < 2;  // 2.x loses a fifth by it when a worker is alone
    return facts;
}

void restart_with_worker_environment(unsigned workers, unsigned threads) {
    keep_freed_memory();
    const environment missing = worker_environment(this_machine(workers, threads), &variable_is_set);
    if (missing.empty()) return;
    for (const auto& [name, value] : missing) ::setenv(name.c_str(), value.c_str(), 1);
    std::vector<std::string> words = own_arguments();
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    if (words.empty()) return;
    ::execv("/proc/self/exe", arguments.data());
    // Only reached when it cannot be started again; slower, but right.
}

}  // namespace darlcore::training
