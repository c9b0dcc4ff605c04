// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "backends/torch/model_spec.hpp"

namespace darlcore::models {

/// Fills one tensor with its initial values, drawn from (run seed, tensor name) only.
/// Promises: the same bits on every site, processor and standard library; independent of the order of tensors.
/// Determinism: xoshiro256++ seeded by splitmix64 from FNV-1a of "darl-init:<seed>:<name>"; normal values by
/// Marsaglia's polar method with an own logarithm, since those of C libraries differ in the last bit. Preconditions
/// (asserted): out.size() == spec.elements().
void initialise(const parameter_spec& spec, std::int64_t seed, std::span<float> out);

/// The generator of `initialise` and of `darl sample`: xoshiro256++ over the FNV-1a hash of a text.
class text_random {
public:
    explicit text_random(std::string_view text);
    std::uint64_t next();
    /// In [0, 1), 53 bits.
    double uniform();

private:
    std::uint64_t s_[4];
};

}  // namespace darlcore::models
