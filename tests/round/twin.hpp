// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "darlcore/round/types.hpp"

namespace darlcore::round::testing {

/// A plain second version of the rounds: keeps a log of what happened and answers every question by reading it.
/// It takes the due of a duty as given (the formula has its own tests).
class twin {
public:
    enum class kind { join, fresh, leave, call, poll, train, pledge, decline, reject, overdue, publish, restart };
    struct entry {
        kind what;
        std::string site;
        std::int64_t at = 0;  // round time
        std::int64_t due = 0;
        bool waited = true;
    };

    explicit twin(settings s) : set(std::move(s)) {}

    settings set;
    std::vector<entry> log;
    bool merging = false;
    bool has_model = false;
    bool paused = false;
    bool stopping = false;
    std::uint64_t generation = 0;
    std::int64_t retry_at = 0;
    int failures = 0;
    std::map<std::string, int> late;

    void add(kind what, const std::string& site, std::int64_t at, std::int64_t due = 0, bool waited = true) {
        log.push_back({what, site, at, due, waited});
    }

    [[nodiscard]] std::set<std::string> sites() const {
        std::set<std::string> names;
        for (const auto& e : log)
            if (!e.site.empty()) names.insert(e.site);
        return names;
    }
    [[nodiscard]] const entry* last(const std::string& site, std::initializer_list<kind> kinds,
                                    std::size_t from = 0) const {
        for (std::size_t i = log.size(); i > from; --i)
            if (log[i - 1].site == site && std::find(kinds.begin(), kinds.end(), log[i - 1].what) != kinds.end())
                return &log[i - 1];
        return nullptr;
    }
    [[nodiscard]] std::size_t round_start() const {
        for (std::size_t i = log.size(); i > 0; --i)
            if (log[i - 1].what == kind::publish) return i;
        return 0;
    }
    [[nodiscard]] std::int64_t last_time(kind what) const {
        std::int64_t at = 0;
        for (const auto& e : log)
            if (e.what == what) at = e.at;
        return at;
    }
    [[nodiscard]] bool member(const std::string& site) const {
        const auto* e = last(site, {kind::join, kind::fresh, kind::leave});
        return e != nullptr && e->what != kind::leave;
    }
    [[nodiscard]] bool live(const std::string& site, std::int64_t now) const {
        if (!member(site)) return false;
        std::int64_t seen = last_time(kind::restart);
        for (const auto& e : log)
            if (e.site == site && e.what != kind::overdue && e.what != kind::reject) seen = std::max(seen, e.at);
        return now - seen <= set.live_window_ms;
    }
    [[nodiscard]] bool pledged(const std::string& site) const {
        const auto* e = last(site, {kind::pledge, kind::reject}, round_start());
        return e != nullptr && e->what == kind::pledge;
    }
    [[nodiscard]] std::vector<const entry*> pledges() const {
        std::vector<const entry*> found;
        for (const auto& site : sites())
            if (pledged(site)) found.push_back(last(site, {kind::pledge}, round_start()));
        return found;
    }
    /// The duty that is open, or nothing.
    [[nodiscard]] const entry* duty(const std::string& site) const {
        const auto* e = last(site, {kind::train, kind::pledge, kind::decline, kind::reject, kind::leave, kind::fresh},
                             round_start());
        return e != nullptr && e->what == kind::train ? e : nullptr;
    }
    /// Was asked in this round by a process that is still the current one, or answered.
    [[nodiscard]] bool asked(const std::string& site) const {
        const auto* e = last(site, {kind::train, kind::leave, kind::fresh}, round_start());
        return e != nullptr && e->what == kind::train;
    }
    [[nodiscard]] bool marked_overdue(const std::string& site) const {
        const auto* e = last(site, {kind::train, kind::overdue, kind::fresh}, round_start());
        return e != nullptr && e->what == kind::overdue;
    }
    [[nodiscard]] bool passed_its_due(const std::string& site, std::int64_t now) const {
        const auto* d = duty(site);
        if (d == nullptr || now <= d->due) return false;
        for (const auto* p : pledges())
            if (p->site != site && now <= p->at + set.overdue_gap_ms) return false;
        return true;
    }
    [[nodiscard]] bool lagging(const std::string& site) const {
        const auto found = late.find(site);
        return found != late.end() && found->second >= static_cast<int>(set.lagging_rounds);
    }
    [[nodiscard]] bool polled(const std::string& site) const {
        std::size_t from = round_start();
        for (std::size_t i = from; i < log.size(); ++i)
            if (log[i].what == kind::restart || (log[i].what == kind::fresh && log[i].site == site)) from = i;
        return last(site, {kind::poll}, from) != nullptr;
    }
    [[nodiscard]] std::set<std::string> waits(std::int64_t now) const {
        std::set<std::string> names;
        const std::int64_t fresh_until =
            std::max(last_time(kind::publish), last_time(kind::restart)) + set.keepalive_ms;
        for (const auto& site : sites()) {
            if (!live(site, now) || lagging(site)) continue;
            if (const auto* d = duty(site)) {
                if (d->waited && !marked_overdue(site)) names.insert(site);
            } else if (!asked(site) && !pledged(site) && !polled(site) && now <= fresh_until) {
                names.insert(site);
            }
        }
        return names;
    }
    [[nodiscard]] bool anybody_trains(std::int64_t now) const {
        const auto names = waits(now);
        return std::any_of(names.begin(), names.end(), [&](const auto& n) { return duty(n) != nullptr; });
    }
    [[nodiscard]] bool closes(const lease_facts& facts, std::int64_t now) const {
        const auto in = pledges();
        if (in.empty()) return false;
        if (stopping) return true;
        // a rejection that empties the list starts the limit anew
        std::int64_t first = in.front()->at;
        std::vector<const entry*> open;
        for (std::size_t i = round_start(); i < log.size(); ++i) {
            if (log[i].what == kind::pledge) open.push_back(&log[i]);
            if (log[i].what == kind::reject)
                std::erase_if(open, [&](const entry* e) { return e->site == log[i].site; });
            if (open.size() == 1 && log[i].what == kind::pledge) first = log[i].at;
        }
        if (now - first >= set.round_limit_ms) return true;
        const bool nobody_else = facts.unassigned == 0 && !facts.held_unpledged;
        return (in.size() >= set.quorum || nobody_else) && waits(now).empty();
    }
    [[nodiscard]] bool finished() const { return stopping && pledges().empty(); }

    void mark_overdue(std::int64_t now) {
        for (const auto& site : sites())
            if (live(site, now) && !marked_overdue(site) && passed_its_due(site, now)) add(kind::overdue, site, now);
    }
    void publish(std::int64_t now) {
        for (const auto& site : sites()) {
            const bool was_asked = last(site, {kind::train}, round_start()) != nullptr;
            if (was_asked && marked_overdue(site))
                ++late[site];
            else if (pledged(site))
                late[site] = 0;
            else if (!was_asked && late[site] > 0)
                ++late[site];
        }
        add(kind::publish, "", now);
        ++generation;
        merging = false;
        failures = 0;
    }
};

}  // namespace darlcore::round::testing
