// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <rapidcheck.h>

#include "darlcore/lease/settings.hpp"
#include "darlcore/testing/lease_model.hpp"

namespace darlcore::testing {

/// A random history with the run it happens in.
struct lease_run {
    lease::geometry geometry;
    lease::settings rules;
    std::uint32_t sites = 1;
    std::vector<lease_command> commands;

    template <class Table = lease::table>
    [[nodiscard]] Table fresh() const {
        return Table::create(geometry, rules).value();
    }
};

inline std::ostream& operator<<(std::ostream& out, const lease_command& c) {
    return out << '{' << +c.kind << ',' << +c.site << ',' << +c.pick << ',' << +c.flavour << ',' << c.amount << '}';
}
inline std::ostream& operator<<(std::ostream& out, const lease_run& r) {
    out << "M = " << r.geometry.num_blocks << ", sites = " << r.sites << ", " << word(r.rules.commit_policy)
        << ", max_attempts = " << r.rules.max_attempts << ", max_epochs = " << r.rules.max_epochs
        << ", stealing = " << r.rules.allow_stealing << '\n';
    for (const lease_command& c : r.commands) out << c << ", ";
    return out;
}

/// Settings that a run may have; small limits, so that they are met.
inline rc::Gen<lease::settings> generate_lease_settings() {
    return rc::gen::exec([] {
        lease::settings s;
        s.commit_policy = *rc::gen::weightedElement<lease::commit_policy>(
            {{3, lease::commit_policy::on_merge}, {1, lease::commit_policy::on_checkpoint}});
        s.max_attempts = *rc::gen::element<std::uint32_t>(0, 1, 1, 2, 3);
        s.max_losses = std::max<std::uint32_t>(s.max_attempts, *rc::gen::element<std::uint32_t>(2, 5, 12));
        s.quarantine_second_chance = *rc::gen::arbitrary<bool>();
        s.max_epochs = *rc::gen::element<std::uint32_t>(1, 1, 3);
        s.allow_stealing = *rc::gen::weightedElement<bool>({{5, true}, {1, false}});
        s.steal_min_blocks = *rc::gen::element<std::uint64_t>(1, 2, 5);
        s.min_blocks = *rc::gen::element<std::uint64_t>(1, 1, 1, 3);
        s.max_blocks = *rc::gen::element<std::uint64_t>(0, 0, 4);
        s.max_leases_per_site = *rc::gen::element<std::uint32_t>(256, 256, 3);
        s.request_ring = *rc::gen::element<std::uint32_t>(64, 3);
        s.default_ttl_s = *rc::gen::element(900.0, 60.0);
        return s;
    });
}

/// Histories of `length` commands in 1..300 blocks by 1..6 sites; small epochs come often, as they end often, and so do
/// middling ones, whose leases are worth stealing.
inline rc::Gen<lease_run> generate_lease_run(std::size_t length = 200) {
    // At full size always: a small one would make every byte small and every call a correct one.
    return rc::gen::resize(
        rc::kNominalSize, rc::gen::exec([length] {
            lease_run r;
            r.rules = *generate_lease_settings();
            r.geometry.num_blocks =
                *rc::gen::oneOf(rc::gen::inRange<std::uint64_t>(1, 9), rc::gen::inRange<std::uint64_t>(8, 33),
                                rc::gen::inRange<std::uint64_t>(1, 301));
            r.sites = *rc::gen::inRange<std::uint32_t>(1, 7);
            const auto byte = rc::gen::inRange<int>(0, 256);
            r.commands = *rc::gen::container<std::vector<lease_command>>(
                length, rc::gen::map(rc::gen::tuple(rc::gen::inRange<int>(0, 32), byte, byte, byte,
                                                    rc::gen::inRange<int>(0, 65536)),
                                     [](const std::tuple<int, int, int, int, int>& t) {
                                         return lease_command{static_cast<std::uint8_t>(std::get<0>(t)),
                                                              static_cast<std::uint8_t>(std::get<1>(t)),
                                                              static_cast<std::uint8_t>(std::get<2>(t)),
                                                              static_cast<std::uint8_t>(std::get<3>(t)),
                                                              static_cast<std::uint16_t>(std::get<4>(t))};
                                     }));
            return r;
        }));
}

/// How many histories reached which situation.
class lease_class_counts {
public:
    void add(const lease_history_classes& c) {
        ++runs_;
        const std::array<bool, 9> seen{c.steal_with_reserve_between,
                                       c.late_work,
                                       c.takeover_with_open_pledge,
                                       c.rejected_contribution,
                                       c.epoch_end_by_quarantine,
                                       c.replayed_request,
                                       c.second_chance,
                                       c.epoch_advanced,
                                       c.finished};
        for (std::size_t i = 0; i < seen.size(); ++i) counts_[i] += seen[i] ? 1U : 0U;
    }
    [[nodiscard]] std::uint64_t runs() const { return runs_; }
    [[nodiscard]] std::vector<std::pair<std::string, double>> shares() const {
        constexpr std::array<const char*, 9> names{"steal with reserve in between",
                                                   "late work",
                                                   "takeover with open pledge",
                                                   "rejected contribution",
                                                   "epoch end by quarantine",
                                                   "replayed request",
                                                   "second chance",
                                                   "epoch advanced",
                                                   "epoch complete"};
        std::vector<std::pair<std::string, double>> list;
        for (std::size_t i = 0; i < names.size(); ++i)
            list.emplace_back(names[i], static_cast<double>(counts_[i]) / static_cast<double>(runs_ == 0 ? 1 : runs_));
        return list;
    }
    void print() const {
        std::printf("%llu histories:\n", static_cast<unsigned long long>(runs_));
        for (const auto& [name, share] : shares()) std::printf("  %5.1f %%  %s\n", 100 * share, name.c_str());
    }

private:
    std::uint64_t runs_ = 0;
    std::array<std::uint64_t, 9> counts_{};
};

}  // namespace darlcore::testing
