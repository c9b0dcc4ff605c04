// SPDX-License-Identifier: Apache-2.0
// Real server, real sites, real kills: the audit must pass, three times in CI.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "adapters/formats/json.hpp"
#include "adapters/formats/safetensors.hpp"
#include "darlcore/testing/budget.hpp"
#include "tests/cli/run_darl.hpp"

namespace {

using namespace darlcore;

TEST(simulate, ends_with_each_block_in_the_model_once_though_sites_and_server_are_killed) {
    // 3 times in a row; 100 times when DARLCORE_PROPERTY_BUDGET=nightly
    const int runs = std::min(darlcore::testing::property_runs(3), 100);
    for (int seed = 1; seed <= runs; ++seed) {
        const auto run =
            darl::testing::run_darl({"simulate", "--json", "--sites", "4", "--blocks", "1000", "--kill", "1", "--late",
                                     "1", "--kill-ledger", "2", "--seed", std::to_string(seed)});
        ASSERT_EQ(run.status, 0) << run.out << run.err;
        const auto report = json::parse(run.out);
        ASSERT_TRUE(report) << run.out;
        EXPECT_EQ(*report->at("verdict").as_string(), "PASS");
        EXPECT_EQ(report->at("covered").as_u64(), 1000U);
        EXPECT_EQ(report->at("duplicates").as_u64(), 0U);
        EXPECT_EQ(report->at("missing").as_u64(), 0U);
        EXPECT_EQ(report->at("sites").size(), 4U);
    }
}

TEST(simulate, a_site_that_sleeps_beyond_its_leases_costs_nothing_but_its_own_work) {
    const auto run = darl::testing::run_darl(
        {"simulate", "--json", "--sites", "3", "--blocks", "200", "--pause", "1", "--ttl", "2", "--seed", "5"});
    ASSERT_EQ(run.status, 0) << run.out << run.err;
    EXPECT_EQ(*json::parse(run.out)->at("verdict").as_string(), "PASS");
}

std::string text_of(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// The bytes of all tensors, without the header.
std::vector<std::byte> tensors_of(const std::filesystem::path& path) {
    const auto file = formats::safetensors_reader::open(path.string());
    EXPECT_TRUE(file) << path;
    if (!file) return {};
    std::vector<std::byte> bytes(file->file_bytes() - file->data_begin());
    EXPECT_TRUE(file->read(0, bytes));
    return bytes;
}

/// Merges the kept inputs of the newest generation again, undisturbed, and compares weights and momentum.
void expect_the_last_merge_to_be_reproducible(const std::filesystem::path& state,
                                              const std::filesystem::path& scratch) {
    std::string newest = text_of(state / "model/CURRENT");
    newest.pop_back();
    const auto made = state / "model" / newest;
    const auto meta = json::parse(text_of(made / "meta.json"));
    ASSERT_TRUE(meta);
    const std::string number = std::to_string(*meta->at("parent").as_u64());
    const auto base = state / "model" / ("gen-" + std::string(12 - number.size(), '0') + number);
    std::vector<std::string> arguments{"merge",
                                       "--base",
                                       base / "global.safetensors",
                                       "--eta",
                                       "1",
                                       "--beta",
                                       "0",
                                       "--out",
                                       scratch / "w",
                                       "--velocity-out",
                                       scratch / "v"};
    if (std::filesystem::exists(base / "velocity.safetensors"))
        arguments.insert(arguments.end(), {"--velocity", base / "velocity.safetensors"});
    for (const json::value& c : *meta->at("contributions").as_array()) {
        const std::string& sha = *c.at("sha256").as_string();
        const auto blob = state / "blobs/sha256" / sha.substr(0, 2) / sha;
        ASSERT_TRUE(std::filesystem::exists(blob)) << "inputs of the last merge are kept";
        arguments.insert(arguments.end(),
                         {"--delta", blob.string() + ":" + std::to_string(*c.at("tokens").as_u64()) + ":" + sha});
    }
    const auto merged = darl::testing::run_darl(arguments);
    ASSERT_EQ(merged.status, 0) << merged.out << merged.err;
    EXPECT_TRUE(tensors_of(scratch / "w") == tensors_of(made / "global.safetensors"));
    EXPECT_TRUE(tensors_of(scratch / "v") == tensors_of(made / "velocity.safetensors"));
}

// 200 kills in the nightly budget.
TEST(simulate, random_kills_of_the_server_never_mix_two_generations_and_cost_no_block) {
    const int kills = std::min(darlcore::testing::property_runs(20), 200);
    std::string pattern = ::testing::TempDir() + "darl-kills-XXXXXX";
    const std::filesystem::path folder = ::mkdtemp(pattern.data());
    const auto run =
        darl::testing::run_darl({"simulate", "--json", "--sites", "3", "--blocks", std::to_string(20 * kills),
                                 "--kill-ledger", std::to_string(kills), "--timeout", "800", "--keep", folder / "run"});
    ASSERT_EQ(run.status, 0) << run.out << run.err;
    const auto report = json::parse(run.out);
    ASSERT_TRUE(report);
    EXPECT_EQ(report->at("covered").as_u64(), static_cast<std::uint64_t>(20 * kills));
    EXPECT_EQ(report->at("duplicates").as_u64(), 0U);
    expect_the_last_merge_to_be_reproducible(folder / "run/state", folder);
    std::filesystem::remove_all(folder);
}

// --- the audit has teeth: a mechanism taken away from the real programs is found -------------------------------------

/// Findings of a run; it must say FAIL, and within seconds.
std::string findings_of(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"simulate", "--json", "--timeout", "10"});
    const auto run = darl::testing::run_darl(arguments);
    EXPECT_EQ(run.status, 1) << run.out << run.err;
    const auto report = json::parse(run.out);
    if (!report) return {};
    EXPECT_EQ(*report->at("verdict").as_string(), "FAIL");
    return json::dump(report->at("findings"));
}

