// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "darlcore/plan/campaign_report.hpp"
#include "darlcore/plan/campaign_run.hpp"

namespace darlcore::plan {

/// What a search may be asked to put first. utility: merges + alpha * solo + beta * 1e9 tokens, as in the reference; it
/// has no time term.
enum class objective : std::uint8_t { time, merges, tokens, node_hours, utility };

inline constexpr std::array<std::string_view, 5> objective_words{"time", "merges", "tokens", "node_hours", "utility"};
constexpr std::string_view word(objective o) { return objective_words[static_cast<std::size_t>(o)]; }
constexpr std::optional<objective> objective_from_word(std::string_view text) {
    for (std::size_t i = 0; i < objective_words.size(); ++i)
        if (objective_words[i] == text) return static_cast<objective>(i);
    return std::nullopt;
}

struct objective_settings {
    std::vector<objective> order{objective::time, objective::merges, objective::tokens, objective::node_hours};
    double time_grain_s = 300;  // so that seconds do not buy node-hours
    double solo_weight = 0.25;
    double tokens_weight = 1.0;
};

/// One plan with what it came to.
struct scored_plan {
    std::vector<plan_option> options;
    double time_s = std::numeric_limits<double>::infinity();  // to the target, or until the corpus is drained
    std::uint64_t federated = 0;
    std::uint64_t solo = 0;
    std::uint64_t tokens = 0;
    double node_hours = 0;
    std::uint64_t jobs = 0;
    double run_end_s = 0;
    quality grade = quality::extrapolated;
    std::vector<std::string> traps;
    end_reason ended_by = end_reason::horizon;

    [[nodiscard]] bool trapped() const { return !traps.empty(); }
};

/// Simulates a plan and takes what the objectives need.
/// Errors: those of make_campaign.
inline result<scored_plan> score_plan(const calibration& c, std::span<const plan_option> options,
                                      const campaign_config& config) {
    const auto model = make_campaign(c, options, config);
    if (!model) return model.error();
    const campaign_outcome out = simulate(*model, config);
    const campaign_report report = report_of(*model, options, config, c, out);
    scored_plan s;
    s.options.assign(options.begin(), options.end());
    const auto reached = config.target_tokens ? out.target_s : out.corpus_exhausted_s;
    if (reached) s.time_s = *reached;
    s.federated = out.federated_rounds;
    s.solo = out.solo_rounds;
    s.tokens = out.windows * model->seq_len;
    s.node_hours = report.node_hours;
    s.jobs = report.jobs;
    s.run_end_s = out.run_end_s;
    s.grade = report.grade;
    s.traps = report.traps;
    s.ended_by = out.ended_by;
    return s;
}

/// The value of one objective; smaller is better.
inline double value_of(const scored_plan& s, objective o, const objective_settings& settings) {
    switch (o) {
        case objective::time:
            return std::floor(s.time_s / settings.time_grain_s);
        case objective::merges:
            return -static_cast<double>(s.federated);
        case objective::tokens:
            return -static_cast<double>(s.tokens);
        case objective::node_hours:
            return s.node_hours;
        case objective::utility:
            break;
    }
    return -(static_cast<double>(s.federated) + settings.solo_weight * static_cast<double>(s.solo) +
             settings.tokens_weight * static_cast<double>(s.tokens) / 1e9);
}

/// Not trapped before trapped, a measured regime before an extrapolated one.
inline int rank_of(const scored_plan& s) { return (s.trapped() ? 2 : 0) + (s.grade == quality::extrapolated ? 1 : 0); }

/// The key in which `a` and `b` differ first, and whether a is the better one. Empty: equal in all.
struct comparison {
    std::string key;
    bool better = false;
};

/// Order: rank; the objectives; fewer jobs, earlier begins, names.
inline comparison compare(const scored_plan& a, const scored_plan& b, const objective_settings& settings) {
    if (rank_of(a) != rank_of(b)) return {a.trapped() != b.trapped() ? "trap" : "quality", rank_of(a) < rank_of(b)};
    for (const objective o : settings.order) {
        const double x = value_of(a, o, settings);
        const double y = value_of(b, o, settings);
        if (x != y) return {std::string(word(o)), x < y};
    }
    if (a.jobs != b.jobs) return {"jobs", a.jobs < b.jobs};
    for (std::size_t i = 0; i < std::min(a.options.size(), b.options.size()); ++i) {
        const plan_option& x = a.options[i];
        const plan_option& y = b.options[i];
        if (x.site != y.site) return {"name", x.site < y.site};
        if (x.begin_s != y.begin_s) return {"begin", x.begin_s < y.begin_s};
        if (x.shape != y.shape) return {"name", x.shape < y.shape};
        if (x.lanes != y.lanes) return {"lanes", x.lanes < y.lanes};
        if (x.links != y.links) return {"links", x.links < y.links};
        if (x.chain != y.chain) return {"chain", x.chain < y.chain};
    }
    if (a.options.size() != b.options.size()) return {"sites", a.options.size() < b.options.size()};
    return {};
}

inline bool better(const scored_plan& a, const scored_plan& b, const objective_settings& settings) {
    return compare(a, b, settings).better;
}

}  // namespace darlcore::plan
