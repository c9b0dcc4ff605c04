// SPDX-License-Identifier: Apache-2.0
// Each planted fault breaks the promise of its test; without it the same script keeps the promise.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/lease/scenario.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::lease;

struct planted_fault {
    mutant which = mutant::none;
    [[nodiscard]] bool planted(mutant m) const noexcept { return m == which; }
};
using world = basic_scenario<planted_fault>;

struct broken_assertion {};

/// True where the promise holds and no precondition of the table's parts broke on the way.
template <class Promise>
bool holds(mutant m, Promise promise) {
    const auto before = set_assertion_handler([](const assertion&) { throw broken_assertion(); });
    bool kept = false;
    try {
        kept = promise(planted_fault{m});
    } catch (const broken_assertion&) {
        kept = false;
    }
    set_assertion_handler(before);
    return kept;
}

template <class Promise>
void expect_caught(mutant m, Promise promise) {
    EXPECT_TRUE(holds(mutant::none, promise)) << "the promise does not hold without the mutant";
    EXPECT_FALSE(holds(m, promise)) << "the mutant was not caught";
}

settings whole_grants() {
    settings s;
    s.first_grant_fraction = 1;
    return s;
}
settings checkpoints() {
    settings s = whole_grants();
    s.commit_policy = commit_policy::on_checkpoint;
    return s;
}
std::uint64_t free_blocks(const world& s) { return s.table.counts().unassigned; }

/// a holds [0, 50) and reserves 40 of it, then b steals: nothing that a was told it may read.
bool theft_spares_what_was_replied(planted_fault fault) {
    world s(50, whole_grants(), fault);
    s.join("a");
    const auto mine = s.grant("a", 50);
    const position told = s.reserve("a", mine, 40).reply().reserved_end;
    s.join("b");
    const auto stolen = s.ask("b", 50);
    if (!stolen.ok() || stolen.reply().leases.empty()) return false;
    for (const auto& l : stolen.reply().leases)
        if (l.start < told) return false;
    return true;
}

TEST(lease_mutants, m01_stealing_from_done_end_is_caught) {
    expect_caught(mutant::steal_from_done_end, theft_spares_what_was_replied);
}

TEST(lease_mutants, m02_a_reserve_replied_before_its_event_is_caught) {
    expect_caught(mutant::reserve_replies_before_its_event, theft_spares_what_was_replied);
}

TEST(lease_mutants, m03_expiry_that_counts_unreserved_blocks_is_caught) {
    expect_caught(mutant::expiry_counts_unreserved, [](planted_fault fault) {
        world s(50, whole_grants(), fault);
        s.join("a");
        const auto l = s.grant("a", 50);
        s.reserve("a", l, 10);
        s.later(10000);
        s.call(expire{});
        const auto runs = s.table.suspect_runs();
        return runs.size() == 1 && runs[0].span == make_span(0, 10);
    });
}

TEST(lease_mutants, m04_a_commit_through_the_end_is_caught) {
    expect_caught(mutant::commit_through_end, [](planted_fault fault) {
        world s(50, checkpoints(), fault);
        s.join("a");
        const auto l = s.grant("a", 50);
        s.reserve("a", l, 10);
        return s.commit("a", l, 5).reply().committed_end == position{5} && s.table.counts().committed == 5;
    });
}

TEST(lease_mutants, m05_a_claim_whose_start_is_not_compared_is_caught) {
    expect_caught(mutant::pledge_from_not_compared, [](planted_fault fault) {
        world s(50, whole_grants(), fault);
        s.join("a");
        const auto l = s.grant("a", 50);
        s.reserve("a", l, 10);
        const auto out = s.pledge("a", "c1", {s.claim(l, 2, 10)});
        return !out.ok() && out.refused().code == errc::blocks_lost && s.table.counts().pledged == 0;
    });
}

