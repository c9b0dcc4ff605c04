// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace darlcore::sim {

/// The random numbers of a simulation: splitmix64, so that one seed gives one run on every machine.
class rng {
public:
    explicit rng(std::uint64_t seed) : state_(seed) {}

    std::uint64_t next() {
        state_ += 0x9e3779b97f4a7c15U;
        std::uint64_t z = state_;
        z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
        z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
        return z ^ (z >> 31U);
    }
    /// Uniform in [0, bound) up to a bias below 2^-32 for the bounds used here; 0 for bound 0.
    std::uint64_t below(std::uint64_t bound) { return bound == 0 ? 0 : next() % bound; }
    /// True once in `n` on average.
    bool one_in(std::uint64_t n) { return below(n) == 0; }
    /// Uniform in [0, 1).
    double unit() { return static_cast<double>(next() >> 11U) * 0x1.0p-53; }
    /// A generator whose numbers are independent of this one's.
    rng fork() { return rng(next()); }

private:
    std::uint64_t state_;
};

}  // namespace darlcore::sim
