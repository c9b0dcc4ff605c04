// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "darlcore/lease/events.hpp"
#include "darlcore/ledger/settings.hpp"
#include "darlcore/round/records.hpp"

// Records of the journal. One record per atomic fact: what must be true together is one record, since recovery may end
// behind any of them.
namespace darlcore::ledger::records {

struct run_created {
    run_settings settings;
    friend bool operator==(const run_created&, const run_created&) = default;
};

/// A server start: new term, and the leases that its grace extended.
struct term_started {
    lease::events::term_started leases;
    friend bool operator==(const term_started&, const term_started&) = default;
};

/// What an operator may change on purpose: the outer policy.
struct settings_changed {
    outer_policy outer;
    friend bool operator==(const settings_changed&, const settings_changed&) = default;
};

/// Corpus digests as the site told them; empty = not told ("unverified").
struct corpus_told {
    std::string corpus;
    std::string content;
    friend bool operator==(const corpus_told&, const corpus_told&) = default;
};

struct registered {
    lease::events::registered site;
    corpus_told told;
    friend bool operator==(const registered&, const registered&) = default;
};

/// Another process of a site: its leases went back, its duty in the round is over, its pledge stands.
struct superseded {
    lease::events::superseded site;
    round::replaced member;
    corpus_told told;
    friend bool operator==(const superseded&, const superseded&) = default;
};

/// The first site that names a corpus decides it.
struct corpus_pinned {
    corpus_told told;
    friend bool operator==(const corpus_pinned&, const corpus_pinned&) = default;
};

struct committed {
    lease::events::committed leases;
    std::uint64_t windows = 0;  // of the blocks; the token cap of a later contribution
    friend bool operator==(const committed&, const committed&) = default;
};

/// A contribution was accepted and its blocks are pledged: one fact. on_checkpoint: no blocks.
struct pledged {
    std::optional<lease::events::pledged> leases;
    round::accepted contribution;
    std::vector<lease_seq> named;  // leases of the claim; on_checkpoint: whose windows were counted
    friend bool operator==(const pledged&, const pledged&) = default;
};

/// A content fault: the blocks went back.
struct contribution_rejected {
    std::optional<lease::events::contribution_rejected> leases;
    round::rejected contribution;
    friend bool operator==(const contribution_rejected&, const contribution_rejected&) = default;
};

/// A merge used nothing: every stored file was found damaged. The generation stays.
struct pledges_rejected {
    std::optional<lease::events::resolved> leases;
    std::vector<round::rejected> contributions;
    friend bool operator==(const pledges_rejected&, const pledges_rejected&) = default;
};

struct model_initialised {
    round::initialised model;
    double max_abs_weight = 0;
    friend bool operator==(const model_initialised&, const model_initialised&) = default;
};

/// The commit point: new model and commit of its blocks become true together.
struct merge_commit {
    round::merged model;
    std::optional<lease::events::resolved> leases;
    double max_abs_weight = 0;
    friend bool operator==(const merge_commit&, const merge_commit&) = default;
};

struct blocks_of_epoch {
    epoch_index epoch;
    std::vector<span> spans;  // ascending, apart
    friend bool operator==(const blocks_of_epoch&, const blocks_of_epoch&) = default;
};

/// The run went back to an older model; the journal was cut behind the record that made it (ledger/rollback.hpp).
struct rolled_back {
    lease::events::rolled_back leases;
    round::rolled_back model;
    std::vector<blocks_of_epoch> undone;  // what the generations left behind held beyond it; trained again
    friend bool operator==(const rolled_back&, const rolled_back&) = default;
};

/// Digest of the durable state before this record; replay compares.
struct state_digest {
    digest16 digest{};
    friend bool operator==(const state_digest&, const state_digest&) = default;
};

}  // namespace darlcore::ledger::records

namespace darlcore::ledger {

/// Any record. The index in this list is not the number in the journal; `type_number` is.
using record =
    std::variant<records::run_created, records::term_started, records::settings_changed, records::registered,
                 records::superseded, records::corpus_pinned, round::joined, round::left, round::obliged,
                 round::declined, round::overdue, round::paused, round::resumed, round::stopped, round::evaluated,
                 lease::events::granted, lease::events::reserved, lease::events::released, lease::events::expired,
                 lease::events::requeued, records::committed, records::pledged, records::contribution_rejected,
                 records::pledges_rejected, records::model_initialised, records::merge_commit,
                 lease::events::epoch_advanced, lease::events::tick, records::state_digest, records::rolled_back>;

/// Names of the record types, in the order of the variant; the number in the journal is the place in this list plus 1
/// and never changes (new types go to the end).
inline constexpr std::string_view record_names[] = {"run_created",
                                                    "term_started",
                                                    "settings_changed",
                                                    "registered",
                                                    "superseded",
                                                    "corpus_pinned",
                                                    "joined",
                                                    "left",
                                                    "obligation",
                                                    "declined",
                                                    "overdue",
                                                    "paused",
                                                    "resumed",
                                                    "stopped",
                                                    "evaluated",
                                                    "granted",
                                                    "reserved",
                                                    "released",
                                                    "expired",
                                                    "requeued",
                                                    "committed",
                                                    "pledged",
                                                    "contribution_rejected",
                                                    "pledges_rejected",
                                                    "model_initialised",
                                                    "merge_commit",
                                                    "epoch_advanced",
                                                    "tick",
                                                    "state_digest",
                                                    "rolled_back"};
static_assert(std::variant_size_v<record> == std::size(record_names));

inline std::uint16_t type_number(const record& r) { return static_cast<std::uint16_t>(r.index() + 1); }
inline std::string_view type_name(const record& r) { return record_names[r.index()]; }
/// Name of a number in a journal; "unknown" for others.
inline std::string_view type_name(std::uint16_t number) {
    return number >= 1 && number <= std::size(record_names) ? record_names[number - 1] : "unknown";
}

}  // namespace darlcore::ledger
