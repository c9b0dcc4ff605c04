// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "darlcore/assert.hpp"
#include "darlcore/error.hpp"
#include "darlcore/plan/exclusion.hpp"

namespace darlcore::plan {

/// Below this, a share of used walltime says more about the sample than about the queue.
inline constexpr double gamma_floor = 0.05;

/// Wait after the realised-walltime discount: w * (1 - strength * (1 - max(gamma, 0.05))). Without gamma: w.
/// Units: seconds. Strength and gamma are pure numbers in [0, 1].
/// Errors: errc::invalid_argument for a wait that is not a finite number >= 0, or gamma or strength outside [0, 1].
/// Source: paper section 4; differs: the floor removes the jump between "0 = no data" and 0.0001, and gamma > 1 is
/// refused.
inline result<double> discounted_wait_s(double wait_s, std::optional<double> gamma, double strength) {
    if (!(std::isfinite(wait_s) && wait_s >= 0))
        return fail(errc::invalid_argument, "wait_s must be a finite number of seconds, 0 or more");
    if (!(strength >= 0 && strength <= 1))
        return fail(errc::invalid_argument, "the discount strength must lie between 0 and 1");
    if (!gamma) return wait_s;
    if (!(*gamma >= 0 && *gamma <= 1))
        return fail(errc::invalid_argument, "gamma (used share of the requested walltime) must lie between 0 and 1");
    return wait_s * (1.0 - strength * (1.0 - std::max(*gamma, gamma_floor)));
}

/// Quantile q of `values` by linear interpolation at q * (n - 1) of the sorted values.
/// Preconditions (asserted): at least one value, none NaN; 0 <= q <= 1.
/// Complexity: O(n log n).
inline double percentile(std::vector<double> values, double q) {
    DARLCORE_ASSERT(!values.empty());
    DARLCORE_ASSERT(q >= 0 && q <= 1);
    for (const double v : values) DARLCORE_ASSERT(!std::isnan(v));
    std::sort(values.begin(), values.end());
    const double place = q * static_cast<double>(values.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, values.size() - 1);
    const double share = place - static_cast<double>(below);
    return values[below] + share * (values[above] - values[below]);
}

/// One answer of the scheduler for one shape.
struct reading {
    std::string site;
    std::string shape;
    std::string args_digest;  // another digest = another series, never mixed
    std::string partition;
    std::uint32_t nodes = 1;
    std::uint32_t gpus = 0;
    double collected_s = 0;
    probe_class kind = probe_class::accepted;
    std::optional<double> start_s;
    std::optional<double> wait_s;
    std::string reason;
    std::vector<std::string> flags;
};

/// Which of the waits a plan uses; `choose` = now while the reading is younger than two cadences, else p50.
enum class wait_choice : std::uint8_t { choose, now, p50, p90 };

struct estimate_options {
    double now_s = 0;
    double strength = 0.5;
    std::optional<double> gamma;
    double gamma_age_s = 0;
    bool reservation_bound = false;
    wait_choice wait = wait_choice::choose;
    double cadence_s = 600;
    double window_s = 24 * 3600.0;
    double age_max_s = 6 * 3600.0;
    double gamma_age_max_s = 7 * 24 * 3600.0;
};

/// What the history of one series says. `wait_s` is what a plan uses, discounted; the raw figures stay beside it.
struct wait_estimate {
    std::string site;
    std::string shape;
    probe_class kind = probe_class::accepted;
    double age_s = 0;
    std::optional<double> raw_now_s, raw_p50_s, raw_p90_s;
    std::optional<double> wait_raw_s;  // the one chosen
    std::optional<double> wait_s;
    std::optional<double> gamma;
    bool discounted = false;
    double share_not_accepted = 0;
    std::size_t readings = 0;
    std::vector<std::string> flags;
    std::optional<exclusion> excluded;
};

/// Partitions where a reservation bounds the start: two shapes of different node count with one start and a wait > 0 in
/// one cycle. `cycle`: the readings of one pass over the shapes of one site.
inline std::vector<std::string> reservation_bound_partitions(std::span<const reading> cycle) {
    std::vector<std::string> found;
    for (std::size_t i = 0; i < cycle.size(); ++i) {
        for (std::size_t j = i + 1; j < cycle.size(); ++j) {
            const reading& a = cycle[i];
            const reading& b = cycle[j];
            const bool waits = a.wait_s.value_or(0) > 0 && b.wait_s.value_or(0) > 0;
            if (a.partition != b.partition || a.nodes == b.nodes || !waits || !a.start_s || a.start_s != b.start_s)
                continue;
            if (std::find(found.begin(), found.end(), a.partition) == found.end()) found.push_back(a.partition);
        }
    }
    return found;
}

namespace detail {

inline exclusion excluded_because(const reading& newest, double age_s, double age_max_s) {
    exclusion e{newest.site, newest.shape, exclusion_code::no_estimate, age_s, "s ago the answer was: " + newest.reason,
                {}};
    switch (newest.kind) {
        case probe_class::denied:
            e.code = exclusion_code::denied;
            e.fix = "ask the site for access to this account, partition or QOS, or correct the shape's arguments";
            return e;
        case probe_class::permanent_limit:
            e.code = exclusion_code::permanent_limit;
            e.fix = "probe a shape inside the site's limits (fewer nodes, shorter walltime)";
            return e;
        case probe_class::temporary_limit:
            e.code = exclusion_code::temporary_limit;
            e.fix = "wait until jobs of the group end, or cancel pending ones";
            return e;
        case probe_class::no_estimate:
            e.fix = "the scheduler gave no usable start; probe again later or try a smaller shape";
            return e;
        case probe_class::accepted:
        case probe_class::outage:
            break;
    }
    e.code = exclusion_code::probe_too_old;
    e.what = "age of the newest usable reading in s; the limit is " + std::to_string(static_cast<long long>(age_max_s));
    e.fix = "run `darl probe run` at the site";
    return e;
}

inline const reading* newest_usable(std::span<const reading> series) {
    const reading* best = nullptr;
    for (const reading& r : series)
        if (r.kind == probe_class::accepted && r.wait_s && (best == nullptr || r.collected_s >= best->collected_s))
            best = &r;
    return best;
}

inline const reading* newest_of(std::span<const reading> series) {
    const reading* best = nullptr;
    for (const reading& r : series)
        if (best == nullptr || r.collected_s >= best->collected_s) best = &r;
    return best;
}

inline void choose_wait(wait_estimate& e, const estimate_options& o) {
    const bool fresh = e.age_s < 2 * o.cadence_s;
    const bool use_now = o.wait == wait_choice::now || (o.wait == wait_choice::choose && (fresh || !e.raw_p50_s));
    if (use_now)
        e.wait_raw_s = e.raw_now_s;
    else
        e.wait_raw_s = o.wait == wait_choice::p90 ? e.raw_p90_s : e.raw_p50_s;
    if (!e.wait_raw_s) e.wait_raw_s = e.raw_now_s;
}

inline result<void> discount(wait_estimate& e, const estimate_options& o) {
    if (o.gamma_age_s <= o.gamma_age_max_s) e.gamma = o.gamma;
    if (o.reservation_bound) e.flags.push_back("reservation_bound");
    const bool apply = e.gamma.has_value() && !o.reservation_bound;
    const auto wait = discounted_wait_s(*e.wait_raw_s, apply ? e.gamma : std::nullopt, o.strength);
    if (!wait) return wait.error();
    e.wait_s = *wait;
    e.discounted = apply;
    return {};
}

}  // namespace detail

/// The estimate of one series: all readings of one (site, shape, args_digest), in any order.
/// A reading is a duration: it ages, but is not shifted. After an outage or a temporary limit the last good reading
/// stands while it is young enough; after any other refusal the shape is excluded.
/// Units: seconds. Errors: errc::invalid_argument when an accepted reading has no finite wait >= 0 or gamma is outside
/// [0, 1]. Preconditions (asserted): at least one reading. Complexity: O(n log n).
inline result<wait_estimate> estimate_wait(std::span<const reading> series, const estimate_options& o) {
    DARLCORE_ASSERT(!series.empty());
    const reading& newest = *detail::newest_of(series);
    wait_estimate e;
    e.site = newest.site;
    e.shape = newest.shape;
    e.kind = newest.kind;
    e.flags = newest.flags;
    std::vector<double> waits;
    std::size_t in_window = 0;
    for (const reading& r : series) {
        if (r.kind == probe_class::accepted && !(r.wait_s && std::isfinite(*r.wait_s) && *r.wait_s >= 0))
            return fail(errc::invalid_argument, "shape " + r.shape + " of site " + r.site +
                                                    ": an accepted reading needs a finite wait_s, 0 or more");
        if (o.now_s - r.collected_s > o.window_s) continue;
        ++in_window;
        if (r.kind == probe_class::accepted) waits.push_back(*r.wait_s);
    }
    e.readings = in_window;
    if (in_window > 0) e.share_not_accepted = 1.0 - static_cast<double>(waits.size()) / static_cast<double>(in_window);
    if (!waits.empty()) {
        e.raw_p50_s = percentile(waits, 0.5);
        e.raw_p90_s = percentile(waits, 0.9);
    }
    const bool keeps_last = newest.kind == probe_class::accepted || newest.kind == probe_class::outage ||
                            newest.kind == probe_class::temporary_limit;
    const reading* usable = keeps_last ? detail::newest_usable(series) : nullptr;
    e.age_s = o.now_s - (usable != nullptr ? usable->collected_s : newest.collected_s);
    if (usable == nullptr || e.age_s > o.age_max_s) {
        e.excluded = detail::excluded_because(newest, e.age_s, o.age_max_s);
        return e;
    }
    e.raw_now_s = usable->wait_s;
    detail::choose_wait(e, o);
    if (auto done = detail::discount(e, o); !done) return done.error();
    return e;
}

/// Predicted against realised waits of our own jobs: bias and spread of (realised - predicted), and how often the
/// realised wait stayed within the stated p50 and p90.
struct wait_score {
    std::size_t pairs = 0;
    double bias_s = 0;
    double spread_s = 0;  // standard deviation; 0 for one pair
    double within_p50 = 0;
    double within_p90 = 0;
};

struct wait_pair {
    double predicted_s = 0;
    double realised_s = 0;
    double p50_s = 0;
    double p90_s = 0;
};

/// Scores the predictions of one partition. Complexity: O(n). An empty history gives pairs = 0.
inline wait_score score_waits(std::span<const wait_pair> pairs) {
    wait_score s;
    s.pairs = pairs.size();
    if (pairs.empty()) return s;
    const auto n = static_cast<double>(pairs.size());
    for (const wait_pair& p : pairs) {
        s.bias_s += (p.realised_s - p.predicted_s) / n;
        s.within_p50 += (p.realised_s <= p.p50_s ? 1.0 : 0.0) / n;
        s.within_p90 += (p.realised_s <= p.p90_s ? 1.0 : 0.0) / n;
    }
    double squares = 0;
    for (const wait_pair& p : pairs) {
        const double off = p.realised_s - p.predicted_s - s.bias_s;
        squares += off * off;
    }
    if (pairs.size() > 1) s.spread_s = std::sqrt(squares / (n - 1));
    return s;
}

}  // namespace darlcore::plan
