// SPDX-License-Identifier: Apache-2.0
#include "adapters/cli/simulation_audit.hpp"

#include <gtest/gtest.h>

namespace {

using namespace darlcore;

std::string read(int phase, int group, int begin, int end) {
    return R"({"kind":"read","phase":)" + std::to_string(phase) + R"(,"group":)" + std::to_string(group) +
           R"(,"epoch":0,"spans":[[)" + std::to_string(begin) + "," + std::to_string(end) + "]]}";
}
std::string contribution(int phase, int groups, const std::string& id) {
    return R"({"kind":"contribution","phase":)" + std::to_string(phase) + R"(,"groups":)" + std::to_string(groups) +
           R"(,"id":")" + id + R"("})";
}
const std::string started = R"({"kind":"started"})";

/// Two sites, four blocks of two windows, everything merged once; the second process of beta begins its phases anew.
darl::audit_input good() {
    darl::audit_input in;
    in.space.num_samples = 8;
    in.space.block_size = 2;
    in.space.seed = 1;
    in.records["alpha"] = {started, read(1, 0, 0, 1), read(1, 1, 1, 2), contribution(1, 2, "a1")};
    in.records["beta"] = {started,          read(1, 0, 2, 3),         started,
                          read(1, 0, 2, 4), contribution(1, 1, "b1"), R"({"kind":"re)"};
    in.merged = {{"a1", 0.75F}, {"b1", 0.25F}};
    in.table = std::vector<float>(8, 0.0F);
    const auto map = block_space::build(in.space, epoch_index{0});
    for (std::uint64_t p = 0; p < 4; ++p) {
        const auto range = (*map)->windows_of(position{p});
        for (auto w = range.begin; w < range.end; ++w) in.table[w] = p < 2 ? 0.75F : 0.25F;
    }
    in.ledger_committed = 4;
    return in;
}

TEST(simulation_audit, passes_a_clean_run_and_counts_what_was_read_in_vain) {
    const auto report = darl::audit_simulation(good());
    ASSERT_TRUE(report) << to_text(report.error());
    EXPECT_TRUE(report->pass) << (report->findings.empty() ? "" : report->findings[0]);
    EXPECT_EQ(report->covered, 4U);
    EXPECT_EQ(report->retrained, 1U);
}

TEST(simulation_audit, fails_for_each_way_in_which_a_run_can_be_wrong) {
    struct wrong {
        const char* what;
        void (*spoil)(darl::audit_input&);
    };
    for (const wrong& w : {
             wrong{"never merged", [](darl::audit_input& in) { in.merged.pop_back(); }},
             wrong{"merged 2 times", [](darl::audit_input& in) { in.records["alpha"][1] = read(1, 0, 0, 3); }},
             wrong{"the model says", [](darl::audit_input& in) { in.table[3] = 2.0F; }},
             wrong{"no site has a record",
                   [](darl::audit_input& in) {
                       in.merged.push_back({"ghost", 1.0F});
                   }},
             wrong{"the ledger counts", [](darl::audit_input& in) { in.ledger_committed = 3; }},
             wrong{"counters for", [](darl::audit_input& in) { in.table.pop_back(); }},
             wrong{"does not exist", [](darl::audit_input& in) { in.records["beta"][3] = read(1, 0, 2, 5); }},
         }) {
        auto in = good();
        w.spoil(in);
        const auto report = darl::audit_simulation(in);
        ASSERT_TRUE(report) << w.what;
        EXPECT_FALSE(report->pass) << w.what;
        bool named = false;
        for (const auto& f : report->findings) named = named || f.find(w.what) != std::string::npos;
        EXPECT_TRUE(named) << w.what;
    }
}

TEST(simulation_audit, only_the_last_line_of_a_record_may_be_cut) {
    auto in = good();
    in.records["alpha"][1] = "{";
    EXPECT_EQ(darl::audit_simulation(in).error().code, errc::corrupt);
}

TEST(simulation_audit, quarantined_positions_need_not_be_merged) {
    auto in = good();
    in.merged = {{"a1", 0.75F}};
    in.quarantined = {2, 3};
    in.ledger_committed = 2;
    for (const std::uint64_t p : in.quarantined) {
        const auto map = block_space::build(in.space, epoch_index{0});
        const auto range = (*map)->windows_of(position{p});
        for (auto w = range.begin; w < range.end; ++w) in.table[w] = 0.0F;
    }
    const auto report = darl::audit_simulation(in);
    ASSERT_TRUE(report);
    EXPECT_TRUE(report->pass) << (report->findings.empty() ? "" : report->findings[0]);
}

}  // namespace
