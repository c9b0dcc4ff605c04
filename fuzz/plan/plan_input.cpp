// SPDX-License-Identifier: Apache-2.0
// First byte: w a waterfill, c a campaign, anything else a plan document. The rest: JSON. Whatever it says, it is
// planned or refused with a sentence; nothing aborts.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <variant>

#include "adapters/cli/plan/output.hpp"
#include "darlcore/plan/search.hpp"

namespace {

using namespace darl::plan_io;
using namespace darlcore::plan;

void require(bool promise) {
    if (!promise) std::abort();
}

void check_text(const json::value& document) {
    const auto text = plan_text(document);
    const auto page = plan_html(document);
    require(text.has_value() == page.has_value());
    if (page) require(page->find("<script") == std::string::npos);
}

// Work is only ever added to by the rest of one quantum, or by minima of sites that are in.
std::uint64_t most_assigned(const waterfill_request& r) {
    std::uint64_t quantum = 1, minima = 0;
    for (const auto& s : r.sites) {
        quantum = std::max(quantum, s.quantum);
        if (s.min_units <= r.units) minima += s.min_units + s.quantum;
    }
    return std::max(r.units + quantum, minima);
}

void check_waterfill(const json::value& document) {
    const auto input = read_waterfill(document);
    if (!input) return require(!input.error().context.empty());
    if (input->request.sites.size() > 12) return;
    const auto plan = waterfill(input->request);
    if (!plan) return require(!plan.error().context.empty());
    require(plan->assigned <= most_assigned(input->request));
    for (const auto& s : plan->sites) require(s.units == 0 || std::isfinite(s.finish_h));
    check_text(waterfill_document(*input, *plan, std::nullopt));
}

void check_campaign(const json::value& document) {
    auto input = read_campaign(document, nullptr);
    if (!input) return require(!input.error().context.empty());
    const bool long_run = input->config.horizon_s > 1e8 || input->config.blocks_unassigned > 1e6 ||
                          !std::holds_alternative<std::uint32_t>(input->config.inner_steps);
    if (long_run || input->options.empty() || input->options.size() > 6) return;
    std::vector<site_choices> choices;
    for (const plan_option& o : input->options) {
        if (o.links > 50) return;
        choices.push_back({o.site + std::to_string(choices.size()), {o}});
    }
    input->config.num_rounds = std::min<std::uint64_t>(input->config.num_rounds, 10000);
    const auto found = search_plans(input->calibration, choices, input->config, {});
    if (!found) return require(!found.error().context.empty());
    planned_campaign p;
    p.options = input->options;
    p.args = input->args;
    p.config = input->config;
    auto model = make_campaign(input->calibration, p.options, p.config);
    if (!model) return require(!model.error().context.empty());
    p.model = std::move(*model);
    p.outcome = simulate(p.model, p.config);
    p.report = report_of(p.model, p.options, p.config, input->calibration, p.outcome);
    require(p.outcome.run_end_s >= 0);
    check_text(campaign_document(*input, p, std::nullopt));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 2) return 0;
    const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
    const auto document = json::parse(text);
    if (!document) return 0;
    if (data[0] == 'w') check_waterfill(*document);
    if (data[0] == 'c') check_campaign(*document);
    check_text(*document);
    return 0;
}
