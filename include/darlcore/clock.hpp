// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>

#include "darlcore/units.hpp"

namespace darlcore {

/// A source of ledger time: monotone, in milliseconds. The core never reads one; loops that drive it do, and pass the
/// value in. Simulated worlds and tests bring their own.
template <class C>
concept clock_source = requires(C& c) {
    { c.now() } -> std::same_as<ledger_time>;
};

/// A clock that stands until it is moved.
class manual_clock {
public:
    [[nodiscard]] ledger_time now() const { return now_; }
    /// Preconditions (asserted): duration_ms >= 0.
    void advance(std::int64_t duration_ms) {
        DARLCORE_ASSERT_CMP(duration_ms, >=, 0);
        now_ = now_ + duration_ms;
    }

private:
    ledger_time now_;
};
static_assert(clock_source<manual_clock>);

}  // namespace darlcore
