// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "darlcore/error.hpp"
#include "darlcore/units.hpp"

namespace darlcore::round {

/// What a round is doing. `paused` and `finished` cover the others; there are no special states for 0 or 1 members.
enum class phase : std::uint8_t { uninitialised, open, merging, paused, finished };

/// Why `stop` is served.
enum class stop_reason : std::uint8_t { exhausted, steps, rounds, target, site_operator };

/// Why a participant ends its obligation without a contribution.
enum class decline_reason : std::uint8_t { no_data, not_finite, local_error };

/// What the site says it is doing when it polls.
enum class site_activity : std::uint8_t { idle, training, uploading, waiting };

constexpr std::string_view word(phase p) noexcept {
    constexpr std::string_view words[] = {"uninitialised", "open", "merging", "paused", "finished"};
    return words[static_cast<std::size_t>(p)];
}
constexpr std::string_view word(stop_reason r) noexcept {
    constexpr std::string_view words[] = {"exhausted", "steps", "rounds", "target", "operator"};
    return words[static_cast<std::size_t>(r)];
}
constexpr std::string_view word(decline_reason r) noexcept {
    constexpr std::string_view words[] = {"no_data", "not_finite", "local_error"};
    return words[static_cast<std::size_t>(r)];
}
constexpr std::string_view word(site_activity a) noexcept {
    constexpr std::string_view words[] = {"idle", "training", "uploading", "waiting"};
    return words[static_cast<std::size_t>(a)];
}

/// Time of the round: ledger time less all pauses, so that windows, dues and limits stand still while paused.
/// Units: milliseconds.
struct round_time {
    std::int64_t ms = 0;
    friend constexpr auto operator<=>(const round_time&, const round_time&) = default;
    // Wrapping, not undefined, for figures that only a damaged file can hold.
    friend constexpr round_time operator+(round_time t, std::int64_t duration_ms) {
        return {static_cast<std::int64_t>(static_cast<std::uint64_t>(t.ms) + static_cast<std::uint64_t>(duration_ms))};
    }
    friend constexpr std::int64_t operator-(round_time a, round_time b) {
        return static_cast<std::int64_t>(static_cast<std::uint64_t>(a.ms) - static_cast<std::uint64_t>(b.ms));
    }
};

/// Limits and policies of the rounds; pinned with the run.
/// Units: as named; 0 in a stop condition means "never".
struct settings {
    std::int64_t live_window_ms = 120'000;      // since any call of the site
    std::int64_t keepalive_ms = 20'000;         // a site in a phase calls at least this often
    std::int64_t round_limit_ms = 7'200'000;    // since the first pledge
    std::uint32_t quorum = 1;                   // contributions a close needs
    bool budget = true;                         // off: step-matched experiments
    std::uint32_t budget_permille = 1'250;      // of the lower median of the phase estimates
    std::int64_t unknown_phase_ms = 5'400'000;  // due of a site without an estimate
    std::int64_t unknown_transfer_ms = 600'000;
    std::int64_t overdue_gap_ms = 60'000;  // after the last other contribution
    std::uint32_t lagging_rounds = 2;      // overdue in a row
    std::int64_t init_rechoose_ms = 600'000;
    std::int64_t no_data_retry_ms = 5'000;    // after declining for lack of data
    std::int64_t failed_retry_ms = 60'000;    // after declining for a failed phase
    std::uint32_t joiner_min_permille = 250;  // of a typical phase, else a joiner waits for the next round
    std::uint32_t eval_every = 5;             // generations; 0 = no evaluation
    std::int64_t evaluate_ms = 300'000;       // extends the due of a site that scores before its phase
    std::uint32_t keep_generations = 2;
    std::uint32_t answers_generations = 8;  // answers are kept this much longer than generations
    std::int64_t merge_retry_ms = 5'000;    // doubled per failure
    std::int64_t merge_retry_max_ms = 60'000;
    std::uint32_t merge_failures_max = 5;  // then paused, for the operator
    std::uint32_t members_max = 4'096;
    std::uint64_t inner_steps = 500;  // H
    std::uint64_t stop_rounds = 0;
    std::uint64_t stop_steps = 0;
    double stop_loss = 0;  // pooled held-out loss at or below this; 0 = never

