// SPDX-License-Identifier: Apache-2.0
// Many histories of the table: all interleavings of small ones, ends of epochs, rates, orders of concurrent calls.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "darlcore/testing/budget.hpp"
#include "darlcore/testing/lease_audit.hpp"
#include "darlcore/testing/lease_model.hpp"
#include "darlcore/testing/lease_site.hpp"
#include "tests/lease/scenario.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::lease;
using namespace darlcore::testing;

settings whole_grants(commit_policy policy = commit_policy::on_merge) {
    settings s;
    s.first_grant_fraction = 1;
    s.commit_policy = policy;
    return s;
}

struct splitmix {
    std::uint64_t state;
    std::uint64_t operator()(std::uint64_t below) {
        state += 0x9E3779B97F4A7C15ULL;
        std::uint64_t z = state;
        z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9ULL;
        z = (z ^ (z >> 27U)) * 0x94D049BB133111EBULL;
        return (z ^ (z >> 31U)) % below;
    }
};

// --- all interleavings of two sites and a server over three blocks ----------------------------------------------

struct small_world {
    explicit small_world(const settings& rules)
        : table(lease::table::create({3, ""}, rules).value()), mirror(table), audit(3) {}

    lease::table table;
    lease::table mirror;
    lease_audit audit;
    ledger_time now{1000};
    std::array<std::size_t, 3> next{};  // of a, b and the server
    std::array<std::uint64_t, 2> contributions{};
    std::string fault;

    static caller who(std::size_t site) { return {site_id{site == 0 ? "a" : "b"}, {7, 1}}; }

    template <class Request>
    auto call(const Request& in) {
        auto out = table.apply(in, now);
        for (const auto& e : out.events) {
            if (!mirror.replay(e, now)) fault = "an event does not replay";
            if (auto wrong = audit.event(e)) fault = *wrong;
        }
        if (mirror.digest() != table.digest()) fault = "replay gives another state";
        if (auto wrong = audit.reply(in, out, table)) fault = *wrong;
        if (auto ok = table.verify(); !ok) fault = to_text(ok.error());
        return out;
    }
    void site_step(std::size_t site, char what) {
        const auto leases = table.find_site(site == 0 ? "a" : "b")
                                ? table.leases_of(*table.find_site(site == 0 ? "a" : "b"))
                                : std::vector<lease_record>{};
        if (what == 'j') {
            register_site in;
            in.who = who(site);
            call(in);
        } else if (what == 'a') {
            acquire in;
            in.who = who(site);
            in.want = 3;
            call(in);
        } else if (what == 'r') {
            for (const auto& l : leases) call(lease::reserve{who(site), ref_to(l), position{l.reserved_end.count + 1}});
        } else if (what == 'c') {
            contribute(site, leases);
        }
    }
    void contribute(std::size_t site, const std::vector<lease_record>& leases) {
        if (table.rules().commit_policy == commit_policy::on_checkpoint) {
            for (const auto& l : leases) call(lease::commit{who(site), ref_to(l), l.reserved_end});
            return;
        }
        pledge in;
        in.who = who(site);
        in.id = {std::string(site == 0 ? "a" : "b") + std::to_string(++contributions[site])};
        in.base = table.generation();
        for (const auto& l : leases)
            if (!l.maybe_read().empty()) in.claims.push_back({ref_to(l), l.done_end, l.reserved_end});
        if (!in.claims.empty()) call(in);
    }
    void server_step(char what) {
        if (what == 'x') {
            now.ms += 100000000;
            call(expire{});
        } else if (what == 'm' && table.rules().commit_policy == commit_policy::on_merge) {
            resolve in;
            in.base = table.generation();
            for (const auto n : table.pledging()) in.merged.push_back(table.pledge_of(n)->id);
            call(in);
        } else if (what == 't') {
            call(restart{term{table.term().count + 1}});
        }
    }
    /// After the interleaving: one site works on alone; the epoch must end.
    bool drains() {
        for (int i = 0; i < 40; ++i) {
            if (table.epoch_complete()) return true;
            server_step('m');
            site_step(0, 'a');
            for (int k = 0; k < 3; ++k) site_step(0, 'r');
            site_step(0, 'c');
            if (i % 4 == 3) server_step('x');
        }
        return table.epoch_complete();
    }
};

struct interleavings {
    std::array<std::string, 3> scripts;  // of a, b, the server
    std::uint64_t walked = 0;
    std::string fault;

