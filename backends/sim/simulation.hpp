// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/sim/fault_plan.hpp"

namespace darlcore::sim {

/// A mechanism that is taken away on purpose, to see that its absence is found. `none` in every real simulation.
enum class planted : std::uint8_t {
    none,
    reserve,         ///< sites read everything they were granted, reserved or not
    pledge,          ///< contributions are merged without pledging their blocks
    fence,           ///< a replaced process is served as if it were the current one
    checksum,        ///< records are read without comparing their checksums
    sync,            ///< batches are acknowledged without a sync
    steal_replay,    ///< a start forgets which leases were cut short by a steal
    directory_sync,  ///< names are never synced
    file_sync,       ///< new segments and snapshots are never synced
    early_reply,     ///< replies leave before their batch is durable
    double_merge,    ///< the merge adds its first contribution twice
    lost_block,      ///< off by one: a delta lacks the last block it claims
    merge_order,     ///< the record of a merge is written before its files are synced
    blob_digest,     ///< a stored delta is merged without comparing its digest
    model_digest,    ///< a start does not compare the model's files with the journal
    tail_rewrite,    ///< a start trusts the last batch it could read, though a sync of it may have failed
};
std::string_view word(planted mechanism);
std::optional<planted> planted_from_word(std::string_view text);
/// All but `none`, in their order.
const std::vector<planted>& every_planted();

/// safety: faults of all kinds to the end of a window, none behind it; each block must be in the model once and the
/// epochs must end. liveness: behind the window one site and the server are healthy, and every other site keeps a fault
/// for ever; the epochs must end all the same.
enum class simulation_mode : std::uint8_t { safety, liveness };

/// A whole run in simulated time: the real ledger, journal, blob store, model directory and site sessions; a simulated
/// disk, network, trainer and merge kernel.
struct simulation_settings {
    std::uint64_t seed = 1;
    simulation_mode mode = simulation_mode::safety;
    std::uint64_t blocks = 40;
    std::uint64_t block_size = 3;
    std::uint32_t epochs = 1;
    std::uint64_t sites = 3;
    std::uint64_t groups = 2;
    std::uint64_t steps = 4;     ///< H
    std::uint64_t per_step = 6;  ///< windows
    std::int64_t ms_per_window = 120;
    std::vector<planned_fault> plan;
    /// Messages are lost, doubled and delayed inside the window.
    bool rough_network = true;
    std::int64_t fault_window_ms = 1'200'000;
    std::int64_t until_ms = 500'000'000;
    planted plant = planted::none;
    /// The power goes at this I/O call of the first disk (0: never), in this way.
    std::uint64_t power_cut_at_call = 0;
    loss power_cut_loss = loss::random_8;
};

/// Settings of a seed: geometry, speed and faults drawn from it.
simulation_settings random_simulation(std::uint64_t seed, simulation_mode mode = simulation_mode::safety);

struct simulation_report {
    /// Every site that had to ended by itself because the last epoch is complete.
    bool finished = false;
    std::int64_t simulated_ms = 0;
    std::uint64_t events = 0;
    std::uint64_t io_calls = 0;  ///< of the disk that is in use at the end
    std::uint64_t merges = 0;
    std::uint64_t snapshots = 0;
    std::uint64_t starts = 0;  ///< of the server
    std::uint64_t retrained_blocks = 0;
    /// Calls of replaced processes that would have changed something; all of them were refused, or it is a violation.
    std::uint64_t stale_calls_refused = 0;
    /// Faults that happened, by kind.
    std::map<std::string, std::uint64_t> faults;
    /// When and to whom, one line each.
    std::vector<std::string> story;
    /// Of every event's time, every record's bytes and the final model: one seed, one digest.
    std::uint64_t digest = 0;
    /// Empty: each block is in the global model exactly once (or quarantined), and no promise was broken.
    std::vector<std::string> violations;
    /// Who waits for what, when it did not finish.
    std::string stands;
    [[nodiscard]] bool passed() const { return finished && violations.empty(); }
    /// The first thing that is wrong; empty when passed.
    [[nodiscard]] std::string verdict() const;
};

/// Determinism: equal settings, equal report.
simulation_report simulate(const simulation_settings& settings);

/// Settings with the fewest planned faults that still fail (each of the rest is needed), by trying; at most `runs_max`
/// simulations. Preconditions (asserted): the settings fail.
simulation_settings shrink(simulation_settings failing, std::uint64_t runs_max = 400);

}  // namespace darlcore::sim
