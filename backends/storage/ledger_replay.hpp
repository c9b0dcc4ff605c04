// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "backends/storage/recovery.hpp"

namespace darlcore::ledger {
class machine;
}

namespace darlcore::storage {

/// Replays a journal into the ledger's state machine.
/// Example:
///     ledger_replay replay;
///     auto store = ledger_store::open(fs, path, self, options, replay.target());
///     std::unique_ptr<ledger::machine> ledger = replay.take();   // null pointer: a new run; make it and append
///     first_record()
/// Thread-safety: none. The targets it gives refer to it.
class ledger_replay {
public:
    ledger_replay();
    ~ledger_replay();
    ledger_replay(const ledger_replay&) = delete;
    ledger_replay& operator=(const ledger_replay&) = delete;

    /// Errors of the replay: errc::corrupt (a record that is not canonical, a state digest that differs, a record
    /// before run_created).
    [[nodiscard]] replay_target target();
    [[nodiscard]] const ledger::machine* machine() const { return machine_.get(); }
    [[nodiscard]] std::unique_ptr<ledger::machine> take();

private:
    std::unique_ptr<ledger::machine> machine_;
};

/// For tests: `target`, but what a steal took from other leases is missing in the records it is given.
replay_target without_steals(replay_target target);

/// Identity of the files of a run with these settings.
run_identity identity_of(const ledger::machine& machine);

}  // namespace darlcore::storage
