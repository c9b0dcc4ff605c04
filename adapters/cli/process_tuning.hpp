// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace darl {

/// Starts this program anew, once, with the variables that libtorch's libraries read only at their start:
/// OPENBLAS_CORETYPE where OpenBLAS does not know the processor (it would fall back to kernels three to five times
/// slower), OMP_NUM_THREADS and OMP_WAIT_POLICY. A value that the owner has set stays. Returns when nothing is to be
/// changed (or the program cannot be started anew: then it is merely slower). Source: docs/models.md, OpenBLAS 0.3.21
/// on processors newer than itself.
void tune_process_for_training(char** argv, unsigned threads);

}  // namespace darl
