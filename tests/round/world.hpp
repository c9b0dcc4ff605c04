// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "darlcore/round/status.hpp"

namespace darlcore::round::testing {

/// A machine with its records and effects collected, and lease facts that a test sets by hand.
struct world {
    machine m;
    lease_facts facts{100, true, false, false, false};
    ledger_time now{1'000};
    std::vector<std::pair<record, ledger_time>> journal;
    std::vector<effect> effects;
    std::uint64_t next_id = 0;

    explicit world(settings s = {}) : m(std::move(s)) {}

    static pins run_pins() { return {"layout", "schedule", 128, {"bf16", "f32"}}; }
    static incarnation who(const std::string& site, std::uint64_t n = 1) { return {site.size() + 7U, n}; }

    void take(step s) {
        for (auto& r : s.records) journal.emplace_back(std::move(r), now);
        for (auto& e : s.effects) effects.push_back(std::move(e));
    }
    void settle() { take(m.settle(facts, now)); }
    void pass(std::int64_t ms) {
        now = now + ms;
        settle();
    }
    /// Time passes while these sites keep calling.
    void pass_alive(std::int64_t ms, const std::vector<std::string>& sites) {
        const ledger_time end = now + ms;
        while (now < end) {
            now = std::min(end, now + m.limits().keepalive_ms);
            for (const auto& s : sites) m.touch({s}, now);
            settle();
        }
    }
    void join(const std::string& site, std::uint64_t n = 1) {
        auto joined_now = m.join({site}, who(site, n), run_pins(), "test", now);
        DARLCORE_ASSERT(joined_now.has_value());
        take(std::move(*joined_now));
        settle();
    }
    void init() {
        initialised fact;
        fact.layout_digest = "layout";
        fact.files.wire = {"wire0", 1'000};
        take(m.model_initialised(fact, now));
        settle();
    }
    poll_answer poll(const std::string& site, site_activity activity = site_activity::idle) {
        poll_input in;
        in.site = {site};
        in.have = m.current();
        in.activity = activity;
        step out;
        auto answer = m.poll(in, facts, now, out);
        take(std::move(out));
        settle();
        return answer;
    }
    /// Standing of a fresh contribution; when it is fine, accepts it.
    std::optional<errc> contribute(const std::string& site, std::int64_t phase_ms = 10'000, std::uint64_t steps = 500,
                                   std::optional<generation> base = {}, std::string id = {}) {
        if (id.empty()) id = "c" + std::to_string(next_id++);
        m.touch({site}, now);
        const auto stand = m.check_standing({site}, {id}, base.value_or(m.current()));
        if (stand.refused) return stand.refused;
        if (stand.answered_before) return std::nullopt;
        pledge p;
        p.site = {site};
        p.id = {id};
        p.base = base.value_or(m.current());
        p.weight_tokens = 1'000;
        p.steps = steps;
        p.phase_ms = phase_ms;
        p.transfer_ms = 1'000;
        p.bytes = 1'000;
        step out;
        out.records.emplace_back(m.accept(p, now));
        m.apply(out.records.back(), now);
        take(std::move(out));
        settle();
        return std::nullopt;
    }
    bool merging() const { return m.passing().merging; }
    void finish_merge(std::vector<rejected_at_merge> bad = {}) {
        model_files files;
        files.wire = {"wire" + std::to_string(m.current().count + 1), 1'000};
        step out;
        out.records.emplace_back(m.merge_done(files, bad, {}));
        m.apply(out.records.back(), now);
        take(std::move(out));
        settle();
    }
    /// A round that all of these sites train in and finish.
    void full_round(const std::vector<std::string>& sites, std::int64_t phase_ms = 10'000) {
        for (const auto& s : sites) poll(s);
        pass_alive(phase_ms, sites);
        for (const auto& s : sites) contribute(s, phase_ms);
        if (merging()) finish_merge();
    }
    /// The state that a replay of the journal gives.
    [[nodiscard]] durable_state replayed() const {
        durable_state s;
        for (const auto& [r, at] : journal) replay(s, m.limits(), r, at);
        return s;
    }
};

}  // namespace darlcore::round::testing
