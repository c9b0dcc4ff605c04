// SPDX-License-Identifier: Apache-2.0
#include "backends/host/cpu_backend.hpp"
#include "tests/merge/outer_step_vectors.hpp"

namespace {

using namespace darlcore;

TEST(host_vectors, every_case_of_the_outer_step_holds_to_the_bit_on_every_instruction_set) {
    for (const auto set : host::available_instruction_sets())
        for (const int threads : {1, 2, 3}) {
            host::cpu_backend backend({.threads = threads, .chunk_elements = 1, .instructions = set});
            EXPECT_EQ(vectors::run_cases(backend), 24U) << host::word(set);
        }
}

}  // namespace
