// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "darlcore/ledger/settings.hpp"
#include "darlcore/round/machine.hpp"

// What must be done after the records of a step are durable. Effects are told once; after a restart `machine::start`
// tells again what is still wanted, so an effect must be harmless when it happens twice.
namespace darlcore::ledger::effects {

struct merge_input {
    site_id site;
    contribution_id id;
    std::string sha256;
    std::string codec;
    std::uint64_t weight_tokens = 0;
    std::uint64_t steps = 0;
    double scale = 1;  // of the clip option
    friend bool operator==(const merge_input&, const merge_input&) = default;
};

/// Merge `inputs` (ascending by site) with generation `next - 1` into `next`. Answer: merge_done or merge_failed.
struct start_merge {
    generation next;
    std::vector<merge_input> inputs;
    outer_policy policy;
    round::model_files base;
    friend bool operator==(const start_merge&, const start_merge&) = default;
};

/// Make generation 0 of a verified init upload. Answer: model_initialised or init_failed.
struct initialise_model {
    site_id by;
    std::string sha256;
    friend bool operator==(const initialise_model&, const initialise_model&) = default;
};

/// The generation is durable in the journal: roll CURRENT forward, serve its wire blob.
struct publish_generation {
    generation published;
    round::model_files files;
    friend bool operator==(const publish_generation&, const publish_generation&) = default;
};

/// Uploads whose base generation is older are gone: delete their staging files.
struct drop_stale_uploads {
    generation current;
    friend bool operator==(const drop_stale_uploads&, const drop_stale_uploads&) = default;
};

/// A rejected or unwanted blob: its file may go.
struct delete_blob {
    std::string sha256;
    friend bool operator==(const delete_blob&, const delete_blob&) = default;
};

/// Generations at or above `oldest_kept` and those pinned stay; so do these blobs. Anything else of the catalogue may
/// go.
struct collect_garbage {
    generation oldest_kept;
    std::vector<generation> pinned;
    std::vector<std::string> blobs;  // sha256 of pledges and of the last merge's inputs, ascending
    friend bool operator==(const collect_garbage&, const collect_garbage&) = default;
};

/// Answer waiting polls: of one site, or of all.
struct wake {
    std::optional<site_id> site;
    friend bool operator==(const wake&, const wake&) = default;
};

/// Build the order of this epoch in the background and give it to `machine::adopt`.
struct prepare_epoch {
    epoch_index epoch;
    friend bool operator==(const prepare_epoch&, const prepare_epoch&) = default;
};

/// For logs, /events and metrics: token_claim_capped, step_claim_capped, norm_warning, clipped.
struct notice {
    std::string kind;
    site_id site;
    std::string text;
    friend bool operator==(const notice&, const notice&) = default;
};

}  // namespace darlcore::ledger::effects

namespace darlcore::ledger {
using effect = std::variant<effects::start_merge, effects::initialise_model, effects::publish_generation,
                            effects::drop_stale_uploads, effects::delete_blob, effects::collect_garbage, effects::wake,
                            effects::prepare_epoch, effects::notice>;
}  // namespace darlcore::ledger
