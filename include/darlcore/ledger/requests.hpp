// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "darlcore/lease/requests.hpp"
#include "darlcore/ledger/effects.hpp"
#include "darlcore/ledger/records.hpp"
#include "darlcore/merge/guards.hpp"
#include "darlcore/round/machine.hpp"

// Requests of every route and their replies, as plain values. Texts of the wire (JSON, lease ids, hex) are made and
// read at the edge.
namespace darlcore::ledger {

using lease::caller;
using lease::refusal;

/// Reply or refusal; what to make durable before it leaves; what to do after that.
template <class Reply>
struct outcome {
    std::variant<Reply, refusal> answer;
    std::vector<record> records;
    std::vector<effect> effects;

    [[nodiscard]] bool ok() const noexcept { return answer.index() == 0; }
    /// Preconditions (asserted): ok().
    [[nodiscard]] const Reply& reply() const {
        DARLCORE_ASSERT(ok());
        return *std::get_if<0>(&answer);
    }
    /// Preconditions (asserted): !ok().
    [[nodiscard]] const refusal& refused() const {
        DARLCORE_ASSERT(!ok());
        return *std::get_if<1>(&answer);
    }
};

// --- leases: POST /register, /acquire, /reserve, /heartbeat, /commit, /release, /advance -----------------------------

struct register_request {
    caller who;
    std::uint32_t protocol = 1;  // 1: a legacy client
    std::string digest;          // of epoch 0; empty: not sent
    std::uint32_t ranks = 0;
    std::optional<std::uint64_t> num_samples;
    std::optional<std::uint64_t> block_size;
    std::optional<darlcore::incarnation> take_over;
    std::string corpus;
    std::string corpus_content;
};
struct register_reply {
    site_id cluster;
    std::uint64_t num_blocks = 0;
    std::string digest;        // epoch 0
    std::string epoch_digest;  // current epoch
    std::uint32_t heartbeat_divisor = 3;
    std::uint64_t committed = 0;
    std::vector<site_id> known_clusters;  // ascending
    darlcore::incarnation incarnation;
    std::uint32_t incarnations = 1;
    lease::commit_policy commit_policy = lease::commit_policy::on_merge;
    darlcore::generation generation;
    bool corpus_verified = false;
};

using acquire_request = lease::acquire;
struct acquire_reply {
    lease::acquire_reply leases;
    std::string epoch_digest;
};
using reserve_request = lease::reserve;
using reserve_reply = lease::reserve_reply;
using heartbeat_request = lease::heartbeat;
struct heartbeat_reply {
    lease::heartbeat_reply leases;
    darlcore::generation generation;
    round::phase round_state = round::phase::uninitialised;
};
using commit_request = lease::commit;
using commit_reply = lease::commit_reply;
using release_request = lease::release;
using release_reply = lease::release_reply;
struct advance_request {
    bool force = false;
};
using advance_reply = lease::advance_reply;

// --- rounds ----------------------------------------------------------------------------------------------------------

struct join_request {
    caller who;
    std::string run_id;  // empty: the site has none yet
    round::pins pins;
    std::string software;
};
struct join_reply {
    darlcore::generation generation;
    std::string run_id;
    outer_policy policy;
    std::uint64_t inner_steps = 0;
    std::int64_t keepalive_ms = 0;
    std::uint64_t global_step = 0;
    bool has_model = false;
};

struct poll_request {
    caller who;
    darlcore::generation have;
    round::site_activity activity = round::site_activity::idle;
    std::uint64_t steps_done = 0;
    std::int64_t eta_ms = 0;
};
using poll_reply = round::poll_answer;

struct contribute_request {
    caller who;
    contribution_id id;
    darlcore::generation base;
    std::string sha256;  // of the uploaded delta
    std::string codec;
    std::uint64_t tokens = 0;
    std::uint64_t steps = 0;
    double loss_sum = 0;
    std::uint64_t loss_count = 0;
    std::vector<lease::claim> leases;  // <= 256
    std::int64_t phase_ms = 0;         // compute time of the phase; 0: not told
    std::int64_t transfer_ms = 0;      // of download and upload; 0: not told
};
struct contribute_reply {
    round::contribution_status status = round::contribution_status::pledged;
    bool declined = false;  // a claim of 0 tokens counts as declined
    contribution_id id;
    std::optional<errc> reason;  // when rejected
    std::uint64_t weight_tokens = 0;
    std::uint64_t pledged_blocks = 0;
    darlcore::generation generation;
};

struct decline_request {
    caller who;
    darlcore::generation base;
    round::decline_reason reason = round::decline_reason::no_data;
    std::string detail;  // <= 200 characters
};
struct evaluation_request {
    caller who;
    darlcore::generation generation;
    double loss_sum = 0;
    std::uint64_t tokens = 0;
    std::uint64_t windows = 0;
};
struct evaluation_reply {
    bool used = false;
    std::string reason;  // "too_old" when not used
};
struct leave_request {
    caller who;
    std::string reason;
};
struct pause_request {
    std::string reason;
};
struct resume_request {};
struct stop_request {};
struct state_reply {
    round::phase state = round::phase::uninitialised;
};
struct ok_reply {};

// --- blobs: what the blob store asks and tells -----------------------------------------------------------------------

enum class blob_purpose : std::uint8_t { delta, init };

/// POST /blobs: may this site upload such a thing now? Refusals: fenced, unknown_site, stale_generation, round_closed.
struct announce_upload {
    caller who;
    blob_purpose purpose = blob_purpose::delta;
    darlcore::generation base;
};
/// A part came (PATCH, PUT): the site lives. Refusal: fenced.
struct upload_progress {
    caller who;
    std::uint32_t percent = 0;
};
/// What the blob store found out about a complete blob; told again for every stored blob at a start.
struct blob_facts {
    std::uint64_t bytes = 0;
    std::optional<std::array<std::uint8_t, 16>> layout_digest;
    std::optional<contribution_claim> metadata;
    std::optional<delta_scan> scan;
};
struct blob_verified {
    site_id site;
    std::string sha256;
    blob_purpose purpose = blob_purpose::delta;
    blob_facts facts;
};
/// The file is gone (collected, or damaged).
struct blob_gone {
    std::string sha256;
};

// --- answers to effects, and time ------------------------------------------------------------------------------------

struct model_initialised {
    std::optional<site_id> by;
    std::string layout_digest;  // 32 hex digits
    round::model_files files;
    double max_abs_weight = 0;
};
struct init_failed {
    std::string reason;
};
struct merge_done {
    generation next;  // as in start_merge; an answer to another merge is ignored
    round::model_files files;
    std::vector<round::rejected_at_merge> rejected;
    round::merge_figures figures;
    double max_abs_weight = 0;
};
/// With everything rejected there is no new generation: name all inputs in `rejected`.
struct merge_failed {
    generation next;
    std::string reason;
    std::vector<round::rejected_at_merge> rejected;
};
/// At most every second, and at `machine::next_tick`.
struct tick_input {};
/// A server start: its new term. The record must be durable before anything is served.
struct start_input {
    darlcore::term term;
};
struct change_outer_policy {
    outer_policy outer;
};

}  // namespace darlcore::ledger
