// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>

#include <gtest/gtest.h>

#include "adapters/formats/json.hpp"
#include "darlcore/metrics.hpp"

namespace {

using namespace darlcore;

const json::value& vectors() {
    static const json::value document = [] {
        std::ifstream in(std::string(DARLCORE_TEST_DATA) + "/outer_step.json");
        const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
        return json::parse(text).value();
    }();
    return document;
}

double number_of(const json::value& v) {
    const auto* text = v.as_string();
    if (text == nullptr) return v.as_double().value();
    if (*text == "nan") return std::numeric_limits<double>::quiet_NaN();
    return *text == "inf" ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
}

void expect_number(const std::optional<double>& seen, const json::value& expected) {
    if (expected.is_null()) {
        EXPECT_EQ(seen, std::nullopt);
        return;
    }
    ASSERT_TRUE(seen.has_value());
    const double wanted = number_of(expected);
    EXPECT_NEAR(*seen, wanted, 1e-12 * std::max(1.0, std::abs(wanted)));
}

TEST(metrics_vectors, pooled_perplexity) {
    for (const auto& c : *vectors().at("perplexity").as_array()) {
        std::vector<loss_report> reports;
        std::vector<std::string> not_finite;
        for (const auto& site : *c.at("sites").as_array()) {
            const std::string name = "s" + std::to_string(reports.size());
            reports.push_back({name, number_of(site.at("loss")), site.at("tokens").as_u64().value()});
            if (!std::isfinite(reports.back().loss)) not_finite.push_back(name);
        }
        const auto pooled = pool_losses(reports);
        expect_number(pooled.loss, c.at("expect").at("loss"));
        expect_number(pooled.perplexity, c.at("expect").at("perplexity"));
        EXPECT_EQ(pooled.used, c.at("expect").at("used").as_u64().value());
        EXPECT_EQ(pooled.left_out, not_finite);
    }
}

double norm_of(const std::vector<double>& v) {
    double squares = 0;
    for (const double x : v) squares += x * x;
    return std::sqrt(squares);
}

TEST(metrics_vectors, agreement) {
    for (const auto& c : *vectors().at("agreement").as_array()) {
        std::vector<double> shares;
        double total = 0;
        for (const auto& t : *c.at("tokens").as_array()) {
            shares.push_back(t.as_double().value());
            total += shares.back();
        }
        std::vector<double> mean(c.at("deltas").at(0).size(), 0.0);
        std::vector<double> norms;
        for (std::size_t i = 0; i < shares.size(); ++i) {
            shares[i] /= total;
            std::vector<double> delta;
            for (const auto& x : *c.at("deltas").at(i).as_array()) delta.push_back(number_of(x));
            for (std::size_t k = 0; k < delta.size(); ++k) mean[k] += shares[i] * delta[k];
            norms.push_back(norm_of(delta));
        }
        const auto seen = measure_agreement(norm_of(mean), shares, norms);
        expect_number(seen.agreement, c.at("expect").at("agreement"));
        expect_number(seen.orthogonal_floor, c.at("expect").at("orthogonal_floor"));
        for (std::size_t i = 0; i < norms.size(); ++i)
            expect_number(seen.per_site[i], c.at("expect").at("per_site").at(i));
    }
}

TEST(metrics, the_largest_drift_is_not_hidden_by_the_mean) {
    const double drifts[] = {0.01, 0.30};
    const auto seen = summarise_drift(drifts);
    EXPECT_DOUBLE_EQ(*seen.mean, 0.155);
    EXPECT_DOUBLE_EQ(*seen.max, 0.30);
    EXPECT_EQ(drift(1.0, 0.0), std::nullopt);
    EXPECT_DOUBLE_EQ(*drift(1.0, 4.0), 0.25);
    EXPECT_FALSE(summarise_drift({}).max);
}

TEST(metrics, accuracy_is_weighted_by_samples) {
    const weighted_figure figures[] = {{1.0, 30}, {0.0, 10}, {std::nan(""), 100}};
    EXPECT_DOUBLE_EQ(*weighted_mean(figures), 0.75);
    EXPECT_FALSE(weighted_mean({}));
}

TEST(metrics, display_perplexity_is_capped) {
    EXPECT_DOUBLE_EQ(display_perplexity(2.0), std::exp(2.0));
    EXPECT_DOUBLE_EQ(display_perplexity(1e9), std::exp(20.0));
}

TEST(metrics, sites_that_differ_too_much_are_noticed) {
    const double near[] = {3.0, 3.9, std::nan("")};
    const double far[] = {3.0, 4.1};
    const double same[] = {3e-4, 3e-4 * (1 + 1e-14)};
    const double other[] = {3e-4, 3e-4 * (1 + 1e-11)};
    EXPECT_FALSE(compare_sites(near, same).losses_spread);
    EXPECT_FALSE(compare_sites(near, same).learning_rates_differ);
    EXPECT_TRUE(compare_sites(far, other).losses_spread);
    EXPECT_TRUE(compare_sites(far, other).learning_rates_differ);
}

}  // namespace
