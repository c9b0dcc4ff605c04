// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "darlcore/plan/campaign.hpp"

namespace darlcore::plan::detail {

/// One round that could be held now.
struct round_draft {
    std::uint64_t full = 0;       // train all H steps and evaluate
    std::uint64_t leaving = 0;    // strict: train what fits before their end, upload, leave
    std::uint64_t eval_only = 0;  // came inside the round
    std::uint64_t cold = 0;       // of those, the ones that stall the incumbents
    std::uint32_t inner_steps = 0;
    double stall_s = 0;
    double period_s = 0;
    std::uint64_t windows = 0;
    std::array<std::uint32_t, lanes_max> leaver_steps{};

    [[nodiscard]] std::uint64_t trainers() const { return full | leaving; }
};

template <class F>
void for_each_bit(std::uint64_t mask, F&& f) {
    for (; mask != 0; mask &= mask - 1) f(static_cast<std::size_t>(std::countr_zero(mask)));
}

}  // namespace darlcore::plan::detail
