// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backends/sim/disk.hpp"

namespace darlcore::sim {

/// What can go wrong in a simulated run. The forever_ ones are for the liveness mode and never end.
enum class harm : std::uint8_t {
    site_kill,
    server_kill,
    site_pause,
    server_pause,
    power_cut,
    power_cut_in_batch,
    bit_flip,
    short_transfers,
    io_error_once,
    io_error_lasting,
    disk_full,
    failed_sync,
    restart_loop,
    restart_under_power_cuts,
    partition_one_way,
    partition,
    clock_step,
    clock_skew,
    slow_peer,
    twin,
    forever_dead,
    forever_paused,
    forever_cut_off,
    forever_deaf,
    forever_mute,
    forever_hung,
    forever_slow,
    forever_crashing,
};
inline constexpr auto harm_kinds = static_cast<std::uint64_t>(harm::forever_dead);
inline constexpr auto forever_kinds = static_cast<std::uint64_t>(harm::forever_crashing) + 1 - harm_kinds;
std::string_view word(harm kind);

/// One fault of a plan. Everything it draws comes from its own seed, so that taking away another fault leaves it as it
/// is.
struct planned_fault {
    std::int64_t at_ms = 0;
    harm kind = harm::site_kill;
    std::uint64_t site = 0;
    std::uint64_t seed = 0;
};

/// `count` faults of random kinds inside the window, by time.
std::vector<planned_fault> random_plan(std::uint64_t seed, std::uint64_t count, std::uint64_t sites,
                                       std::int64_t window_ms);
/// One fault without end at the end of the window for each site but `healthy`.
std::vector<planned_fault> forever_plan(std::uint64_t seed, std::uint64_t sites, std::uint64_t healthy,
                                        std::int64_t window_ms);

/// "01:02:03.004" of milliseconds.
std::string clock_text(std::int64_t ms);

}  // namespace darlcore::sim
