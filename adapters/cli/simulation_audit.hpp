// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "darlcore/block_space.hpp"
#include "darlcore/error.hpp"

namespace darl {

/// A contribution as the meta of a generation names it.
struct merged_contribution {
    std::string id;
    float share = 1;  // weight in its merge
};

/// What the audit of a run looks at: what the sites wrote when they read, which contributions the generations name, and
/// the model itself. Not the ledger's books; those are compared at the end.
/// The model of a simulation: each delta adds 1 to the counter of every window it trained, and merges are plain
/// weighted means (eta 1, beta 0); so a window that was trained once holds exactly the share of its contribution.
struct audit_input {
    darlcore::space_parameters space;
    std::uint32_t epoch = 0;
    std::map<std::string, std::vector<std::string>> records;  // per site: lines of its record
    std::vector<merged_contribution> merged;                  // in the order of the generations
    std::vector<float> table;                                 // the global model: one counter per window; empty: none
    std::vector<std::uint64_t> quarantined;                   // positions
    std::optional<std::uint64_t> ledger_committed;            // blocks, by the ledger's books; nothing: not compared
};

struct audit_site {
    std::string site;
    std::uint64_t read = 0;       // blocks, counted as often as they were read
    std::uint64_t merged = 0;     // blocks
    std::uint64_t retrained = 0;  // blocks read in vain: work that a kill or a refusal cost
};

struct audit_report {
    bool pass = false;
    std::uint64_t blocks = 0;
    std::uint64_t covered = 0;     // blocks merged exactly once
    std::uint64_t duplicates = 0;  // blocks merged more than once
    std::uint64_t missing = 0;     // blocks merged never and not quarantined
    std::uint64_t retrained = 0;
    std::vector<audit_site> sites;
    std::map<std::uint64_t, std::string> holders;  // position -> contribution that holds it
    std::vector<std::string> findings;             // first examples, for people
};

/// Errors: errc::corrupt naming the site and the line of a record that cannot be read. (The last line of a record may
/// be cut: its site was killed while it wrote.)
darlcore::result<audit_report> audit_simulation(const audit_input& in);

}  // namespace darl
