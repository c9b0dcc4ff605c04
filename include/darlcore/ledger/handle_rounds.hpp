// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "darlcore/ledger/access.hpp"
#include "darlcore/ledger/machine_class.hpp"
#include "darlcore/ledger/separate.hpp"

#if defined(DARLCORE_LEDGER_DEFINITIONS)

namespace darlcore::ledger {

DARLCORE_LEDGER_INLINE outcome<join_reply> machine::handle(const join_request& in, ledger_time now) {
    access::step out;
    const auto refuse = [&](refusal why) { return access::refused<join_reply>(std::move(out), std::move(why)); };
    if (!settings_.rounds) return refuse(access::refuse(errc::policy, "this ledger serves leases only: no rounds"));
    if (auto why = access::check_caller(*this, in.who)) return refuse(*std::move(why));
    if (in.who.incarnation.is_none())
        return refuse(access::refuse(errc::bad_request, "incarnation: rounds need protocol 2"));
    if (!in.run_id.empty() && in.run_id != settings_.run_id)
        return refuse(access::refuse(errc::bad_request, "run_id: this server's run is " + settings_.run_id +
                                                            "; the site holds files of another run"));
    if (settings_.seq_len != 0 && in.pins.seq_len != settings_.seq_len)
        return refuse(access::refuse(errc::layout_mismatch, "seq_len of the run is " +
                                                                std::to_string(settings_.seq_len) + ", this site has " +
                                                                std::to_string(in.pins.seq_len)));
    auto pins = in.pins;
    std::sort(pins.codecs.begin(), pins.codecs.end());
    auto joined = rounds_.join(in.who.site, in.who.incarnation, pins, in.software, now);
    if (!joined) return refuse(access::refuse(joined.error().code, joined.error().context));
    access::note_rounds(*this, out, std::move(*joined));
    join_reply reply;
    reply.generation = rounds_.current();
    reply.run_id = settings_.run_id;
    reply.policy = books_.outer;
    reply.inner_steps = settings_.round.inner_steps;
    reply.keepalive_ms = settings_.round.keepalive_ms;
    reply.global_step = rounds_.durable().global_step;
    reply.has_model = rounds_.durable().has_model;
    access::settle(*this, out, now);
    return access::done(std::move(out), std::move(reply));
}

DARLCORE_LEDGER_INLINE outcome<poll_reply> machine::handle(const poll_request& in, ledger_time now) {
    access::step out;
    if (auto why = access::check_member(*this, in.who))
        return access::refused<poll_reply>(std::move(out), *std::move(why));
    const round::poll_input input{in.who.site, in.who.incarnation, in.have, in.activity, in.steps_done, in.eta_ms};
    access::settle(*this, out, now);
    round::step polled;
    auto answer = rounds_.poll(input, facts(&in.who.site), now, polled);
    access::note_rounds(*this, out, std::move(polled));
    access::settle(*this, out, now);
    return access::done(std::move(out), std::move(answer));
}

namespace detail {

inline contribute_reply answer_again(const contribution_id& id, const round::stored_answer& stored) {
    contribute_reply reply;
    reply.status = stored.status;
    reply.id = id;
    reply.reason = stored.reason;
    reply.weight_tokens = stored.weight_tokens;
    reply.pledged_blocks = stored.pledged_blocks;
    reply.generation = stored.base;
    return reply;
}

inline std::string standing_text(errc why, const machine& m) {
    const auto current = std::to_string(m.rounds().current().count);
    switch (why) {
        case errc::stale_generation:
            return "the current generation is " + current + ": fetch it and train the same blocks again";
        case errc::round_closed:
            return "the merge of this round has begun: train the same blocks on the next generation";
        case errc::already_contributed:
            return "this site has contributed to generation " + current + " already";
        default:
            return "join the rounds first: POST /round/join";
    }
}

inline std::optional<refusal> check_shape(const contribute_request& in) {
    const auto bad = [](const char* text) { return access::refuse(errc::bad_request, text); };
    if (in.id.text.empty() || in.id.text.size() > 128) return bad("id: 1 to 128 characters");
    if (in.leases.size() > 256) return bad("leases: at most 256 in one contribution");
    if (!std::isfinite(in.loss_sum)) return bad("loss_sum: a finite number");
    if (in.phase_ms < 0 || in.transfer_ms < 0) return bad("phase and transfer times must not be negative");
    return std::nullopt;
}

}  // namespace detail

/// One contribution on its way to be pledged or rejected.
struct contribute_step {
    machine& m;
    const contribute_request& in;
    ledger_time now;
    access::step& out;
    std::uint64_t windows = 0;  // of its blocks; the truth that caps its token claim
    std::uint64_t blocks = 0;
    std::optional<lease::events::pledged> pledged = std::nullopt;
    std::optional<lease::events::contribution_rejected> rejected = std::nullopt;

