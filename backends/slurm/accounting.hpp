// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "darlcore/plan/usage.hpp"

namespace darlcore::slurm {

struct sacct_options {
    std::int64_t window_start_s = 0;
    std::int64_t window_end_s = INT64_MAX;
    std::size_t jobs_min = 30;
    int rc = 0;
    bool timed_out = false;
    std::string stderr_text;  // never merged with the rows
};

enum class sacct_status : std::uint8_t { ok, no_jobs, outage, shrink_window, bad_output };
std::string_view word(sacct_status s);

/// One job that counts, with what a trace needs besides.
struct accounted_job {
    std::string partition;
    plan::used_job used;
    std::int64_t start_s = 0;
    std::int64_t end_s = 0;
    std::optional<std::int64_t> submit_s;
};

/// The rows of one sacct call, judged. `skipped`: how many rows were left out, by reason.
struct sacct_answer {
    sacct_status status = sacct_status::bad_output;
    std::vector<accounted_job> jobs;
    std::map<std::string, std::size_t> skipped;
    plan::usage_ratio all;
    std::map<std::string, plan::usage_ratio> by_partition;
    std::size_t users = 0;  // distinct, when the column is there; the names are dropped
    std::vector<std::string> flags;
};

/// Reads the stdout of sacct -P. The header names the columns and must be there. Selected on end time inside the
/// window. Never throws on any text: odd rows are counted. Complexity: O(bytes + jobs log jobs).
sacct_answer parse_sacct(std::string_view text, const sacct_options& options);

}  // namespace darlcore::slurm