TEST(lease_mutants, m06_a_rejected_contribution_that_stays_pledged_is_caught) {
    expect_caught(mutant::rejected_stays_pledged, [](planted_fault fault) {
        world s(50, whole_grants(), fault);
        s.join("a");
        const auto l = s.grant("a", 50);
        s.reserve("a", l, 10);
        s.pledge("a", "c1", {s.claim(l, 0, 10)});
        s.merge({{{"c1"}, errc::growth}});
        return s.table.counts().pledged == 0 && free_blocks(s) == 10;
    });
}

TEST(lease_mutants, m07_a_merge_result_of_a_past_generation_is_caught) {
    expect_caught(mutant::stale_resolve_accepted, [](planted_fault fault) {
        world s(50, whole_grants(), fault);
        s.join("a");
        const auto l = s.grant("a", 50);
        s.reserve("a", l, 20);
        s.pledge("a", "c1", {s.claim(l, 0, 10)});
        s.merge();
        s.pledge("a", "c2", {s.claim(l, 10, 20)});
        s.call(resolve{generation{0}, {{"c2"}}, {}});
        return s.table.generation() == generation{1} && s.table.counts().pledged == 10;
    });
}

TEST(lease_mutants, m08_a_release_that_counts_an_attempt_is_caught) {
    expect_caught(mutant::release_counts_attempt, [](planted_fault fault) {
        world s(50, whole_grants(), fault);
        s.join("a");
        s.reserve("a", s.grant("a", 50), 10);
        s.release_all("a");
        return s.table.suspect_runs().empty();
    });
}

TEST(lease_mutants, m09_expiry_on_the_deadline_itself_is_caught) {
    expect_caught(mutant::deadline_reached_expires, [](planted_fault fault) {
        world s(50, whole_grants(), fault);
        s.join("a");
        const auto l = s.grant("a", 50);
        s.now = l.deadline;
        s.call(expire{});
        if (!s.table.find_lease(l.seq)) return false;
        ++s.now.ms;
        s.call(expire{});
        return !s.table.find_lease(l.seq);
    });
}

TEST(lease_mutants, m10_a_renewal_that_shortens_is_caught) {
    expect_caught(mutant::renewal_shortens, [](planted_fault fault) {
        world s(50, whole_grants(), fault);
        s.join("a");
        const auto l = s.grant("a", 50);  // 900 s, no phase time yet
        s.beat("a", {l}, 1, 10);          // 2.5 * 10 s is below the minimum: 30 s
        return s.table.find_lease(l.seq)->deadline >= l.deadline;
    });
}

TEST(lease_mutants, m11_a_superseded_process_that_may_beat_is_caught) {
    expect_caught(mutant::superseded_may_heartbeat, [](planted_fault fault) {
        world s(50, whole_grants(), fault);
        s.join("a");
        const auto l = s.grant("a", 50);
        s.take_over("a", 2, 1);
        const auto out = s.beat("a", {l});
        return !out.ok() && out.refused().code == errc::fenced;
    });
}

TEST(lease_mutants, m12_a_token_that_is_not_compared_is_caught) {
    expect_caught(mutant::token_not_compared, [](planted_fault fault) {
        world s(50, whole_grants(), fault);
        s.join("a");
        auto l = s.grant("a", 50);
        l.term = term{9};
        const auto out = s.reserve("a", l, 10);
        return !out.ok() && out.refused().code == errc::fenced;
    });
}

TEST(lease_mutants, m13_a_late_pledge_with_one_block_gone_is_caught) {
    expect_caught(mutant::late_pledge_with_a_lost_block, [](planted_fault fault) {
        settings rules = whole_grants();
        rules.max_attempts = 0;
        world s(50, rules, fault);
        s.join("a");
        const auto l = s.grant("a", 50);
        s.reserve("a", l, 10);
        s.later(10000);
        s.join("b");
        const auto other = s.grant("b", 5);  // half of the suspect run [0, 10)
        s.release("b", other);
        const auto again = s.grant("b", 5);
        if (again.start.count >= 10 || again.start.count == 0) return false;
        const auto out = s.pledge("a", "c1", {s.claim(l, 0, 10)});
        return !out.ok() && out.refused().code == errc::blocks_lost;
    });
}

