// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "darlcore/plan/objective.hpp"

namespace darlcore::plan {

/// What could be submitted at one site; a plan takes one of them or none.
struct site_choices {
    std::string site;
    std::vector<plan_option> options;
};

struct search_settings {
    objective_settings objectives;
    std::uint64_t nodes_max = 2000000;
    std::size_t runners_up = 5;
    std::function<bool()> out_of_time;  // asked now and then; empty: no limit
};

namespace detail {

/// A good plan where not all can be tried: the option that helps most is added until none helps, then options are
/// changed, left out, and exchanged between two sites while that helps. A local optimum: no single change and no
/// exchange of two sites is better. Deterministic: ties go to the first in order.
class greedy_search {
public:
    greedy_search(const calibration& c, const campaign_config& config, const search_settings& s,
                  std::span<const site_choices* const> sites)
        : c_(c), config_(config), s_(s), sites_(sites), chosen_(sites.size(), none) {}

    /// Simulations are bounded by `plans_max` and the settings' time. Errors: those of make_campaign.
    result<std::optional<scored_plan>> run(std::uint64_t plans_max = 100000) {
        plans_max_ = plans_max;
        while (auto next = best_addition()) take(std::move(*next));
        while (auto next = best_change()) take(std::move(*next));
        if (failure_) return *failure_;
        return best_;
    }

    /// Every plan that was simulated, the best of each set of sites.
    [[nodiscard]] const std::map<std::vector<bool>, scored_plan>& by_set() const { return by_set_; }
    [[nodiscard]] std::uint64_t plans() const { return plans_; }

private:
    static constexpr std::size_t none = static_cast<std::size_t>(-1);
    struct step {
        std::vector<std::size_t> chosen;
        scored_plan plan;
    };

    void take(step s) {
        chosen_ = std::move(s.chosen);
        best_ = std::move(s.plan);
    }

    [[nodiscard]] bool at_end() const {
        return failure_ || plans_ >= plans_max_ || (best_ && s_.out_of_time && plans_ % 64 == 0 && s_.out_of_time());
    }

    // Simulates a choice; keeps it in `into` when it beats what is there and the plan at hand.
    void consider(const std::vector<std::size_t>& chosen, std::optional<step>& into) {
        std::vector<plan_option> options;
        std::vector<bool> set;
        for (std::size_t i = 0; i < chosen.size(); ++i) {
            set.push_back(chosen[i] != none);
            if (chosen[i] != none) options.push_back(sites_[i]->options[chosen[i]]);
        }
        if (options.empty()) return;
        std::sort(options.begin(), options.end(), [](const auto& a, const auto& b) { return a.site < b.site; });
        ++plans_;
        auto scored = score_plan(c_, options, config_);
        if (!scored) {
            if (scored.error().code != errc::too_large) failure_ = scored.error();  // too many lanes: not a plan
            return;
        }
        const auto known = by_set_.find(set);
        if (known == by_set_.end())
            by_set_.emplace(std::move(set), *scored);
        else if (better(*scored, known->second, s_.objectives))
            known->second = *scored;
        const scored_plan* rival = into ? &into->plan : best_ ? &*best_ : nullptr;
        if (rival == nullptr || better(*scored, *rival, s_.objectives)) into = step{chosen, std::move(*scored)};
    }

    std::optional<step> best_addition() {
        std::optional<step> found;
        for (std::size_t i = 0; i < sites_.size(); ++i) {
            if (chosen_[i] != none) continue;
            std::vector<std::size_t> next = chosen_;
            for (std::size_t k = 0; k < sites_[i]->options.size() && !at_end(); ++k) {
                next[i] = k;
                consider(next, found);
            }
        }
        return found;
    }

    std::optional<step> best_change() {
        std::optional<step> found;
        const auto with = [&](std::vector<std::size_t> next, std::size_t i) {  // every other answer at site i
            for (std::size_t k = 0; k <= sites_[i]->options.size() && !at_end(); ++k) {
                next[i] = k < sites_[i]->options.size() ? k : none;
                if (next[i] != chosen_[i]) consider(next, found);
            }
        };
        for (std::size_t i = 0; i < sites_.size(); ++i) {
            with(chosen_, i);
            for (std::size_t j = 0; j < sites_.size(); ++j) {  // i steps back for j
                if (chosen_[i] == none || chosen_[j] != none) continue;
                std::vector<std::size_t> next = chosen_;
                next[i] = none;
                with(std::move(next), j);
            }
        }
        return found;
    }

    const calibration& c_;
    const campaign_config& config_;
    const search_settings& s_;
    std::span<const site_choices* const> sites_;
    std::vector<std::size_t> chosen_;
    std::optional<scored_plan> best_;
    std::map<std::vector<bool>, scored_plan> by_set_;
    std::optional<error> failure_;
    std::uint64_t plans_ = 0;
    std::uint64_t plans_max_ = 0;
};

}  // namespace detail

}  // namespace darlcore::plan
