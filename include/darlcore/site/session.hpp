// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "darlcore/site/session_answers.hpp"

namespace darlcore::site {

/// One stream's side of the protocol as a value: what happened in, what must be done out.
/// Promises: a group is given to the trainer only below a replied reserved_end; the session never waits for a drain
/// while it holds anything; one call is under way at a time; a question whose outcome is unknown is asked again with
/// its id. Units: site time in milliseconds, monotone. Determinism: a function of settings and events. Thread-safety:
/// none; the driver serialises. Source: docs/site.md; paper section 3.2. Differs: reserve before use, whole blocks,
/// short last phases.
class session {
public:
    explicit session(session_settings settings) {
        s_.who = settings.hello.who;
        s_.epoch = settings.epoch;
        s_.next_counter = settings.next_counter;
        s_.ttl_ms = settings.first_ttl_ms;
        s_.set = std::move(settings);
    }

    /// The first thing. `unsent`: a finished contribution that the newest checkpoint names.
    std::vector<action_t> start(std::int64_t now_ms, std::optional<unsent_contribution> unsent = {}) {
        s_.unsent = std::move(unsent);
        s_.contact_ms = now_ms;
        return advance(now_ms);
    }

    /// Feeds one event and returns what to do, in order. Call it with event::timer about every 100 ms.
    std::vector<action_t> on(const event_t& what, std::int64_t now_ms) {
        if (s_.at != detail::stage::finished) std::visit([&](const auto& e) { take(e, now_ms); }, what);
        return advance(now_ms);
    }

    /// The heartbeat to send now; nothing before registration and after the end.
    [[nodiscard]] std::optional<ledger::heartbeat_request> beat() const {
        if (s_.at == detail::stage::registering || s_.at == detail::stage::finished) return std::nullopt;
        ledger::heartbeat_request body{s_.who, {}, detail::report(s_)};
        for (const auto& h : s_.held.all()) {
            if (body.leases.size() == 256) break;  // the limit of one call
            std::optional<position> trained;
            if (h.trained > h.lease.done_end) trained = h.trained;
            body.leases.push_back({lease::ref_to(h.lease), trained, std::nullopt});
        }
        return body;
    }
    /// Time between two heartbeats: a third of the last replied time to live, at most the keepalive.
    [[nodiscard]] std::int64_t beat_every_ms() const {
        return std::min(std::max<std::int64_t>(s_.ttl_ms / 3, 10), s_.set.keepalive_ms);
    }

    [[nodiscard]] bool finished() const { return s_.at == detail::stage::finished; }
    [[nodiscard]] const holdings& held() const { return s_.held; }
    /// Claims of the phase that was just finished, for the checkpoint; and the group counter that comes next.
    [[nodiscard]] std::vector<lease::claim> claims_of(std::uint64_t groups) const {
        holdings held = s_.held;
        for (std::uint64_t g = 0; g < groups && g < s_.phase.groups.size(); ++g)
            held.mark_trained(s_.phase.groups[g].parts);
        return held.claims();
    }
    [[nodiscard]] generation base() const { return s_.phase.base; }
    [[nodiscard]] epoch_index epoch() const { return s_.epoch; }
    [[nodiscard]] std::uint64_t next_counter() const { return s_.next_counter; }

private:
    using stage = detail::stage;

