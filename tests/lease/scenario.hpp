// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "darlcore/lease/table.hpp"

/// A table with its clock and its event log: scripts of calls read like sentences.
template <class Mutation = darlcore::lease::no_mutation>
struct basic_scenario {
    using table_type = darlcore::lease::basic_table<Mutation>;

    explicit basic_scenario(std::uint64_t blocks, darlcore::lease::settings rules = {}, Mutation mutation = {})
        : start(table_type::create({blocks, ""}, rules, mutation).value()), table(start) {}

    template <class Request>
    auto call(const Request& request) {
        auto out = table.apply(request, now);
        for (const auto& e : out.events) log.emplace_back(e, now);
        return out;
    }
    void later(double seconds) { now.ms += static_cast<std::int64_t>(seconds * 1000); }

    static darlcore::lease::caller who(const std::string& name, std::uint64_t process = 1) {
        return {darlcore::site_id{name}, darlcore::incarnation{7, process}};
    }
    auto join(const std::string& name, std::uint64_t process = 1) {
        darlcore::lease::register_site in;
        in.who = who(name, process);
        return call(in);
    }
    auto join_legacy(const std::string& name) {
        darlcore::lease::register_site in;
        in.who = {darlcore::site_id{name}, {}};
        in.mode = darlcore::lease::site_mode::legacy;
        return call(in);
    }
    auto take_over(const std::string& name, std::uint64_t process, std::uint64_t old) {
        darlcore::lease::register_site in;
        in.who = who(name, process);
        in.take_over = darlcore::incarnation{7, old};
        return call(in);
    }
    auto ask(const std::string& name, std::uint64_t want, const std::string& request_id = {}, std::uint32_t spans = 4) {
        return ask(who(name), want, request_id, spans);
    }
    auto ask(const darlcore::lease::caller& caller, std::uint64_t want, const std::string& request_id = {},
             std::uint32_t spans = 4, double macro_step_s = 0) {
        darlcore::lease::acquire in;
        in.who = caller;
        in.want = want;
        in.max_spans = spans;
        in.request_id = request_id;
        in.report.macro_step_s = macro_step_s;
        return call(in);
    }
    /// The single lease of an answer that must grant exactly one.
    darlcore::lease::lease_record grant(const std::string& name, std::uint64_t want) {
        const auto out = ask(name, want);
        DARLCORE_ASSERT(out.ok() && out.reply().leases.size() == 1);
        return out.reply().leases.front();
    }
    auto reserve(const std::string& name, const darlcore::lease::lease_record& lease, std::uint64_t through,
                 std::uint64_t process = 1) {
        return call(darlcore::lease::reserve{who(name, process), ref_to(lease), darlcore::position{through}});
    }
    auto beat(const std::string& name, const std::vector<darlcore::lease::lease_record>& leases,
              std::uint64_t process = 1, double macro_step_s = 0) {
        darlcore::lease::heartbeat in;
        in.who = who(name, process);
        in.report.macro_step_s = macro_step_s;
        for (const auto& l : leases) in.leases.push_back({ref_to(l), {}, {}});
        return call(in);
    }
    auto commit(const std::string& name, const darlcore::lease::lease_record& lease, std::uint64_t through,
                std::uint64_t process = 1) {
        return call(darlcore::lease::commit{who(name, process), ref_to(lease), darlcore::position{through}});
    }
    static darlcore::lease::claim claim(const darlcore::lease::lease_record& lease, std::uint64_t from,
                                        std::uint64_t through) {
        return {ref_to(lease), darlcore::position{from}, darlcore::position{through}};
    }
    auto pledge(const std::string& name, const std::string& id, const std::vector<darlcore::lease::claim>& claims,
                std::uint64_t process = 1) {
        darlcore::lease::pledge in;
        in.who = who(name, process);
        in.id = {id};
        in.base = table.generation();
        in.claims = claims;
        return call(in);
    }
    auto reject_at_once(const std::string& name, const std::string& id,
                        const std::vector<darlcore::lease::claim>& claims) {
        darlcore::lease::pledge in;
        in.who = who(name);
        in.id = {id};
        in.base = table.generation();
        in.claims = claims;
        in.fault = darlcore::errc::not_finite;
        return call(in);
    }
    /// Merges what is pledged, except the ids that are rejected.
    auto merge(const std::vector<darlcore::lease::events::turned_down>& rejected = {}) {
        darlcore::lease::resolve in;
        in.base = table.generation();
        in.rejected = rejected;
        for (const auto n : table.pledging()) {
            const auto& id = table.pledge_of(n)->id;
            bool is_rejected = false;
            for (const auto& r : rejected) is_rejected = is_rejected || r.id == id;
            if (!is_rejected) in.merged.push_back(id);
        }
        return call(in);
    }
    auto release_all(const std::string& name, std::uint64_t process = 1) {
        darlcore::lease::release in;
        in.who = who(name, process);
        return call(in);
    }
    auto release(const std::string& name, const darlcore::lease::lease_record& lease, bool keep_reserved = false) {
        darlcore::lease::release in;
        in.who = who(name);
        in.lease = ref_to(lease);
        in.keep_reserved = keep_reserved;
        return call(in);
    }
    auto restart() { return call(darlcore::lease::restart{darlcore::term{table.term().count + 1}}); }

    /// Every event so far, replayed into a table that has seen nothing.
    darlcore::result<table_type> replayed() const {
        table_type fresh = start;
        for (const auto& [e, at] : log)
            if (auto ok = fresh.replay(e, at); !ok) return ok.error();
        return fresh;
    }

    table_type start;
    table_type table;
    darlcore::ledger_time now{1000000};
    std::vector<std::pair<darlcore::lease::event, darlcore::ledger_time>> log;
};

using scenario = basic_scenario<>;
