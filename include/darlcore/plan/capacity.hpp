// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "darlcore/assert.hpp"

namespace darlcore::plan {

/// One shape of a site as the waterfill sees it: `jobs` streams side by side, each one job or a chain of links.
/// Units: hours, units per hour and job.
struct waterfill_shape {
    std::string name;
    std::uint32_t gpus = 0;
    double units_per_h = 0;
    double wait_h = 0;  // arrival, discounted
    double walltime_h = std::numeric_limits<double>::infinity();
    double startup_h = 0;
    std::uint32_t jobs = 1;
    double link_h = 0;            // 0: one job per stream; else links of this length
    double gap_h = 0;             // between the links; 0 = back to back
    std::uint32_t links_max = 0;  // with link_h: 0 = no bound
};

/// A link with less productive time than this (4 ms) does no work: the count of such links would mean nothing.
inline constexpr double productive_min_h = 1e-6;

/// Floor that forgives the rounding of a product or quotient, so that 0.1 h at 30 units/h is 3 units.
inline double whole(double x) { return std::floor(x + 1e-9 * std::max(1.0, std::abs(x))); }

/// What a shape delivers by when: productive hours P, units N q P, and whole quanta with their finish times.
/// P(x) = k l + clamp(x - k (L + g) - c, 0, l), k = floor(x / (L + g)), l = L - c - reserve / (N q), x hours after
/// arrival. Determinism: `quanta_by` and `finish_h` agree exactly: quanta_by(t) is the largest m with finish_h(m) <= t.
/// Complexity: O(1) per call; quanta_by: O(log m) where many quanta share one representable time.
class capacity_curve {
public:
    /// Preconditions (asserted): rate, walltime and quantum positive; reserve, wait, startup and gap not negative.
    capacity_curve(const waterfill_shape& s, double reserve_units, std::uint64_t quantum)
        : arrival_h_(s.wait_h),
          rate_(static_cast<double>(s.jobs) * s.units_per_h),
          startup_h_(s.startup_h),
          quantum_(static_cast<double>(quantum)) {
        DARLCORE_ASSERT(rate_ > 0 && s.walltime_h > 0 && quantum > 0);
        DARLCORE_ASSERT(reserve_units >= 0 && s.wait_h >= 0 && s.startup_h >= 0 && s.gap_h >= 0);
        const bool chained = s.link_h > 0;
        length_h_ = chained ? std::min(s.link_h, s.walltime_h) : s.walltime_h;
        reserve_h_ = reserve_units / rate_;
        link_productive_h_ = length_h_ - startup_h_ - reserve_h_;
        if (!(link_productive_h_ > productive_min_h)) link_productive_h_ = 0;
        period_h_ = length_h_ + s.gap_h;
        const double links =
            !chained ? 1.0 : (s.links_max == 0 ? std::numeric_limits<double>::infinity() : s.links_max);
        if (link_productive_h_ > 0) cap_units_ = links * link_productive_h_ * rate_;
        const double quanta = whole(cap_units_ / quantum_);
        constexpr double most = 9007199254740992.0;  // 2^53: beyond it a count of quanta is not exact
        cap_quanta_ = quanta >= most ? std::uint64_t{1} << 53U : static_cast<std::uint64_t>(quanta);
    }

    [[nodiscard]] std::uint64_t cap_quanta() const { return cap_quanta_; }
    [[nodiscard]] double cap_units() const { return cap_units_; }
    [[nodiscard]] double arrival_h() const { return arrival_h_; }
    [[nodiscard]] double rate() const { return rate_; }
    [[nodiscard]] double reserve_h() const { return reserve_h_; }
    [[nodiscard]] double startup_h() const { return startup_h_; }
    /// Walltime of one job: that of a link, never more than the shape's own.
    [[nodiscard]] double length_h() const { return length_h_; }

    /// Productive hours in the first x hours after arrival.
    [[nodiscard]] double productive_h(double x) const {
        if (x <= 0 || link_productive_h_ <= 0) return 0;
        if (std::isinf(period_h_)) return std::max(0.0, x - startup_h_);
        const double k = std::floor(x / period_h_);
        return k * link_productive_h_ + std::clamp(x - k * period_h_ - startup_h_, 0.0, link_productive_h_);
    }

    /// Units delivered by time t, as a fluid: not rounded to quanta.
    [[nodiscard]] double units_by(double t_h) const {
        return std::min(rate_ * productive_h(t_h - arrival_h_), cap_units_);
    }

    /// When the m-th quantum is done; for m = 0 the arrival.
    /// Preconditions (asserted): m <= cap_quanta().
    [[nodiscard]] double finish_h(std::uint64_t m) const {
        DARLCORE_ASSERT(m <= cap_quanta_);
        if (m == 0) return arrival_h_;
        const double work_h = static_cast<double>(m) * quantum_ / rate_;
        const double before = links_before(work_h);
        if (before == 0) return arrival_h_ + startup_h_ + work_h;
        return arrival_h_ + before * period_h_ + startup_h_ + (work_h - before * link_productive_h_);
    }

    /// Links (or single jobs) of one stream that m quanta need.
    [[nodiscard]] double links_for(std::uint64_t m) const {
        return m == 0 ? 0 : links_before(static_cast<double>(m) * quantum_ / rate_) + 1;
    }

    /// The largest m whose finish is not after t.
    [[nodiscard]] std::uint64_t quanta_by(double t_h) const {
        const double guess = units_by(t_h) / quantum_;
        auto done = guess > 0 ? static_cast<std::uint64_t>(std::min(guess, static_cast<double>(cap_quanta_))) : 0;
        for (std::uint64_t step = 1; done > 0 && finish_h(done) > t_h; step *= 2) done -= std::min(done, step);
        std::uint64_t open = done + 1;
        for (std::uint64_t step = 1; open <= cap_quanta_ && finish_h(open) <= t_h; step *= 2) {
            done = open;
            open += std::min(step, cap_quanta_ + 1 - open);
        }
        while (open - done > 1) {
            const std::uint64_t middle = done + (open - done) / 2;
            (finish_h(middle) <= t_h ? done : open) = middle;
        }
        return done;
    }

private:
    // Full links before the one in which the last bit of work is done: a link that is filled exactly ends the work
    // itself.
    [[nodiscard]] double links_before(double work_h) const {
        if (std::isinf(link_productive_h_) || work_h <= link_productive_h_) return 0;
        return std::max(0.0, std::ceil(work_h / link_productive_h_ - 1e-9) - 1);
    }

    double arrival_h_;
    double rate_;
    double startup_h_;
    double quantum_;
    double length_h_ = 0;
    double reserve_h_ = 0;
    double link_productive_h_ = 0;
    double period_h_ = 0;
    double cap_units_ = 0;
    std::uint64_t cap_quanta_ = 0;
};

/// The smallest representable time t in [low, high] with `holds(t)`; bisects over the doubles themselves, so there is
/// no step width to choose and the answer is exact. Preconditions (asserted): 0 <= low <= high; holds(high); holds is
/// monotone. Complexity: at most 64 calls.
template <class Predicate>
double smallest_time(double low, double high, Predicate holds) {
    DARLCORE_ASSERT(low >= 0 && low <= high && holds(high));
    auto below = std::bit_cast<std::uint64_t>(low + 0.0);
    auto above = std::bit_cast<std::uint64_t>(high + 0.0);
    while (below < above) {
        const std::uint64_t middle = below + (above - below) / 2;
        if (holds(std::bit_cast<double>(middle)))
            above = middle;
        else
            below = middle + 1;
    }
    return std::bit_cast<double>(above);
}

}  // namespace darlcore::plan
