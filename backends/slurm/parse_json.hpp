// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/formats/json.hpp"
#include "darlcore/error.hpp"

namespace darlcore::slurm {

/// The kinds that `darl slurm parse` knows.
inline constexpr std::string_view parse_kinds[] = {"test-only",  "sacct",    "timelimit", "shape",  "squeue",
                                                   "sinfo",      "scontrol", "qos",       "submit", "array",
                                                   "start-time", "swf",      "swf-header"};

/// What the parsers make of a text, as one JSON object.
/// `options`: now_s, rc, assume_utc, requested_partition, window_start_s, window_end_s, min_jobs, stderr, grammar;
/// `args`: a shape's tokens. Errors: errc::invalid_argument for an unknown kind or an option of the wrong type.
result<json::value> parse_as_json(std::string_view kind, std::string_view text, const json::value& options,
                                  std::span<const std::string> args);

}  // namespace darlcore::slurm
