// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "darlcore/ledger/machine_class.hpp"

namespace darlcore::ledger {

/// What the handlers of `machine` share: how facts are applied and noted.
struct access {
    /// What a step collects before it becomes an outcome.
    struct step {
        std::vector<record> records;
        std::vector<effect> effects;
    };

    // --- applying facts -----------------------------------------------------------------------------------------

    template <class Fact>
    static std::optional<lease::event> lease_part(const Fact& fact) {
        using namespace records;
        if constexpr (std::is_same_v<Fact, registered> || std::is_same_v<Fact, superseded>) {
            return lease::event(fact.site);
        } else if constexpr (std::is_same_v<Fact, term_started> || std::is_same_v<Fact, committed> ||
                             std::is_same_v<Fact, rolled_back>) {
            return lease::event(fact.leases);
        } else if constexpr (std::is_same_v<Fact, pledged> || std::is_same_v<Fact, contribution_rejected> ||
                             std::is_same_v<Fact, pledges_rejected> || std::is_same_v<Fact, merge_commit>) {
            if (!fact.leases) return std::nullopt;
            return lease::event(*fact.leases);
        } else if constexpr (std::is_constructible_v<lease::event, const Fact&>) {
            return lease::event(fact);
        } else {
            return std::nullopt;
        }
    }

    /// The part of a fact that belongs to the lease table; needed on replay only, since the table that decided a fact
    /// has applied it.
    static result<void> apply_leases(machine& m, const record& r, ledger_time at) {
        return std::visit(
            [&](const auto& fact) -> result<void> {
                const auto event = lease_part(fact);
                if (!event) return {};
                return m.leases_.replay(*event, at);
            },
            r);
    }

    template <class Fact>
    static void apply_fact(machine& m, const Fact& fact, ledger_time at) {
        if constexpr (std::is_constructible_v<round::record, const Fact&>) m.rounds_.apply(round::record(fact), at);
    }
    static void apply_fact(machine& m, const records::run_created& fact, ledger_time) {
        m.books_.outer = fact.settings.outer;
    }
    static void apply_fact(machine& m, const records::term_started& fact, ledger_time at) {
        m.books_.term = fact.leases.term;
        m.rounds_.restart(at);
    }
    static void apply_fact(machine& m, const records::settings_changed& fact, ledger_time) {
        m.books_.outer = fact.outer;
    }
    static void apply_fact(machine& m, const records::registered& fact, ledger_time) {
        if (!fact.site.name.name.empty()) m.books_.told[fact.site.name] = fact.told;
    }
    static void apply_fact(machine& m, const records::superseded& fact, ledger_time at) {
        m.books_.told[fact.member.site] = fact.told;
        m.rounds_.apply(fact.member, at);
    }
    static void apply_fact(machine& m, const records::corpus_pinned& fact, ledger_time) {
        if (m.books_.pinned.corpus.empty()) m.books_.pinned.corpus = fact.told.corpus;
        if (m.books_.pinned.content.empty()) m.books_.pinned.content = fact.told.content;
    }
    static void apply_fact(machine& m, const records::committed& fact, ledger_time) {
        const auto site = m.leases_.site(fact.leases.site, {});
        if (site.mode == lease::site_mode::legacy) return;  // never contributes, so nothing would ever forget it
        m.books_.windows[site.id][fact.leases.lease] += fact.windows;
    }
    static void apply_fact(machine& m, const records::pledged& fact, ledger_time at) {
        const auto& p = fact.contribution.contribution;
        norm_history norms(std::move(m.books_.norms));
        norms.accept(p.norm);
        m.books_.norms = norms.values();
        forget_windows(m, p.site, fact.named);
        m.rounds_.apply(fact.contribution, at);
    }
    static void forget_windows(machine& m, const site_id& site, const std::vector<lease_seq>& named) {
        const auto found = m.books_.windows.find(site);
        if (found == m.books_.windows.end()) return;
        for (const auto seq : named) found->second.erase(seq);
        if (found->second.empty()) m.books_.windows.erase(found);
    }
    static void apply_fact(machine& m, const records::contribution_rejected& fact, ledger_time at) {
        m.rounds_.apply(fact.contribution, at);
    }
    static void apply_fact(machine& m, const records::pledges_rejected& fact, ledger_time at) {
        for (const auto& r : fact.contributions) m.rounds_.apply(r, at);
    }
    static void apply_fact(machine& m, const records::model_initialised& fact, ledger_time at) {
        m.books_.max_abs_weight = fact.max_abs_weight;
        m.rounds_.apply(fact.model, at);
    }
    static void apply_fact(machine& m, const records::merge_commit& fact, ledger_time at) {
        m.books_.max_abs_weight = fact.max_abs_weight;
        m.books_.last_inputs.clear();
        for (const auto& [site, p] : m.rounds_.durable().pledges) m.books_.last_inputs.push_back(p.sha256);
        std::sort(m.books_.last_inputs.begin(), m.books_.last_inputs.end());
        m.rounds_.apply(fact.model, at);
    }
    static void apply_fact(machine& m, const records::rolled_back& fact, ledger_time at) {
        m.books_.windows.clear();
        m.books_.last_inputs.clear();
        m.rounds_.apply(fact.model, at);
    }
    static void apply_fact(machine& m, const lease::events::epoch_advanced&, ledger_time) {
        m.books_.windows.clear();
        m.map_.reset();
        m.epoch_digest_.clear();
    }
    static void apply_fact(machine& m, const records::state_digest&, ledger_time) { m.books_.since_digest = 0; }

