// SPDX-License-Identifier: Apache-2.0
#include "darlcore/merge/guards.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace {

using namespace darlcore;

contribution_facts honest() {
    contribution_facts facts;
    facts.claim = {"run", {"alpha"}, generation{7}, 1000, 10};
    facts.layout_digest = std::array<std::uint8_t, 16>{1};
    facts.file_metadata = facts.claim;
    facts.announced_sha256 = std::array<std::uint8_t, 32>{2};
    facts.received_sha256 = facts.announced_sha256;
    facts.scan = delta_scan{true, 0.5F, 4.0};
    return facts;
}

guard_context current() {
    guard_context context;
    context.current = generation{7};
    context.layout_digest = std::array<std::uint8_t, 16>{1};
    context.max_abs_weight = 2.0F;
    context.accepted_norms = norm_history(std::vector<double>(8, 2.0));
    return context;
}

// One broken contribution per guard, with the switch that removes the guard.
struct broken {
    errc code;
    fault kind;
    void (*spoil)(contribution_facts&);
    bool guard_switches::*guard;
};

const broken broken_ones[] = {
    {errc::stale_generation, fault::standing,
     [](auto& f) {
         f.claim.base_generation = generation{6};
         f.file_metadata = f.claim;
     },
     &guard_switches::stale_generation},
    {errc::fenced, fault::standing, [](auto& f) { f.identity_current = false; }, &guard_switches::fenced},
    {errc::zero_tokens, fault::declined,
     [](auto& f) {
         f.claim.tokens = 0;
         f.file_metadata = f.claim;
     },
     &guard_switches::zero_tokens},
    {errc::duplicate_site, fault::standing, [](auto& f) { f.site_has_another = true; },
     &guard_switches::duplicate_site},
    {errc::layout_mismatch, fault::standing, [](auto& f) { (*f.layout_digest)[15] = 1; },
     &guard_switches::layout_mismatch},
    {errc::meta_mismatch, fault::standing, [](auto& f) { f.file_metadata->tokens += 1; },
     &guard_switches::meta_mismatch},
    {errc::digest_mismatch, fault::standing, [](auto& f) { (*f.received_sha256)[31] = 1; },
     &guard_switches::digest_mismatch},
    {errc::not_finite, fault::content, [](auto& f) { f.scan->finite = false; }, &guard_switches::not_finite},
    {errc::growth, fault::content, [](auto& f) { f.scan->max_abs = std::nextafter(2000.0F, 3000.0F); },
     &guard_switches::growth},
    {errc::norm_outlier, fault::content, [](auto& f) { f.scan->sum_squares = std::nextafter(40000.0, 50000.0); },
     &guard_switches::norm_outlier},
};

TEST(guards, an_honest_contribution_passes_all) { EXPECT_EQ(judge(honest(), current()), guard_verdict{}); }

TEST(guards, each_broken_contribution_is_rejected_with_its_code_and_a_reason) {
    for (const broken& one : broken_ones) {
        contribution_facts facts = honest();
        one.spoil(facts);
        const guard_verdict verdict = judge(facts, current());
        EXPECT_EQ(verdict.code, one.code) << word(one.code);
        EXPECT_EQ(verdict.fault, one.kind) << word(one.code);
        EXPECT_FALSE(verdict.reason.empty()) << word(one.code);
    }
}

TEST(guards, without_its_guard_each_broken_contribution_would_be_merged) {
    for (const broken& one : broken_ones) {
        contribution_facts facts = honest();
        one.spoil(facts);
        guard_context context = current();
        context.switches.*one.guard = false;
        EXPECT_TRUE(judge(facts, context).accepted()) << word(one.code);
    }
}

TEST(guards, the_cheaper_guard_speaks_first) {
    for (std::size_t first = 0; first < std::size(broken_ones); ++first)
        for (std::size_t second = first; second < std::size(broken_ones); ++second) {
            contribution_facts facts = honest();
            broken_ones[second].spoil(facts);
            broken_ones[first].spoil(facts);
            EXPECT_EQ(judge(facts, current()).code, broken_ones[first].code) << word(broken_ones[second].code);
        }
}

