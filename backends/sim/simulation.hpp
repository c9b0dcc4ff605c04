// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "backends/storage/state_directory.hpp"
#include "darlcore/ledger/machine.hpp"

namespace darlcore::sim {

/// A whole run in simulated time: the real ledger, journal and site sessions; a simulated disk, network, trainer and
/// merge.
struct simulation_settings {
    std::uint64_t seed = 1;
    std::uint64_t blocks = 40;
    std::uint64_t block_size = 3;
    std::uint64_t sites = 3;
    std::uint64_t groups = 2;
    std::uint64_t steps = 4;     ///< H
    std::uint64_t per_step = 6;  ///< windows
    /// How many faults of all kinds fall into the first `fault_window_ms`; behind it nothing goes wrong any more and
    /// the epoch must end (liveness).
    std::uint64_t faults = 12;
    std::int64_t fault_window_ms = 1'200'000;
    std::int64_t until_ms = 400'000'000;

    // Mechanisms that tests take away.
    storage::storage_mutants storage_mutants;
    ledger::order_switches order;
    bool read_unreserved = false;
};

/// Settings of a seed: geometry and faults drawn from it.
simulation_settings random_simulation(std::uint64_t seed);

struct simulation_report {
    /// Every site ended by itself because the epoch is complete.
    bool finished = false;
    std::int64_t simulated_ms = 0;
    std::uint64_t events = 0;
    std::uint64_t merges = 0;
    std::uint64_t snapshots = 0;
    std::uint64_t retrained_blocks = 0;
    /// Faults that happened, by kind.
    std::map<std::string, std::uint64_t> faults;
    /// Empty: each block is in the global model exactly once (or quarantined), by the sites' own records, and no
    /// promise was broken.
    std::vector<std::string> violations;
    /// Who waits for what, when it did not finish.
    std::string stands;
    [[nodiscard]] bool passed() const { return finished && violations.empty(); }
};

/// Determinism: one seed, one run, one report.
simulation_report simulate(const simulation_settings& settings);

}  // namespace darlcore::sim
