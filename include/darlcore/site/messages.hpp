// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "darlcore/error.hpp"
#include "darlcore/ledger/requests.hpp"
#include "darlcore/units.hpp"

/// The site's side: what it asks the server and what it tells its trainer. Nothing here does I/O.
namespace darlcore::site {

using request =
    std::variant<ledger::register_request, ledger::join_request, ledger::poll_request, ledger::acquire_request,
                 ledger::reserve_request, ledger::release_request, ledger::contribute_request, ledger::decline_request,
                 ledger::evaluation_request, ledger::leave_request>;
using reply = std::variant<ledger::register_reply, ledger::join_reply, ledger::poll_reply, ledger::acquire_reply,
                           ledger::reserve_reply, ledger::release_reply, ledger::contribute_reply,
                           ledger::evaluation_reply, ledger::ok_reply>;

/// An answer that is no reply: a refusal of the server with its code, or errc::unreachable / errc::timeout when it is
/// not known whether the call arrived. `replaced`: with cluster_busy, the incarnation that holds the name.
struct failure {
    errc code = errc::unreachable;
    std::string context;
    std::int64_t retry_after_ms = 0;
    incarnation replaced;
};

// --- what the driver reports -------------------------------------------------------------------------------------

/// The trainer finished the phase: `groups` groups, in order, are wholly in the delta; the contribution file and the
/// checkpoint that names it are durable.
struct phase_done {
    std::uint64_t groups = 0;
    contribution_id id;
    round::blob_ref blob;
    std::string codec;
    std::uint64_t tokens = 0;
    std::uint64_t steps = 0;
    double loss_sum = 0;
    std::uint64_t loss_count = 0;
    std::int64_t compute_ms = 0;
};

namespace event {
struct replied {
    site::reply answer;
};
struct refused {
    site::failure why;
};
/// The generation's weights are verified and loaded.
struct adopted {
    darlcore::generation current;
    std::int64_t transfer_ms = 0;
};
struct fetch_failed {
    site::failure why;
};
/// After an applied step that used the last window of the group with this number in the phase (0-based).
struct group_trained {
    std::uint64_t group = 0;
};
struct phase_finished {
    phase_done result;
};
struct phase_failed {
    round::decline_reason reason = round::decline_reason::not_finite;
    std::string detail;
};
struct phase_dropped {};
struct uploaded {
    std::int64_t transfer_ms = 0;
};
struct upload_failed {
    site::failure why;
};
struct evaluated {
    double loss_sum = 0;
    std::uint64_t tokens = 0;
    std::uint64_t windows = 0;
};
struct beat_replied {
    ledger::heartbeat_reply answer;
    std::int64_t sent_ms = 0;  // site time at which the call left
};
struct beat_refused {
    site::failure why;
};
/// SIGTERM, SIGUSR1 or the operator.
struct stop_requested {
    std::string reason;
};
struct timer {};
}  // namespace event

using event_t = std::variant<event::replied, event::refused, event::adopted, event::fetch_failed, event::group_trained,
                             event::phase_finished, event::phase_failed, event::phase_dropped, event::uploaded,
                             event::upload_failed, event::evaluated, event::beat_replied, event::beat_refused,
                             event::stop_requested, event::timer>;

// --- what the driver is told -------------------------------------------------------------------------------------

namespace action {
/// Send it; answer with `replied` or `refused`. At most one call is under way.
struct call {
    request what;
    std::string request_id;  // the same for a repetition of the same question
};
/// Download, verify and load; answer with `adopted` or `fetch_failed`.
struct fetch {
    darlcore::generation current;
    round::blob_ref wire;
    std::uint64_t global_step = 0;
    std::string run_id;
};
/// The first weights of the run are ours to make and upload; answer with `uploaded` or `upload_failed`.
struct make_first_model {};
/// Train these reserved positions next. `group` counts within the phase, `counter` within the epoch (10 section 5).
struct train_group {
    epoch_index epoch;
    std::uint64_t group = 0;
    std::uint64_t counter = 0;
    std::vector<span> spans;
    std::uint64_t inner_steps = 0;
};
/// No more groups: finish at the next allowed end; answer with `phase_finished` or `phase_failed`.
struct end_phase {};
/// Throw the phase away; answer with `phase_dropped`.
struct drop_phase {};
struct upload {
    round::blob_ref blob;
    darlcore::generation base;
    std::string codec;
};
struct evaluate {
    darlcore::generation current;
};
/// The contribution is merged (its file may go) or turned down.
struct settle {
    contribution_id id;
    bool merged = false;
    std::string reason;
};
/// The end of the process.
struct finish {
    int exit_code = 0;
    std::string reason;
};
struct note {
    std::string text;
};
}  // namespace action

using action_t =
    std::variant<action::call, action::fetch, action::make_first_model, action::train_group, action::end_phase,
                 action::drop_phase, action::upload, action::evaluate, action::settle, action::finish, action::note>;

}  // namespace darlcore::site