    void walk(const small_world& at) {
        if (!fault.empty()) return;
        bool any = false;
        for (std::size_t who = 0; who < 3; ++who) {
            if (at.next[who] == scripts[who].size()) continue;
            any = true;
            small_world then = at;
            const char what = scripts[who][then.next[who]++];
            who == 2 ? then.server_step(what) : then.site_step(who, what);
            if (!then.fault.empty()) {
                fault = then.fault;
                return;
            }
            walk(then);
        }
        if (any) return;
        ++walked;
        small_world end = at;
        if (!end.drains()) fault = "the epoch does not end";
        if (!end.fault.empty()) fault = end.fault;
    }
};

TEST(lease_walks, every_interleaving_of_two_sites_and_a_server_over_three_blocks_keeps_every_promise) {
    const bool small = property_runs(10) < 10;
    std::uint64_t walked = 0;
    for (const auto policy : {commit_policy::on_merge, commit_policy::on_checkpoint})
        for (const bool stealing : {true, false})
            for (const char* server : {"mx", "xm", "mt"}) {
                settings rules = whole_grants(policy);
                rules.allow_stealing = stealing;
                rules.steal_min_blocks = 1;
                interleavings all{{"arca", small ? "arc" : "arca", server}, 0, {}};
                small_world start(rules);
                for (const std::size_t site : {0U, 1U}) start.site_step(site, 'j');
                all.walk(start);
                ASSERT_EQ(all.fault, "") << word(policy) << " stealing " << stealing << " server " << server;
                walked += all.walked;
            }
    std::printf("%llu interleavings walked\n", static_cast<unsigned long long>(walked));
    EXPECT_GE(walked, small ? 10000U : 37800U);
}

// --- ends of epochs ---------------------------------------------------------------------------------------------

/// Runs sites that follow the client's rule until the epoch is complete; returns the steps it took, or nothing.
std::optional<int> steps_to_the_end(scenario& s, std::vector<lease_site>& sites, int limit) {
    for (int step = 1; step <= limit; ++step) {
        for (lease_site& site : sites) site.step(s.table, s.now, [&](const event& e) { s.log.emplace_back(e, s.now); });
        s.later(7);
        s.merge();
        if (s.table.epoch_complete()) return step;
    }
    return std::nullopt;
}

TEST(lease_end_of_epoch, a_last_phase_larger_than_what_is_left_ends_by_itself) {
    scenario s(25, whole_grants());
    std::vector<lease_site> sites{lease_site("a", 10)};
    EXPECT_TRUE(steps_to_the_end(s, sites, 100)) << "25 blocks in phases of 10: the last phase has 5";
    EXPECT_EQ(s.table.counts().committed, 25U);
}

TEST(lease_end_of_epoch, two_sites_that_both_hold_a_part_of_the_last_phase_end_by_themselves) {
    scenario s(30, whole_grants());
    std::vector<lease_site> sites{lease_site("a", 20), lease_site("b", 20)};
    EXPECT_TRUE(steps_to_the_end(s, sites, 200));
    EXPECT_EQ(s.table.counts().committed, 30U);
}

TEST(lease_end_of_epoch, a_last_phase_over_several_leases_ends_by_itself) {
    settings rules = whole_grants();
    rules.max_blocks = 3;
    scenario s(20, rules);
    std::vector<lease_site> sites{lease_site("a", 9), lease_site("b", 8), lease_site("c", 7)};
    EXPECT_TRUE(steps_to_the_end(s, sites, 200)) << "each phase is gathered from several grants";
    EXPECT_EQ(s.table.counts().committed, 20U);
}

TEST(lease_end_of_epoch, random_geometries_always_end) {
    const int runs = property_runs(1000);
    splitmix random{77};
    for (int run = 0; run < runs; ++run) {
        settings rules = whole_grants();
        rules.max_blocks = random(3) == 0 ? 1 + random(5) : 0;
        rules.max_leases_per_site = random(4) == 0 ? 2 : 256;
        scenario s(1 + random(120), rules);
        std::vector<lease_site> sites;
        const std::uint64_t count = 1 + random(5);
        for (std::uint64_t n = 0; n < count; ++n)
            sites.emplace_back(std::string(1, static_cast<char>('a' + n)), 1 + random(40));
        ASSERT_TRUE(steps_to_the_end(s, sites, 2000))
            << "run " << run << " with " << s.table.geometry().num_blocks << " blocks";
        ASSERT_EQ(s.table.counts().committed, s.table.geometry().num_blocks);
        ASSERT_TRUE(s.table.verify());
    }
}

/// A site that takes blocks and gives them back for ever.
void loop_of_giving_back(lease::table& t, ledger_time now) {
    const caller who{site_id{"looper"}, {7, 1}};
    register_site in;
    in.who = who;
    t.apply(in, now);
    acquire ask;
    ask.who = who;
    ask.want = 5;
    t.apply(ask, now);
    t.apply(release{who, {}, false}, now);
}

