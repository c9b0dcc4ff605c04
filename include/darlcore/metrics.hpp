// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "darlcore/assert.hpp"

namespace darlcore {

/// One site's evaluation: mean loss per token and the tokens behind it.
struct loss_report {
    std::string site;
    double loss = 0;  ///< nats per token
    std::uint64_t tokens = 0;
};

/// Evaluation of all sites together. Empty numbers mean that nothing could be pooled; they are never zero instead.
struct pooled_loss {
    std::optional<double> loss;
    std::optional<double> perplexity;
    std::size_t used = 0;               ///< sites with a finite loss and at least one token
    std::vector<std::string> left_out;  ///< sites whose loss was not finite, in the order given
};

/// exp(sum of tokens x loss / sum of tokens) over the finite reports; never the mean of perplexities.
/// Determinism: summed in the order given.
/// Source: paper, evaluation.
inline pooled_loss pool_losses(std::span<const loss_report> reports) {
    pooled_loss out;
    double weighted = 0;
    double tokens = 0;
    for (const auto& r : reports) {
        if (!std::isfinite(r.loss)) {
            out.left_out.push_back(r.site);
        } else if (r.tokens > 0) {
            weighted += static_cast<double>(r.tokens) * r.loss;
            tokens += static_cast<double>(r.tokens);
            ++out.used;
        }
    }
    if (out.used == 0) return out;
    out.loss = weighted / tokens;
    out.perplexity = std::exp(*out.loss);
    return out;
}

/// exp(min(20, loss)): for display while training, where a first loss may be huge.
inline double display_perplexity(double loss) { return std::exp(std::min(20.0, loss)); }

/// ||delta|| / ||w||: how far a site moved from the global model; nothing when ||w|| = 0.
inline std::optional<double> drift(double delta_norm, double weight_norm) {
    if (weight_norm == 0) return std::nullopt;
    return delta_norm / weight_norm;
}

/// Mean and maximum of the drifts. The maximum decides whether H is too long: 0.01 and 0.30 average to a harmless
/// 0.155.
struct drift_summary {
    std::optional<double> mean;
    std::optional<double> max;
};

inline drift_summary summarise_drift(std::span<const double> drifts) {
    if (drifts.empty()) return {};
    double sum = 0;
    double largest = drifts.front();
    for (const double d : drifts) {
        sum += d;
        largest = std::max(largest, d);
    }
    return {sum / static_cast<double>(drifts.size()), largest};
}

/// How much the sites pull in one direction.
struct agreement_report {
    std::optional<double> agreement;  ///< ||mean delta|| / sum p_i ||delta_i||, in [0, 1]; 1 = same direction
    std::vector<std::optional<double>> per_site;  ///< ||mean delta|| / ||delta_i||
    double orthogonal_floor = 0;                  ///< sqrt(sum p_i^2): what orthogonal deltas of equal norm give
};

/// Agreement from norms: the tensors were read once, beside the merge.
/// Shapes: shares and norms [sites]. Units: shares sum to 1.
/// Preconditions (asserted): equal sizes.
inline agreement_report measure_agreement(double mean_delta_norm, std::span<const double> shares,
                                          std::span<const double> delta_norms) {
    DARLCORE_ASSERT_CMP(shares.size(), ==, delta_norms.size());
    agreement_report out;
    double weighted = 0;
    double squares = 0;
    for (std::size_t i = 0; i < shares.size(); ++i) {
        weighted += shares[i] * delta_norms[i];
        squares += shares[i] * shares[i];
        out.per_site.push_back(drift(mean_delta_norm, delta_norms[i]));
    }
    out.agreement = drift(mean_delta_norm, weighted);
    out.orthogonal_floor = std::sqrt(squares);
    return out;
}

/// A figure with its weight, for means that are linear (accuracy over samples).
struct weighted_figure {
    double value = 0;
    std::uint64_t weight = 0;
};

/// Sample-weighted mean of the finite figures; nothing when no weight is left.
inline std::optional<double> weighted_mean(std::span<const weighted_figure> figures) {
    double sum = 0;
    double weight = 0;
    for (const auto& f : figures) {
        if (!std::isfinite(f.value)) continue;
        sum += static_cast<double>(f.weight) * f.value;
        weight += static_cast<double>(f.weight);
    }
    if (weight == 0) return std::nullopt;
    return sum / weight;
}

/// What usually is the first sign of a wrong wire, data or schedule.
struct site_comparison {
    bool losses_spread = false;          ///< held-out losses on one generation differ by more than 1 nat
    bool learning_rates_differ = false;  ///< by more than 1e-12 relative
};

/// Compares the finite losses and the learning rates of the sites on one generation.
inline site_comparison compare_sites(std::span<const double> losses, std::span<const double> learning_rates) {
    site_comparison out;
    std::vector<double> finite;
    std::copy_if(losses.begin(), losses.end(), std::back_inserter(finite), [](double l) { return std::isfinite(l); });
    if (!finite.empty()) {
        const auto [low, high] = std::minmax_element(finite.begin(), finite.end());
        out.losses_spread = *high - *low > 1.0;
    }
    if (!learning_rates.empty()) {
        const auto [low, high] = std::minmax_element(learning_rates.begin(), learning_rates.end());
        out.learning_rates_differ = *high - *low > 1e-12 * std::max(std::abs(*low), std::abs(*high));
    }
    return out;
}

}  // namespace darlcore
