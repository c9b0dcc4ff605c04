// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
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
inline constexpr double hours_max = 1e6;

/// Checks a request: positive finite rates and walltimes, finite waits >= 0, distinct sites.
/// Errors: errc::invalid_argument naming the row (site, shape, key) and the fix.
inline result<void> check(const waterfill_request& r) {
    if (static_cast<double>(r.units) > units_resolved)
        return fail(errc::invalid_argument, "more than 1e15 units; count in larger units");
    if (!(std::isfinite(r.reserve_units) && r.reserve_units >= 0))
        return fail(errc::invalid_argument, "reserve_units must be a finite number, 0 or more");
    for (std::size_t i = 0; i < r.sites.size(); ++i) {
        const waterfill_site& s = r.sites[i];
        for (std::size_t j = 0; j < i; ++j)
            if (r.sites[j].site == s.site)
                return fail(errc::invalid_argument,
                            "site " + s.site + " is given twice; merge its shapes into one entry");
        if (s.quantum == 0) return fail(errc::invalid_argument, "site " + s.site + ": quantum must be 1 or more");
        for (const waterfill_shape& shape : s.shapes) {
            const std::string row = "site " + s.site + ", shape " + shape.name + ": ";
            if (!(std::isfinite(shape.units_per_h) && shape.units_per_h > 0))
                return fail(errc::invalid_argument, row + "units_per_h must be a positive finite number");
            if (!(std::isfinite(shape.wait_h) && shape.wait_h >= 0))
                return fail(errc::invalid_argument,
                            row + "wait_h must be a finite number, 0 or more; no wait known is not a wait of 0");
            if (!(shape.walltime_h > 0)) return fail(errc::invalid_argument, row + "walltime_h must be positive");
            if (!(std::isfinite(shape.startup_h) && shape.startup_h >= 0))
                return fail(errc::invalid_argument, row + "startup_h must be a finite number, 0 or more");
            if (!(std::isfinite(shape.link_h) && shape.link_h >= 0 && std::isfinite(shape.gap_h) && shape.gap_h >= 0))
                return fail(errc::invalid_argument, row + "link_h and gap_h must be finite numbers, 0 or more");
            if (shape.jobs == 0) return fail(errc::invalid_argument, row + "jobs must be 1 or more");
            if (shape.wait_h > hours_max || shape.startup_h > hours_max)
                return fail(errc::invalid_argument, row + "wait_h and startup_h must be at most 1000000 (a century)");
            if (shape.units_per_h * shape.jobs * (shape.wait_h + shape.startup_h) > units_resolved)
                return fail(errc::invalid_argument,
                            row + "units_per_h is too large to tell one unit from the next; count in larger units");
        }
    }
    return {};
}

}  // namespace darlcore::plan