/// After any history, with every other site asleep, hanging or looping, one healthy site ends the epoch.
TEST(lease_liveness, one_healthy_site_ends_the_epoch_after_any_history) {
    const int runs = property_runs(1000);
    splitmix random{123};
    int worst = 0;
    for (int run = 0; run < runs; ++run) {
        settings rules = whole_grants();
        rules.max_attempts = static_cast<std::uint32_t>(random(4));
        rules.max_epochs = 1 + static_cast<std::uint32_t>(random(2));
        rules.allow_stealing = random(4) != 0;
        if (random(4) == 0) rules.commit_policy = commit_policy::on_checkpoint;
        const std::uint64_t blocks = 1 + random(60);
        lease_model<> model(table::create({blocks, ""}, rules).value(), 1 + static_cast<std::uint32_t>(random(5)));
        const std::uint64_t length = random(200);
        for (std::uint64_t i = 0; i < length; ++i)
            ASSERT_TRUE(model.step({static_cast<std::uint8_t>(random(256)), static_cast<std::uint8_t>(random(256)),
                                    static_cast<std::uint8_t>(random(256)), static_cast<std::uint8_t>(random(256)),
                                    static_cast<std::uint16_t>(random(65536))}))
                << *model.fault();
        lease::table t = model.table();
        ledger_time now = model.now();
        lease_site healthy("healthy", 8);
        int steps = 0;
        const int limit = 3000;
        for (; steps < limit && !healthy.finished(); ++steps) {
            const auto wait = healthy.step(t, now, [](const event&) {});
            if (steps % 2 == 0) loop_of_giving_back(t, now);
            now.ms += std::max<std::int64_t>(wait, 1000);
            resolve in;
            in.base = t.generation();
            for (const auto n : t.pledging()) in.merged.push_back(t.pledge_of(n)->id);
            if (!in.merged.empty()) t.apply(in, now);
        }
        ASSERT_LT(steps, limit) << "run " << run << ", " << blocks << " blocks";
        ASSERT_TRUE(t.verify());
        worst = std::max(worst, steps);
    }
    std::printf("at most %d steps of the healthy site\n", worst);
}

// --- rates, grants ----------------------------------------------------------------------------------------------

TEST(lease_rate, is_within_a_tenth_of_the_true_busy_rate_for_any_number_of_leases_per_commit) {
    splitmix random{5};
    for (const auto policy : {commit_policy::on_merge, commit_policy::on_checkpoint})
        for (std::uint64_t leases = 1; leases <= 6; ++leases)
            for (const double rate : {0.05, 1.0, 20.0}) {
                settings rules = whole_grants(policy);
                rules.default_ttl_s = rules.max_ttl_s;
                scenario s(100000, rules);
                s.join("a");
                for (int phase = 0; phase < 12; ++phase) {
                    std::vector<lease_record> held;
                    for (std::uint64_t i = 0; i < leases; ++i) held.push_back(s.grant("a", 50 + random(50)));
                    for (const auto& l : held) {
                        s.reserve("a", l, l.end.count);
                        s.later(static_cast<double>(l.at_risk().size()) / rate);
                    }
                    std::vector<claim> claims;
                    for (const auto& l : held) claims.push_back(s.claim(l, l.start.count, l.end.count));
                    if (policy == commit_policy::on_merge) {
                        ASSERT_TRUE(s.pledge("a", "c" + std::to_string(phase), claims).ok());
                        s.later(static_cast<double>(random(500)));  // waiting for the merge is not busy time
                        s.merge();
                    } else {
                        for (const auto& l : held) ASSERT_TRUE(s.commit("a", l, l.end.count).ok());
                        s.later(static_cast<double>(random(500)));
                    }
                }
                EXPECT_NEAR(s.table.site(site_number{0}, s.now).rate_blocks_per_s / rate, 1.0, 0.1)
                    << leases << " leases a commit at " << rate << " blocks per second, " << word(policy);
            }
}

