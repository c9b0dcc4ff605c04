// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "backends/host/kernels.hpp"

namespace darlcore::host {

/// Vector instructions that the kernels are compiled for. All give the same bits.
enum class instruction_set : std::uint8_t { baseline, avx2, avx512 };

std::string_view word(instruction_set set);

/// Those that this processor has, slowest first; never empty.
const std::vector<instruction_set>& available_instruction_sets();

/// Preconditions (asserted): available.
const kernel_table& kernels_of(instruction_set set);

/// The fastest available.
const kernel_table& best_kernels();

}  // namespace darlcore::host
