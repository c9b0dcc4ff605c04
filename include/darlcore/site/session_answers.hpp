// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "darlcore/site/session_phase.hpp"

// What each answer of the server changes.
namespace darlcore::site::detail {

inline void answered(session_state& s, const request&, const ledger::register_reply&, std::int64_t) {
    if (s.ttl_ms == 0) s.ttl_ms = s.set.first_ttl_ms;
    s.at = stage::joining;
}

inline void answered(session_state& s, const request&, const ledger::join_reply& r, std::int64_t now_ms) {
    if (r.keepalive_ms > 0) s.set.keepalive_ms = r.keepalive_ms;
    s.run_id = r.run_id;
    if (!s.unsent) return go_polling(s, now_ms);
    auto unsent = *std::exchange(s.unsent, std::nullopt);
    s.result = unsent.result;
    if (unsent.base != r.generation) {
        turned_down(s, "its base generation is no longer current");
        return go_polling(s, now_ms);
    }
    // late work: the leases went back when this process took over; honoured if nobody took a block meanwhile
    s.claims = std::move(unsent.claims);
    s.phase.base = unsent.base;
    s.uploads_left = 3;
    s.at = stage::uploading;
    emit(s, action::upload{s.result->blob, unsent.base, s.result->codec});
}

inline void heard_of_contribution(session_state& s, const round::last_contribution& last) {
    if (!s.awaiting || last.id != *s.awaiting) return;
    if (last.status != round::contribution_status::merged && last.status != round::contribution_status::rejected)
        return;
    const bool merged = last.status == round::contribution_status::merged;
    emit(s, action::settle{*s.awaiting, merged, merged ? "" : std::string(word(last.reason.value_or(errc::internal)))});
    s.awaiting.reset();
}

inline void serve_duty(session_state& s, std::int64_t now_ms) {
    if (s.model != s.duty.current) {
        s.at = stage::fetching;
        return emit(s, action::fetch{s.duty.current, s.duty.wire, s.duty.global_step, s.run_id});
    }
    if (std::exchange(s.score_first, false)) {
        s.at = stage::scoring;
        return emit(s, action::evaluate{s.duty.current});
    }
    begin_building(s, now_ms);
}

inline void answered(session_state& s, const request&, const ledger::poll_reply& r, std::int64_t now_ms) {
    heard_of_contribution(s, r.last);
    switch (r.action) {
        case round::poll_action::stop:
            return go_leaving(
                s, exit_ok,
                "the run is finished: " + std::string(word(r.stopped_by.value_or(round::stop_reason::site_operator))));
        case round::poll_action::init:
            s.at = stage::initialising;
            return emit(s, action::make_first_model{});
        case round::poll_action::train:
            s.duty = r;
            s.score_first = r.evaluate;
            return serve_duty(s, now_ms);
        case round::poll_action::wait:
            break;
    }
    if (r.evaluate && s.model == r.current) {
        s.duty = r;  // after the scoring it waits on: an older duty to train is over
        s.at = stage::scoring;
        return emit(s, action::evaluate{r.current});
    }
    go_polling(s, now_ms + r.retry_after_ms);
}

inline void answered(session_state& s, const request&, const ledger::acquire_reply& r, std::int64_t now_ms) {
    for (const auto& lease : r.leases.leases) {
        if (s.held.find(lease.seq) == nullptr) s.held.add(lease, s.asked_ms);
        s.ttl_ms = lease.ttl_ms;
        if (lease.epoch != s.epoch) s.next_counter = 0;
        s.epoch = lease.epoch;
    }
    if (r.leases.status != lease::acquire_status::granted || r.leases.leases.empty()) s.phase.pool_empty = true;
    if (s.held.unplanned() == 0) {
        if (s.phase.pool_empty) decline(s, round::decline_reason::no_data, "the pool is empty");
        return;
    }
    // anything held and no more to have: a short phase, at once (a wait here could be a wait for ourselves)
    if (s.phase.pool_empty || s.held.unplanned() >= s.phase.target) begin_training(s);
    (void)now_ms;
}

inline void answered(session_state& s, const request& asked, const ledger::reserve_reply& r, std::int64_t) {
    s.held.adopt(std::get<ledger::reserve_request>(asked).lease.seq, r.reserved_end, r.end);
    if (s.phase.wish < s.phase.wishes.size()) ++s.phase.wish;
}

inline void answered(session_state& s, const request&, const ledger::contribute_reply& r, std::int64_t now_ms) {
    const bool rejected = r.status == round::contribution_status::rejected;
    if (rejected) {
        turned_down(s, std::string(word(r.reason.value_or(errc::internal))));
    } else {
        note(s, "contribution pledged: " + std::to_string(r.pledged_blocks) + " blocks");
        s.awaiting = s.result->id;
        s.unsent.reset();
    }
    s.held.settle(s.claims);
    go_polling(s, now_ms);
}

inline void answered(session_state& s, const request& asked, const ledger::release_reply&, std::int64_t now_ms) {
    const auto& gave = std::get<ledger::release_request>(asked);
    if (!gave.lease) {
        s.held.clear();
        if (s.at == stage::releasing) go_polling(s, now_ms);
        return;
    }
    s.held.drop(gave.lease->seq);
    std::erase(s.to_release, gave.lease->seq);
    if (s.to_release.empty() && s.at == stage::releasing) go_polling(s, now_ms);
}

inline void answered(session_state& s, const request&, const ledger::evaluation_reply&, std::int64_t now_ms) {
    if (s.duty.action == round::poll_action::train && s.model == s.duty.current) return begin_building(s, now_ms);
    go_polling(s, now_ms);
}

inline void answered(session_state& s, const request& asked, const ledger::ok_reply&, std::int64_t now_ms) {
    if (std::holds_alternative<ledger::leave_request>(asked)) return finish(s, s.code, s.reason);
    s.declining.reset();
    if (s.failures_in_a_row >= 2)
        return go_leaving(s, exit_failed, "two phases in a row were not finite; test the device");
    go_polling(s, now_ms + s.set.retry_ms);
}

inline void ask_again(session_state& s, const request& asked, const failure& why, std::int64_t now_ms) {
    s.asked = asked;
    s.sent = false;
    s.retry_at_ms = now_ms + std::max<std::int64_t>(why.retry_after_ms, s.set.retry_ms);
}

// The name is held by another process. After a requeue that one is ours and gone: replace exactly it, once. A third
// process that was quicker is waited for: naming the one it replaced would be refused for ever.
inline void name_is_busy(session_state& s, const request& asked, const failure& why, std::int64_t now_ms) {
    if (s.set.take_over && !why.replaced.is_none()) {
        s.set.take_over = false;
        s.take_over = why.replaced;
        return;  // asked anew, with the name of whom it replaces
    }
    s.take_over.reset();
    request next = asked;
    if (auto* hello = std::get_if<ledger::register_request>(&next)) hello->take_over.reset();
    ask_again(s, next, why, now_ms);
}

inline bool is_fatal(errc code) {
    switch (code) {
        case errc::token:
        case errc::wrong_scope:
        case errc::digest_mismatch:
        case errc::corpus_mismatch:
        case errc::policy:
        case errc::layout_mismatch:
        case errc::schedule_mismatch:
        case errc::codec_unsupported:
            return true;
        default:
            return false;
    }
}

inline bool is_passing(errc code) {
    switch (code) {
        case errc::restarting:
        case errc::overloaded:
        case errc::disk_full_ack:
        case errc::degraded:
        case errc::quota:
        case errc::no_room:
        case errc::internal:
            return true;
        default:
            return false;
    }
}

inline void refused(session_state& s, const request& asked, const failure& why, std::int64_t now_ms) {
    if (why.code == errc::fenced)
        return finish(s, exit_failed, "replaced by another process of this site: " + why.context);
    if (why.code == errc::token || why.code == errc::wrong_scope) return finish(s, exit_usage, why.context);
    if (is_passing(why.code)) return ask_again(s, asked, why, now_ms);
    if (why.code == errc::cluster_busy) return name_is_busy(s, asked, why, now_ms);
    if (std::holds_alternative<ledger::leave_request>(asked)) return finish(s, s.code, s.reason);
    if (why.code == errc::unknown_site) {
        s.held.clear();
        s.register_again = true;
        return s.phase.active ? drop_phase(s, "the server does not know this site any more", now_ms)
                              : go_polling(s, now_ms);
    }
    if (std::holds_alternative<ledger::contribute_request>(asked)) return contribution_refused(s, why, now_ms);
    if (const auto* reserve = std::get_if<ledger::reserve_request>(&asked))
        return lease_is_lost(s, reserve->lease.seq, now_ms);
    if (std::holds_alternative<ledger::release_request>(asked))
        return answered(s, asked, ledger::release_reply{}, now_ms);
    if (is_fatal(why.code) || why.code == errc::bad_request) return finish(s, exit_usage, why.context);
    note(s, "refused: " + std::string(word(why.code)) + ": " + why.context);
    s.declining.reset();
    go_polling(s, now_ms + std::max<std::int64_t>(why.retry_after_ms, s.set.retry_ms));
}

}  // namespace darlcore::site::detail
