// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "darlcore/plan/campaign.hpp"

namespace darlcore::plan {

/// One site's part in a campaign. Units: seconds, summed over its lanes (head to tail: of the site as a whole).
/// head, between, tail: live alone before, between and after the times with another site; coresident: with another
/// site.
struct site_report {
    std::string site;
    double queued_s = 0;
    double startup_s = 0;
    double head_s = 0;
    double between_s = 0;
    double coresident_s = 0;
    double tail_s = 0;
    double gap_s = 0;
    double compute_s = 0;
    double idle_s = 0;
    std::uint64_t merges = 0;
    std::uint64_t federated = 0;
    std::uint64_t tokens = 0;
    double blocks = 0;
    double billed_gpu_s = 0;
    double billed_node_s = 0;
    std::uint64_t jobs = 0;
    std::vector<std::uint32_t> accumulation;  // distinct values of the lanes that trained
};

struct campaign_report {
    std::vector<site_report> sites;
    double billed_gpu_s = 0;
    double node_hours = 0;
    double compute_s = 0;
    std::uint64_t jobs = 0;
    quality grade = quality::extrapolated;  // of the regime where most rounds lie
    std::vector<std::string> traps;
};

namespace detail {

/// Sorted, disjoint times.
using spans = std::vector<std::pair<double, double>>;

inline spans merged(spans all) {
    std::sort(all.begin(), all.end());
    spans made;
    for (const auto& [start, end] : all) {
        if (end <= start) continue;
        if (!made.empty() && start <= made.back().second)
            made.back().second = std::max(made.back().second, end);
        else
            made.emplace_back(start, end);
    }
    return made;
}

inline spans live_spans(const campaign_model& m, double until_s, std::size_t site, bool of_site) {
    spans all;
    for (const campaign_lane& l : m.lanes) {
        if ((l.site == site) != of_site) continue;
        for (const lane_window& w : l.windows) all.emplace_back(w.start_s, std::min(w.end_s, until_s));
    }
    return merged(std::move(all));
}

inline spans intersection(const spans& a, const spans& b) {
    spans made;
    for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
        const double start = std::max(a[i].first, b[j].first);
        const double end = std::min(a[i].second, b[j].second);
        if (start < end) made.emplace_back(start, end);
        if (a[i].second < b[j].second)
            ++i;
        else
            ++j;
    }
    return made;
}

inline double length(const spans& s, double from, double until) {
    double sum = 0;
    for (const auto& [start, end] : s) sum += std::max(0.0, std::min(end, until) - std::max(start, from));
    return sum;
}

inline void fill_presence(site_report& r, const campaign_model& m, std::size_t site, double until_s) {
    const spans own = live_spans(m, until_s, site, true);
    const spans together = intersection(own, live_spans(m, until_s, site, false));
    r.coresident_s = length(together, 0, until_s);
    const double first = together.empty() ? until_s : together.front().first;
    const double last = together.empty() ? until_s : together.back().second;
    r.head_s = length(own, 0, first);
    r.between_s = length(own, first, last) - r.coresident_s;
    if (std::abs(r.between_s) < 1e-9 * until_s) r.between_s = 0;
    r.tail_s = length(own, last, until_s);
}

/// Seconds for which the facility charges one link. Strict: from arrival to the end, or to the moment the corpus is
/// drained; a successor that is still pending then is cancelled, a first job that comes later starts up and ends.
inline double billed_link_s(const link& l, bool first, const campaign_config& c, const campaign_outcome& out) {
    const double end = std::min(l.end_s, c.horizon_s);
    if (c.rules == rule_set::reference) return std::max(0.0, end - l.productive_s);
    if (!out.corpus_exhausted_s || *out.corpus_exhausted_s >= end) return end - l.arrival_s;
    if (l.arrival_s < *out.corpus_exhausted_s)
        return std::max(*out.corpus_exhausted_s, std::min(end, l.productive_s)) - l.arrival_s;
    return first ? std::min(end, l.productive_s) - l.arrival_s : 0;
}

inline void add_lane(site_report& r, const campaign_model& m, const campaign_lane& l, const lane_outcome& o,
                     const plan_option& option, const campaign_config& c, const campaign_outcome& out) {
    for (std::size_t k = 0; k < l.links.size(); ++k) {
        const double billed = billed_link_s(l.links[k], k == 0, c, out);
        if (c.rules == rule_set::strict && billed <= 0) continue;
        r.queued_s += l.links[k].arrival_s - l.links[k].submit_s;
        r.startup_s += l.links[k].productive_s - l.links[k].arrival_s;
        r.billed_gpu_s += billed * option.gpus;
        r.billed_node_s += billed * option.nodes;
        ++r.jobs;
    }
    double live_s = 0;
    for (std::size_t k = 0; k < l.windows.size(); ++k) {
        live_s += std::max(0.0, std::min(l.windows[k].end_s, out.run_end_s) - l.windows[k].start_s);
        if (k > 0 && l.windows[k].start_s <= out.run_end_s) r.gap_s += l.windows[k].start_s - l.windows[k - 1].end_s;
    }
    r.compute_s += o.compute_s;
    r.idle_s += std::max(0.0, live_s - o.compute_s);
    r.merges += o.merges;
    r.federated += o.federated;
    r.tokens += o.windows * m.seq_len;
    r.blocks += static_cast<double>(o.windows) / m.block_windows;
    const std::uint32_t a = l.cost.accumulation;
    const bool known = std::find(r.accumulation.begin(), r.accumulation.end(), a) != r.accumulation.end();
    if (o.merges > 0 && !known) r.accumulation.push_back(a);
}

/// Quality of the regime with the most rounds; ties go to the worse.
inline quality grade_of(const campaign_model& m, std::span<const plan_option> options, const calibration& c,
                        const campaign_outcome& out) {
    quality grade = quality::extrapolated;
    std::uint64_t most = 0;
    std::vector<std::pair<std::vector<std::string>, std::uint64_t>> regimes;
    for (const auto& [mask, rounds] : out.rounds_by_members) {
        std::vector<std::string> keys;
        for (std::size_t i = 0; i < m.lanes.size(); ++i)
            if ((mask >> i & 1U) != 0)
                keys.push_back(geometry_key(m.sites[m.lanes[i].site], options[m.lanes[i].option].gpus));
        std::sort(keys.begin(), keys.end());
        const auto same = std::find_if(regimes.begin(), regimes.end(), [&](const auto& r) { return r.first == keys; });
        if (same != regimes.end())
            same->second += rounds;
        else
            regimes.emplace_back(std::move(keys), rounds);
    }
    for (const auto& [keys, rounds] : regimes) {
        const quality q = quality_of(c, keys);
        if (rounds > most || (rounds == most && q > grade)) {
            most = rounds;
            grade = q;
        }
    }
    return grade;
}

}  // namespace detail

