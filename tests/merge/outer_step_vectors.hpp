// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "adapters/formats/json.hpp"
#include "darlcore/digest.hpp"
#include "darlcore/merge/figures.hpp"
#include "darlcore/merge/guards.hpp"
#include "darlcore/testing/outer_step_twin.hpp"
#include "darlcore/testing/tensor_backend_support.hpp"

// The cases of tests/data/outer_step.json: guards, policies and figures from the core, the step on the backend under
// test.
namespace darlcore::vectors {

inline json::value load() {
    std::ifstream in(DARLCORE_TEST_DATA "/outer_step.json", std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    return json::parse(text, {.bytes_max = 1U << 24U, .depth_max = 64}).value();
}

inline double number(const json::value& v) {
    if (const std::string* text = v.as_string())
        return *text == "nan"    ? std::nan("")
               : *text == "inf"  ? INFINITY
               : *text == "-inf" ? -INFINITY
                                 : std::stod(*text);
    return v.as_double().value();
}

inline std::vector<double> numbers(const json::value& v) {
    std::vector<double> out;
    for (const auto& e : *v.as_array()) out.push_back(number(e));
    return out;
}

inline std::uint32_t hex_word(const json::value& v) {
    const std::string& text = *v.as_string();
    std::uint32_t word = 0;
    std::from_chars(text.data(), text.data() + text.size(), word, 16);
    return word;
}

inline std::string text_or(const json::value& v, const char* key, const char* fallback) {
    const auto* member = v.find(key);
    return member == nullptr ? fallback : *member->as_string();
}

inline void expect_near(double value, double expected, const std::string& about) {
    EXPECT_NEAR(value, expected, 1e-12 + 1e-12 * std::abs(expected)) << about;
}

inline void expect_bits(const testing::host_tensor& tensor, const json::value& words, const std::string& about) {
    ASSERT_EQ(tensor.elements(), words.size()) << about;
    for (std::uint64_t k = 0; k < tensor.elements(); ++k)
        EXPECT_EQ(std::bit_cast<std::uint32_t>(tensor.at(k)), hex_word(words.at(k))) << about << ", element " << k;
}

struct arrival {
    site_id site;
    generation base;
    std::uint64_t tokens = 0;
    std::uint64_t steps = 0;
    std::vector<double> exact;  // after rounding to the wire type
    testing::host_tensor delta;
};

struct model_state {
    testing::host_tensor w;
    std::optional<testing::host_tensor> v;
    testing::twin_state twin;
    generation current;
    std::uint64_t global_step = 0;
};

inline arrival read_arrival(const json::value& v, dtype wire) {
    arrival a;
    a.site.name = *v.at("site").as_string();
    a.base = generation{v.at("base_generation").as_u64().value()};
    const std::uint64_t claim = v.at("tokens").as_u64().value();
    const auto* ledger = v.find("tokens_ledger");
    a.tokens = ledger == nullptr ? claim : cap_tokens(claim, ledger->as_u64().value()).counted;
    a.steps = v.at("steps").as_u64().value();
    const auto values = numbers(v.at("delta"));
    a.delta = testing::host_tensor(wire, values.size());
    for (std::size_t k = 0; k < values.size(); ++k) {
        a.delta.set(k, static_cast<float>(values[k]));
        a.exact.push_back(static_cast<double>(a.delta.at(k)));
    }
    return a;
}

template <tensor_backend B>
delta_scan scan_on(B& backend, const testing::host_tensor& tensor) {
    typename B::queue q{};
    testing::device_tensors memory(backend, q);
    return backend.scan(q, memory.place(tensor).value()).value();
}

inline digest16 layout_of(std::uint64_t elements) { return blake2b_of<16>("w:f32:" + std::to_string(elements) + "\n"); }

/// Guards: which arrivals are used, in site order, and the codes of the others.
template <tensor_backend B>
std::vector<arrival> judge_all(B& backend, const model_state& state, const std::vector<arrival>& arrivals,
                               std::map<std::string, std::vector<std::string>>& rejected) {
    guard_context context;
    context.current = state.current;
    context.layout_digest = layout_of(state.w.elements());
    context.max_abs_weight = scan_on(backend, state.w).max_abs;
    std::vector<arrival> used;
    for (const arrival& a : arrivals) {
        contribution_facts facts;
        facts.claim = {"", a.site, a.base, a.tokens, a.steps};
        facts.layout_digest = layout_of(a.delta.elements());
        facts.scan = scan_on(backend, a.delta);
        facts.site_has_another = std::any_of(used.begin(), used.end(), [&](const auto& u) { return u.site == a.site; });
        const guard_verdict verdict = judge(facts, context);
        if (verdict.accepted())
            used.push_back(a);
        else
            rejected[a.site.name].emplace_back(word(*verdict.code));
    }
    std::sort(used.begin(), used.end(), [](const auto& x, const auto& y) { return x.site < y.site; });
    return used;
}

inline outer_policy policy_of(const json::value& one) {
    outer_policy policy;
    policy.eta = number(one.at("eta"));
    policy.beta = number(one.at("beta"));
    policy.solo = solo_policy_from_word(text_or(one, "solo", "full")).value();
    policy.first_step = first_step_policy_from_word(text_or(one, "first_step", "nesterov")).value();
    return policy;
}

inline double norm_of(const std::vector<double>& values) {
    double sum = 0;
    for (const double x : values) sum += x * x;
    return std::sqrt(sum);
}

/// Figures in f64 as the file has them.
inline void check_figures(const model_state& before, const std::vector<arrival>& used,
                          const std::vector<testing::twin_contribution>& twins, const json::value& expect,
                          const std::string& about) {
    double tokens = 0;
    for (const auto& a : used) tokens += static_cast<double>(a.tokens);
    std::vector<double> norms, shares;
    for (const auto& a : used) {
        norms.push_back(norm_of(a.exact));
        shares.push_back(static_cast<double>(a.tokens) / tokens);
        expect_near(shares.back(), number(expect.at("shares").at(a.site.name)), about + " share");
    }
    const auto mean = testing::twin_mean_delta(twins, before.w.elements());
    expect_near(norm_of(mean), number(expect.at("mean_delta_norm")), about + " norm");
    for (std::size_t k = 0; k < mean.size(); ++k) expect_near(mean[k], number(expect.at("mean_delta").at(k)), about);
    const auto drift = drift_of(norms, norm_of(before.twin.w));
    ASSERT_EQ(drift.has_value(), !expect.at("drift_max").is_null()) << about;
    if (drift) expect_near(drift->max, number(expect.at("drift_max")), about + " drift");
    for (std::size_t i = 0; drift && i < used.size(); ++i)
        expect_near(drift->per_site[i], number(expect.at("drift").at(used[i].site.name)), about + " drift");
    const auto agreement = agreement_of(norms, shares, norm_of(mean));
    ASSERT_EQ(agreement.overall.has_value(), !expect.at("agreement").is_null()) << about;
    if (agreement.overall) expect_near(*agreement.overall, number(expect.at("agreement")), about + " agreement");
}

template <tensor_backend B>
void merge_used(B& backend, const outer_policy& policy, model_state& state, const std::vector<arrival>& used,
                const json::value& expect, const std::string& about) {
    std::vector<testing::twin_contribution> twins;
    std::vector<std::uint64_t> tokens, steps;
    testing::step_case step;
    for (const arrival& a : used) {
        twins.push_back({a.exact, static_cast<double>(a.tokens)});
        tokens.push_back(a.tokens);
        steps.push_back(a.steps);
        step.deltas.push_back(a.delta);
        step.scales.push_back(1.0F);
    }
    check_figures(state, used, twins, expect, about);
    step.w = state.w;
    step.v = state.v;
    step.shares = shares_of(tokens).value();
    step.rule = rule_for(policy, used.size(), state.v.has_value());
    const double eta = used.size() == 1 && policy.solo != solo_policy::outer ? 1.0 : policy.eta;
    expect_near(eta, number(expect.at("eta_used")), about + " eta");
    const auto outcome = testing::step_on(backend, step);
    ASSERT_TRUE(outcome) << about;
    state.twin = testing::twin_outer_step(state.twin, twins, eta, policy.beta, step.rule.mode == step_mode::plain);
    state.w = outcome->w;
    state.v = outcome->v;
    state.current.count += 1;
    state.global_step += step_advance(steps);
}

inline void check_state(const model_state& state, const json::value& expect, const std::string& about) {
    EXPECT_EQ(state.current.count, expect.at("generation").as_u64().value()) << about;
    EXPECT_EQ(state.global_step, expect.at("global_step").as_u64().value()) << about;
    expect_bits(state.w, expect.at("w_f32"), about + " w");
    ASSERT_EQ(state.v.has_value(), !expect.at("v_f32").is_null()) << about;
    if (state.v) expect_bits(*state.v, expect.at("v_f32"), about + " v");
    for (std::size_t k = 0; k < state.twin.w.size(); ++k)
        expect_near(state.twin.w[k], number(expect.at("w").at(k)), about + " w");
    for (std::size_t k = 0; state.twin.v && k < state.twin.v->size(); ++k)
        expect_near((*state.twin.v)[k], number(expect.at("v").at(k)), about + " v");
}

template <tensor_backend B>
void run_round(B& backend, const json::value& one, model_state& state, const json::value& round,
               const std::string& about) {
    const dtype wire = dtype_from_word(text_or(one, "wire", "f32")).value();
    std::vector<arrival> arrivals;
    for (const auto& c : *round.at("contributions").as_array()) arrivals.push_back(read_arrival(c, wire));
    std::map<std::string, std::vector<std::string>> rejected;
    const auto used = judge_all(backend, state, arrivals, rejected);
    const json::value& expect = round.at("expect");
    std::map<std::string, std::vector<std::string>> expected;
    for (const auto& [site, codes] : *expect.at("rejected").as_object())
        for (const auto& code : *codes.as_array()) expected[site].push_back(*code.as_string());
    EXPECT_EQ(rejected, expected) << about;
    ASSERT_EQ(used.size(), expect.at("used").size()) << about;
    for (std::size_t i = 0; i < used.size(); ++i)
        EXPECT_EQ(used[i].site.name, *expect.at("used").at(i).as_string()) << about;
    ASSERT_EQ(!used.empty(), expect.at("merged").as_bool().value()) << about;
    if (!used.empty()) merge_used(backend, policy_of(one), state, used, expect, about);
    check_state(state, expect, about);
}

inline testing::host_tensor tensor_of(const std::vector<double>& values) {
    testing::host_tensor tensor(dtype::f32, values.size());
    for (std::size_t k = 0; k < values.size(); ++k) tensor.set(k, static_cast<float>(values[k]));
    return tensor;
}

/// All cases; the number of cases.
template <tensor_backend B>
std::size_t run_cases(B& backend) {
    const json::value file = load();
    for (const auto& one : *file.at("cases").as_array()) {
        const json::value& initial = one.at("initial");
        model_state state;
        state.twin.w = numbers(initial.at("w"));
        state.w = tensor_of(state.twin.w);
        if (!initial.at("v").is_null()) state.twin.v = numbers(initial.at("v"));
        if (state.twin.v) state.v = tensor_of(*state.twin.v);
        state.current = generation{initial.at("generation").as_u64().value()};
        state.global_step = initial.at("global_step").as_u64().value();
        std::size_t index = 0;
        for (const auto& round : *one.at("rounds").as_array())
            run_round(backend, one, state, round, *one.at("name").as_string() + ", round " + std::to_string(++index));
    }
    return file.at("cases").size();
}

}  // namespace darlcore::vectors
