// SPDX-License-Identifier: Apache-2.0
#pragma once

// One source, several instruction sets, chosen when the program is loaded. Sanitizers cannot run such resolvers.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define DARLCORE_CLONES __attribute__((target_clones("arch=skylake-avx512", "avx2", "default")))
#else
#define DARLCORE_CLONES
#endif
