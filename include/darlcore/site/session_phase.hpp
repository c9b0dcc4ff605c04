// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "darlcore/site/session_state.hpp"

// A phase: size, reserve, train, end, contribute.
namespace darlcore::site::detail {

/// Blocks of a phase: round(H G / K), at least 1, fewer when the budget says so.
/// Source: 10 section 5, blocks_nearest.
inline std::uint64_t phase_blocks(const session_state& s, std::uint64_t inner_steps,
                                  std::optional<std::int64_t> budget_ms) {
    const auto windows = static_cast<double>(inner_steps) * static_cast<double>(s.set.windows_per_step);
    auto blocks =
        static_cast<std::uint64_t>(std::clamp(windows / static_cast<double>(s.set.block_size) + 0.5, 1.0, 1e15));
    if (budget_ms && s.blocks_per_ms > 0) {
        const double fit = s.blocks_per_ms * static_cast<double>(*budget_ms);
        blocks = std::min(blocks, static_cast<std::uint64_t>(std::clamp(fit, 1.0, 1e15)));
    }
    return blocks;
}

inline void begin_building(session_state& s, std::int64_t now_ms) {
    s.held.begin_phase();
    s.phase = {};
    s.phase.active = true;
    s.phase.base = s.duty.current;
    s.phase.started_ms = now_ms;
    s.phase.budget_ms = s.duty.budget_ms;
    s.phase.inner_steps = s.duty.inner_steps;
    s.phase.target = phase_blocks(s, s.duty.inner_steps, s.duty.budget_ms);
    s.at = stage::building;
}

inline void begin_training(session_state& s) {
    const std::uint64_t total = std::min(s.phase.target, s.held.unplanned());
    const std::uint64_t groups = s.set.groups != 0 ? s.set.groups : (total <= 4 ? 1 : 4);
    s.phase.target = total;
    s.phase.group_size = (total + groups - 1) / groups;
    s.at = stage::training;
}

inline void decline(session_state& s, round::decline_reason why, std::string detail) {
    s.phase.active = false;
    s.declining.emplace(why, std::move(detail));
}

/// Gives the trainer what was reserved for the group in the making.
inline void issue_group(session_state& s) {
    auto parts = s.held.take(s.phase.wishes);
    s.phase.wishes.clear();
    s.phase.wish = 0;
    if (parts.empty()) return;
    action::train_group order{s.epoch, s.phase.groups.size(), s.next_counter, {}, s.phase.inner_steps};
    for (const auto& part : parts) {
        order.spans.push_back(part.span);
        s.phase.planned += part.span.size();
    }
    s.phase.groups.push_back({s.next_counter++, std::move(parts)});
    emit(s, std::move(order));
}

inline bool over_budget(const session_state& s, std::int64_t now_ms) {
    return s.phase.budget_ms && now_ms - s.phase.started_ms >= *s.phase.budget_ms && !s.phase.groups.empty();
}

/// Is enough given out beyond the group under way? One group, so that nobody waits for the next one, and all windows
/// that a step may take from behind its end: steps straddle groups, and a trainer that lacks windows for a step
/// finishes none. (One block of the corpus may be short; it has at least one window.)
inline bool is_ahead(const session_state& s) {
    const auto& p = s.phase;
    if (p.groups.size() <= p.trained + 1) return false;
    std::uint64_t blocks = 0;
    for (std::size_t g = p.trained + 1; g < p.groups.size(); ++g)
        for (const auto& part : p.groups[g].parts) blocks += part.span.size();
    return (blocks - 1) * s.set.block_size + 2 >= s.set.windows_per_step;
}

/// One step of a training phase: reserve the next group while the current one trains, or say that it was the last.
inline void advance_training(session_state& s, std::int64_t now_ms) {
    auto& p = s.phase;
    const bool last = s.stopping || over_budget(s, now_ms) || p.planned >= p.target;
    if (p.wishes.empty() && !last) {
        if (is_ahead(s)) return;
        p.wishes = s.held.next(std::min(p.group_size, p.target - p.planned), now_ms);
        p.wish = 0;
        if (p.wishes.empty() && s.held.unplanned() > 0) return;  // past a local deadline: wait for a heartbeat
    }
    while (p.wish < p.wishes.size() && s.held.is_reserved(p.wishes[p.wish])) ++p.wish;
    if (p.wish < p.wishes.size()) {
        holding* h = s.held.find(p.wishes[p.wish].lease);
        if (h != nullptr)
            return ask(s, ledger::reserve_request{s.who, lease::ref_to(h->lease), p.wishes[p.wish].through}, now_ms);
        ++p.wish;
        return;
    }
    const std::size_t before = p.groups.size();
    if (!p.wishes.empty()) issue_group(s);
    if (p.groups.size() > before && !last) return;
    if (p.groups.empty()) {
        decline(s, round::decline_reason::no_data, "nothing left to train");
        return;
    }
    emit(s, action::end_phase{});
    s.at = stage::ending;
}

inline void drop_phase(session_state& s, std::string why, std::int64_t now_ms) {
    note(s, "phase dropped: " + why);
    const bool trainer_busy = (s.at == stage::training || s.at == stage::ending) && !s.phase.groups.empty();
    s.phase.active = false;
    s.phase.wishes.clear();
    if (trainer_busy) {
        emit(s, action::drop_phase{});
        s.at = stage::dropping;
        return;
    }
    s.held.begin_phase();
    go_polling(s, now_ms);
}

inline void lease_is_lost(session_state& s, lease_seq seq, std::int64_t now_ms) {
    const holding* h = s.held.find(seq);
    if (h == nullptr) return;
    const bool used = s.phase.active && h->planned > h->lease.done_end;
    s.held.drop(seq);
    std::erase_if(s.phase.wishes, [&](const reservation& r) { return r.lease == seq; });
    s.phase.wish = 0;
    if (used) drop_phase(s, "a lease it trained from is gone", now_ms);
}

inline void phase_ended(session_state& s, const phase_done& result, std::int64_t now_ms) {
    const std::uint64_t groups = std::min<std::uint64_t>(result.groups, s.phase.groups.size());
    std::uint64_t blocks = 0;
    for (std::uint64_t g = 0; g < groups; ++g) {
        s.held.mark_trained(s.phase.groups[g].parts);
        for (const auto& part : s.phase.groups[g].parts) blocks += part.span.size();
    }
    s.failures_in_a_row = 0;
    s.claims = s.held.claims();
    if (s.claims.empty() || result.tokens == 0)
        return decline(s, round::decline_reason::no_data, "nothing was trained");
    const std::int64_t spent_ms =
        std::max<std::int64_t>(1, result.compute_ms > 0 ? result.compute_ms : now_ms - s.phase.started_ms);
    const double rate = static_cast<double>(blocks) / static_cast<double>(spent_ms);
    s.blocks_per_ms = s.blocks_per_ms > 0 ? 0.7 * s.blocks_per_ms + 0.3 * rate : rate;
    // scaled to a full phase: after a shortened one the next lease must last for a long one
    const double share = result.steps > 0 && result.steps < s.phase.inner_steps
                             ? static_cast<double>(s.phase.inner_steps) / static_cast<double>(result.steps)
                             : 1.0;
    s.macro_step_s = static_cast<double>(now_ms - s.phase.started_ms) / 1000.0 * share;
    s.result = result;
    s.uploads_left = 3;
    s.at = stage::uploading;
    emit(s, action::upload{result.blob, s.phase.base, result.codec});
}

inline void contribute(session_state& s, std::int64_t now_ms) {
    s.at = stage::contributing;
    ledger::contribute_request claim;
    claim.who = s.who;
    claim.id = s.result->id;
    claim.base = s.phase.base;
    claim.sha256 = s.result->blob.sha256;
    claim.codec = s.result->codec;
    claim.tokens = s.result->tokens;
    claim.steps = s.result->steps;
    claim.loss_sum = s.result->loss_sum;
    claim.loss_count = s.result->loss_count;
    claim.leases = s.claims;
    claim.phase_ms = s.result->compute_ms;
    claim.transfer_ms = s.transfer_ms;
    ask(s, std::move(claim), now_ms);
}

inline void turned_down(session_state& s, const std::string& why) {
    if (s.result) emit(s, action::settle{s.result->id, false, why});
    s.unsent.reset();
}

inline void upload_again(session_state& s, const std::string& why) {
    if (--s.uploads_left <= 0) {
        turned_down(s, why);
        return decline(s, round::decline_reason::local_error, why);
    }
    note(s, "uploading again: " + why);
    s.at = stage::uploading;
    emit(s, action::upload{s.result->blob, s.phase.base, s.result->codec});
}

/// The claim was refused for its standing: nothing changed at the server.
inline void contribution_refused(session_state& s, const failure& why, std::int64_t now_ms) {
    switch (why.code) {
        case errc::blob_missing:
        case errc::digest_mismatch:
            return upload_again(s, why.context);
        case errc::blocks_lost:
        case errc::lease_gone:
        case errc::beyond_reserved:
        case errc::not_owner:
            // never again with the old `from`: a stray copy of this very call may have been accepted
            for (const auto& c : s.claims) s.to_release.push_back(c.lease.seq);
            break;
        case errc::stale_generation:
        case errc::round_closed:
        case errc::already_contributed:
            break;  // the same blocks are trained again from the current generation
        default: {
            turned_down(s, why.context);
            return decline(s, round::decline_reason::local_error, std::string(word(why.code)));
        }
    }
    turned_down(s, std::string(word(why.code)));
    note(s, "contribution refused: " + std::string(word(why.code)));
    s.held.begin_phase();
    s.phase.active = false;
    s.to_release.empty() ? go_polling(s, now_ms) : void(s.at = stage::releasing);
}

}  // namespace darlcore::site::detail
