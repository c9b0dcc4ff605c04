// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "darlcore/site/holdings.hpp"
#include "darlcore/site/messages.hpp"

namespace darlcore::site {

/// Exit codes that a session ends with (docs/cli.md).
enum exit_code : int { exit_ok = 0, exit_failed = 1, exit_usage = 2, exit_try_later = 75 };

/// What a site brings along. Units: blocks, milliseconds.
struct session_settings {
    ledger::register_request hello;  // who, digests, ranks; take_over is filled in by the session
    ledger::join_request join;
    bool take_over = false;              // replace the process that holds the name, once (a requeued job)
    std::uint64_t windows_per_step = 1;  // G = batch x ranks x accumulate
    std::uint64_t block_size = 1;        // K
    std::uint64_t groups = 0;            // per phase; 0: one up to 4 blocks, else 4
    std::uint32_t max_spans = 4;
    std::int64_t first_ttl_ms = 30'000;  // until the server has said one
    std::int64_t keepalive_ms = 20'000;
    std::int64_t retry_ms = 1'000;  // before the same question is asked again
    std::int64_t give_up_ms = 21'600'000;
    epoch_index epoch;               // of the checkpoint,
    std::uint64_t next_counter = 0;  // and its next group counter in that epoch
};

/// A finished contribution that a checkpoint names and that no server has answered.
struct unsent_contribution {
    phase_done result;
    generation base;
    std::vector<lease::claim> claims;
};

namespace detail {

enum class stage : std::uint8_t {
    registering,
    joining,
    polling,
    initialising,
    fetching,
    scoring,
    building,
    training,
    ending,
    dropping,
    uploading,
    contributing,
    releasing,
    leaving,
    finished
};

struct group_state {
    std::uint64_t counter = 0;
    std::vector<group_part> parts;
};

/// The phase under way. `base` is the generation it trains from.
struct phase_state {
    bool active = false;
    generation base;
    std::int64_t started_ms = 0;
    std::optional<std::int64_t> budget_ms;
    std::uint64_t inner_steps = 0;
    std::uint64_t target = 0;      // blocks wanted
    std::uint64_t group_size = 0;  // blocks
    std::uint64_t planned = 0;     // blocks given to groups
    bool pool_empty = false;
    std::vector<group_state> groups;
    std::uint64_t trained = 0;        // groups
    std::vector<reservation> wishes;  // of the group that is being reserved
    std::size_t wish = 0;             // next of them
    std::optional<round::decline_reason> failed;
};

/// Everything a session knows. A value.
struct session_state {
    session_settings set;
    lease::caller who;
    stage at = stage::registering;
    std::vector<action_t> out;

    std::optional<request> asked;  // the question under way
    bool sent = false;             // false: to be asked (again) at retry_at_ms
    std::uint64_t questions = 0;   // one request id each
    std::int64_t asked_ms = 0;
    std::int64_t retry_at_ms = 0;
    std::int64_t contact_ms = 0;  // last answer of any kind

    holdings held;
    std::int64_t ttl_ms = 0;
    double macro_step_s = 0;
    double blocks_per_ms = 0;  // of the last phases; 0 = unknown

    std::string run_id;
    std::optional<generation> model;  // loaded weights
    round::poll_answer duty;          // the `train` or the scoring that is served
    bool score_first = false;
    phase_state phase;
    std::optional<phase_done> result;
    std::vector<lease::claim> claims;
    int uploads_left = 0;
    std::optional<contribution_id> awaiting;
    std::optional<unsent_contribution> unsent;
    std::optional<incarnation> take_over;

    epoch_index epoch;
    std::uint64_t next_counter = 0;
    std::vector<lease_seq> to_release;
    std::optional<std::pair<round::decline_reason, std::string>> declining;
    int failures_in_a_row = 0;
    std::int64_t transfer_ms = 0;

    bool stopping = false;
    bool register_again = false;
    int code = exit_try_later;
    std::string reason;
};

inline void emit(session_state& s, action_t what) { s.out.push_back(std::move(what)); }
inline void note(session_state& s, std::string text) { emit(s, action::note{std::move(text)}); }

/// Request id of the question under way: the same for every repetition.
inline std::string request_name(const session_state& s) {
    return to_text(s.who.incarnation).substr(0, 16) + "-" + std::to_string(s.questions);
}
/// The id that the next question will have (it travels inside an acquire).
inline std::string next_name(const session_state& s) {
    return to_text(s.who.incarnation).substr(0, 16) + "-" + std::to_string(s.questions + 1);
}

inline void ask(session_state& s, request what, std::int64_t now_ms) {
    DARLCORE_ASSERT(!s.asked);
    s.asked = std::move(what);
    s.sent = false;
    s.retry_at_ms = now_ms;
    ++s.questions;
}

inline void finish(session_state& s, int code, std::string reason) {
    if (s.at == stage::finished) return;
    s.at = stage::finished;
    emit(s, action::finish{code, std::move(reason)});
}

inline void go_polling(session_state& s, std::int64_t poll_at_ms) {
    s.phase = {};
    s.result.reset();
    s.claims.clear();
    s.at = stage::polling;
    s.retry_at_ms = poll_at_ms;
}

inline void go_leaving(session_state& s, int code, std::string reason) {
    s.at = stage::leaving;
    s.code = code;
    s.reason = std::move(reason);
}

inline lease::site_report report(const session_state& s) { return {0, s.macro_step_s, 0}; }

}  // namespace detail
}  // namespace darlcore::site
