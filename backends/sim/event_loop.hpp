// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "darlcore/assert.hpp"

namespace darlcore::sim {

/// Simulated time and what happens in it. Events of one instant run in the order in which they were added, so a run is
/// a function of its seed and code. Units: milliseconds since the start of the simulation. Thread-safety: none.
/// Complexity: O(log n) per event.
class event_loop {
public:
    using event_id = std::pair<std::int64_t, std::uint64_t>;

    [[nodiscard]] std::int64_t now_ms() const { return now_ms_; }
    [[nodiscard]] std::uint64_t events_run() const { return events_run_; }
    [[nodiscard]] bool empty() const { return events_.empty(); }
    /// Of the time and number of every event that ran: equal digests, equal schedules.
    [[nodiscard]] std::uint64_t digest() const { return digest_; }

    /// Runs `what` at that time; a time that has passed means now, behind what already waits for now.
    event_id at(std::int64_t time_ms, std::function<void()> what) {
        const event_id id{time_ms < now_ms_ ? now_ms_ : time_ms, next_++};
        events_.emplace(id, std::move(what));
        return id;
    }
    event_id after(std::int64_t delay_ms, std::function<void()> what) {
        return at(now_ms_ + delay_ms, std::move(what));
    }
    /// An event that ran already or never was is no error.
    void cancel(const event_id& id) { events_.erase(id); }

    /// Runs the next event; false when there is none.
    bool step() {
        if (events_.empty()) return false;
        auto next = events_.extract(events_.begin());
        now_ms_ = next.key().first;
        ++events_run_;
        for (const auto word : {static_cast<std::uint64_t>(now_ms_), next.key().second})
            digest_ = (digest_ ^ word) * 0x100000001b3U + 0x9e3779b97f4a7c15U;
        next.mapped()();
        return true;
    }
    /// Runs everything up to and including that time, then stands there.
    void run_until(std::int64_t time_ms) {
        while (!events_.empty() && events_.begin()->first.first <= time_ms) step();
        if (now_ms_ < time_ms) now_ms_ = time_ms;
    }
    /// Runs until `done()`, at most to that time. True when done.
    bool run_until(std::int64_t time_ms, const std::function<bool()>& done) {
        while (!done()) {
            if (events_.empty() || events_.begin()->first.first > time_ms) return false;
            step();
        }
        return true;
    }

private:
    std::int64_t now_ms_ = 0;
    std::uint64_t next_ = 0;
    std::uint64_t events_run_ = 0;
    std::uint64_t digest_ = 0;
    std::map<event_id, std::function<void()>> events_;
};

}  // namespace darlcore::sim
