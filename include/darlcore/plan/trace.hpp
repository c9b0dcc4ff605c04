// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "darlcore/assert.hpp"

namespace darlcore::plan {

/// One finished job of a history (SWF or sacct).
struct past_job {
    std::string partition;
    double submit_s = 0;
    double start_s = 0;
    double elapsed_s = 0;
    double limit_s = 0;
    std::uint32_t nodes = 1;
};

/// Waits with weights, sorted; quantiles by cumulated weight.
class wait_distribution {
public:
    wait_distribution() = default;
    /// Preconditions (asserted): waits finite and >= 0, weights > 0.
    explicit wait_distribution(std::vector<std::pair<double, double>> waits_and_weights, bool pooled = false)
        : points_(std::move(waits_and_weights)), pooled_(pooled) {
        std::sort(points_.begin(), points_.end());
        for (const auto& [wait, weight] : points_) {
            DARLCORE_ASSERT(std::isfinite(wait) && wait >= 0 && weight > 0);
            total_ += weight;
        }
    }
    /// A distribution without spread.
    static wait_distribution constant(double wait_s) { return wait_distribution({{wait_s, 1.0}}); }

    [[nodiscard]] bool empty() const { return points_.empty(); }
    [[nodiscard]] std::size_t size() const { return points_.size(); }
    /// True when there were too few like jobs and all partitions were taken together.
    [[nodiscard]] bool pooled() const { return pooled_; }

    /// The wait at a share u in [0, 1) of the weight.
    /// Preconditions (asserted): not empty. Complexity: O(n).
    [[nodiscard]] double at(double u) const {
        DARLCORE_ASSERT(!points_.empty());
        double sum = 0;
        for (const auto& [wait, weight] : points_) {
            sum += weight;
            if (u * total_ < sum) return wait;
        }
        return points_.back().first;
    }

private:
    std::vector<std::pair<double, double>> points_;
    double total_ = 0;
    bool pooled_ = false;
};

struct trace_settings {
    double now_s = 0;
    double half_life_s = 7 * 86400.0;
    double effective_min = 20;
};

namespace detail {

/// Nearest jobs first until the effective sample suffices; equal distances come together.
inline std::vector<std::pair<double, double>> nearest(std::span<const past_job> jobs, const std::string* partition,
                                                      std::uint32_t nodes, double walltime_s, const trace_settings& t) {
    struct near {
        double distance, wait_s, weight;
    };
    std::vector<near> all;
    for (const past_job& j : jobs) {
        if (partition != nullptr && j.partition != *partition) continue;
        if (!(j.limit_s > 0) || j.start_s < j.submit_s || j.start_s > t.now_s) continue;
        const double distance = std::abs(std::log2(static_cast<double>(std::max(1U, j.nodes)) / std::max(1U, nodes))) +
                                std::abs(std::log2(j.limit_s / walltime_s));
        all.push_back(
            {distance, j.start_s - j.submit_s, std::exp2(-std::max(0.0, t.now_s - j.start_s) / t.half_life_s)});
    }
    std::stable_sort(all.begin(), all.end(), [](const near& a, const near& b) { return a.distance < b.distance; });
    std::vector<std::pair<double, double>> made;
    double sum = 0, squares = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
        const bool enough = squares > 0 && sum * sum / squares >= t.effective_min;
        if (enough && all[i].distance > all[i - 1].distance) break;
        sum += all[i].weight;
        squares += all[i].weight * all[i].weight;
        made.emplace_back(all[i].wait_s, all[i].weight);
    }
    if (squares == 0 || sum * sum / squares < t.effective_min) made.clear();
    return made;
}

}  // namespace detail

/// Waits of like jobs: nearest in log2 nodes and log2 walltime within the partition, weight halved every 7 days of age;
/// when fewer than 20 effective samples are there, all partitions are pooled (and `pooled()` says so). Empty when that
/// is not enough either. Preconditions (asserted): walltime_s > 0. Complexity: O(n log n).
inline wait_distribution waits_from_trace(std::span<const past_job> jobs, const std::string& partition,
                                          std::uint32_t nodes, double walltime_s, const trace_settings& t) {
    DARLCORE_ASSERT(walltime_s > 0);
    auto own = detail::nearest(jobs, &partition, nodes, walltime_s, t);
    if (!own.empty()) return wait_distribution(std::move(own));
    return wait_distribution(detail::nearest(jobs, nullptr, nodes, walltime_s, t), true);
}

/// Live estimate times the ratios realised / estimated of earlier predictions.
inline wait_distribution waits_from_ratios(double estimate_s,
                                           std::span<const std::pair<double, double>> estimated_and_realised) {
    std::vector<std::pair<double, double>> points;
    for (const auto& [estimated, realised] : estimated_and_realised)
        if (estimated > 0 && realised >= 0) points.emplace_back(estimate_s * realised / estimated, 1.0);
    return wait_distribution(std::move(points));
}

}  // namespace darlcore::plan
