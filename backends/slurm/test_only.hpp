// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "darlcore/plan/exclusion.hpp"

namespace darlcore::slurm {

/// What is known about the call besides its text.
struct test_only_options {
    std::int64_t now_s = 0;  // when the call returned
    int rc = 0;
    bool assume_utc = true;           // the child ran with TZ=UTC
    std::string requested_partition;  // empty: not known
};

inline constexpr std::int64_t past_max_s = 120;  // clock noise
inline constexpr std::int64_t ahead_max_s =
    30LL * 24 * 3600;  // beyond it the date comes from unlimited jobs, not from the queue
inline constexpr std::size_t messages_max = 20;
inline constexpr std::size_t message_bytes_max = 512;

/// What one `sbatch --test-only` said.
struct test_only_answer {
    plan::probe_class kind = plan::probe_class::outage;
    std::optional<std::int64_t> start_s;
    std::optional<std::int64_t> wait_s;  // only when accepted
    std::optional<std::int64_t> skew_s;  // start - now when that is negative
    std::optional<std::int64_t> job_id;
    std::optional<std::int64_t> processors;
    std::optional<std::string> nodes;
    std::optional<std::string> partition;
    std::optional<std::string> cluster;
    std::vector<std::int64_t> preempts;
    std::string reason;
    std::vector<std::string> messages;
    std::vector<std::string> flags;
};

/// Reads the stderr of one call. The last undecorated `Job <digits> to start at` line is the verdict; time and
/// placement are matched apart, so that a new stray word costs nothing; everything else is chatter and never read for
/// times. Promises: accepted implies now - 120 s <= start <= now + 30 d. Never throws on any text. Complexity:
/// O(bytes).
test_only_answer parse_test_only(std::string_view text, const test_only_options& options);

}  // namespace darlcore::slurm
