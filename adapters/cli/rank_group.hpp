// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
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

/// How long the leader may wait for the others in one call. Between two calls all ranks do equal work, so the leader's
/// own part is the measure: a wait above `patience_ms` and 20 times that part means that a rank hangs.
/// Thread-safety: `begin` and `end` from one thread, `overdue_ms` from any.
class call_clock {
public:
    explicit call_clock(std::int64_t patience_ms) : patience_ms_(patience_ms) {}
    void begin(std::int64_t now_ms) { begin(now_ms, patience_ms_ + 20 * (now_ms - left_ms_)); }
    void begin(std::int64_t now_ms, std::int64_t at_most_ms) {
        begun_ms_.store(now_ms);
        deadline_ms_.store(now_ms + at_most_ms);
    }
    void end(std::int64_t now_ms) {
        deadline_ms_.store(never);
        left_ms_ = now_ms;
    }
    /// How long the call has been waiting when it is overdue; else nothing.
    [[nodiscard]] std::optional<std::int64_t> overdue_ms(std::int64_t now_ms) const {
        if (now_ms <= deadline_ms_.load()) return std::nullopt;
        return now_ms - begun_ms_.load();
    }

private:
    static constexpr std::int64_t never = INT64_MAX;
    std::int64_t patience_ms_;
    std::int64_t left_ms_ = 0;
    std::atomic<std::int64_t> begun_ms_{0};
    std::atomic<std::int64_t> deadline_ms_{never};
};

/// How many calls each rank has begun, in memory that all ranks of the site share. They make the same calls in the same
/// order, so those with the fewest are the ones that the others wait for.
class rank_beats {
public:
    /// Memory for a leader; its descriptor is inherited by the processes that it starts. Errors: errc::io_error.
    static darlcore::result<rank_beats> make(std::size_t ranks);
    /// The leader's memory in a process that it started. Errors: errc::io_error.
    static darlcore::result<rank_beats> inherited(int descriptor, std::size_t ranks);
    rank_beats(rank_beats&& other) noexcept
        : descriptor_(std::exchange(other.descriptor_, -1)), counts_(std::exchange(other.counts_, {})) {}
    rank_beats& operator=(rank_beats&&) = delete;
    ~rank_beats();

    [[nodiscard]] int descriptor() const { return descriptor_; }
    void count(std::size_t rank) { std::atomic_ref(counts_[rank]).fetch_add(1); }
    /// Ranks that have begun fewer calls than others, ascending.
    [[nodiscard]] std::vector<std::size_t> behind() const;

private:
    rank_beats(int descriptor, std::span<std::uint64_t> counts) : descriptor_(descriptor), counts_(counts) {}
    int descriptor_ = -1;
    std::span<std::uint64_t> counts_;
};

struct rank_place {
    std::size_t rank = 0;
    std::size_t ranks = 1;
    std::uint16_t port = 0;  // of the leader's meeting point
};

/// The communicator of one rank, its calls counted in `beats` and timed by `clock`, which outlive it. Blocks until all
/// ranks are there. Errors: those of gloo_communicator.
darlcore::result<std::unique_ptr<darlcore::training::communicator>> meet_ranks(const rank_place& place,
                                                                               rank_beats& beats, call_clock& clock);

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
    struct options {
        std::size_t ranks = 1;
        std::uint16_t port = 0;
        std::string log_dir;
        std::int64_t patience_ms = 60'000;             // least silence that means that a rank hangs
        std::function<void(const std::string&)> lost;  // see `start`
    };
    /// Starts ranks 1 .. ranks - 1 with the arguments of this process and `--rank r --rank-port port`; what they say
    /// goes to `log_dir`/rank-r.log. `lost` is called once, from a thread of its own, when one ends before `finish` or
    /// is ended because it hangs. Errors: errc::io_error.
    static darlcore::result<std::unique_ptr<rank_processes>> start(options o);
    ~rank_processes();
    /// The leader's place among them, watched from now on; to be called once. Errors: those of gloo_communicator.
    darlcore::result<std::unique_ptr<darlcore::training::communicator>> meet();
    /// From now on ranks may end.
    void expect_end() { finishing_.store(true); }
    /// Waits for their ends, and ends those that do not.
    void finish();

private:
    rank_processes(options o, rank_beats beats)
        : options_(std::move(o)), beats_(std::move(beats)), clock_(options_.patience_ms) {}
    void watch();
    [[nodiscard]] std::string end_hung(std::int64_t waited_ms);

    options options_;
    rank_beats beats_;
    call_clock clock_;
    std::vector<child_process> children_;
    std::atomic<bool> finishing_{false};
    std::thread watcher_;
};

}  // namespace darl
