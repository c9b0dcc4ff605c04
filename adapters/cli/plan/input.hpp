// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "adapters/cli/plan/document.hpp"
#include "darlcore/plan/campaign.hpp"
#include "darlcore/plan/exclusion.hpp"
#include "darlcore/plan/waterfill.hpp"

namespace darl::plan_io {

/// What a plan was told about one shape's queue.
struct reading_row {
    std::string site;
    std::string shape;
    std::optional<double> wait_raw_s;
    std::optional<double> wait_s;
    std::optional<double> gamma;
    bool discounted = false;
    std::optional<double> age_s;
    std::string kind = "accepted";
    std::vector<std::string> flags;
};

/// What may become of an option's wait, as far as its row says.
struct option_waits {
    std::string partition;
    std::vector<double> waits_s;         // readings of the queue, or past waits
    std::vector<double> ratios;          // realised / predicted of own jobs
    std::optional<double> p50_s, p90_s;  // of the readings of a day, not discounted
};

struct waterfill_input {
    darlcore::plan::waterfill_request request;
    std::vector<darlcore::plan::exclusion> excluded;  // shapes whose row says that they cannot be used
    std::vector<reading_row> readings;
};

struct campaign_input {
    darlcore::plan::calibration calibration;
    darlcore::plan::campaign_config config;
    std::vector<darlcore::plan::plan_option> options;
    std::vector<std::vector<std::string>> args;  // of each option, when given
    std::vector<option_waits> waits;             // of each option: what draws are made from
    std::vector<darlcore::plan::exclusion> excluded;
    std::vector<reading_row> readings;
    bool several_per_site = false;  // then the planner chooses
};

/// Reads a waterfill case: units, min_units, reserve_units, sites with shapes. A shape with `class` other than
/// accepted, or older than six hours by `age_s`, is excluded with its number; a shape without class needs a wait.
/// `wait_raw_h` with `gamma` is discounted here. Errors: errc::invalid_argument, errc::unknown_key: each names the row
/// and the fix.
darlcore::result<waterfill_input> read_waterfill(const json::value& document, double strength = 0.5);

/// Reads a simulate case with its calibration (inside it, or apart).
/// Errors: as read_waterfill.
darlcore::result<campaign_input> read_campaign(const json::value& document, const json::value* calibration,
                                               double strength = 0.5);

/// Reads a calibration object. Regimes that it does not name are those that the paper measured.
darlcore::result<darlcore::plan::calibration> read_calibration(const json::value& object);

}  // namespace darl::plan_io
