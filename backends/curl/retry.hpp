// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "darlcore/assert.hpp"
#include "darlcore/error.hpp"

namespace darlcore::client {

/// How often and how slowly a call is tried again.
struct retry_policy {
    int tries_max = 6;
    double base = 1.5;
    double delay_max_s = 60;
};

/// Seconds to wait before try `n` + 1 when try `n` (1, 2, ...) failed: min(60, 1.5^n) * (0.5 + u), or what the server
/// asked for if that is longer. Units: seconds; `u` is uniform in [0, 1). Preconditions (asserted): n >= 1, 0 <= u < 1.
inline double retry_delay_s(int n, double u, double retry_after_s = 0, const retry_policy& policy = {}) {
    DARLCORE_ASSERT(n >= 1 && u >= 0 && u < 1);
    const double own = std::min(policy.delay_max_s, std::pow(policy.base, n)) * (0.5 + u);
    return std::max(own, retry_after_s);
}

/// May the same request be sent again after this status? Everything else of 4xx is for good.
constexpr bool is_retried(int status) {
    return status == 408 || status == 429 || status == 460 || status == 500 || status == 502 || status == 503 ||
           status == 504 || status == 507;
}

/// May the same request be sent again after this failure of the transport? The outcome of a timeout is unknown, not
/// failed: the same request id is used again.
constexpr bool is_retried(errc failure) { return failure == errc::unreachable || failure == errc::timeout; }

/// Size of upload and download parts: halves after two failures in a row, grows back after successes.
class part_sizer {
public:
    explicit part_sizer(std::uint64_t bytes_max, std::uint64_t bytes_min = std::uint64_t{1} << 20U)
        : max_(std::max<std::uint64_t>(1, bytes_max)), min_(std::min(bytes_min, max_)), now_(max_) {}
    [[nodiscard]] std::uint64_t bytes() const { return now_; }
    void failed() {
        if (++failures_ < 2) return;
        failures_ = 0;
        now_ = std::max(min_, now_ / 2);
    }
    void succeeded() {
        failures_ = 0;
        if (now_ < max_ && ++successes_ >= 4) {
            successes_ = 0;
            now_ = std::min(max_, now_ * 2);
        }
    }

private:
    std::uint64_t max_;
    std::uint64_t min_;
    std::uint64_t now_;
    int failures_ = 0;
    int successes_ = 0;
};

}  // namespace darlcore::client
