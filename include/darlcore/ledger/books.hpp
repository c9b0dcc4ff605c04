// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "darlcore/ledger/records.hpp"
#include "darlcore/merge/guards.hpp"
#include "darlcore/merge/norm_history.hpp"

namespace darlcore::ledger {

/// What survives a restart beside the lease table and the rounds. Changed by records only.
struct books {
    darlcore::term term;
    outer_policy outer;
    records::corpus_told pinned;                   // empty fields: not pinned yet
    std::map<site_id, records::corpus_told> told;  // by registered sites
    std::vector<double> norms;                     // of the last accepted contributions, oldest first
    double max_abs_weight = 0;                     // of the current model
    std::vector<std::string> last_inputs;          // sha256 of the last merge's inputs, ascending
    std::map<site_id, std::map<lease_seq, std::uint64_t>>
        windows;                     // on_checkpoint: committed since the last contribution
    std::uint64_t since_digest = 0;  // records since the last state digest

    friend bool operator==(const books&, const books&) = default;
};

/// A state digest is written after so many records.
inline constexpr std::uint64_t digest_every = 1'000;

/// Records renewed deadlines at most this often.
inline constexpr std::int64_t lease_tick_ms = 5'000;

}  // namespace darlcore::ledger
