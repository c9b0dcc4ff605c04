// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "darlcore/error.hpp"
#include "darlcore/plan/trace.hpp"

namespace darlcore::slurm {

/// Finished jobs of a cluster, as a planner learns waits from them.
struct job_history {
    std::vector<plan::past_job> jobs;            // by start
    std::map<std::string, std::size_t> skipped;  // by reason
    double last_start_s = 0;
};

/// Reads a trace in Standard Workload Format (lines of numbers, ';' before comments; the queue's name or number is the
/// partition, processors become nodes by the header's MaxProcs and MaxNodes) or rows of `sacct -P` with Submit, Start,
/// End, Elapsed, Timelimit, NNodes, Partition and State. Jobs that never ran or have no limit are counted, not kept.
/// Errors: errc::parse_error when it is neither, or holds no usable job. Complexity: O(bytes + jobs log jobs).
result<job_history> read_history(std::string_view text);

}  // namespace darlcore::slurm
