// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "darlcore/assert.hpp"

namespace darlcore {

/// Lower middle of the values; of an even count the lower one.
/// Preconditions (asserted): at least one value; no NaN.
inline double lower_median(std::vector<double> values) {
    DARLCORE_ASSERT(!values.empty());
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

/// The norms of the last accepted contributions: what an honest norm looks like in this phase of training.
/// A plain value: keep `values()` in a snapshot and give it to the constructor after a restart.
class norm_history {
public:
    static constexpr std::size_t capacity = 32;

    norm_history() = default;
    /// Keeps the last `capacity` of the values, oldest first.
    explicit norm_history(std::vector<double> values) : values_(std::move(values)) { trim(); }

    /// Remembers the norm of a contribution that passed every guard.
    void accept(double norm) {
        values_.push_back(norm);
        trim();
    }

    [[nodiscard]] std::size_t size() const { return values_.size(); }
    [[nodiscard]] const std::vector<double>& values() const { return values_; }

    /// Running median, once there are at least `samples_min`.
    [[nodiscard]] std::optional<double> median(std::size_t samples_min = 1) const {
        if (values_.empty() || values_.size() < samples_min) return std::nullopt;
        return lower_median(values_);
    }

    friend bool operator==(const norm_history&, const norm_history&) = default;

private:
    void trim() {
        if (values_.size() > capacity)
            values_.erase(values_.begin(), values_.end() - static_cast<std::ptrdiff_t>(capacity));
    }
    std::vector<double> values_;
};

}  // namespace darlcore