TEST(guards, each_field_of_the_metadata_is_compared_and_named) {
    const std::pair<const char*, void (*)(contribution_claim&)> lies[] = {
        {"run", [](auto& c) { c.run_id = "other"; }},
        {"site", [](auto& c) { c.site.name = "beta"; }},
        {"base generation", [](auto& c) { c.base_generation = generation{8}; }},
        {"tokens", [](auto& c) { c.tokens = 999; }},
        {"steps", [](auto& c) { c.steps = 11; }},
    };
    for (const auto& [field, lie] : lies) {
        contribution_facts facts = honest();
        lie(*facts.file_metadata);
        const guard_verdict verdict = judge(facts, current());
        EXPECT_EQ(verdict.code, errc::meta_mismatch) << field;
        EXPECT_NE(verdict.reason.find(field), std::string::npos) << verdict.reason;
    }
}

TEST(guards, what_is_not_known_is_not_judged) {
    contribution_facts facts;
    facts.claim = honest().claim;
    EXPECT_TRUE(judge(facts, current()).accepted());
}

TEST(guards, growth_of_exactly_1000_passes_and_a_model_of_zeros_switches_it_off) {
    contribution_facts facts = honest();
    facts.scan = delta_scan{true, 2000.0F, 4.0};
    EXPECT_TRUE(judge(facts, current()).accepted());
    guard_context zeros = current();
    zeros.max_abs_weight = 0.0F;
    facts.scan->max_abs = std::numeric_limits<float>::max();
    EXPECT_TRUE(judge(facts, zeros).accepted());
}

TEST(guards, the_norm_guard_waits_for_eight_samples_and_warns_above_ten) {
    contribution_facts facts = honest();
    facts.scan = delta_scan{true, 0.5F, 250.0 * 250.0};
    guard_context context = current();
    EXPECT_EQ(judge(facts, context).code, errc::norm_outlier);
    context.accepted_norms = norm_history(std::vector<double>(7, 2.0));
    EXPECT_TRUE(judge(facts, context).accepted());
    facts.scan = delta_scan{true, 0.5F, 30.0 * 30.0};
    EXPECT_TRUE(judge(facts, current()).norm_warning);
    facts.scan = delta_scan{true, 0.5F, 20.0 * 20.0};
    EXPECT_FALSE(judge(facts, current()).norm_warning);
    context.accepted_norms = norm_history(std::vector<double>(8, 0.0));
    EXPECT_TRUE(judge(facts, context).accepted()) << "a median of zero says nothing";
}

TEST(guards, clip_scales_down_to_its_multiple_of_the_median_and_is_off_by_default) {
    contribution_facts facts = honest();
    facts.scan = delta_scan{true, 0.5F, 16.0 * 16.0};
    EXPECT_EQ(judge(facts, current()).scale, 1.0F);
    guard_context context = current();
    context.limits.clip = 2.0;
    EXPECT_EQ(judge(facts, context).scale, 0.25F);
    facts.scan->sum_squares = 16.0;
    EXPECT_EQ(judge(facts, context).scale, 1.0F) << "exactly the bound is not clipped";
}

TEST(guards, token_and_step_claims_are_capped_not_rejected) {
    EXPECT_EQ(cap_tokens(1'000'000'000'000'000, 100), (capped_count{100, true}));
    EXPECT_EQ(cap_tokens(100, 100), (capped_count{100, false}));
    EXPECT_EQ(cap_tokens(99, 100), (capped_count{99, false}));
    EXPECT_EQ(cap_steps(1'000'000'000, 100, 16), (capped_count{116, true}));
    EXPECT_EQ(cap_steps(116, 100, 16), (capped_count{116, false}));
    EXPECT_EQ(cap_steps(5, ~std::uint64_t{0}, 16), (capped_count{5, false}));
}

TEST(norm_history, the_median_of_an_even_count_is_the_lower_middle_one) {
    EXPECT_EQ(lower_median({4, 1, 3, 2}), 2.0);
    EXPECT_EQ(lower_median({5, 1, 3}), 3.0);
    EXPECT_EQ(lower_median({7}), 7.0);
    EXPECT_EQ(norm_history{}.median(), std::nullopt);
}

RC_GTEST_PROP(norm_history, keeps_the_last_32_and_agrees_with_sorting, (const std::vector<std::uint16_t>& norms)) {
    norm_history history;
    std::vector<double> last;
    for (const auto norm : norms) {
        history.accept(norm);
        last.push_back(norm);
        if (last.size() > 32) last.erase(last.begin());
        auto sorted = last;
        std::sort(sorted.begin(), sorted.end());
        RC_ASSERT(history.median() == sorted[(sorted.size() - 1) / 2]);
    }
    RC_ASSERT(norm_history(history.values()) == history);
    RC_ASSERT(history.size() <= 32U);
}

}  // namespace