/// trap_no_overlap: several sites, none ever merged together. trap_corpus_exhausted: a chosen site found nothing left.
inline std::vector<std::string> traps_of(const campaign_model& m, const campaign_outcome& out) {
    if (m.sites.size() < 2) return {};
    for (std::size_t site = 0; site < m.sites.size(); ++site) {
        std::uint64_t merges = 0;
        double first = std::numeric_limits<double>::infinity();
        for (std::size_t i = 0; i < m.lanes.size(); ++i) {
            if (m.lanes[i].site != site) continue;
            merges += out.lanes[i].merges;
            if (!m.lanes[i].windows.empty()) first = std::min(first, m.lanes[i].windows.front().start_s);
        }
        if (merges == 0 && out.corpus_exhausted_s && first >= *out.corpus_exhausted_s) return {"trap_corpus_exhausted"};
    }
    if (out.federated_rounds == 0) return {"trap_no_overlap"};
    return {};
}

/// What each site did, what it costs, how well it is known and what is wrong with the plan.
/// `model`, `options`, `config` and `out` belong together. Complexity: O(links log links).
inline campaign_report report_of(const campaign_model& model, std::span<const plan_option> options,
                                 const campaign_config& config, const calibration& c, const campaign_outcome& out) {
    campaign_report report;
    for (std::size_t s = 0; s < model.sites.size(); ++s) {
        site_report r;
        r.site = model.sites[s];
        detail::fill_presence(r, model, s, out.run_end_s);
        for (std::size_t i = 0; i < model.lanes.size(); ++i)
            if (model.lanes[i].site == s)
                detail::add_lane(r, model, model.lanes[i], out.lanes[i], options[model.lanes[i].option], config, out);
        report.billed_gpu_s += r.billed_gpu_s;
        report.node_hours += r.billed_node_s / 3600;
        report.compute_s += r.compute_s;
        report.jobs += r.jobs;
        report.sites.push_back(std::move(r));
    }
    report.grade = detail::grade_of(model, options, c, out);
    report.traps = traps_of(model, out);
    return report;
}

}  // namespace darlcore::plan
