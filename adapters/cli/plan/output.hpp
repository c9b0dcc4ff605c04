// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "adapters/cli/plan/input.hpp"
#include "darlcore/plan/options.hpp"
#include "darlcore/plan/search.hpp"

namespace darl::plan_io {

/// The document of a waterfill (schema 1).
json::value waterfill_document(const waterfill_input& input, const darlcore::plan::waterfill_plan& plan,
                               std::optional<double> now_s);

/// A campaign, planned: what is shown and written.
struct planned_campaign {
    std::vector<darlcore::plan::plan_option> options;
    std::vector<std::vector<std::string>> args;
    darlcore::plan::campaign_config config;
    darlcore::plan::campaign_model model;
    darlcore::plan::campaign_outcome outcome;
    darlcore::plan::campaign_report report;
    double idealised_s = 0;
    std::vector<darlcore::plan::losing_plan> alternatives;
    std::vector<std::pair<std::string, double>> marginal_s;
    std::vector<darlcore::plan::sensitivity_row> sensitivity;
    bool exact = true;
    double gap_s = 0;
};

/// The document of a campaign (schema 1).
json::value campaign_document(const campaign_input& input, const planned_campaign& plan, std::optional<double> now_s);

/// A plan document as text for people: the figures with what they assume, a presence bar per site, what was left out
/// and why. Errors: errc::invalid_argument when it is no plan document of schema 1.
darlcore::result<std::string> plan_text(const json::value& document);

/// The same as an HTML page without scripts: presence as inline SVG. Everything from the document is escaped.
darlcore::result<std::string> plan_html(const json::value& document);

}  // namespace darl::plan_io