    [[nodiscard]] guard_context context() const {
        guard_context c;
        c.current = m.rounds().current();
        c.layout_digest = parse_layout(m.rounds().durable().pinned);
        c.max_abs_weight = static_cast<float>(m.kept().max_abs_weight);
        c.accepted_norms = norm_history(m.kept().norms);
        const auto& g = m.settings().guards;
        c.limits = {g.growth_max, g.norm_outlier, g.norm_warning, g.norm_samples_min, g.clip};
        c.switches.stale_generation = m.rounds().rules().stale;
        return c;
    }
    static std::optional<std::array<std::uint8_t, 16>> parse_layout(const std::optional<round::pins>& pinned) {
        if (!pinned) return std::nullopt;
        const auto value = parse_incarnation(pinned->layout_digest);  // both are 32 hex digits
        if (!value) return std::nullopt;
        std::array<std::uint8_t, 16> bytes{};
        for (unsigned i = 0; i < 8; ++i) {
            bytes[i] = static_cast<std::uint8_t>(value->high >> (56U - 8U * i));
            bytes[8 + i] = static_cast<std::uint8_t>(value->low >> (56U - 8U * i));
        }
        return bytes;
    }
    [[nodiscard]] guard_verdict judge(const blob_facts& blob) const {
        contribution_facts f;
        f.claim = {m.settings().run_id, in.who.site, in.base, in.tokens, in.steps};
        f.layout_digest = blob.layout_digest;
        f.file_metadata = blob.metadata;
        f.scan = blob.scan;
        return darlcore::judge(f, context());
    }

    /// on_merge: the lease table pledges or takes back the blocks.
    std::optional<refusal> move_blocks(lease::table& leases, const guard_verdict& verdict) {
        lease::pledge request{in.who, in.id, in.base, in.leases, std::nullopt};
        if (verdict.fault == fault::content) request.fault = verdict.code;
        auto answer = leases.apply(request, now);
        std::vector<lease::event> others;
        for (auto& event : answer.events) {
            if (auto* p = std::get_if<lease::events::pledged>(&event))
                pledged = std::move(*p);
            else if (auto* r = std::get_if<lease::events::contribution_rejected>(&event))
                rejected = std::move(*r);
            else
                others.push_back(std::move(event));
        }
        access::note_events(m, out, others, now);
        if (!answer.ok()) return answer.refused();
        if (!pledged) return std::nullopt;
        for (const auto& s : pledged->spans) {
            windows += access::windows_of(m, s.span);
            blocks += s.span.size();
        }
        return std::nullopt;
    }
    /// on_checkpoint: what this site committed in the named leases since its last contribution.
    void count_committed_windows() {
        const auto counted = m.kept().windows.find(in.who.site);
        if (counted == m.kept().windows.end()) return;
        for (const auto seq : named_leases()) {
            const auto found = counted->second.find(seq);
            if (found != counted->second.end()) windows += found->second;
        }
    }
    [[nodiscard]] std::vector<lease_seq> named_leases() const {
        std::vector<lease_seq> named;
        for (const auto& claim : in.leases) named.push_back(claim.lease.seq);
        std::sort(named.begin(), named.end());
        named.erase(std::unique(named.begin(), named.end()), named.end());
        return named;
    }

