// SPDX-License-Identifier: Apache-2.0
// One epoch in one process: sites of unequal speed lease blocks, reserve what they read, die, are replaced, steal and
// come late. Afterwards the sites' own records are audited: every block is in exactly one merged contribution.
//   lease_simulation [blocks] [sites] [seed]
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "darlcore/lease/fingerprint.hpp"
#include "darlcore/lease/table.hpp"
#include "darlcore/testing/lease_site.hpp"

namespace {

using namespace darlcore;

struct random_numbers {
    std::uint64_t seed;
    std::uint64_t drawn = 0;
    std::uint64_t operator()(std::uint64_t below) { return lease::mixer{}.add(seed).add(++drawn).value() % below; }
};

struct tally {
    std::uint64_t deaths = 0, steals = 0, expired = 0, taken_over = 0, merges = 0, events = 0;
    void add(const lease::event& e) {
        ++events;
        if (const auto* g = std::get_if<lease::events::granted>(&e)) steals += g->steals.size();
        if (const auto* x = std::get_if<lease::events::expired>(&e)) expired += x->lost.size();
        if (const auto* s = std::get_if<lease::events::superseded>(&e)) taken_over += s->lost.size();
    }
};

std::uint64_t number(const char* text, std::uint64_t least, std::uint64_t most) {
    char* end = nullptr;
    const std::uint64_t value = std::strtoull(text, &end, 10);
    if (*text == '\0' || *text == '-' || *end != '\0' || value < least || value > most) {
        std::fprintf(stderr,
                     "lease_simulation: \"blocks\" (1..1000000), \"sites\" (1..100) and \"seed\" are whole numbers\n");
        std::exit(2);
    }
    return value;
}

void merge(lease::table& table, ledger_time now, std::map<std::string, bool>& merged, tally& t) {
    lease::resolve in;
    in.base = table.generation();
    for (const auto n : table.pledging()) in.merged.push_back(table.pledge_of(n)->id);
    if (in.merged.empty()) return;
    const auto out = table.apply(in, now);
    for (const auto& e : out.events) t.add(e);
    for (const auto& id : in.merged) merged[id.text] = out.ok();
    ++t.merges;
}

}  // namespace

int main(int argc, char** argv) {
    const std::uint64_t blocks = number(argc > 1 ? argv[1] : "20000", 1, 1000000);
    const std::uint64_t count = number(argc > 2 ? argv[2] : "5", 1, 100);
    random_numbers random{number(argc > 3 ? argv[3] : "1", 0, ~std::uint64_t{0})};

    lease::settings rules;
    rules.min_ttl_s = 5;
    rules.default_ttl_s = 60;
    auto table = lease::table::create({blocks, ""}, rules).value();
    std::vector<testing::lease_site> sites;
    std::vector<std::int64_t> busy_until(count, 0);
    for (std::uint64_t n = 0; n < count; ++n) sites.emplace_back("site-" + std::to_string(n), 16 + 16 * n);

    tally t;
    std::map<std::string, bool> merged;
    ledger_time now;
    const auto sink = [&](const lease::event& e) { t.add(e); };
    for (; !table.epoch_complete() && now.ms < std::int64_t{1} << 40; now.ms += 1000) {
        for (std::uint64_t n = 0; n < count; ++n) {
            if (busy_until[n] > now.ms) continue;
            if (now.ms / 1000 < static_cast<std::int64_t>(20 * n)) continue;  // the later ones come late
            const std::int64_t wait = sites[n].step(table, now, sink);
            busy_until[n] = now.ms + wait + static_cast<std::int64_t>(random(3000 * (n + 1)));
            if (random(60) != 0) continue;
            sites[n].crash(random(2) == 0);
            ++t.deaths;
            busy_until[n] += static_cast<std::int64_t>(random(90000));
        }
        if (random(4) == 0) merge(table, now, merged, t);
    }

    std::vector<std::uint32_t> seen(blocks);
    std::uint64_t retrained = 0;
    for (const auto& site : sites)
        for (const auto& phase : site.phases()) {
            const auto it = merged.find(phase.contribution);
            for (const span s : phase.read)
                for (position p = s.start; p < s.end; ++p.count)
                    it != merged.end() && it->second ? ++seen[p.count] : ++retrained;
        }
    std::uint64_t missing = 0;
    std::uint64_t duplicates = 0;
    for (std::uint64_t p = 0; p < blocks; ++p) {
        const bool aside = table.state_of(position{p}) == lease::block_state::quarantined;
        missing += seen[p] == 0 && !aside ? 1U : 0U;
        duplicates += seen[p] > 1 || (seen[p] == 1 && aside) ? 1U : 0U;
    }
    const bool sound = table.verify().has_value() && table.epoch_complete();
    const bool pass = sound && missing == 0 && duplicates == 0;
    std::printf("%" PRIu64 " blocks, %" PRIu64 " sites, %.1f h of ledger time, %" PRIu64 " events\n", blocks, count,
                static_cast<double>(now.ms) / 3.6e6, t.events);
    std::printf("deaths %" PRIu64 ", leases expired %" PRIu64 ", taken over %" PRIu64 ", steals %" PRIu64
                ", merges %" PRIu64 ", blocks trained again after a loss %" PRIu64 "\n",
                t.deaths, t.expired, t.taken_over, t.steals, t.merges, retrained);
    std::printf("by the sites' own records: missing %" PRIu64 ", duplicates %" PRIu64 ", quarantined %" PRIu64 "\n",
                missing, duplicates, table.counts().quarantined);
    std::printf("%s\n", pass ? "PASS" : "FAIL");
    return pass ? 0 : 1;
}