    /// The part of a fact that belongs to the books and the rounds.
    static void apply_kept(machine& m, const record& r, ledger_time at) {
        ++m.books_.since_digest;
        std::visit([&](const auto& fact) { apply_fact(m, fact, at); }, r);
    }

    // --- noting facts of a step ---------------------------------------------------------------------------------

    /// A fact whose lease part, if any, the table has applied already.
    template <class Fact>
    static void note(machine& m, step& out, Fact fact, ledger_time now) {
        out.records.emplace_back(std::move(fact));
        apply_kept(m, out.records.back(), now);
    }

    /// Turns the events of a lease outcome into records, in order. `special` makes the record of those events that are
    /// part of a larger fact; it gets the event and returns the record.
    template <class Special>
    static void note_events(machine& m, step& out, std::vector<lease::event>& events, ledger_time now,
                            Special&& special) {
        for (auto& event : events)
            std::visit(
                [&](auto& e) {
                    using event_type = std::decay_t<decltype(e)>;
                    if constexpr (std::is_invocable_v<Special, event_type&>)
                        note(m, out, special(e), now);
                    else if constexpr (std::is_same_v<event_type, lease::events::term_started>)
                        note(m, out, records::term_started{std::move(e)}, now);
                    else if constexpr (std::is_constructible_v<record, event_type>)
                        note(m, out, std::move(e), now);
                    else
                        DARLCORE_ASSERT(false && "a lease event without its larger fact");
                },
                event);
    }
    static void note_events(machine& m, step& out, std::vector<lease::event>& events, ledger_time now) {
        struct nothing_special {};
        note_events(m, out, events, now, nothing_special{});
    }

    /// Records and effects of a step of the rounds, which has applied them itself.
    static void note_rounds(machine& m, step& out, round::step&& s) {
        for (auto& r : s.records) {
            std::visit(
                [&](auto& fact) {
                    using fact_type = std::decay_t<decltype(fact)>;
                    if constexpr (std::is_constructible_v<record, fact_type>)
                        out.records.emplace_back(std::move(fact));
                    else
                        DARLCORE_ASSERT(false && "a fact of the rounds without its larger fact");
                },
                r);
            ++m.books_.since_digest;
        }
        for (auto& e : s.effects) {
            if (auto* w = std::get_if<round::wake>(&e))
                out.effects.emplace_back(effects::wake{std::move(w->site)});
            else
                out.effects.emplace_back(merge_effect(m, std::get<round::start_merge>(e)));
        }
    }

    static effects::start_merge merge_effect(const machine& m, const round::start_merge& merge) {
        effects::start_merge out{merge.next, {}, m.books_.outer, m.rounds_.durable().files};
        for (const auto& p : merge.inputs)
            out.inputs.push_back({p.site, p.id, p.sha256, p.codec, p.weight_tokens, p.steps, p.scale});
        return out;
    }

    // --- checks -------------------------------------------------------------------------------------------------

    static refusal refuse(errc code, std::string context, std::int64_t retry_after_ms = 0) {
        refusal r;
        r.code = code;
        r.context = std::move(context);
        r.retry_after_ms = retry_after_ms;
        return r;
    }

