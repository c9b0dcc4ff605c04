// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>

namespace darlcore::http {

/// Upper bounds of latency buckets, in seconds.
inline constexpr std::array<double, 12> latency_bounds_s{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
                                                         0.05,   0.1,   0.25,   0.5,   1,    5};

/// Counts of one histogram; the last bucket holds everything above the bounds.
struct histogram {
    std::array<std::uint64_t, latency_bounds_s.size() + 1> buckets{};
    double sum_s = 0;
    std::uint64_t count = 0;

    void add(double s) {
        std::size_t i = 0;
        while (i < latency_bounds_s.size() && s > latency_bounds_s[i]) ++i;
        ++buckets[i];
        sum_s += s;
        ++count;
    }
};

/// What the service counts itself. Routes are the fixed words of the table, so the labels are bounded.
struct service_metrics {
    std::map<std::pair<std::string, int>, std::uint64_t> answers;  // by route and status
    std::map<std::string, std::uint64_t> refusals;                 // by code
    histogram latency;                                             // long polls and bodies of blobs left out

    void answered(const std::string& route, int status) { ++answers[{route, status}]; }
};

/// Blocks per second over the last 30 minutes of busy time (some lease open), so that nights and restarts do not count.
class rate_meter {
public:
    void sample(std::int64_t now_ms, bool busy, std::uint64_t done_blocks) {
        if (last_ms_ >= 0 && busy && now_ms > last_ms_) busy_ms_ += now_ms - last_ms_;
        last_ms_ = now_ms;
        if (!samples_.empty() && done_blocks < samples_.back().second) samples_.clear();  // a new epoch
        if (samples_.empty() || busy_ms_ > samples_.back().first)
            samples_.emplace_back(busy_ms_, done_blocks);
        else
            samples_.back().second = done_blocks;
        while (samples_.size() > 2 && samples_[1].first <= busy_ms_ - window_ms) samples_.pop_front();
    }
    [[nodiscard]] double blocks_per_s() const {
        if (samples_.size() < 2) return 0;
        const std::int64_t ms = samples_.back().first - samples_.front().first;
        if (ms <= 0) return 0;
        return static_cast<double>(samples_.back().second - samples_.front().second) * 1000.0 / static_cast<double>(ms);
    }

private:
    static constexpr std::int64_t window_ms = 30 * 60 * 1000;
    std::int64_t last_ms_ = -1;
    std::int64_t busy_ms_ = 0;
    std::deque<std::pair<std::int64_t, std::uint64_t>> samples_;
};

}  // namespace darlcore::http