TEST(lease_grants, never_exceed_the_pool_and_give_a_newcomer_its_fair_part) {
    splitmix random{11};
    for (int run = 0; run < property_runs(1000); ++run) {
        scenario s(1 + random(300), whole_grants());
        const std::uint64_t count = 1 + random(6);
        for (std::uint64_t n = 0; n < count; ++n) s.join(std::string(1, static_cast<char>('a' + n)));
        int released = 0;
        for (int i = 0; i < 12; ++i) {
            const std::string name(1, static_cast<char>('a' + random(count)));
            const std::uint64_t free = s.table.counts().unassigned;
            const std::uint64_t fragments = s.table.fragments();
            const std::uint64_t want = 1 + random(400);
            const auto spans = static_cast<std::uint32_t>(1 + random(4));
            const auto out = s.ask(name, want, "", spans);
            if (free == 0) break;
            std::uint64_t granted = 0;
            for (const auto& l : out.reply().leases) granted += l.at_risk().size();
            ASSERT_LE(granted, free);
            ASSERT_LE(granted, want);
            const std::uint64_t fair = std::max<std::uint64_t>(1, free / (4 * count));
            const std::uint64_t least = fragments < spans ? std::min({want, fair, free}) : 1;
            ASSERT_GE(granted, least);
            // twice at most: a site that keeps giving back gets the least
            if (random(3) == 0 && ++released <= 2) s.release(name, out.reply().leases.back());
        }
    }
}

// --- orders of concurrent calls ---------------------------------------------------------------------------------

using answer = std::variant<reserve_reply, acquire_reply, heartbeat_reply, pledge_reply, release_reply, refusal>;

template <class Target>
answer send(Target& target, const request& in, ledger_time now) {
    return std::visit(
        [&](const auto& r) -> answer {
            using type = std::decay_t<decltype(r)>;
            if constexpr (std::is_same_v<type, lease::reserve> || std::is_same_v<type, acquire> ||
                          std::is_same_v<type, heartbeat> || std::is_same_v<type, pledge> ||
                          std::is_same_v<type, release>) {
                auto out = target.apply(r, now);
                const auto pack = [](auto&& v) -> answer {
                    if (v.index() == 0) return std::get<0>(v);
                    refusal no;
                    no.code = std::get<1>(v).code;
                    return no;
                };
                if constexpr (std::is_same_v<Target, lease_twin>)
                    return pack(out);
                else
                    return pack(out.answer);
            } else {
                return refusal{};
            }
        },
        in);
}

/// True where some order of the calls, one after the other on the twin, gives the replies that were recorded.
bool is_some_order(const lease_twin& before, const std::vector<request>& calls, const std::vector<answer>& recorded,
                   ledger_time now) {
    std::vector<std::size_t> order(calls.size());
    std::iota(order.begin(), order.end(), 0);
    do {
        lease_twin twin = before;
        bool same = true;
        for (const std::size_t i : order) same = same && send(twin, calls[i], now) == recorded[i];
        if (same) return true;
    } while (std::next_permutation(order.begin(), order.end()));
    return false;
}

struct late_reserve {
    [[nodiscard]] bool planted(mutant m) const noexcept { return m == mutant::reserve_replies_before_its_event; }
};

template <class Mutation>
int histories_without_an_order(int runs) {
    splitmix random{31};
    int bad = 0;
    for (int run = 0; run < runs; ++run) {
        settings rules = whole_grants();
        rules.steal_min_blocks = 1;
        auto t = basic_table<Mutation>::create({12, ""}, rules).value();
        lease_twin twin(12, rules);
        const ledger_time now{1000};
        std::vector<caller> sites;
        for (const char* name : {"a", "b", "c"}) {
            register_site in;
            in.who = {site_id{name}, {7, 1}};
            sites.push_back(in.who);
            t.apply(in, now);
            twin.apply(in, now);
            if (sites.size() > 1) continue;
            acquire all;  // a holds everything before the others come
            all.who = in.who;
            all.want = 12;
            t.apply(all, now);
            twin.apply(all, now);
        }
        std::vector<request> calls;
        for (const auto& l : t.all_leases())
            if (random(2) == 0)
                calls.push_back(
                    lease::reserve{sites[0], ref_to(l), position{l.start.count + 1 + random(l.at_risk().size())}});
        for (std::size_t n = 1; n < 3; ++n) {
            acquire in;
            in.who = sites[n];
            in.want = 1 + random(12);
            calls.push_back(in);
        }
        for (std::size_t i = calls.size(); i > 1; --i) std::swap(calls[i - 1], calls[random(i)]);
        std::vector<answer> recorded;
        for (const request& in : calls) recorded.push_back(send(t, in, now));
        bad += is_some_order(twin, calls, recorded, now) ? 0 : 1;
    }
    return bad;
}

TEST(lease_orders, the_replies_of_concurrent_calls_are_those_of_some_order_of_them) {
    EXPECT_EQ(histories_without_an_order<no_mutation>(property_runs(1000)), 0);
    EXPECT_GT(histories_without_an_order<late_reserve>(property_runs(1000)), 0) << "the check has teeth";
}

}  // namespace
