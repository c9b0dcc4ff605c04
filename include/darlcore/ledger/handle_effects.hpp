// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "darlcore/ledger/access.hpp"
#include "darlcore/ledger/machine_class.hpp"
#include "darlcore/ledger/separate.hpp"

#if defined(DARLCORE_LEDGER_DEFINITIONS)

namespace darlcore::ledger {
namespace detail {

/// What must stay in the stores, as an effect.
inline effects::collect_garbage garbage_rule(const machine& m) {
    const auto& rounds = m.rounds().durable();
    effects::collect_garbage keep;
    const std::uint64_t kept = m.settings().round.keep_generations;
    keep.oldest_kept = generation{rounds.current.count >= kept ? rounds.current.count + 1 - kept : 0};
    keep.pinned.push_back(generation{0});
    if (rounds.best && *rounds.best != generation{0}) keep.pinned.push_back(*rounds.best);
    keep.blobs = m.kept().last_inputs;
    for (const auto& [site, p] : rounds.pledges) keep.blobs.push_back(p.sha256);
    std::sort(keep.blobs.begin(), keep.blobs.end());
    return keep;
}

inline void tell_published(const machine& m, std::vector<effect>& out) {
    const auto& rounds = m.rounds().durable();
    out.emplace_back(effects::publish_generation{rounds.current, rounds.files});
    out.emplace_back(effects::drop_stale_uploads{rounds.current});
    out.emplace_back(garbage_rule(m));
}

}  // namespace detail

// --- start and time ----------------------------------------------------------------------------------------------

DARLCORE_LEDGER_INLINE outcome<ok_reply> machine::handle(const start_input& in, ledger_time now) {
    access::step out;
    auto answer = leases_.apply(lease::restart{in.term}, now);
    access::note_events(*this, out, answer.events, now);
    if (!answer.ok()) return access::refused<ok_reply>(std::move(out), answer.refused());
    last_lease_tick_ = now;
    if (rounds_.durable().has_model) detail::tell_published(*this, out.effects);
    return access::done(std::move(out), ok_reply{});
}

DARLCORE_LEDGER_INLINE outcome<ok_reply> machine::handle(const tick_input&, ledger_time now) {
    access::step out;
    auto expired = leases_.apply(lease::expire{}, now);
    access::note_events(*this, out, expired.events, now);
    if (now - last_lease_tick_ >= lease_tick_ms) access::note_tick(*this, out, now);
    access::settle(*this, out, now);
    return access::done(std::move(out), ok_reply{});
}

DARLCORE_LEDGER_INLINE outcome<ok_reply> machine::handle(const change_outer_policy& in, ledger_time now) {
    access::step out;
    run_settings changed = settings_;
    changed.outer = in.outer;
    if (const auto ok = check(changed); !ok)
        return access::refused<ok_reply>(std::move(out), access::refuse(errc::bad_request, ok.error().context));
    if (in.outer != books_.outer) access::note(*this, out, records::settings_changed{in.outer}, now);
    return access::done(std::move(out), ok_reply{});
}

// --- blobs -------------------------------------------------------------------------------------------------------

DARLCORE_LEDGER_INLINE outcome<ok_reply> machine::handle(const announce_upload& in, ledger_time now) {
    access::step out;
    const auto refuse = [&](errc code, std::string text) {
        rounds_.note_refusal(in.who.site, code);
        return access::refused<ok_reply>(std::move(out), access::refuse(code, std::move(text)));
    };
    if (auto why = access::check_member(*this, in.who))
        return access::refused<ok_reply>(std::move(out), *std::move(why));
    rounds_.touch(in.who.site, now);
    if (rounds_.state() == round::phase::finished) return refuse(errc::round_closed, "the run is finished");
    const bool has_model = rounds_.durable().has_model;
    if (in.purpose == blob_purpose::init && has_model)
        return refuse(errc::stale_generation, "the run has its first weights already: fetch them");
    if (in.purpose == blob_purpose::delta && (!has_model || in.base != rounds_.current()))
        return refuse(errc::stale_generation, "the current generation is " + std::to_string(rounds_.current().count) +
                                                  ": fetch it and train the same blocks again");
    return access::done(std::move(out), ok_reply{});
}

DARLCORE_LEDGER_INLINE outcome<ok_reply> machine::handle(const upload_progress& in, ledger_time now) {
    access::step out;
    if (auto why = access::check_member(*this, in.who))
        return access::refused<ok_reply>(std::move(out), *std::move(why));
    rounds_.touch(in.who.site, now);
    rounds_.note_upload(in.who.site, std::min(in.percent, 100U));
    return access::done(std::move(out), ok_reply{});
}

DARLCORE_LEDGER_INLINE outcome<ok_reply> machine::handle(const blob_verified& in, ledger_time now) {
    access::step out;
    rounds_.touch(in.site, now);
    if (in.purpose == blob_purpose::delta) {
        blobs_[in.sha256] = in.facts;
        return access::done(std::move(out), ok_reply{});
    }
    if (rounds_.start_initialising())
        out.effects.emplace_back(effects::initialise_model{in.site, in.sha256});
    else
        out.effects.emplace_back(effects::delete_blob{in.sha256});
    return access::done(std::move(out), ok_reply{});
}

DARLCORE_LEDGER_INLINE outcome<ok_reply> machine::handle(const blob_gone& in, ledger_time) {
    blobs_.erase(in.sha256);
    return access::done(access::step{}, ok_reply{});
}

// --- answers to effects --------------------------------------------------------------------------------------------

DARLCORE_LEDGER_INLINE outcome<ok_reply> machine::handle(const model_initialised& in, ledger_time now) {
    access::step out;
    if (rounds_.durable().has_model) return access::done(std::move(out), ok_reply{});
    records::model_initialised fact{{in.by, in.layout_digest, in.files}, in.max_abs_weight};
    access::note(*this, out, std::move(fact), now);
    detail::tell_published(*this, out.effects);
    out.effects.emplace_back(effects::wake{std::nullopt});
    access::settle(*this, out, now);
    return access::done(std::move(out), ok_reply{});
}

DARLCORE_LEDGER_INLINE outcome<ok_reply> machine::handle(const init_failed&, ledger_time) {
    access::step out;
    rounds_.initialising_failed();
    out.effects.emplace_back(effects::wake{std::nullopt});
    return access::done(std::move(out), ok_reply{});
}

namespace detail {

/// The leases' part of a merge: which pledges it resolves. Pledges that the table does not know are left out.
inline lease::resolve resolve_request(const machine& m, const std::vector<round::rejected_at_merge>& bad,
                                      bool with_merged, ledger_time now) {
    lease::resolve request;
    request.base = m.rounds().current();
    for (const auto number : m.leases().pledging()) {
        const auto* pledge = m.leases().pledge_of(number);
        const auto site = m.leases().site(number, now).id;
        const auto found = std::find_if(bad.begin(), bad.end(), [&](const auto& b) { return b.site == site; });
        if (found != bad.end())
            request.rejected.push_back({pledge->id, found->reason});
        else if (with_merged)
            request.merged.push_back(pledge->id);
    }
    return request;
}

/// Only rejections of what is really pledged count.
inline std::vector<round::rejected_at_merge> known_rejections(const machine& m,
                                                              std::vector<round::rejected_at_merge> bad) {
    const auto& pledges = m.rounds().durable().pledges;
    std::erase_if(bad, [&](const auto& b) {
        const auto found = pledges.find(b.site);
        return found == pledges.end() || found->second.id != b.id;
    });
    return bad;
}

}  // namespace detail

DARLCORE_LEDGER_INLINE outcome<ok_reply> machine::handle(const merge_done& in, ledger_time now) {
    access::step out;
    const bool expected = rounds_.passing().merging && in.next.count == rounds_.current().count + 1;
    if (!expected) return access::done(std::move(out), ok_reply{});
    const auto bad = detail::known_rejections(*this, in.rejected);
    if (bad.size() == rounds_.durable().pledges.size())
        return handle(merge_failed{in.next, "every contribution was rejected", bad}, now);
    records::merge_commit fact{rounds_.merge_done(in.files, bad, in.figures), std::nullopt, in.max_abs_weight};
    std::vector<std::string> bad_files;
    for (const auto& b : bad) bad_files.push_back(rounds_.durable().pledges.at(b.site).sha256);
    std::vector<lease::event> events;
    if (settings_.lease.commit_policy == lease::commit_policy::on_merge) {
        auto resolved = leases_.apply(detail::resolve_request(*this, bad, true, now), now);
        events = std::move(resolved.events);
        const auto own = std::find_if(events.begin(), events.end(), [](const lease::event& e) {
            return std::holds_alternative<lease::events::resolved>(e);
        });
        if (own != events.end()) {
            fact.leases = std::get<lease::events::resolved>(std::move(*own));
            std::vector<lease::event> before(events.begin(), own);
            access::note_events(*this, out, before, now);
            events.erase(events.begin(), own + 1);
        }
    }
    access::note(*this, out, std::move(fact), now);
    access::note_events(*this, out, events, now);
    access::forget_stale_blobs(*this);
    for (const auto& file : bad_files) out.effects.emplace_back(effects::delete_blob{file});
    detail::tell_published(*this, out.effects);
    out.effects.emplace_back(effects::wake{std::nullopt});
    access::advance_if_complete(*this, out, now);
    access::settle(*this, out, now);
    return access::done(std::move(out), ok_reply{});
}

DARLCORE_LEDGER_INLINE outcome<ok_reply> machine::handle(const merge_failed& in, ledger_time now) {
    access::step out;
    const bool expected = rounds_.passing().merging && in.next.count == rounds_.current().count + 1;
    if (!expected) return access::done(std::move(out), ok_reply{});
    const auto bad = detail::known_rejections(*this, in.rejected);
    if (bad.empty()) {
        access::note_rounds(*this, out, rounds_.merge_failed(in.reason, now));
        access::settle(*this, out, now);
        return access::done(std::move(out), ok_reply{});
    }
    records::pledges_rejected fact;
    for (const auto& b : bad) {
        out.effects.emplace_back(effects::delete_blob{rounds_.durable().pledges.at(b.site).sha256});
        fact.contributions.push_back(rounds_.reject(b.site, b.id, rounds_.current(), b.reason));
    }
    rounds_.merge_abandoned();
    if (settings_.lease.commit_policy == lease::commit_policy::on_merge) {
        auto resolved = leases_.apply(detail::resolve_request(*this, bad, false, now), now);
        struct special {
            records::pledges_rejected& fact;
            records::pledges_rejected operator()(lease::events::resolved& e) const {
                fact.leases = std::move(e);
                return std::move(fact);
            }
        };
        access::note_events(*this, out, resolved.events, now, special{fact});
    } else {
        access::note(*this, out, std::move(fact), now);
    }
    out.effects.emplace_back(effects::wake{std::nullopt});
    access::settle(*this, out, now);
    return access::done(std::move(out), ok_reply{});
}

}  // namespace darlcore::ledger

#endif