    void notice(std::string kind, std::string text) const {
        out.effects.emplace_back(effects::notice{std::move(kind), in.who.site, std::move(text)});
    }
    /// Weight and steps as they count: never more than the ledger knows to be true.
    void cap(round::pledge& p) const {
        const auto& set = m.settings();
        capped_count tokens{in.tokens, false};
        if (set.seq_len != 0) tokens = cap_tokens(in.tokens, tokens_of(windows, set.seq_len));
        if (tokens.capped)
            notice("token_claim_capped", "claimed " + std::to_string(in.tokens) + " tokens, its blocks hold " +
                                             std::to_string(tokens.counted));
        const auto steps = cap_steps(in.steps, set.round.inner_steps, set.space.block_size);
        if (steps.capped)
            notice("step_claim_capped",
                   "claimed " + std::to_string(in.steps) + " steps, counted " + std::to_string(steps.counted));
        p.weight_tokens = tokens.counted;
        p.steps = steps.counted;
    }
    [[nodiscard]] round::pledge make_pledge(const blob_facts& blob, const guard_verdict& verdict) const {
        round::pledge p;
        p.site = in.who.site;
        p.id = in.id;
        p.base = in.base;
        p.sha256 = in.sha256;
        p.codec = in.codec;
        p.bytes = blob.bytes;
        p.tokens_claimed = in.tokens;
        p.loss_sum = in.loss_sum;
        p.loss_count = in.loss_count;
        p.pledged_blocks = blocks;
        p.phase_ms = in.phase_ms;
        p.transfer_ms = in.transfer_ms;
        p.norm = blob.scan ? blob.scan->norm() : 0;
        p.scale = static_cast<double>(verdict.scale);
        cap(p);
        if (verdict.norm_warning) notice("norm_warning", "its delta is unusually long");
        if (verdict.scale < 1.0F) notice("clipped", "its delta was scaled down to the limit");
        return p;
    }
    static std::uint64_t tokens_of(std::uint64_t windows, std::uint64_t seq_len) {
        constexpr auto most = std::numeric_limits<std::uint64_t>::max();
        return windows > most / seq_len ? most : windows * seq_len;
    }
};

/// Everything that can be answered without looking at the delta.
inline std::optional<std::variant<contribute_reply, refusal>> access::answer_early(machine& m,
                                                                                   const contribute_request& in,
                                                                                   ledger_time now, step& out) {
    using answer = std::variant<contribute_reply, refusal>;
    if (auto why = detail::check_shape(in)) return answer(*std::move(why));
    if (auto why = check_member(m, in.who)) return answer(*std::move(why));
    m.rounds_.touch(in.who.site, now);
    settle(m, out, now);
    const auto stand = m.rounds_.check_standing(in.who.site, in.id, in.base);
    if (stand.answered_before) return answer(detail::answer_again(in.id, *stand.answered_before));
    if (in.tokens == 0) {
        note_rounds(m, out, m.rounds_.decline(in.who.site, in.base, round::decline_reason::no_data, "", now));
        contribute_reply reply;
        reply.declined = true;
        reply.id = in.id;
        reply.generation = m.rounds_.current();
        return answer(std::move(reply));
    }
    if (stand.refused) return answer(refuse(*stand.refused, detail::standing_text(*stand.refused, m)));
    if (!m.blobs_.contains(in.sha256))
        return answer(refuse(errc::blob_missing, "upload the delta first: POST /blobs, then its parts"));
    return std::nullopt;
}

DARLCORE_LEDGER_INLINE outcome<contribute_reply> machine::handle(const contribute_request& in, ledger_time now) {
    access::step out;
    const auto refuse = [&](refusal why) {
        rounds_.note_refusal(in.who.site, why.code);
        access::settle(*this, out, now);
        return access::refused<contribute_reply>(std::move(out), std::move(why));
    };
    if (auto early = access::answer_early(*this, in, now, out)) {
        if (auto* why = std::get_if<refusal>(&*early)) return refuse(std::move(*why));
        access::settle(*this, out, now);
        return access::done(std::move(out), std::get<contribute_reply>(*std::move(early)));
    }
    const auto& blob = blobs_.at(in.sha256);
    contribute_step one{*this, in, now, out};
    const auto verdict = one.judge(blob);
    if (verdict.fault == fault::standing) return refuse(access::refuse(*verdict.code, verdict.reason));
    const bool on_merge = settings_.lease.commit_policy == lease::commit_policy::on_merge;
    if (on_merge && switches_.pledge_before_merge) {
        if (auto why = one.move_blocks(leases_, verdict)) return refuse(*std::move(why));
    } else if (!on_merge) {
        one.count_committed_windows();
    }
    if (verdict.fault == fault::content) {
        auto fact = rounds_.reject(in.who.site, in.id, in.base, *verdict.code);
        access::note(*this, out, records::contribution_rejected{std::move(one.rejected), std::move(fact)}, now);
        out.effects.emplace_back(effects::delete_blob{in.sha256});
        out.effects.emplace_back(effects::wake{std::nullopt});
        return refuse(access::refuse(*verdict.code, verdict.reason));
    }
    auto accepted = rounds_.accept(one.make_pledge(blob, verdict), now);
    contribute_reply reply;
    reply.id = in.id;
    reply.weight_tokens = accepted.contribution.weight_tokens;
    reply.pledged_blocks = one.blocks;
    reply.generation = in.base;
    access::note(*this, out, records::pledged{std::move(one.pledged), std::move(accepted), one.named_leases()}, now);
    out.effects.emplace_back(effects::wake{in.who.site});
    access::settle(*this, out, now);
    return access::done(std::move(out), std::move(reply));
}

DARLCORE_LEDGER_INLINE outcome<ok_reply> machine::handle(const decline_request& in, ledger_time now) {
    access::step out;
    if (auto why = access::check_member(*this, in.who))
        return access::refused<ok_reply>(std::move(out), *std::move(why));
    if (in.detail.size() > 200)
        return access::refused<ok_reply>(std::move(out),
                                         access::refuse(errc::bad_request, "detail: at most 200 characters"));
    rounds_.touch(in.who.site, now);
    access::note_rounds(*this, out, rounds_.decline(in.who.site, in.base, in.reason, in.detail, now));
    access::settle(*this, out, now);
    return access::done(std::move(out), ok_reply{});
}

DARLCORE_LEDGER_INLINE outcome<evaluation_reply> machine::handle(const evaluation_request& in, ledger_time now) {
    access::step out;
    if (auto why = access::check_member(*this, in.who))
        return access::refused<evaluation_reply>(std::move(out), *std::move(why));
    if (!std::isfinite(in.loss_sum) || in.loss_sum < 0)
        return access::refused<evaluation_reply>(
            std::move(out), access::refuse(errc::bad_request, "loss_sum: a finite number at or above 0"));
    rounds_.touch(in.who.site, now);
    round::step scored;
    const bool used = in.tokens > 0 &&
                      rounds_.evaluate({in.who.site, in.generation, in.loss_sum, in.tokens, in.windows}, now, scored);
    access::note_rounds(*this, out, std::move(scored));
    access::settle(*this, out, now);
    return access::done(std::move(out), evaluation_reply{used, used ? "" : in.tokens == 0 ? "no_tokens" : "too_old"});
}

DARLCORE_LEDGER_INLINE outcome<ok_reply> machine::handle(const leave_request& in, ledger_time now) {
    access::step out;
    if (auto why = access::check_member(*this, in.who, true))  // told again, it says the same and lets go of the rest
        return access::refused<ok_reply>(std::move(out), *std::move(why));
    access::note_rounds(*this, out, rounds_.leave(in.who.site, in.reason.substr(0, 200), now));
    auto released = leases_.apply(lease::release{in.who, std::nullopt, false}, now);
    access::note_events(*this, out, released.events, now);
    access::settle(*this, out, now);
    return access::done(std::move(out), ok_reply{});
}

DARLCORE_LEDGER_INLINE outcome<state_reply> machine::handle(const pause_request& in, ledger_time now) {
    access::step out;
    access::note_rounds(*this, out, rounds_.pause(in.reason.substr(0, 200), now));
    return access::done(std::move(out), state_reply{rounds_.state()});
}
DARLCORE_LEDGER_INLINE outcome<state_reply> machine::handle(const resume_request&, ledger_time now) {
    access::step out;
    access::note_rounds(*this, out, rounds_.resume(now));
    access::settle(*this, out, now);
    return access::done(std::move(out), state_reply{rounds_.state()});
}
DARLCORE_LEDGER_INLINE outcome<state_reply> machine::handle(const stop_request&, ledger_time now) {
    access::step out;
    access::note_rounds(*this, out, rounds_.stop(round::stop_reason::site_operator, now));
    access::settle(*this, out, now);
    return access::done(std::move(out), state_reply{rounds_.state()});
}

}  // namespace darlcore::ledger

#endif