    void take(const event::replied& e, std::int64_t now_ms) {
        if (!s_.asked) return;
        s_.contact_ms = now_ms;
        const request asked = *std::exchange(s_.asked, std::nullopt);
        std::visit([&](const auto& answer) { detail::answered(s_, asked, answer, now_ms); }, e.answer);
    }
    void take(const event::refused& e, std::int64_t now_ms) {
        if (!s_.asked) return;
        if (e.why.code == errc::unreachable || e.why.code == errc::timeout) return unknown_outcome(e.why, now_ms);
        s_.contact_ms = now_ms;
        const request asked = *std::exchange(s_.asked, std::nullopt);
        detail::refused(s_, asked, e.why, now_ms);
    }
    // Unknown is not failed: the same question with the same id a little later; after too long, save and go.
    void unknown_outcome(const failure& why, std::int64_t now_ms) {
        s_.sent = false;
        if (s_.stopping && std::holds_alternative<ledger::poll_request>(*s_.asked)) s_.asked.reset();
        s_.retry_at_ms = now_ms + std::max<std::int64_t>(why.retry_after_ms, s_.set.retry_ms);
        if (s_.stopping && s_.at == stage::leaving) return detail::finish(s_, s_.code, s_.reason);
        if (now_ms - s_.contact_ms > s_.set.give_up_ms)
            detail::finish(s_, exit_try_later, "the server was unreachable for too long");
    }
    void take(const event::adopted& e, std::int64_t now_ms) {
        s_.model = e.current;
        s_.transfer_ms = e.transfer_ms;
        if (s_.at == stage::fetching) detail::serve_duty(s_, now_ms);
    }
    void take(const event::fetch_failed& e, std::int64_t now_ms) {
        detail::note(s_, "generation not fetched: " + e.why.context);
        if (s_.at == stage::fetching)
            detail::go_polling(s_, now_ms + std::max<std::int64_t>(e.why.retry_after_ms, s_.set.retry_ms));
    }
    void take(const event::group_trained& e, std::int64_t) {
        if (!s_.phase.active || e.group >= s_.phase.groups.size()) return;
        s_.phase.trained = std::max(s_.phase.trained, e.group + 1);
        for (std::uint64_t g = 0; g <= e.group; ++g) s_.held.mark_trained(s_.phase.groups[g].parts);
    }
    void take(const event::phase_finished& e, std::int64_t now_ms) {
        if (s_.at == stage::dropping) return dropped(now_ms);
        if (s_.phase.active) detail::phase_ended(s_, e.result, now_ms);
    }
    void take(const event::phase_failed& e, std::int64_t now_ms) {
        if (s_.at == stage::dropping) return dropped(now_ms);
        if (e.reason == round::decline_reason::not_finite) ++s_.failures_in_a_row;
        s_.held.begin_phase();
        detail::decline(s_, e.reason, e.detail);
    }
    void take(const event::phase_dropped&, std::int64_t now_ms) { dropped(now_ms); }
    void dropped(std::int64_t now_ms) {
        s_.held.begin_phase();
        detail::go_polling(s_, now_ms);
    }
    void take(const event::uploaded& e, std::int64_t now_ms) {
        if (s_.at == stage::initialising) return detail::go_polling(s_, now_ms);
        if (s_.at != stage::uploading) return;
        s_.transfer_ms += e.transfer_ms;
        detail::contribute(s_, now_ms);
    }
    void take(const event::upload_failed& e, std::int64_t now_ms) {
        if (s_.at == stage::initialising) {
            detail::note(s_, "first model not taken: " + e.why.context);
            return detail::go_polling(s_, now_ms + s_.set.retry_ms);
        }
        if (s_.at != stage::uploading) return;
        if (e.why.code == errc::fenced)
            return detail::finish(s_, exit_failed, "replaced by another process of this site");
        if (e.why.code == errc::stale_generation || e.why.code == errc::round_closed)
            return detail::contribution_refused(s_, e.why, now_ms);
        detail::upload_again(s_, e.why.context);
    }
    void take(const event::evaluated& e, std::int64_t now_ms) {
        if (s_.at != stage::scoring) return;
        if (e.windows == 0) return detail::answered(s_, request{}, ledger::evaluation_reply{}, now_ms);
        detail::ask(s_, ledger::evaluation_request{s_.who, *s_.model, e.loss_sum, e.tokens, e.windows}, now_ms);
    }
    void take(const event::beat_replied& e, std::int64_t now_ms) {
        s_.contact_ms = std::max(s_.contact_ms, now_ms);
        const auto& r = e.answer.leases;
        if (r.ttl_ms > 0) s_.ttl_ms = r.ttl_ms;
        for (const auto& b : r.leases) {
            if (!b.valid) {
                detail::lease_is_lost(s_, b.lease.seq, now_ms);
                continue;
            }
            s_.held.adopt(b.lease.seq, b.reserved_end, b.end);
            s_.held.renew(b.lease.seq, e.sent_ms + r.ttl_ms);
        }
        const bool trains = s_.at == stage::building || s_.at == stage::training || s_.at == stage::ending;
        if (trains && s_.phase.active && e.answer.generation > s_.phase.base && !s_.asked)
            detail::drop_phase(s_, "a newer generation is there", now_ms);
    }
    void take(const event::beat_refused& e, std::int64_t now_ms) {
        if (e.why.code == errc::fenced)
            return detail::finish(s_, exit_failed, "replaced by another process of this site");
        if (e.why.code != errc::unknown_site || s_.register_again) return;
        s_.held.clear();
        s_.register_again = true;
        if (s_.phase.active && !s_.asked) detail::drop_phase(s_, "the server does not know this site any more", now_ms);
    }
    void take(const event::stop_requested& e, std::int64_t) {
        s_.stopping = true;
        if (s_.reason.empty()) s_.reason = e.reason;
    }
    void take(const event::timer&, std::int64_t) {}