TEST(simulate, without_the_reservation_it_says_fail) {
    const auto found = findings_of({"--sites", "3", "--blocks", "60", "--plant", "reserve"});
    EXPECT_NE(found.find("times"), std::string::npos) << found;
}

// The blocks of a contribution go back to the pool when its leases run out, are trained and merged again, and again.
TEST(simulate, without_the_pledge_it_says_fail) {
    const auto found = findings_of({"--sites", "3", "--blocks", "24", "--ttl", "1", "--plant", "pledge"});
    EXPECT_NE(found.find("times"), std::string::npos) << found;
}

/// A run whose server was killed right after blocks were stolen. Whether a run has a theft is up to the machine's
/// scheduler, so it is made again until there was one.
darl::testing::darl_outcome run_with_a_theft(std::vector<std::string> more) {
    std::string pattern = ::testing::TempDir() + "darl-theft-XXXXXX";
    const std::filesystem::path folder = ::mkdtemp(pattern.data());
    for (int attempt = 0; attempt < 12; ++attempt) {
        const std::string kept = folder / std::to_string(attempt);
        std::vector<std::string> arguments{"simulate", "--json", "--timeout",       "10",     "--sites", "2",
                                           "--blocks", "12",     "--kill-at-steal", "--keep", kept};
        arguments.insert(arguments.end(), more.begin(), more.end());
        auto run = darl::testing::run_darl(arguments);
        const auto seen = darl::testing::run_darl({"journal", "inspect", "--json", kept + "/state"});
        const auto journal = json::parse(seen.out);
        if (run.status == 0 && journal && journal->at("term").as_u64() == 1U) continue;  // nobody was killed
        std::filesystem::remove_all(folder);
        return run;
    }
    ADD_FAILURE() << "no theft in twelve runs";
    std::filesystem::remove_all(folder);
    return {};
}

TEST(simulate, a_server_that_is_killed_right_after_a_theft_still_knows_of_it) {
    const auto run = run_with_a_theft({});
    EXPECT_EQ(run.status, 0) << run.out << run.err;
}

TEST(simulate, without_the_replay_of_thefts_it_says_fail) {
    const auto run = run_with_a_theft({"--plant", "steal_replay"});
    EXPECT_EQ(run.status, 1) << run.out << run.err;
    EXPECT_NE(run.out.find("an event does not fit the state"), std::string::npos) << run.out;
}

// --- simulated time --------------------------------------------------------------------------------------------------

