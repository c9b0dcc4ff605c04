// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "darlcore/units.hpp"

namespace darlcore::http {

/// Who waits for what, and since when: by what they were told last. In ledger time, so that a step of the wall clock
/// does not show. Thread-safety: none.
class wait_board {
public:
    struct wait {
        std::string what;
        ledger_time since;
        ledger_time told;
    };

    /// `who` waits for this from now on; empty: for nothing. Being told the same again keeps the beginning.
    void tell(const std::string& who, std::string_view what, ledger_time now) {
        if (what.empty()) {
            waits_.erase(who);
            return;
        }
        auto& w = waits_[who];
        if (w.what != what) w = {std::string(what), now, now};
        w.told = now;
    }

    /// f(who, wait) for everybody who asked lately: who went away waits no longer.
    template <class F>
    void each(ledger_time now, F&& f) const {
        for (const auto& [who, w] : waits_)
            if (now - w.told <= silence_ms) f(who, w);
    }

private:
    static constexpr std::int64_t silence_ms = 150'000;  // waiting clients ask at least once a minute
    std::map<std::string, wait> waits_;
};

}  // namespace darlcore::http
