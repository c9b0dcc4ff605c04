// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "darlcore/round/records.hpp"
#include "darlcore/round/types.hpp"

namespace darlcore::round {

/// A site that joined. Its record stays after it left; `present` says whether it may be waited for.
struct member {
    darlcore::incarnation incarnation;
    bool present = true;
    std::string software;
    round_time joined_at;
    std::optional<std::int64_t> estimate_ms;  // e_i: a full phase, smoothed
    std::uint64_t bytes_per_s = 0;            // last transfer; 0 = unknown
    std::uint32_t late_rounds = 0;            // overdue in a row
    std::uint64_t contributed = 0;
    std::uint64_t rejected = 0;
    std::uint64_t tokens_total = 0;
    last_contribution last;

    friend bool operator==(const member&, const member&) = default;
};

enum class duty : std::uint8_t { open, contributed, declined, rejected, left };

constexpr std::string_view word(duty d) noexcept {
    constexpr std::string_view words[] = {"training", "contributed", "declined", "rejected", "left"};
    return words[static_cast<std::size_t>(d)];
}

/// A member that received `train` for the current generation.
struct participant {
    duty status = duty::open;
    round_time start;
    round_time due;
    std::optional<std::int64_t> budget_ms;
    bool waited = true;
    bool evaluate = false;
    bool late = false;  // was marked overdue in this round
    decline_reason reason = decline_reason::no_data;
    round_time ended;

    friend bool operator==(const participant&, const participant&) = default;
};

struct evaluation {
    double loss_sum = 0;
    std::uint64_t tokens = 0;
    std::uint64_t windows = 0;
    friend bool operator==(const evaluation&, const evaluation&) = default;
};

/// One past round, for GET /round/history.
struct history_entry {
    darlcore::generation next;
    round_time at;
    std::uint64_t global_step = 0;
    std::uint64_t tokens = 0;
    std::vector<used_contribution> used;
    std::vector<rejected_at_merge> rejected_ids;
    merge_figures figures;
    friend bool operator==(const history_entry&, const history_entry&) = default;
};

inline constexpr std::size_t history_max = 256;

/// All of the rounds that survives a restart. Changed by `replay` only.
struct durable_state {
    bool has_model = false;
    std::optional<pins> pinned;
    darlcore::generation current;
    darlcore::generation since;  // made by the last way back; between its target and this, numbers name other models
    std::uint64_t skipped = 0;   // numbers up to `current` that no merge of this model made
    model_files files;
    std::uint64_t global_step = 0;
    std::uint64_t tokens_total = 0;
    round_time published_at;
    std::optional<round_time> first_pledge_at;
    std::optional<round_time> last_pledge_at;
    std::map<site_id, member> members;
    std::map<site_id, participant> participants;
    std::map<site_id, pledge> pledges;
    std::map<site_id, std::map<contribution_id, stored_answer>> answers;
    std::map<darlcore::generation, std::map<site_id, evaluation>> evaluations;
    std::optional<darlcore::generation> last_evaluated;
    std::optional<darlcore::generation> best;  // lowest pooled loss
    double best_loss = 0;
    std::vector<history_entry> history;
    std::optional<ledger_time> paused_since;
    std::string pause_reason;
    std::int64_t paused_ms = 0;
    std::optional<stop_reason> stop;

    friend bool operator==(const durable_state&, const durable_state&) = default;
};

/// What a member said since the last restart.
struct contact {
    round_time last_seen;
    std::optional<darlcore::generation> polled;
    darlcore::generation have;
    site_activity activity = site_activity::idle;
    std::uint64_t steps_done = 0;
    std::int64_t eta_ms = 0;
    std::uint32_t upload_percent = 0;
    std::uint64_t refused = 0;
    std::optional<errc> last_refusal;
};

/// What a restart forgets: every member counts as just seen, and a running merge is done again.
struct volatile_state {
    std::map<site_id, contact> contacts;
    round_time grace_from;  // nobody is expected to have polled before this
    bool merging = false;
    std::uint32_t merge_failures = 0;
    round_time retry_at;
    std::optional<round_time> merge_started;
    std::optional<site_id> init_site;
    round_time init_chosen;
    bool initialising = false;
};

/// Round time of a moment of ledger time.
inline round_time to_round_time(const durable_state& s, ledger_time now) {
    const ledger_time running = s.paused_since && *s.paused_since < now ? *s.paused_since : now;
    return {running.ms - s.paused_ms};
}

/// Merges that made the current model; less than its number after a way back.
inline std::uint64_t rounds_done(const durable_state& s) { return s.current.count - s.skipped; }

/// Finished: a stop was asked for and nothing pledged is left to merge.
inline bool is_finished(const durable_state& s) { return s.stop && s.pledges.empty(); }

/// The pooled loss of a generation over its reports; nothing without tokens.
inline std::optional<double> pooled_loss(const durable_state& s, darlcore::generation g) {
    const auto found = s.evaluations.find(g);
    if (found == s.evaluations.end()) return std::nullopt;
    double loss = 0;
    std::uint64_t tokens = 0;
    for (const auto& [site, report] : found->second) {
        loss += report.loss_sum;
        tokens += report.tokens;
    }
    if (tokens == 0) return std::nullopt;
    return loss / static_cast<double>(tokens);
}

}  // namespace darlcore::round
