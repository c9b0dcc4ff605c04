// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

// The outer step as the formulas say it, in f64 and without a thought about speed: what every backend is compared with.
namespace darlcore::testing {

struct twin_contribution {
    std::vector<double> delta;
    double tokens = 0;
};

struct twin_state {
    std::vector<double> w;
    std::optional<std::vector<double>> v;
};

/// One merge of at least one contribution. plain: w' = v'.
inline twin_state twin_outer_step(const twin_state& old, const std::vector<twin_contribution>& used, double eta,
                                  double beta, bool plain) {
    double tokens = 0;
    for (const auto& c : used) tokens += c.tokens;
    twin_state next{old.w, std::vector<double>(old.w.size())};
    for (std::size_t k = 0; k < old.w.size(); ++k) {
        double mean = 0;
        for (const auto& c : used) mean += c.tokens / tokens * c.delta[k];
        const double ahead = old.w[k] + eta * mean;
        const double before = old.v ? (*old.v)[k] : old.w[k];
        (*next.v)[k] = ahead;
        next.w[k] = plain ? ahead : ahead + beta * (ahead - before);
    }
    return next;
}

/// The token-weighted mean of the deltas.
inline std::vector<double> twin_mean_delta(const std::vector<twin_contribution>& used, std::size_t elements) {
    double tokens = 0;
    for (const auto& c : used) tokens += c.tokens;
    std::vector<double> mean(elements);
    for (std::size_t k = 0; k < elements; ++k)
        for (const auto& c : used) mean[k] += c.tokens / tokens * c.delta[k];
    return mean;
}

}  // namespace darlcore::testing
