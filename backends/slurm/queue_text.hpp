// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/slurm/text.hpp"
#include "darlcore/error.hpp"

namespace darlcore::slurm {

/// A row of `squeue -h -o "%i|%T|%M|%D|%R"`: the last field is a node list, or a reason in parentheses.
struct queue_row {
    std::string job;
    std::string state;
    std::optional<std::int64_t> elapsed_s;
    std::optional<std::int64_t> nodes;
    std::optional<std::string> nodes_at;
    std::optional<std::string> reason;
};

/// A row of `sinfo -h -o "%P|%a|%l|%D|%t|%N"`.
struct partition_row {
    std::string partition;
    bool is_default = false;
    std::string avail;
    std::optional<std::int64_t> limit_s;
    std::int64_t nodes = 0;
    std::string state;
    std::string node_list;
};

/// One job of `scontrol -o show job`: keys in their order; absent values are listed apart.
struct job_record {
    std::vector<std::pair<std::string, std::string>> fields;
    std::vector<std::string> absent;
    std::optional<std::int64_t> run_s;
    std::optional<std::int64_t> limit_s;
};

/// A row of `sacctmgr -nP show qos format=...` with its header: names to values, empty ones left out.
using limit_row = std::map<std::string, std::string>;

template <class Row>
struct rows_answer {
    std::vector<Row> rows;
    std::size_t malformed = 0;
};

rows_answer<queue_row> parse_squeue(std::string_view text);
rows_answer<partition_row> parse_sinfo(std::string_view text);
rows_answer<job_record> parse_scontrol(std::string_view text);
rows_answer<limit_row> parse_qos(std::string_view text);

/// The job id that `sbatch` (with or without --parsable) prints.
struct submitted_job {
    std::int64_t job = 0;
    std::string cluster;
};

/// Errors: errc::parse_error when the text names no job.
result<submitted_job> parse_submit(std::string_view text);

/// An array job's tasks: "7_[1-5:2,9%3]" or "1-5:2,9%3". At most 100 000 tasks.
struct array_tasks {
    std::optional<std::int64_t> job;
    std::vector<std::int64_t> tasks;
    std::optional<std::int64_t> at_once;
};

/// Errors: errc::parse_error for anything else.
result<array_tasks> parse_array(std::string_view text);

/// A Standard Workload Format file, version 2.2: only what the planner uses.
struct swf_header {
    std::optional<std::int64_t> unix_start_s;
    std::optional<std::int64_t> procs_max;
    std::optional<std::int64_t> nodes_max;
    std::map<std::string, std::string> queues;
    std::vector<std::string> ignored;
};

struct swf_job {
    std::int64_t submit_s = 0;
    std::int64_t wait_s = 0;
    std::int64_t run_s = 0;
    std::int64_t procs = 0;
    std::int64_t limit_s = 0;
    std::int64_t queue = -1;
};

struct swf_answer {
    swf_header header;
    std::vector<swf_job> jobs;
    std::map<std::string, std::size_t> skipped;  // by reason
};

/// Reads a trace. Jobs that never ran, or whose processors or limit are not known, are skipped and counted.
swf_answer parse_swf(std::string_view text);

}  // namespace darlcore::slurm
