// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace darlcore::training {

/// What the settings below depend on.
struct compute_facts {
    std::string torch_version;
    std::string blas_core;  ///< OpenBLAS's name of the kernels it chose; empty when another BLAS is loaded
    bool avx2 = false, avx512 = false;
    unsigned cores = 1;
    unsigned workers = 1;             ///< training processes on this machine
    unsigned threads = 0;             ///< of this one, as its owner wants it; 0: its share of the cores
    bool passive_wait_helps = false;  ///< libtorch 1.13: idle OpenMP threads must not spin
};

using environment = std::vector<std::pair<std::string, std::string>>;

/// Variables that a training process should start with; those that `is_set` are the owner's and stay.
/// OPENBLAS_CORETYPE: OpenBLAS 0.3.21 does not know newer processors and falls back to kernels that are five times
/// slower; it reads the variable when the process starts only. OMP_NUM_THREADS: the worker's share of the cores.
/// OMP_WAIT_POLICY: passive where spinning hurts.
environment worker_environment(const compute_facts& facts, bool (*is_set)(std::string_view name));

/// Facts of this machine and process.
compute_facts this_machine(unsigned workers = 1, unsigned threads = 0);

/// Starts this program anew with the variables it lacks; returns when it lacks none, with an allocator that keeps what
/// was freed. Call it before any training or inference starts.
void restart_with_worker_environment(unsigned workers = 1, unsigned threads = 0);

}  // namespace darlcore::training
