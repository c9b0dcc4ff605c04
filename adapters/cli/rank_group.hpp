// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "adapters/cli/child_process.hpp"
#include "backends/torch/communicator.hpp"
#include "backends/torch/trainer.hpp"
#include "darlcore/block_space.hpp"

namespace darl {

/// What the leader (rank 0) of a site tells its other ranks between the trainer's own collectives. Every order is sent
/// before the leader makes the same call itself, so that all ranks make equal calls in equal order. With one rank
/// nothing is sent. Errors of every member: errc::unreachable when a rank is gone. Thread-safety: one caller at a time.
class rank_orders {
public:
    explicit rank_orders(darlcore::training::communicator& ranks) : ranks_(&ranks) {}

    /// Reads the weights of a generation; every rank sees the same file.
    darlcore::result<void> load(const std::string& path);
    /// The leader's moments and their age.
    darlcore::result<void> share_moments(const darlcore::training::inner_trainer& trainer);
    /// Back to the loaded weights and to this place of the schedule, then a phase of this epoch.
    darlcore::result<void> phase(darlcore::epoch_index epoch, std::uint64_t position);
    /// Back to the loaded weights, then an evaluation.
    darlcore::result<void> evaluate();
    /// The others end with 0.
    darlcore::result<void> stop();

private:
    darlcore::result<void> say(const std::string& text);
    darlcore::training::communicator* ranks_;
};

/// What a rank that follows trains on.
struct follower_inputs {
    darlcore::space_parameters space;
    const darlcore::training::window_source* corpus = nullptr;
    const darlcore::training::window_source* held_out = nullptr;  // may be null
    std::uint64_t eval_windows = 0;
};

/// Follows the leader's orders until `stop`. Errors: errc::unreachable when the leader is gone; whatever a call gives.
darlcore::result<void> follow_orders(darlcore::training::communicator& ranks,
                                     darlcore::training::inner_trainer& trainer, const follower_inputs& in);

/// The other ranks of a site as processes of this program on this machine; they never outlive it.
class rank_processes {
public:
    /// Starts ranks 1 .. ranks - 1 with the arguments of this process and `--rank r --rank-port port`; what they say
    /// goes to `log_dir`/rank-r.log. `lost` is called once, from a thread of its own, when one ends before `finish`.
    /// Errors: errc::io_error.
    static darlcore::result<std::unique_ptr<rank_processes>> start(std::size_t ranks, std::uint16_t port,
                                                                   const std::string& log_dir,
                                                                   std::function<void(const std::string&)> lost);
    ~rank_processes();
    /// From now on ranks may end.
    void expect_end() { finishing_.store(true); }
    /// Waits for their ends, and ends those that do not.
    void finish();

private:
    rank_processes() = default;
    void watch();

    std::vector<child_process> children_;
    std::string log_dir_;
    std::function<void(const std::string&)> lost_;
    std::atomic<bool> finishing_{false};
    std::thread watcher_;
};

}  // namespace darl