    /// Is this the current process of a registered site?
    static std::optional<refusal> check_caller(const machine& m, const caller& who) {
        const auto site = m.leases_.find_site(who.site.name);
        if (!site) return refuse(errc::unknown_site, "register this site first: POST /register");
        const auto known = m.leases_.site(*site, {});
        if (known.mode == lease::site_mode::full && known.incarnation.is_none())
            return refuse(errc::unknown_site, "the run went back to an older generation: register again");
        if (!who.incarnation.is_none() && known.incarnation != who.incarnation)
            return refuse(errc::fenced, "a newer process of this site took over: stop this one");
        return std::nullopt;
    }
    static std::optional<refusal> check_member(const machine& m, const caller& who, bool may_have_left = false) {
        if (!m.settings_.rounds) return refuse(errc::policy, "this ledger serves leases only: it has no rounds");
        if (auto refused = check_caller(m, who)) return refused;
        if (who.incarnation.is_none()) return refuse(errc::bad_request, "incarnation: rounds need protocol 2");
        const auto found = m.rounds_.durable().members.find(who.site);
        if (found == m.rounds_.durable().members.end() || !(found->second.present || may_have_left))
            return refuse(errc::unknown_site, "join the rounds first: POST /round/join");
        if (found->second.incarnation != who.incarnation)
            return refuse(errc::unknown_site, "this process has not joined the rounds yet: POST /round/join");
        return std::nullopt;
    }

    static std::optional<std::variant<contribute_reply, refusal>> answer_early(machine& m, const contribute_request& in,
                                                                               ledger_time now, step& out);

    // --- ending a step ------------------------------------------------------------------------------------------

    /// Overdue marks, close rule, stop conditions, end of the epoch; then the state digest when it is time.
    static void settle(machine& m, step& out, ledger_time now) {
        if (m.settings_.rounds) note_rounds(m, out, m.rounds_.settle(m.facts(), now));
        add_digest(m, out, now);
    }
    static void add_digest(machine& m, step& out, ledger_time now) {
        if (m.books_.since_digest < digest_every) return;
        note_tick(m, out, now);
        note(m, out, records::state_digest{m.digest()}, now);
    }
    static void note_tick(machine& m, step& out, ledger_time now) {
        auto ticked = m.leases_.apply(lease::tick{}, now);
        note_events(m, out, ticked.events, now);
        m.last_lease_tick_ = now;
    }

    /// The next epoch, if the running one is complete and there is one.
    static void advance_if_complete(machine& m, step& out, ledger_time now) {
        if (!m.leases_.epoch_complete() || m.leases_.epoch().count + 1 >= m.settings_.lease.max_epochs) return;
        lease::advance_epoch next;
        next.from = m.leases_.epoch();
        auto advanced = m.leases_.apply(next, now);
        note_events(m, out, advanced.events, now);
        if (!advanced.ok()) return;
        out.effects.emplace_back(effects::wake{std::nullopt});
    }

    template <class Reply>
    static outcome<Reply> done(step&& s, Reply reply) {
        return {std::variant<Reply, refusal>(std::in_place_index<0>, std::move(reply)), std::move(s.records),
                std::move(s.effects)};
    }
    template <class Reply>
    static outcome<Reply> refused(step&& s, refusal why) {
        return {std::variant<Reply, refusal>(std::in_place_index<1>, std::move(why)), std::move(s.records),
                std::move(s.effects)};
    }

    /// Asks for the order of the next epoch as soon as this one has nothing left to give out.
    static void prepare_next_epoch(machine& m, step& out) {
        const epoch_index next{m.leases_.epoch().count + 1};
        if (next.count >= m.settings_.lease.max_epochs || m.asked_for_ == next) return;
        if (m.leases_.counts().unassigned > 0) return;
        m.asked_for_ = next;
        out.effects.emplace_back(effects::prepare_epoch{next});
    }
    /// Deltas of older generations can never be used: what is known of them may go.
    static void forget_stale_blobs(machine& m) {
        const generation current = m.rounds_.current();
        std::erase_if(m.blobs_, [&](const auto& entry) {
            const auto& told = entry.second.metadata;
            return told && told->base_generation < current;
        });
    }

    // --- blocks and windows -------------------------------------------------------------------------------------

    static const epoch_map& map(const machine& m) {
        const epoch_index epoch = m.leases_.epoch();
        if (m.map_ && m.map_->epoch() == epoch) return *m.map_;
        if (m.next_map_ && m.next_map_->epoch() == epoch)
            m.map_ = std::exchange(m.next_map_, nullptr);
        else
            m.map_ = block_space::build(m.settings_.space, epoch).value();
        return *m.map_;
    }
    static std::uint64_t windows_of(const machine& m, const span& s) { return map(m).window_count(s); }
};

}  // namespace darlcore::ledger
