// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "darlcore/error.hpp"
#include "darlcore/plan/capacity.hpp"
#include "darlcore/plan/exclusion.hpp"

namespace darlcore::plan {

struct waterfill_site {
    std::string site;
    std::vector<waterfill_shape> shapes;
    std::uint64_t min_units = 0;  // in with at least this many, or out
    std::uint64_t quantum = 1;    // work comes in multiples of this
};

struct waterfill_request {
    std::uint64_t units = 0;
    double reserve_units =
        0;  // calendar slack in each job, for partners that start late; never delays the finish figure
    std::optional<std::uint32_t> gpus_max;
    std::vector<waterfill_site> sites;
};

struct waterfill_share {
    std::string site;
    std::string shape;
    std::uint32_t gpus = 0;
    std::uint64_t units = 0;
    double start_h = 0;
    double finish_h = 0;
    double walltime_h = 0;
    std::uint64_t jobs = 0;
};

struct waterfill_plan {
    bool feasible = true;
    std::uint64_t assigned = 0;
    std::uint64_t unassigned = 0;
    double makespan_h = 0;
    double latest_finish_h = 0;          // when every job also uses its reserve
    bool exact = true;                   // false: minimum units over more sites than are searched exhaustively
    std::vector<waterfill_share> sites;  // every site of the request, in byte order of the ids; units 0 = not used
    std::vector<exclusion> excluded;
};

/// More units than this, waited for or counted, are not told apart by the times that are compared.
inline constexpr double units_resolved = 1e15;
inline constexpr double hours_max = 1e6;  // a century
inline constexpr std::size_t waterfill_sites_max = 1000;

namespace detail {

/// What is wrong with a shape; nothing when it may be planned with.
inline const char* flaw_of(const waterfill_shape& s) {
    const auto hours = [](double h) { return std::isfinite(h) && h >= 0; };
    const double rate = s.units_per_h * s.jobs;
    if (!(std::isfinite(s.units_per_h) && s.units_per_h > 0)) return "units_per_h must be a positive finite number";
    if (s.jobs == 0) return "jobs must be 1 or more";
    if (!hours(s.wait_h)) return "wait_h must be a finite number, 0 or more; no wait known is not a wait of 0";
    if (!(s.walltime_h > 0)) return "walltime_h must be positive";
    if (!hours(s.startup_h)) return "startup_h must be a finite number, 0 or more";
    if (!hours(s.link_h) || !hours(s.gap_h)) return "link_h and gap_h must be finite numbers, 0 or more";
    if (std::max({s.wait_h, s.startup_h, s.link_h, s.gap_h}) > hours_max)
        return "wait_h, startup_h, link_h and gap_h must be at most 1000000 (a century)";
    if (rate * std::max(1.0, s.wait_h + s.startup_h) > units_resolved)
        return "units_per_h is too large to tell one unit from the next; count in larger units";
    if (rate < 1 / hours_max) return "units_per_h is too small: one unit would take a century; count in smaller units";
    return nullptr;
}

}  // namespace detail

/// Checks a request: positive finite rates and walltimes, finite waits >= 0, distinct sites, and numbers small enough
/// that one unit more is a later time. Errors: errc::invalid_argument naming the row (site, shape, key) and the fix.
inline result<void> check(const waterfill_request& r) {
    if (static_cast<double>(r.units) > units_resolved)
        return fail(errc::invalid_argument, "more than 1e15 units; count in larger units");
    if (!(r.reserve_units >= 0 && r.reserve_units <= units_resolved))
        return fail(errc::invalid_argument, "reserve_units must be a number from 0 to 1e15");
    if (r.sites.size() > waterfill_sites_max)
        return fail(errc::invalid_argument, "more than 1000 sites; leave out those that cannot matter");
    for (std::size_t i = 0; i < r.sites.size(); ++i) {
        const waterfill_site& s = r.sites[i];
        for (std::size_t j = 0; j < i; ++j)
            if (r.sites[j].site == s.site)
                return fail(errc::invalid_argument,
                            "site " + s.site + " is given twice; merge its shapes into one entry");
        if (s.quantum == 0 || static_cast<double>(s.quantum) > units_resolved)
            return fail(errc::invalid_argument, "site " + s.site + ": quantum must lie between 1 and 1e15");
        for (const waterfill_shape& shape : s.shapes)
            if (const char* flaw = detail::flaw_of(shape); flaw != nullptr)
                return fail(errc::invalid_argument, "site " + s.site + ", shape " + shape.name + ": " + flaw);
    }
    return {};
}

}  // namespace darlcore::plan
