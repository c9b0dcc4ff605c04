// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/storage/inspect.hpp"
#include "darlcore/ledger/records.hpp"

namespace darlcore::storage {

struct rollback_report {
    salvage_report journal;
    /// What the run went back to, the highest number that was ever used, and the number that the old model has now.
    std::uint64_t target = 0;
    std::uint64_t newest = 0;
    std::uint64_t next = 0;
    /// Blocks that generations behind the target held: trained again. Those of a later epoch than `epoch` come with it.
    std::vector<ledger::records::blocks_of_epoch> undone;
    std::uint32_t epoch = 0;
    /// Policy on_checkpoint: windows that sites had committed at the target and not contributed; nobody trains them
    /// again, and no model holds them.
    std::uint64_t windows_lost = 0;
};

/// The way back of a stopped run to the model of generation `target`: a salvage into the NEW directory `to` that keeps
/// the journal up to the record that made it, ends with a record that gives it a number above all that were used
/// (ledger/rollback.hpp), and holds its files under that number, with those of generation 0 and of the best one as far
/// as they are there. `darl serve` goes on from `to`; `from` is not changed, its files may be shared by hard links.
/// `threads` digest files. Errors: those of `salvage`; errc::locked (a server runs on `from`), errc::invalid_argument
/// (no files of this generation, no such generation in the journal), errc::corrupt (its files are not those of the
/// journal).
result<rollback_report> roll_back(file_system& fs, const std::string& from, const std::string& to, std::uint64_t target,
                                  int threads = 1);

}  // namespace darlcore::storage
