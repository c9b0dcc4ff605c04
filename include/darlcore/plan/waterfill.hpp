// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "darlcore/error.hpp"
#include "darlcore/plan/capacity.hpp"
#include "darlcore/plan/exclusion.hpp"
#include "darlcore/plan/waterfill_request.hpp"

namespace darlcore::plan {

/// Up to this many sites with minimum units every subset is tried.
inline constexpr std::size_t subset_sites_max = 12;

namespace detail {

struct open_shape {
    const waterfill_shape* shape = nullptr;
    capacity_curve curve;
};

struct open_site {
    const waterfill_site* site = nullptr;
    std::vector<open_shape> shapes;
    std::uint64_t quanta_min = 0;
    [[nodiscard]] std::uint64_t quanta_by(double t) const {
        std::uint64_t best = 0;
        for (const open_shape& s : shapes) best = std::max(best, s.curve.quanta_by(t));
        return best;
    }
    /// More than these are never needed.
    [[nodiscard]] std::uint64_t quanta_needed(std::uint64_t goal) const {
        return std::max(quanta_min, goal / site->quantum + (goal % site->quantum != 0 ? 1 : 0));
    }
    [[nodiscard]] std::uint64_t units(std::uint64_t quanta) const {
        return quanta > UINT64_MAX / site->quantum ? UINT64_MAX : quanta * site->quantum;
    }
    [[nodiscard]] std::uint64_t cap_units() const {
        std::uint64_t best = 0;
        for (const open_shape& s : shapes) best = std::max(best, s.curve.cap_quanta());
        return units(best);
    }
};

/// A solved subset: for each of its sites the shape and the quanta.
struct filled {
    double makespan_h = 0;
    std::uint64_t units = 0;
    double finish_sum_h = 0;
    std::uint64_t gpus = 0;
    struct part {
        const open_site* site = nullptr;
        const open_shape* shape = nullptr;
        std::uint64_t quanta = 0;
    };
    std::vector<part> parts;
};

inline std::uint64_t saturating_add(std::uint64_t a, std::uint64_t b) {
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

inline std::uint64_t capacity_of(std::span<const open_site* const> sites) {
    std::uint64_t sum = 0;
    for (const open_site* s : sites) sum = saturating_add(sum, s->cap_units());
    return sum;
}

/// Smallest time at which the sites together have `goal` units done and each its minimum.
inline double makespan_of(std::span<const open_site* const> sites, std::uint64_t goal) {
    double high = 0;
    for (const open_site* s : sites) {
        for (const open_shape& o : s->shapes) {
            high = std::max(high, o.curve.finish_h(std::min(o.curve.cap_quanta(), s->quanta_needed(goal))));
        }
    }
    return smallest_time(0.0, high, [&](double t) {
        std::uint64_t sum = 0;
        for (const open_site* s : sites) {
            const std::uint64_t quanta = s->quanta_by(t);
            if (quanta < s->quanta_min) return false;
            sum = saturating_add(sum, s->units(quanta));
        }
        return sum >= goal;
    });
}

/// Largest capacity at the makespan; ties: fewer GPUs, shorter wait, name in byte order.
inline const open_shape& best_shape(const open_site& s, double t) {
    const open_shape* best = &s.shapes.front();
    const auto key = [t](const open_shape& o) {
        return std::make_tuple(-static_cast<double>(o.curve.quanta_by(t)), o.shape->gpus, o.shape->wait_h,
                               o.shape->name);
    };
    for (const open_shape& o : s.shapes)
        if (key(o) < key(*best)) best = &o;
    return *best;
}

/// Gives back quanta that are not needed, latest finish first, ties by the later site id; never below a minimum. All
/// that ends after a level goes at once; each pass settles at least one site.
/// Complexity: O(sites) passes over the sites, at most 64 times each.
inline void drop_unneeded(filled& f, std::uint64_t goal) {
    std::vector<filled::part*> open;
    for (filled::part& p : f.parts) open.push_back(&p);
    std::sort(open.begin(), open.end(),
              [](const auto* a, const auto* b) { return a->site->site->site > b->site->site->site; });
    const auto keep = [&](filled::part& p, std::uint64_t quanta) {
        f.units -= (p.quanta - quanta) * p.site->site->quantum;
        p.quanta = quanta;
    };
    while (true) {
        std::erase_if(open, [&](const filled::part* p) {
            return p->quanta <= p->site->quanta_min || f.units < goal + p->site->site->quantum;
        });
        if (open.empty()) return;
        const auto kept = [](const filled::part& p, double t) {
            return std::max(p.site->quanta_min, std::min(p.quanta, p.shape->curve.quanta_by(t)));
        };
        const auto covered = [&](double t) {
            std::uint64_t given = 0;
            for (const filled::part* p : open) given += (p->quanta - kept(*p, t)) * p->site->site->quantum;
            return f.units - given >= goal;
        };
        double latest = 0;
        for (const filled::part* p : open) latest = std::max(latest, p->shape->curve.finish_h(p->quanta));
        const double level = smallest_time(0.0, latest, covered);
        for (filled::part* p : open) keep(*p, kept(*p, level));
        for (filled::part* p : open) {  // those that end at the level itself, as many as may go
            const std::uint64_t spare = (f.units - goal) / p->site->site->quantum;
            const std::uint64_t at_level = p->quanta - kept(*p, std::nextafter(level, 0.0));
            keep(*p, p->quanta - std::min(spare, at_level));
        }
    }
}

inline filled fill(std::span<const open_site* const> sites, std::uint64_t goal) {
    filled f;
    if (sites.empty()) return f;
    const double level = makespan_of(sites, goal);
    for (const open_site* s : sites) {
        const open_shape& shape = best_shape(*s, level);
        f.parts.push_back({s, &shape, std::min(s->quanta_needed(goal), shape.curve.quanta_by(level))});
        f.units += f.parts.back().quanta * s->site->quantum;
    }
    drop_unneeded(f, goal);
    for (const auto& p : f.parts) {
        if (p.quanta == 0) continue;
        const double finish = p.shape->curve.finish_h(p.quanta);
        f.makespan_h = std::max(f.makespan_h, finish);
        f.finish_sum_h += finish;
        f.gpus += p.shape->shape->gpus;
    }
    return f;
}

/// More of the wanted work first, then: makespan, total units, sum of finish times, GPUs.
inline bool better(const filled& a, const filled& b, std::uint64_t wanted) {
    const auto key = [wanted](const filled& f) {
        return std::make_tuple(wanted - std::min(f.units, wanted), f.makespan_h, f.units, f.finish_sum_h, f.gpus);
    };
    return key(a) < key(b);
}

inline filled fill_subsets(const std::vector<open_site>& sites, std::uint64_t units) {
    std::vector<const open_site*> optional_ones;
    std::vector<const open_site*> always;  // a site without a minimum may always be offered
    for (const open_site& s : sites) (s.quanta_min > 0 ? optional_ones : always).push_back(&s);
    filled best;
    for (std::uint64_t mask = 0; mask < (std::uint64_t{1} << optional_ones.size()); ++mask) {
        std::vector<const open_site*> chosen = always;
        for (std::size_t i = 0; i < optional_ones.size(); ++i)
            if ((mask >> i & 1U) != 0) chosen.push_back(optional_ones[i]);
        filled f = fill(chosen, std::min(units, capacity_of(chosen)));
        if (mask == 0 || better(f, best, units)) best = std::move(f);
    }
    return best;
}

/// Beyond the exhaustive size: fill without minima, put out the site furthest below its minimum, repeat.
/// `sites` loses its minima and must outlive the answer.
inline filled fill_dropping(std::vector<open_site>& sites, std::uint64_t units) {
    std::vector<const open_site*> chosen;
    std::vector<std::uint64_t> need;
    for (open_site& s : sites) {
        need.push_back(std::exchange(s.quanta_min, 0));
        chosen.push_back(&s);
    }
    while (true) {
        filled f = fill(chosen, std::min(units, capacity_of(chosen)));
        std::size_t worst = chosen.size();
        for (std::size_t i = 0; i < chosen.size(); ++i) {
            if (f.parts[i].quanta >= need[i]) continue;
            if (worst == chosen.size() || f.parts[i].quanta < f.parts[worst].quanta) worst = i;
        }
        if (worst == chosen.size()) return f;
        chosen.erase(chosen.begin() + static_cast<std::ptrdiff_t>(worst));
        need.erase(need.begin() + static_cast<std::ptrdiff_t>(worst));
    }
}

inline std::vector<open_site> open_sites(const waterfill_request& r, std::vector<exclusion>& excluded) {
    std::vector<open_site> open;
    for (const waterfill_site& s : r.sites) {
        open_site o;
        o.site = &s;
        o.quanta_min = s.min_units / s.quantum + (s.min_units % s.quantum != 0 ? 1 : 0);
        for (const waterfill_shape& shape : s.shapes) {
            if (r.gpus_max && shape.gpus > *r.gpus_max) {
                excluded.push_back({s.site, shape.name, exclusion_code::over_max_gpus, double(shape.gpus),
                                    "GPUs of the shape; at most " + std::to_string(*r.gpus_max) + " are allowed",
                                    "raise gpus_max or probe a smaller shape"});
                continue;
            }
            const capacity_curve curve(shape, r.reserve_units, s.quantum);
            if (curve.cap_quanta() == 0) {
                const double needed = shape.startup_h + r.reserve_units / curve.rate();
                excluded.push_back({s.site, shape.name, exclusion_code::walltime_le_startup_plus_reserve, needed,
                                    "hours of startup and reserve, which leave no room for one quantum in the walltime",
                                    "ask for a longer walltime or lower reserve_units"});
                continue;
            }
            o.shapes.push_back({&shape, curve});
        }
        if (s.shapes.empty())
            excluded.push_back({s.site,
                                {},
                                exclusion_code::no_probe,
                                0.0,
                                "shapes with a usable probe",
                                "run `darl probe run` at the site"});
        if (o.shapes.empty()) continue;
        const auto below_minimum = [&](std::uint64_t number, const char* what, const char* fix) {
            excluded.push_back(
                {s.site, {}, exclusion_code::below_min_units, double(number), what + std::to_string(s.min_units), fix});
        };
        if (s.min_units > r.units) {
            below_minimum(r.units, "units of work in all; the site's minimum is ", "lower min_units");
            continue;
        }
        if (o.cap_units() < s.min_units) {
            below_minimum(o.cap_units(), "units the site can do at most; its minimum is ",
                          "lower min_units or allow longer walltimes");
            continue;
        }
        open.push_back(std::move(o));
    }
    std::sort(open.begin(), open.end(), [](const auto& a, const auto& b) { return a.site->site < b.site->site; });
    return open;
}

inline waterfill_share share_of(const filled::part& p) {
    waterfill_share s;
    s.site = p.site->site->site;
    if (p.quanta == 0) return s;
    const waterfill_shape& shape = *p.shape->shape;
    const capacity_curve& curve = p.shape->curve;
    s.shape = shape.name;
    s.gpus = shape.gpus;
    s.units = p.quanta * p.site->site->quantum;
    s.start_h = shape.wait_h;
    s.finish_h = curve.finish_h(p.quanta);
    const double links = curve.links_for(p.quanta);
    s.jobs = static_cast<std::uint64_t>(std::min(links * shape.jobs, units_resolved));
    const double work = static_cast<double>(s.units) / curve.rate() + curve.startup_h() + curve.reserve_h();
    s.walltime_h = links > 1 ? curve.length_h() : std::min(work, curve.length_h());
    return s;
}

/// Why an admissible site got nothing.
inline exclusion left_out(const open_site& s, double makespan_h) {
    double first_h = s.shapes.front().curve.finish_h(1);
    for (const open_shape& o : s.shapes) first_h = std::min(first_h, o.curve.finish_h(1));
    if (s.site->min_units > 0 && first_h <= makespan_h)
        return {s.site->site,
                {},
                exclusion_code::below_min_units,
                first_h,
                "hours until its first unit; its share would be below min_units",
                "lower min_units"};
    return {s.site->site,
            {},
            exclusion_code::not_needed,
            first_h,
            "hours until its first unit would be done; the others end before",
            "nothing: all work is done without it"};
}

}  // namespace detail

/// Splits `units` over sites so that they end soonest, if nobody ever waits for anybody: an optimistic bound and a
/// first guess. Exact on integers: quanta are taken in order of finish time (ties: site id in byte order) until the
/// goal is covered, and those not needed are given back, latest first. Minimum units are exact over subsets up to 12
/// sites with a minimum, beyond that the furthest below its minimum is put out, and `exact` is false. Every site is
/// placed or listed in `excluded`. Errors: errc::invalid_argument naming the row. Complexity: O(shapes) times at most
/// 64, times the subsets. Source: paper section 4; differs: no largest remainder, no greedy dropping, a shape's own
/// walltime bounds its jobs.
inline result<waterfill_plan> waterfill(const waterfill_request& r) {
    if (auto ok = check(r); !ok) return ok.error();
    waterfill_plan plan;
    std::vector<detail::open_site> open = detail::open_sites(r, plan.excluded);
    const auto with_minimum = std::count_if(open.begin(), open.end(), [](const auto& s) { return s.quanta_min > 0; });
    plan.exact = static_cast<std::size_t>(with_minimum) <= subset_sites_max;
    const detail::filled f = plan.exact ? detail::fill_subsets(open, r.units) : detail::fill_dropping(open, r.units);
    plan.makespan_h = f.makespan_h;
    plan.assigned = f.units;
    plan.unassigned = r.units > f.units ? r.units - f.units : 0;
    plan.feasible = plan.unassigned == 0;
    for (const detail::open_site& s : open) {
        waterfill_share share;
        share.site = s.site->site;
        for (const auto& p : f.parts) {
            if (p.site->site != s.site || p.quanta == 0) continue;
            share = detail::share_of(p);
            plan.latest_finish_h = std::max(plan.latest_finish_h, share.finish_h + p.shape->curve.reserve_h());
        }
        if (share.units == 0) plan.excluded.push_back(detail::left_out(s, plan.makespan_h));
        plan.sites.push_back(std::move(share));
    }
    for (const waterfill_site& s : r.sites) {
        const auto same = [&](const waterfill_share& x) { return x.site == s.site; };
        if (std::none_of(plan.sites.begin(), plan.sites.end(), same)) {
            waterfill_share none;
            none.site = s.site;
            plan.sites.push_back(std::move(none));
        }
    }
    std::sort(plan.sites.begin(), plan.sites.end(), [](const auto& a, const auto& b) { return a.site < b.site; });
    return plan;
}

}  // namespace darlcore::plan
