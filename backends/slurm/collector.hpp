// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "adapters/formats/json.hpp"
#include "backends/slurm/runner.hpp"
#include "backends/slurm/shape.hpp"

namespace darlcore::slurm {

inline constexpr std::size_t shapes_max = 30;

struct probed_shape {
    std::string name;
    std::vector<std::string> args;
};

/// What a collector at one site does.
struct collector_config {
    std::string site;
    std::string account;  // of the job that will be submitted; recorded
    std::string qos;
    std::string sbatch = "sbatch";
    std::string sacct = "sacct";
    std::string scontrol = "scontrol";
    double limit_s = 60;
    double usage_limit_s = 600;
    std::int64_t usage_window_s = 168 * 3600;
    std::vector<probed_shape> shapes;
};

/// Runs a command; tests replay texts.
using command_runner = std::function<run_answer(const run_request&)>;

/// The runner of the real world: scrubbed environment of this process.
command_runner system_runner();

/// Reads site, account, qos, commands and shapes from a document (the keys of the shapes file).
/// Errors: errc::invalid_argument or errc::unknown_key naming the shape and the fix: an invalid name, a shape that is
/// not one shape, two shapes of one name, more than 30.
result<collector_config> read_collector_config(const json::value& document);

/// The exact arguments of a probe: sbatch --test-only <args of the shape> --wrap true.
std::vector<std::string> probe_argv(const collector_config& c, const probed_shape& shape);

/// One record per shape, in their order, without id. A shape whose command hangs, is missing or floods costs its own
/// record only; the time is taken when each call returns. `stop` is asked between shapes.
std::vector<json::value> probe_cycle(const collector_config& c, const command_runner& run,
                                     const std::function<bool()>& stop);

/// One record per partition of the shapes, without id; `status` says why there is none, `reason` what sacct said last
/// on stderr. A window that is too wide is halved, at most four times.
struct usage_cycle {
    std::string status;
    std::string reason;
    std::vector<json::value> records;
};
usage_cycle collect_usage(const collector_config& c, const command_runner& run, std::int64_t now_s);

/// What became of a submission: how long the job of a probed shape really waited, without id. The wait counts from the
/// time from which the job might start (--begin). The server adds what had been predicted.
/// Errors: errc::invalid_argument (no such shape, no job id), errc::unreachable (scontrol failed), errc::not_found (the
/// job is not known or has not started).
result<json::value> start_record(const collector_config& c, const std::string& shape, const std::string& job,
                                 const command_runner& run);

}  // namespace darlcore::slurm
