// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "darlcore/assert.hpp"

// Figures computed beside a merge. They describe it and decide nothing.
namespace darlcore {

/// How far the sites went, relative to the model.
struct drift_figures {
    std::vector<double> per_site;
    /// Decides whether H is too long.
    double max = 0.0;
    /// Unweighted; hides one far site among near ones (0.01 and 0.30 give a harmless-looking 0.155).
    double mean = 0.0;
};

/// drift_i = |d_i| / |w|; nothing when |w| = 0.
/// Preconditions (asserted): at least one site; finite norms >= 0.
inline std::optional<drift_figures> drift_of(std::span<const double> delta_norms, double weight_norm) {
    DARLCORE_ASSERT(!delta_norms.empty() && weight_norm >= 0);
    if (weight_norm == 0) return std::nullopt;
    drift_figures figures;
    double sum = 0.0;
    for (const double norm : delta_norms) {
        const double drift = norm / weight_norm;
        figures.per_site.push_back(drift);
        if (drift > figures.max) figures.max = drift;
        sum += drift;
    }
    figures.mean = sum / static_cast<double>(delta_norms.size());
    return figures;
}

/// How much the sites pull in one direction.
struct agreement_figures {
    /// |Delta| / sum of p_i |d_i|, in [0, 1]; 1 = same direction. Nothing when all deltas are zero.
    std::optional<double> overall;
    /// |Delta| / |d_i|; nothing for a delta of zero.
    std::vector<std::optional<double>> per_site;
    /// What orthogonal deltas of equal norm would give: sqrt(sum of p_i^2), 1/sqrt(k) for equal shares.
    double orthogonal_floor = 0.0;
};

/// Preconditions (asserted): as many shares as norms.
inline agreement_figures agreement_of(std::span<const double> delta_norms, std::span<const double> shares,
                                      double mean_delta_norm) {
    DARLCORE_ASSERT_CMP(delta_norms.size(), ==, shares.size());
    agreement_figures figures;
    double weighted = 0.0;
    double squares = 0.0;
    for (std::size_t i = 0; i < shares.size(); ++i) {
        weighted += shares[i] * delta_norms[i];
        squares += shares[i] * shares[i];
        figures.per_site.push_back(delta_norms[i] == 0 ? std::nullopt
                                                       : std::optional<double>(mean_delta_norm / delta_norms[i]));
    }
    if (weighted > 0) figures.overall = mean_delta_norm / weighted;
    figures.orthogonal_floor = std::sqrt(squares);
    return figures;
}

/// Cosine of two deltas from their dot product; nothing when one is zero.
inline std::optional<double> cosine_of(double dot, double norm_a, double norm_b) {
    if (norm_a == 0 || norm_b == 0) return std::nullopt;
    return dot / (norm_a * norm_b);
}

/// Contributions up to which pairwise cosines are taken.
inline constexpr std::size_t cosine_contributions_max = 8;

}  // namespace darlcore
