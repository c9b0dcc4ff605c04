// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "adapters/cli/plan/output.hpp"
#include "darlcore/plan/monte_carlo.hpp"

namespace darl::plan_io {

/// Past jobs by site, as far as they are known.
using histories = std::map<std::string, std::vector<darlcore::plan::past_job>>;

struct chance_settings {
    darlcore::plan::monte_carlo_settings draws;
    std::string rank;          // p50, p90 or mean: the plan that is best by it is recommended; empty: the plain order
    double history_now_s = 0;  // 0: the last start of each history
};

/// Where the draws of one shape come from, for people.
struct wait_source {
    std::string site, shape, source;
    std::size_t samples = 0;
};

struct chance_row {
    std::string name;  // recommended, alternative n, wait_for_all, fastest_site, soonest_site, waterfill
    std::vector<darlcore::plan::plan_option> options;
    darlcore::plan::plan_distribution outcome;
};

struct chances {
    std::vector<chance_row> rows;
    std::vector<wait_source> sources;
};

/// The waits of every option of the input: ratios of earlier predictions times the live estimate where there are at
/// least 20, else the readings in its row, else like jobs of the site's history, else the one wait without spread.
class wait_book {
public:
    wait_book(const campaign_input& input, const histories& past, const chance_settings& s);
    [[nodiscard]] const darlcore::plan::wait_distribution& of(const darlcore::plan::plan_option& o) const;
    [[nodiscard]] const std::vector<wait_source>& sources() const { return sources_; }

private:
    std::map<std::pair<std::string, std::string>, darlcore::plan::wait_distribution> by_shape_;
    std::vector<wait_source> sources_;
};

/// The recommended plan, its alternatives and what people do without a planner, under drawn waits; regret against the
/// search with the drawn waits known. Errors: those of the simulation.
darlcore::result<chances> draw_chances(const campaign_input& input, const planned_campaign& plan,
                                       std::span<const darlcore::plan::site_choices> choices, const wait_book& waits,
                                       const chance_settings& s);

/// The row that is best by the rank among the plans (not the baselines).
std::size_t best_by(const chances& c, const std::string& rank);

/// `distribution` (of the recommended plan), `distributions` and `waits_from` of a plan document.
void add_chances(json::value& document, const chances& c, const chance_settings& s);

}  // namespace darl::plan_io