    /// Goes on as far as it can without an answer, and hands over what is to be done.
    std::vector<action_t> advance(std::int64_t now_ms) {
        for (int turns = 0; turns < 64 && s_.at != stage::finished && !s_.asked; ++turns) {
            const auto before = s_.at;
            const std::size_t said = s_.out.size();
            decide(now_ms);
            if (s_.at == before && s_.out.size() == said && !s_.asked) break;
        }
        if (s_.asked && !s_.sent && now_ms >= s_.retry_at_ms && s_.at != stage::finished) {
            s_.sent = true;
            s_.asked_ms = now_ms;
            detail::emit(s_, action::call{*s_.asked, detail::request_name(s_)});
        }
        return std::exchange(s_.out, {});
    }

    void decide(std::int64_t now_ms) {
        if (s_.declining && s_.at != stage::leaving) return give_back_and_decline(now_ms);
        switch (s_.at) {
            case stage::registering: {
                auto hello = s_.set.hello;
                hello.take_over = s_.take_over;
                return detail::ask(s_, std::move(hello), now_ms);
            }
            case stage::joining:
                return detail::ask(s_, s_.set.join, now_ms);
            case stage::polling:
                return poll(now_ms);
            case stage::building:
                if (s_.stopping) return detail::go_leaving(s_, exit_try_later, s_.reason);
                if (s_.held.unplanned() >= s_.phase.target) return detail::begin_training(s_);
                return detail::ask(s_,
                                   ledger::acquire_request{s_.who, s_.phase.target - s_.held.unplanned(),
                                                           s_.set.max_spans, detail::report(s_), detail::next_name(s_)},
                                   now_ms);
            case stage::training:
                return detail::advance_training(s_, now_ms);
            case stage::releasing:
                return release_next(now_ms);
            case stage::leaving:
                return leave(now_ms);
            default:
                return;
        }
    }

    void poll(std::int64_t now_ms) {
        if (s_.stopping) return detail::go_leaving(s_, s_.awaiting ? exit_try_later : s_.code, s_.reason);
        if (std::exchange(s_.register_again, false)) {
            s_.at = stage::registering;
            return;
        }
        if (!s_.to_release.empty()) {
            s_.at = stage::releasing;
            return;
        }
        if (now_ms < s_.retry_at_ms) return;
        const auto activity = s_.awaiting ? round::site_activity::waiting : round::site_activity::idle;
        detail::ask(s_, ledger::poll_request{s_.who, s_.model.value_or(generation{}), activity, 0, 0}, now_ms);
    }

    // A phase that came to nothing: give back what is held (it counts no attempt), then say so.
    void give_back_and_decline(std::int64_t now_ms) {
        if (!s_.held.empty()) return detail::ask(s_, ledger::release_request{s_.who, std::nullopt, false}, now_ms);
        auto [why, text] = *s_.declining;
        detail::ask(s_, ledger::decline_request{s_.who, s_.duty.current, why, text.substr(0, 200)}, now_ms);
    }
    void release_next(std::int64_t now_ms) {
        while (!s_.to_release.empty()) {
            if (const holding* h = s_.held.find(s_.to_release.back()); h != nullptr)
                return detail::ask(s_, ledger::release_request{s_.who, lease::ref_to(h->lease), false}, now_ms);
            s_.to_release.pop_back();
        }
        detail::go_polling(s_, now_ms);
    }
    void leave(std::int64_t now_ms) {
        if (!s_.held.empty()) return detail::ask(s_, ledger::release_request{s_.who, std::nullopt, false}, now_ms);
        detail::ask(s_, ledger::leave_request{s_.who, s_.reason}, now_ms);
    }

    detail::session_state s_;
};

}  // namespace darlcore::site
