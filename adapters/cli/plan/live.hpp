// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "adapters/cli/plan/chance.hpp"
#include "adapters/cli/plan/document.hpp"
#include "darlcore/plan/estimate.hpp"

namespace darl::plan_io {

/// The input of a waterfill or a campaign with the waits of a server in its rows. A row that has a wait of its own
/// keeps it; one that the server has never probed becomes `class = "no_probe"`, one whose newest answer cannot be used
/// keeps that answer's class and age, so that it is listed with its number. What the input leaves open (walltime, GPUs,
/// nodes, arguments) is that of the probe. Without `options` a campaign takes every shape that the server knows at a
/// site of the calibration. `estimates`: GET /estimates; `probes`: GET /probes, the readings that draws are made from
/// (may be null).
/// Errors: errc::invalid_argument when the input or the answer has not the form it must have.
darlcore::result<json::value> with_estimates(json::value input, const json::value& estimates, const json::value& probes,
                                             darlcore::plan::wait_choice choice);

/// The input with the median past wait of like jobs (nodes, walltime, partition of the row) in the rows of the sites
/// that have a history, in place of the waits that stand there; flags `trace`, or `trace_pooled` where all partitions
/// were taken together. A row with too few like jobs becomes `class = "no_history"`. Past waits are real ones: they
/// are not discounted. `now_s`: the moment that ages count from; 0: the last start of each history.
/// Errors: errc::invalid_argument for a row without a walltime.
darlcore::result<json::value> with_history(json::value input, const histories& past, double now_s);

/// GET /estimates for people: waits as they would be planned with, and how earlier predictions were met.
std::string estimates_text(const json::value& estimates);

}  // namespace darl::plan_io