TEST(lease_mutants, m14_pledged_blocks_that_expire_are_caught) {
    expect_caught(mutant::pledged_blocks_expire, [](planted_fault fault) {
        world s(50, whole_grants(), fault);
        s.join("a");
        const auto l = s.grant("a", 50);
        s.reserve("a", l, 10);
        s.pledge("a", "c1", {s.claim(l, 0, 10)});
        s.later(100000);
        s.call(expire{});
        return s.table.state_of(position{3}) == block_state::pledged && s.table.counts().pledged == 10;
    });
}

TEST(lease_mutants, m15_a_repeated_closing_commit_that_fails_is_caught) {
    expect_caught(mutant::closed_commit_is_an_error, [](planted_fault fault) {
        world s(50, checkpoints(), fault);
        s.join("a");
        const auto l = s.grant("a", 50);
        s.reserve("a", l, 50);
        const auto first = s.commit("a", l, 50);
        const auto second = s.commit("a", l, 50);
        return first.ok() && second.ok() && first.reply() == second.reply() && second.events.empty();
    });
}

TEST(lease_mutants, m16_a_request_id_remembered_for_all_sites_is_caught) {
    expect_caught(mutant::request_id_per_server, [](planted_fault fault) {
        world s(50, whole_grants(), fault);
        s.join("a");
        s.join("b");
        s.ask("a", 5, "r1");
        const auto out = s.ask("b", 5, "r1");
        return out.ok() && !out.reply().leases.empty() && out.reply().leases[0].site == *s.table.find_site("b");
    });
}

TEST(lease_mutants, m17_a_repeated_answer_with_closed_leases_is_caught) {
    expect_caught(mutant::stale_grant_repeated, [](planted_fault fault) {
        world s(50, checkpoints(), fault);
        s.join("a");
        const auto l = s.ask("a", 5, "r1").reply().leases.at(0);
        s.reserve("a", l, l.end.count);
        s.commit("a", l, l.end.count);
        const auto again = s.ask("a", 5, "r1").reply();
        return again.status == acquire_status::drain && again.reason == acquire_reason::answered_before &&
               again.retry_after_ms == 0 && again.leases.empty();
    });
}

TEST(lease_mutants, m18_attempts_counted_per_loss_are_caught) {
    expect_caught(mutant::attempts_per_loss, [](planted_fault fault) {
        settings rules = whole_grants();
        rules.max_attempts = 2;
        world s(1, rules, fault);
        s.join("a");
        for (int i = 0; i < 2; ++i) {
            s.reserve("a", s.grant("a", 1), 1);
            s.later(10000);
            s.call(expire{});
        }
        return s.table.counts().quarantined == 0 && s.table.suspect_runs().at(0).losses == 2;
    });
}

TEST(lease_mutants, m19_an_epoch_that_advances_over_a_pledge_is_caught) {
    expect_caught(mutant::advance_with_open_pledge, [](planted_fault fault) {
        settings rules = whole_grants();
        rules.max_epochs = 2;
        world s(50, rules, fault);
        s.join("a");
        const auto l = s.grant("a", 50);
        s.reserve("a", l, 10);
        s.pledge("a", "c1", {s.claim(l, 0, 10)});
        const auto out = s.call(advance_epoch{{}, true});
        return !out.ok() && out.refused().code == errc::epoch_incomplete;
    });
}

TEST(lease_mutants, m20_a_cursor_kept_over_epochs_is_caught) {
    expect_caught(mutant::cursor_kept_over_epochs, [](planted_fault fault) {
        settings rules = checkpoints();
        rules.max_epochs = 2;
        world s(10, rules, fault);
        for (const char* name : {"a", "b"}) s.join(name);
        const auto work = [&](const char* name) {
            const auto l = s.grant(name, 5);
            s.reserve(name, l, l.end.count);
            s.commit(name, l, l.end.count);
        };
        work("a");
        while (free_blocks(s) > 0) work("b");
        return s.grant("a", 2).start == position{0} && s.table.epoch() == epoch_index{1};
    });
}

