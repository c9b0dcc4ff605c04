// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/sim/event_loop.hpp"

namespace darlcore::sim {

/// A simulated process: timers that die with it and stand still while it is paused, and clocks of its own.
/// Thread-safety: none. Preconditions: outlives the loop's events, or is killed before it goes.
class process {
public:
    process(event_loop& loop, std::string name) : loop_(loop), name_(std::move(name)) {}
    process(const process&) = delete;
    process& operator=(const process&) = delete;
    ~process() { kill(); }

    [[nodiscard]] const std::string& name() const { return name_; }
    [[nodiscard]] bool is_alive() const { return life_ != nullptr; }
    [[nodiscard]] bool is_paused() const { return is_paused_; }
    [[nodiscard]] std::uint64_t starts() const { return starts_; }

    void start() {
        DARLCORE_ASSERT(!is_alive());
        life_ = std::make_shared<bool>(true);
        ++starts_;
    }
    /// As SIGKILL: nothing of it ever runs again; what it had sent stays under way.
    void kill() {
        if (life_) *life_ = false;
        life_.reset();
        held_.clear();
        is_paused_ = false;
    }
    /// As SIGSTOP: what falls due meanwhile happens at `resume`, in its order.
    void pause() { is_paused_ = is_alive(); }
    void resume() {
        is_paused_ = false;
        for (auto& what : std::exchange(held_, {})) loop_.after(0, guarded(std::move(what)));
    }

    /// Runs `what` in this process unless it is killed before.
    event_loop::event_id after(std::int64_t delay_ms, std::function<void()> what) {
        DARLCORE_ASSERT(is_alive());
        return loop_.after(delay_ms, guarded(std::move(what)));
    }
    void cancel(const event_loop::event_id& id) { loop_.cancel(id); }

    /// `what`, made harmless once the process is dead and put off while it is paused.
    std::function<void()> guarded(std::function<void()> what) {
        return [this, life = life_, what = std::move(what)]() mutable {
            if (!life || !*life) return;
            if (is_paused_)
                held_.push_back(std::move(what));
            else
                what();
        };
    }

    /// The clock that does not go back; runs at its own rate (1 = true time).
    [[nodiscard]] std::int64_t monotonic_ms() const {
        return monotonic_base_ms_ +
               static_cast<std::int64_t>(rate_ * static_cast<double>(loop_.now_ms() - rate_since_ms_));
    }
    /// What the machine believes to be the time of day; may be stepped.
    [[nodiscard]] std::int64_t wall_ms() const { return monotonic_ms() + wall_offset_ms_; }
    void step_wall_clock(std::int64_t by_ms) { wall_offset_ms_ += by_ms; }
    /// Preconditions (asserted): rate >= 0.
    void set_clock_rate(double rate) {
        DARLCORE_ASSERT(rate >= 0);
        monotonic_base_ms_ = monotonic_ms();
        rate_since_ms_ = loop_.now_ms();
        rate_ = rate;
    }

private:
    event_loop& loop_;
    std::string name_;
    std::shared_ptr<bool> life_;
    bool is_paused_ = false;
    std::uint64_t starts_ = 0;
    std::vector<std::function<void()>> held_;
    double rate_ = 1;
    std::int64_t rate_since_ms_ = 0;
    std::int64_t monotonic_base_ms_ = 0;
    std::int64_t wall_offset_ms_ = 0;
};

}  // namespace darlcore::sim
