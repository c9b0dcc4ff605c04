// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "darlcore/units.hpp"

namespace darlcore::ledger {

/// Ledger time: adds up what passes on a monotone clock, at most `turn_max_ms` per turn of the server's loop, so that a
/// stopped, swapped or migrated server does not age leases: it could not hear the heartbeats.
/// Use: handle the input that had arrived with `now()`, then call `turn`; so a stall cannot expire a lease whose
/// heartbeat was waiting.
/// Units: milliseconds of a monotone clock with any origin.
/// Thread-safety: none.
class clock {
public:
    static constexpr std::int64_t turn_max_ms = 2'000;

    /// Goes on from the ledger time of the last record; time while the server was down counts for nothing.
    explicit clock(ledger_time start = {}) : now_(start) {}

    [[nodiscard]] ledger_time now() const { return now_; }
    [[nodiscard]] bool held() const { return held_; }

    /// Adds what passed since the last turn. A clock that went back adds nothing. Returns the time afterwards.
    ledger_time turn(std::int64_t monotone_ms) {
        if (last_ms_ && !held_) {
            const std::int64_t passed = std::clamp<std::int64_t>(monotone_ms - *last_ms_, 0, turn_max_ms);
            lag_ms_ += std::max<std::int64_t>(0, monotone_ms - *last_ms_ - passed);
            now_ = now_ + passed;
        }
        last_ms_ = monotone_ms;
        return now_;
    }

    /// While held nothing ages: an expiry that a full disk could not record must not happen.
    void hold(bool on) { held_ = on; }

    /// Monotone time that was not counted because turns took too long.
    [[nodiscard]] std::int64_t lag_ms() const { return lag_ms_; }

private:
    ledger_time now_;
    std::optional<std::int64_t> last_ms_;
    std::int64_t lag_ms_ = 0;
    bool held_ = false;
};

}  // namespace darlcore::ledger