TEST(simulate_virtual, every_seed_passes_under_faults_of_all_kinds) {
    const auto seeds = std::to_string(std::min(darlcore::testing::property_runs(2'000), 2'000));
    const auto run = darl::testing::run_darl({"simulate", "--virtual", "--seeds", seeds, "--json"});
    ASSERT_EQ(run.status, 0) << run.out << run.err;
    const auto report = json::parse(run.out);
    ASSERT_TRUE(report) << run.out;
    std::printf("%s", run.out.c_str());
    EXPECT_EQ(*report->at("verdict").as_string(), "PASS");
    if (darlcore::testing::property_runs(2'000) < 2'000) return;
    EXPECT_GE(*report->at("simulated_hours").as_double(), 365.25 * 24);
    EXPECT_GE(*report->at("fault_events").as_u64(), 100'000U);
    EXPECT_GE(*report->at("simulated_hours").as_double() * 60, *report->at("cpu_s").as_double() * 1'000);
}

TEST(simulate_virtual, with_one_healthy_site_every_run_ends) {
    const auto seeds = std::to_string(std::min(darlcore::testing::property_runs(200), 4'000));
    const auto run = darl::testing::run_darl({"simulate", "--virtual", "--liveness", "--seeds", seeds, "--json"});
    ASSERT_EQ(run.status, 0) << run.out << run.err;
    std::printf("%s", run.out.c_str());
}

TEST(simulate_virtual, the_same_seeds_give_the_same_digest) {
    const auto digest_of = [](const char* first) {
        const auto run = darl::testing::run_darl({"simulate", "--virtual", "--seeds", "5", "--seed", first, "--json"});
        const auto report = json::parse(run.out);
        return report ? *report->at("digest").as_string() : run.err;
    };
    EXPECT_EQ(digest_of("7"), digest_of("7"));
    EXPECT_NE(digest_of("7"), digest_of("8"));
}

TEST(simulate_virtual, a_failing_seed_is_named_with_the_shortest_list_of_events) {
    const auto run =
        darl::testing::run_darl({"simulate", "--virtual", "--seeds", "300", "--plant", "early_reply", "--json"});
    ASSERT_EQ(run.status, 1) << run.out << run.err;
    const auto report = json::parse(run.out);
    ASSERT_TRUE(report) << run.out;
    EXPECT_EQ(*report->at("verdict").as_string(), "FAIL");
    EXPECT_GE(*report->at("failed_seed").as_u64(), 1U);
    EXPECT_GE(report->at("shortest_events").size(), 1U);
    EXPECT_LE(report->at("shortest_events").size(), 8U);
}

// --- a way back ------------------------------------------------------------------------------------------------------

TEST(journal_salvage, of_a_generation_takes_its_model_along_and_passes_the_check) {
    const auto dir = std::filesystem::temp_directory_path() / ("darl-back-" + std::to_string(::getpid()));
    std::filesystem::remove_all(dir);
    const auto made = darl::testing::run_darl(
        {"simulate", "--json", "--sites", "2", "--blocks", "120", "--seed", "3", "--keep", dir.string()});
    ASSERT_EQ(made.status, 0) << made.out << made.err;
    const std::string from = (dir / "state").string();
    const std::string to = (dir / "back").string();
    EXPECT_EQ(darl::testing::run_darl({"journal", "salvage", from, "--out", to, "--generation", "999"}).status, 2);
    const auto back = darl::testing::run_darl({"journal", "salvage", from, "--out", to, "--generation", "1"});
    ASSERT_EQ(back.status, 0) << back.out << back.err;
    EXPECT_NE(back.out.find("generation 1"), std::string::npos) << back.out;
    EXPECT_TRUE(std::filesystem::exists(dir / "back" / "model" / "CURRENT")) << "the model comes with it";
    const auto verified = darl::testing::run_darl({"journal", "verify", to});
    EXPECT_EQ(verified.status, 0) << verified.out << verified.err;
    std::filesystem::remove_all(dir);
}

TEST(simulate, wrong_arguments_are_named_and_end_with_2) {
    EXPECT_EQ(darl::testing::run_darl({"simulate", "--sites", "0"}).status, 2);
    const auto unknown = darl::testing::run_darl({"simulate", "--blokcs", "5"});
    EXPECT_EQ(unknown.status, 2);
    EXPECT_NE(unknown.err.find("blokcs"), std::string::npos);
    EXPECT_EQ(darl::testing::run_darl({"simulate", "--seeds", "5"}).status, 2);
    EXPECT_EQ(darl::testing::run_darl({"simulate", "--virtual", "--plant", "nonsense"}).status, 2);
}

}  // namespace
