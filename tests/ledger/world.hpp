// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "darlcore/ledger/machine.hpp"

namespace darlcore::ledger::testing {

/// A ledger with everything it gave out: journal, effects still to be carried out. Merges are answered by hand.
struct world {
    machine m;
    ledger_time now{1'000};
    std::vector<std::pair<record, ledger_time>> journal;
    std::vector<effect> effects;
    std::uint64_t next_id = 0;

    static run_settings small_run(std::uint64_t blocks = 20, std::uint64_t block_size = 4) {
        run_settings s;
        s.run_id = "run";
        s.space.num_samples = blocks * block_size;
        s.space.block_size = block_size;
        s.seq_len = 8;
        s.lease.answer_generations = s.round.keep_generations + s.round.answers_generations;
        return s;
    }

    template <class Request>
    auto handle(const Request& request) {
        auto out = m.handle(request, now);
        for (auto& r : out.records) journal.emplace_back(r, now);
        for (auto& e : out.effects) effects.push_back(e);
        return out;
    }

    explicit world(run_settings s = small_run()) : m(std::move(s)) {
        journal.emplace_back(m.first_record(), now);
        DARLCORE_ASSERT(m.replay(journal.back().first, now).has_value());
        start(1);
    }
    void start(std::uint32_t number) { (void)handle(start_input{term{number}}); }

    static caller who(const std::string& site, std::uint64_t process = 1) { return {{site}, {7, process}}; }
    static round::pins pins() { return {std::string(32, 'a'), "schedule", 8, {"bf16"}}; }

    void enter(const std::string& site, std::uint64_t process = 1) {
        register_request r;
        r.who = who(site, process);
        r.protocol = 2;
        r.digest = m.space_digest();
        DARLCORE_ASSERT(handle(r).ok());
        join(site, process);
    }
    void join(const std::string& site, std::uint64_t process = 1) {
        DARLCORE_ASSERT(handle(join_request{who(site, process), {}, pins(), "test"}).ok());
    }
    void init() {
        model_initialised in;
        in.layout_digest = std::string(32, 'a');
        in.files.wire = {"wire0", 1'000};
        in.max_abs_weight = 1;
        (void)handle(in);
    }
    round::poll_answer poll(const std::string& site, std::uint64_t process = 1) {
        auto out = handle(poll_request{who(site, process), m.rounds().current(), round::site_activity::idle, 0, 0});
        return out.reply();
    }
    std::vector<lease::lease_record> acquire(const std::string& site, std::uint64_t want, std::uint64_t process = 1) {
        acquire_request r;
        r.who = who(site, process);
        r.want = want;
        r.report.macro_step_s = 10;
        r.request_id = "r" + std::to_string(next_id++);
        auto out = handle(r);
        return out.ok() ? out.reply().leases.leases : std::vector<lease::lease_record>{};
    }
    position reserve(const std::string& site, const lease::lease_record& l, position through,
                     std::uint64_t process = 1) {
        auto out = handle(reserve_request{who(site, process), lease::ref_to(l), through});
        return out.ok() ? out.reply().reserved_end : l.done_end;
    }
    void store_blob(const std::string& site, const std::string& sha256, float max_abs = 0.1F) {
        blob_verified b;
        b.site = {site};
        b.sha256 = sha256;
        b.facts.bytes = 1'000;
        b.facts.scan = delta_scan{true, max_abs, 1.0};
        (void)handle(b);
    }
    contribute_request claim(const std::string& site, const std::vector<lease::lease_record>& leases,
                             std::uint64_t tokens = 100, std::uint64_t process = 1) {
        contribute_request c;
        c.who = who(site, process);
        c.id = {"c" + std::to_string(next_id++)};
        c.base = m.rounds().current();
        c.sha256 = "delta-" + c.id.text;
        c.codec = "bf16";
        c.tokens = tokens;
        c.steps = 500;
        c.phase_ms = 10'000;
        c.transfer_ms = 1'000;
        for (const auto& l : leases) c.leases.push_back({lease::ref_to(l), l.done_end, l.end});
        return c;
    }
    /// Trains all of these leases to their end and contributes them.
    outcome<contribute_reply> contribute(const std::string& site, const std::vector<lease::lease_record>& leases,
                                         std::uint64_t tokens = 100, std::uint64_t process = 1) {
        for (const auto& l : leases) reserve(site, l, l.end, process);
        const auto c = claim(site, leases, tokens, process);
        store_blob(site, c.sha256);
        return handle(c);
    }
    void heartbeat(const std::string& site, const std::vector<lease::lease_record>& leases = {},
                   std::uint64_t process = 1) {
        heartbeat_request h;
        h.who = who(site, process);
        h.report.macro_step_s = 10;
        for (const auto& l : leases) h.leases.push_back({lease::ref_to(l), std::nullopt, std::nullopt});
        (void)handle(h);
    }
    void pass(std::int64_t ms) {
        now = now + ms;
        (void)handle(tick_input{});
    }
    [[nodiscard]] bool merging() const { return m.rounds().passing().merging; }
    outcome<ok_reply> finish_merge(std::vector<round::rejected_at_merge> bad = {}) {
        merge_done in;
        in.next = generation{m.rounds().current().count + 1};
        in.files.wire = {"wire" + std::to_string(in.next.count), 1'000};
        in.rejected = std::move(bad);
        in.max_abs_weight = 1;
        return handle(in);
    }
    template <class Fact>
    [[nodiscard]] std::vector<Fact> facts_of() const {
        std::vector<Fact> found;
        for (const auto& [r, at] : journal)
            if (const auto* f = std::get_if<Fact>(&r)) found.push_back(*f);
        return found;
    }
    template <class Effect>
    [[nodiscard]] std::vector<Effect> effects_of() const {
        std::vector<Effect> found;
        for (const auto& e : effects)
            if (const auto* f = std::get_if<Effect>(&e)) found.push_back(*f);
        return found;
    }
    /// A machine made by replaying the encoded journal. Its digest must equal that of the living one.
    [[nodiscard]] result<machine> replayed() const {
        machine copy(m.settings());
        for (const auto& [r, at] : journal) {
            auto read = decode(type_number(r), encode(r));
            if (!read) return read.error();
            if (auto ok = copy.replay(*read, at); !ok) return ok.error();
        }
        return copy;
    }
};

}  // namespace darlcore::ledger::testing