TEST(lease_mutants, m21_a_walk_that_stops_one_interval_early_is_caught) {
    expect_caught(mutant::take_stops_one_interval_early, [](planted_fault fault) {
        world s(6, checkpoints(), fault);
        s.join("a");
        std::vector<lease_record> leases;
        for (int i = 0; i < 6; ++i) leases.push_back(s.grant("a", 1));
        s.release("a", leases[0]);
        s.release("a", leases[2]);
        s.reserve("a", leases[1], 2);
        s.commit("a", leases[1], 2);  // something that counts, so that giving back is no habit
        s.release("a", leases[4]);
        return s.ask("a", 3, "", 3).reply().leases.size() == 3;
    });
}

TEST(lease_mutants, m22_a_rate_over_commit_gaps_is_caught) {
    expect_caught(mutant::rate_over_commit_gaps, [](planted_fault fault) {
        world s(100, checkpoints(), fault);
        s.join("a");
        const auto one = s.grant("a", 10);
        const auto two = s.grant("a", 10);
        s.reserve("a", one, one.end.count);
        s.reserve("a", two, two.end.count);
        s.later(100);
        s.commit("a", one, one.end.count);
        s.commit("a", two, two.end.count);
        return std::abs(s.table.site(site_number{0}, s.now).rate_blocks_per_s - 0.2) < 0.02;
    });
}

TEST(lease_mutants, m23_an_epoch_called_complete_with_pledges_is_caught) {
    expect_caught(mutant::complete_counts_pledged, [](planted_fault fault) {
        world s(10, whole_grants(), fault);
        s.join("a");
        const auto l = s.grant("a", 10);
        s.reserve("a", l, 10);
        s.pledge("a", "c1", {s.claim(l, 0, 10)});
        const auto reply = s.ask("a", 1).reply();
        return reply.status == acquire_status::drain && reply.reason == acquire_reason::pledges_outstanding &&
               reply.retry_after_ms == 5000;
    });
}

TEST(lease_mutants, m24_a_double_free_that_merges_silently_is_caught) {
    expect_caught(mutant::double_free_merges, [](planted_fault fault) {
        block_map blocks(10);
        blocks.take(make_span(0, 6));
        blocks.give_back(make_span(0, 3), fault.planted(mutant::double_free_merges));
        bool noticed = false;
        try {
            blocks.give_back(make_span(2, 5), fault.planted(mutant::double_free_merges));
        } catch (const broken_assertion&) {
            noticed = true;
        }
        return noticed;
    });
}

TEST(lease_mutants, m25_a_lease_sequence_that_restarts_is_caught) {
    expect_caught(mutant::seq_restarts, [](planted_fault fault) {
        world s(50, whole_grants(), fault);
        s.join("a");
        const auto first = s.grant("a", 5);
        s.release("a", first);
        s.restart();
        const auto second = s.grant("a", 5);
        return second.seq > first.seq && second.token() > first.token();
    });
}

TEST(lease_mutants, m26_a_hold_limit_that_heartbeats_renew_is_caught) {
    expect_caught(mutant::hold_renewed_by_heartbeats, [](planted_fault fault) {
        world s(50, whole_grants(), fault);
        s.join("a");
        s.beat("a", {}, 1, 10);
        const auto l = s.grant("a", 50);
        s.reserve("a", l, 10);
        for (int i = 0; i < 190; ++i) {  // 3800 s of beating without progress; the limit is 3600 s
            s.later(20);
            s.beat("a", {l}, 1, 10);
        }
        return !s.table.find_lease(l.seq) && s.table.counts().leased == 0;
    });
}

TEST(lease_mutants, m27_a_second_chance_for_ever_is_caught) {
    expect_caught(mutant::second_chance_for_ever, [](planted_fault fault) {
        settings rules = whole_grants();
        rules.max_attempts = 1;
        world s(1, rules, fault);
        s.join("a");
        for (int i = 0; i < 2; ++i) {
            s.reserve("a", s.grant("a", 1), 1);
            s.later(10000);
            s.call(expire{});
        }
        const auto reply = s.ask("a", 1).reply();
        return reply.status == acquire_status::epoch_complete && reply.quarantined.size() == 1;
    });
}

}  // namespace