    friend bool operator==(const settings&, const settings&) = default;
};

/// Checks settings at the door.
/// Errors: errc::invalid_argument naming the setting and its range.
inline result<void> check(const settings& s) {
    const auto bad = [](std::string text) { return fail(errc::invalid_argument, std::move(text)); };
    if (s.round_limit_ms <= 0) return bad("round.limit must be above 0: it is the deadline that depends on no site");
    if (s.live_window_ms <= 0) return bad("round.live_window must be above 0");
    if (s.keepalive_ms <= 0 || s.keepalive_ms > s.live_window_ms)
        return bad("round.keepalive must be above 0 and not above round.live_window");
    if (s.quorum == 0) return bad("round.quorum must be at least 1");
    if (s.budget_permille < 1'000) return bad("round.budget factor must be at least 1");
    if (s.inner_steps == 0) return bad("round.inner_steps must be at least 1");
    if (s.keep_generations == 0) return bad("round.keep_generations must be at least 1");
    if (s.lagging_rounds == 0 || s.merge_failures_max == 0) return bad("round counts must be at least 1");
    if (!(s.stop_loss >= 0)) return bad("round.stop_loss must be a number at or above 0");
    for (const std::int64_t ms :
         {s.unknown_phase_ms, s.unknown_transfer_ms, s.overdue_gap_ms, s.init_rechoose_ms, s.no_data_retry_ms,
          s.failed_retry_ms, s.evaluate_ms, s.merge_retry_ms, s.merge_retry_max_ms})
        if (ms < 0) return bad("round times must not be negative");
    return {};
}

/// What the lease table knows and the round needs; computed by the caller at each event.
struct lease_facts {
    std::uint64_t unassigned = 0;  // blocks that an acquire could take now
    bool stealable = false;        // some other holder's tail could be stolen
    bool held_unpledged = false;   // some block is leased by a site without a pledge for this generation
    bool epoch_complete = false;   // nothing left in this epoch, and there is no next one
    bool asker_holds = false;      // the polling site holds leased blocks

    friend bool operator==(const lease_facts&, const lease_facts&) = default;
};

/// What every site of a run must agree on.
struct pins {
    std::string layout_digest;
    std::string schedule_digest;
    std::uint64_t seq_len = 0;
    std::vector<std::string> codecs;  // ascending

    friend bool operator==(const pins&, const pins&) = default;
};

/// One file of the model or of the blob store.
struct blob_ref {
    std::string sha256;  // 64 hex digits
    std::uint64_t bytes = 0;

    friend auto operator<=>(const blob_ref&, const blob_ref&) = default;
};

/// The files of a generation. Velocity is empty for generation 0.
struct model_files {
    blob_ref global;
    blob_ref velocity;
    blob_ref wire;
    blob_ref meta;

    friend bool operator==(const model_files&, const model_files&) = default;
};

/// A contribution whose blocks are pledged and that waits for its merge.
struct pledge {
    site_id site;
    contribution_id id;
    darlcore::generation base;
    std::string sha256;
    std::string codec;
    std::uint64_t bytes = 0;
    std::uint64_t tokens_claimed = 0;
    std::uint64_t weight_tokens = 0;  // after the token cap
    std::uint64_t steps = 0;          // after the step cap
    double loss_sum = 0;
    std::uint64_t loss_count = 0;
    std::uint64_t pledged_blocks = 0;
    std::int64_t phase_ms = 0;     // the site's own phase time; 0 = not told
    std::int64_t transfer_ms = 0;  // download and upload as the site measured them; 0 = not told
    double norm = 0;               // of the delta, as scanned
    double scale = 1;              // of the clip option
    round_time at;

    friend bool operator==(const pledge&, const pledge&) = default;
};

enum class contribution_status : std::uint8_t { none, pledged, merged, rejected };

constexpr std::string_view word(contribution_status s) noexcept {
    constexpr std::string_view words[] = {"none", "pledged", "merged", "rejected"};
    return words[static_cast<std::size_t>(s)];
}

/// What became of a site's last contribution; in every poll answer.
struct last_contribution {
    contribution_id id;
    contribution_status status = contribution_status::none;
    std::optional<errc> reason;
    darlcore::generation base;

    friend bool operator==(const last_contribution&, const last_contribution&) = default;
};

/// The answer a contribution got; kept so that a repeated call gets it again.
struct stored_answer {
    contribution_status status = contribution_status::none;
    std::optional<errc> reason;
    darlcore::generation base;
    std::uint64_t weight_tokens = 0;
    std::uint64_t pledged_blocks = 0;

    friend bool operator==(const stored_answer&, const stored_answer&) = default;
};

}  // namespace darlcore::round
