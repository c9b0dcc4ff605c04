// SPDX-License-Identifier: Apache-2.0
// Random events against the plain twin; and the mutants that must not survive.
#include <gtest/gtest.h>

#include "darlcore/random.hpp"
#include "darlcore/testing/budget.hpp"
#include "tests/round/twin.hpp"
#include "tests/round/world.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::round;
using round::testing::twin;
using round::testing::world;
using kind = twin::kind;

struct counts {
    int closes = 0, overdue = 0, silent = 0, waived = 0, limits = 0, pauses = 0, restarts = 0, failures = 0, stops = 0;
};

/// One random run of both versions, compared after every event.
struct driver {
    world w;
    twin t;
    xoshiro256 random;
    counts& seen;
    std::map<std::string, std::uint64_t> process;
    std::string trouble;

    driver(settings s, std::uint64_t seed, rule_switches rules, counts& c) : w(s), t(s), random(seed), seen(c) {
        w.m.set_rules_for_testing(rules);
        t.add(kind::restart, "", 1'000);
        w.m.restart(w.now);
    }
    std::int64_t at() const { return w.m.time(w.now).ms; }
    std::string pick_site() { return std::string(1, static_cast<char>('a' + random.below(4))); }

    void settle() {
        const bool was_merging = w.m.passing().merging;
        w.take(w.m.settle(w.facts, w.now));
        if (t.paused || t.finished()) return compare();
        t.mark_overdue(at());
        if (w.facts.epoch_complete && t.pledges().empty() && !t.merging && t.has_model && !t.anybody_trains(at()))
            t.stopping = true;
        if (t.has_model && !t.merging && at() >= t.retry_at && t.closes(w.facts, at())) t.merging = true;
        if (!was_merging && w.m.passing().merging) ++seen.closes;
        compare();
    }
    void expect(bool same, const std::string& what) {
        if (!same && trouble.empty()) trouble = what + " at " + std::to_string(w.now.ms) + " ms";
    }
    void compare() {
        expect(w.m.passing().merging == t.merging, "merging differs");
        expect(w.m.current().count == t.generation, "generation differs");
        expect((w.m.state() == phase::finished) == t.finished(), "finished differs");
        for (const auto& site : t.sites()) {
            expect(w.m.has_member({site}) == t.member(site), "membership of " + site);
            expect(w.m.has_pledged({site}) == t.pledged(site), "pledge of " + site);
            expect(is_live(w.m.durable(), w.m.passing(), w.m.limits(), {site}, w.m.time(w.now)) == t.live(site, at()),
                   "liveness of " + site);
        }
        std::set<std::string> waits;
        for (const auto& x : waits_of(w.m.durable(), w.m.passing(), w.m.limits(), w.m.rules(), w.m.time(w.now)))
            waits.insert(x.site.name);
        if (waits != t.waits(at()) && trouble.empty()) {
            std::string text = "machine waits for";
            for (const auto& n : waits) text += " " + n;
            text += ", twin for";
            for (const auto& n : t.waits(at())) text += " " + n;
            text += "; log";
            for (const auto& e : t.log)
                text += " " + std::to_string(static_cast<int>(e.what)) + e.site + "@" + std::to_string(e.at);
            expect(false, text);
        }
    }
    void join(const std::string& site, bool fresh) {
        const bool was = t.member(site);
        if (fresh || process[site] == 0) ++process[site];
        auto joined_now = w.m.join({site}, world::who(site, process[site]), world::run_pins(), "", w.now);
        w.take(std::move(*joined_now));
        if (!was || fresh) {
            t.add(kind::fresh, site, at());
            t.late[site] = 0;
        } else {
            t.add(kind::join, site, at());
        }
    }
    void poll(const std::string& site) {
        if (!t.member(site)) return;
        const bool had_duty = t.duty(site) != nullptr;
        const auto activity = random.below(4) == 0 ? site_activity::training : site_activity::idle;
        step out;
        poll_input in{{site}, world::who(site, process[site]), w.m.current(), activity, 0, 0};
        const auto answer = w.m.poll(in, w.facts, w.now, out);
        t.add(kind::poll, site, at());
        for (const auto& r : out.records)
            if (const auto* duty = std::get_if<obliged>(&r)) t.add(kind::train, site, at(), duty->due.ms, duty->waited);
        const bool fresh_duty = !out.records.empty();
        w.take(std::move(out));
        if (t.finished()) return expect(answer.action == poll_action::stop, "stop for " + site);
        expect(answer.action != poll_action::stop, "no stop for " + site);
        const bool may_train = t.has_model && !t.paused && !t.stopping && !t.merging && !t.pledged(site) &&
                               activity == site_activity::idle;
        if (answer.action == poll_action::train) expect(may_train, "train for " + site);
        if (had_duty && may_train)
            expect(answer.action == poll_action::train && !fresh_duty, "train again for " + site);
    }
    void contribute(const std::string& site) {
        const bool merging = t.merging;
        const bool allowed = t.member(site) && t.has_model && !merging && !t.finished() && !t.pledged(site);
        w.m.touch({site}, w.now);
        const contribution_id id{"c" + std::to_string(w.next_id++)};
        const bool refused = w.m.check_standing({site}, id, w.m.current()).refused.has_value();
        expect(refused == !allowed, "standing of " + site);
        if (t.member(site)) t.add(kind::call, site, at());
        if (refused) return;
        step out;
        if (random.below(6) == 0) {
            out.records.emplace_back(w.m.reject({site}, id, w.m.current(), errc::not_finite));
            t.add(kind::reject, site, at());
        } else {
            pledge p;
            p.site = {site};
            p.id = id;
            p.base = w.m.current();
            p.steps = 1 + random.below(500);
            p.phase_ms = static_cast<std::int64_t>(1 + random.below(100'000));
            p.transfer_ms = 1'000;
            p.bytes = 1'000;
            out.records.emplace_back(w.m.accept(p, w.now));
            t.add(kind::pledge, site, at());
        }
        w.m.apply(out.records.back(), w.now);
        w.take(std::move(out));
    }
    void decline(const std::string& site) {
        if (!t.member(site)) return;
        w.m.touch({site}, w.now);
        t.add(kind::call, site, at());
        const auto why = random.below(2) == 0 ? decline_reason::no_data : decline_reason::local_error;
        if (t.duty(site) != nullptr) t.add(kind::decline, site, at());
        w.take(w.m.decline({site}, w.m.current(), why, "", w.now));
    }
    void leave(const std::string& site) {
        if (!t.member(site)) return;
        w.take(w.m.leave({site}, "", w.now));
        t.add(kind::leave, site, at());
    }
    void end_merge() {
        if (!t.merging) return;
        if (random.below(4) == 0) {
            ++seen.failures;
            w.take(w.m.merge_failed("EIO", w.now));
            t.merging = false;
            const std::int64_t steps[] = {5'000, 10'000, 20'000, 40'000, 60'000};
            t.retry_at = at() + steps[std::min(t.failures, 4)];
            if (++t.failures >= static_cast<int>(t.set.merge_failures_max)) t.paused = true;
            return;
        }
        step out;
        model_files files;
        files.wire = {"wire", 1'000};
        out.records.emplace_back(w.m.merge_done(files, {}, {}));
        w.m.apply(out.records.back(), w.now);
        w.take(std::move(out));
        t.publish(at());
    }
    void set_facts() {
        w.facts.unassigned = random.below(3) == 0 ? 0 : 10;
        w.facts.stealable = random.below(2) == 0;
        w.facts.held_unpledged = random.below(2) == 0;
        w.facts.epoch_complete = random.below(40) == 0;
        if (w.facts.epoch_complete) w.facts.unassigned = 0;
    }
    void pass() {
        const std::int64_t steps[] = {0, 1, 1'000, 19'000, 20'001, 61'000, 121'000, 300'000, 7'300'000};
        w.now = w.now + steps[random.below(random.below(5) == 0 ? 9 : 5)];
    }
    void restart() {
        ++seen.restarts;
        w.m = machine(w.m.limits(), w.replayed(), w.now);
        if (!(w.m.durable() == w.replayed())) trouble = "replay differs";
        t.add(kind::restart, "", at());
        t.merging = false;
        t.retry_at = 0;
        t.failures = 0;
    }
    void operator_event() {
        switch (18 + random.below(6)) {
            case 18:
                set_facts();
                break;
            case 19:
                if (random.below(3) != 0) break;
                ++seen.pauses;
                w.take(w.m.pause("test", w.now));
                if (!t.finished()) t.paused = true;
                break;
            case 20:
                if (t.paused) t.retry_at = at(), t.failures = 0;
                w.take(w.m.resume(w.now));
                t.paused = false;
                break;
            case 21:
                if (random.below(4) == 0) restart();
                break;
            case 22:
                if (random.below(60) != 0) break;
                ++seen.stops;
                w.take(w.m.stop(stop_reason::site_operator, w.now));
                t.stopping = true;
                break;
            default:
                pass();
                break;
        }
    }
    void one_event() {
        const auto site = pick_site();
        switch (random.below(24)) {
            case 0:
                join(site, false);
                break;
            case 1:
                if (random.below(3) == 0) join(site, true);
                break;
            case 2:
            case 3:
            case 4:
            case 5:
            case 6:
                poll(site);
                break;
            case 7:
            case 8:
            case 9:
                contribute(site);
                break;
            case 10:
                decline(site);
                break;
            case 11:
                if (random.below(4) == 0) leave(site);
                break;
            case 12:
            case 13:
            case 14:
                for (const char* s : {"a", "b", "c"}) {
                    w.m.touch({s}, w.now);
                    if (t.member(s)) t.add(kind::call, s, at());
                }
                break;
            case 15:
            case 16:
            case 17:
                end_merge();
                break;
            default:
                operator_event();
                break;
        }
        settle();
        for (const auto& [name, p] : w.m.durable().participants) {
            seen.overdue += p.late ? 1 : 0;
            seen.silent += p.status == duty::open && !t.live(name.name, at()) ? 1 : 0;
        }
        if (w.m.passing().merging) {
            const auto v = close_rule(w.m.durable(), w.m.passing(), w.m.limits(), {}, w.facts, w.m.time(w.now));
            seen.waived += v.quorum_waived && w.m.durable().pledges.size() < w.m.limits().quorum ? 1 : 0;
            seen.limits += v.limit_passed ? 1 : 0;
        }
    }
    void run(int events) {
        join("a", false);
        settle();
        if (random.below(8) != 0) {
            w.init();
            t.has_model = true;
            t.add(kind::publish, "", at());
        }
        for (int i = 0; i < events && trouble.empty(); ++i) one_event();
        if (trouble.empty() && !(w.m.durable() == w.replayed())) trouble = "replay differs";
    }
};

settings random_settings(xoshiro256& random) {
    settings s;
    s.quorum = static_cast<std::uint32_t>(1 + random.below(3));
    s.lagging_rounds = static_cast<std::uint32_t>(1 + random.below(2));
    s.budget = random.below(2) == 0;
    s.unknown_phase_ms = random.below(2) == 0 ? 60'000 : 5'400'000;
    s.unknown_transfer_ms = 10'000;
    return s;
}

/// First seed whose run differs from the twin; nothing when all agree.
std::optional<std::string> first_difference(int runs, rule_switches rules, counts& seen) {
    for (int seed = 1; seed <= runs; ++seed) {
        xoshiro256 random(static_cast<std::uint64_t>(seed));
        driver d(random_settings(random), static_cast<std::uint64_t>(seed), rules, seen);
        d.run(200);
        if (!d.trouble.empty()) return "seed " + std::to_string(seed) + ": " + d.trouble;
    }
    return std::nullopt;
}

TEST(round_model, agrees_with_a_plain_twin_over_random_events) {
    counts seen;
    const auto difference = first_difference(darlcore::testing::property_runs(600), {}, seen);
    EXPECT_FALSE(difference) << *difference;
    std::cout << "closes " << seen.closes << ", overdue " << seen.overdue << ", silent " << seen.silent << ", waived "
              << seen.waived << ", limit " << seen.limits << ", pauses " << seen.pauses << ", restarts "
              << seen.restarts << ", failed merges " << seen.failures << ", stops " << seen.stops << "\n";
    for (const int n : {seen.closes, seen.overdue, seen.silent, seen.waived, seen.limits, seen.pauses, seen.restarts,
                        seen.failures, seen.stops})
        EXPECT_GT(n, 0);
}

TEST(round_mutants, without_the_silent_rule_the_model_differs) {
    counts seen;
    rule_switches rules;
    rules.silent = false;
    EXPECT_TRUE(first_difference(60, rules, seen));
}

TEST(round_mutants, without_the_quorum_waiver_the_model_differs) {
    counts seen;
    rule_switches rules;
    rules.quorum_waiver = false;
    EXPECT_TRUE(first_difference(60, rules, seen));
}

TEST(round_mutants, without_the_overdue_rule_the_model_differs) {
    counts seen;
    rule_switches rules;
    rules.overdue = false;
    EXPECT_TRUE(first_difference(60, rules, seen));
}

TEST(round_mutants, without_the_stale_check_an_old_contribution_is_taken) {
    for (const bool on : {true, false}) {
        world w;
        rule_switches rules;
        rules.stale = on;
        w.m.set_rules_for_testing(rules);
        w.join("a");
        w.init();
        w.full_round({"a"});
        const auto refused = w.m.check_standing({"a"}, {"old"}, generation{0}).refused;
        EXPECT_EQ(refused == errc::stale_generation, on);
    }
}

}  // namespace
