// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "adapters/formats/safetensors.hpp"
#include "darlcore/digest.hpp"
#include "darlcore/merge/figures.hpp"
#include "darlcore/merge/guards.hpp"
#include "darlcore/merge/model_layout.hpp"
#include "darlcore/merge/outer_policy.hpp"

// The outer step on files: what the server's merge and `darl merge` both call.
namespace darlcore::host {

/// One contribution as a file.
struct merge_delta {
    std::string path;
    contribution_claim claim;
    /// Announced digest; when given, the file is read and compared before it is used.
    std::optional<digest32> sha256;
    /// Known from the upload; without it the file is scanned first.
    std::optional<delta_scan> scan;
};

struct merge_request {
    std::string base_path;                     ///< w, f32
    std::optional<std::string> velocity_path;  ///< v, f32; none before the first merge
    std::vector<merge_delta> deltas;           ///< in order of arrival
    outer_policy policy;
    /// Current generation, history of norms, limits. Layout digest and max|w| are filled in from the base file.
    guard_context guards;
    /// A delta that lacks one of our metadata fields is a mismatch; otherwise only fields that are there are compared.
    bool require_metadata = false;

    std::string weights_out;                  ///< staging name; must not exist
    std::optional<std::string> velocity_out;  ///< likewise; a run needs it, a look at one merge does not
    std::optional<std::string> wire_out;      ///< likewise; w' in wire_type
    dtype wire_type = dtype::bf16;
    formats::safetensors_metadata metadata;  ///< of all outputs

    std::uint64_t memory_budget_bytes = std::uint64_t{256} << 20U;
    int threads = 0;                               ///< 0 = all processors
    const std::atomic<bool>* cancelled = nullptr;  ///< when it becomes true the merge ends with errc::cancelled
    bool digests = true;                           ///< of the outputs
    bool cosines = false;  ///< pairwise, for at most 8 used contributions; costs a dot product per pair
    /// Upper bound of a chunk; any value gives the same bits. The buffers of one worker then fit its second-level
    /// cache.
    std::uint64_t chunk_bytes_max = std::uint64_t{256} << 10U;
};

struct used_delta {
    std::string path;
    contribution_claim claim;
    float share = 0;
    float scale = 1;
    delta_scan scan;
    bool norm_warning = false;
};

struct rejected_delta {
    std::string path;
    site_id site;
    errc code = errc::internal;
    darlcore::fault fault = darlcore::fault::standing;
    std::string reason;
};

struct cosine_figure {
    site_id a;
    site_id b;
    std::optional<double> cosine;
};

struct merge_report {
    bool merged = false;  ///< false: nothing was usable, no file was written
    model_layout layout;
    std::vector<used_delta> used;  ///< ascending site id
    std::vector<rejected_delta> rejected;
    step_rule rule;
    std::uint64_t step_advance = 0;
    double weight_norm = 0;      ///< of w before the step
    double mean_delta_norm = 0;  ///< of Delta
    delta_scan weights_after;    ///< of w'
    std::optional<drift_figures> drift;
    agreement_figures agreement;
    std::vector<cosine_figure> cosines;
    digest32 weights_parts_digest{};  ///< file_digest.hpp; of the whole files, like their sizes
    digest32 velocity_parts_digest{};
    digest32 wire_sha256{};
    std::uint64_t weights_bytes = 0;
    std::uint64_t velocity_bytes = 0;
    std::uint64_t wire_bytes = 0;
    std::uint64_t bytes_read = 0;
    std::uint64_t bytes_written = 0;
    std::uint64_t chunk_bytes = 0;  ///< of one f32 stream
};

/// Merges files. Each delta is judged alone; what is rejected is listed with its reason and changes nothing for the
/// others but the shares. Outputs are complete and durable (fsync) under their staging names when this returns merged =
/// true. Determinism: the bits of the outputs depend on the inputs only, not on order of arrival, budget, chunk,
/// threads or processor. Memory: at most memory_budget_bytes of buffers, plus a few numbers per 65536 elements,
/// whatever the model and the number of sites. Errors (nothing is left behind): errc::invalid_argument (policy, or a
/// budget too small for so many deltas: names the number it needs), errc::layout_mismatch (velocity and base),
/// errc::not_finite (w or w'), errc::out_of_memory, errc::io_error, errc::short_read, errc::no_space and those of
/// safetensors files for base and velocity; the context names file and offset.
result<merge_report> merge_files(const merge_request& request);

}  // namespace darlcore::host
