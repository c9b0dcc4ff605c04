// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/storage/blob_store.hpp"
#include "darlcore/error.hpp"
#include "darlcore/ledger/effects.hpp"
#include "darlcore/ledger/requests.hpp"
#include "darlcore/merge/guards.hpp"

namespace darlcore::http {

/// A delta of a merge: what the ledger says of it, and where its bytes lie.
struct merge_file {
    ledger::effects::merge_input input;
    std::string path;
    ledger::blob_facts facts;
};

/// One merge: read the current generation and the deltas, write the next one's files into `staging`.
struct merge_order {
    generation next;
    std::string run_id;
    std::string current;  ///< folder of the current generation
    bool has_velocity = false;
    std::string staging;
    std::vector<merge_file> deltas;
    ledger::outer_policy policy;
    std::vector<double> norms;
    std::optional<double> clip;
    std::uint64_t global_step = 0;  ///< of the current generation, like the tokens
    std::uint64_t tokens_total = 0;
};

/// What a merge found. Without `merged` no file was written.
struct merge_outcome {
    bool merged = false;
    round::model_files files;  ///< without meta
    std::vector<round::rejected_at_merge> rejected;
    round::merge_figures figures;
    double max_abs_weight = 0;
};

struct initial_outcome {
    std::string layout_digest;  ///< 32 hex digits
    round::model_files files;   ///< without meta
    double max_abs_weight = 0;
};

/// The work on model files. Called on background threads, one merge at a time; scanners in parallel.
class model_work {
public:
    virtual ~model_work() = default;
    virtual std::unique_ptr<storage::blob_scanner> scanner(const storage::blob_facts& facts) = 0;
    /// Errors: the merge could not be made now (space, I/O); nothing changed.
    virtual result<merge_outcome> merge(const merge_order& order) = 0;
    /// Makes the files of generation 0 of an f32 file. Errors: errc::not_finite, errc::unsupported, those of the file.
    virtual result<initial_outcome> initialise(const std::string& source, const std::string& staging,
                                               const std::string& run_id) = 0;
};

/// The outer step on files (host backend).
std::unique_ptr<model_work> make_model_work();

}  // namespace darlcore::http
