// SPDX-License-Identifier: Apache-2.0
#include <sys/wait.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "adapters/formats/json.hpp"
#include "darlcore/hex.hpp"
#include "darlcore/testing/budget.hpp"
#include "tests/cli/run_darl.hpp"
#include "tests/formats/bad_headers.hpp"
#include "tests/host/merge_fixture.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::merge_fixture;
using darl::testing::darl_outcome;
using darl::testing::run_darl;

struct command_scene : scene {
    std::vector<std::string> arguments;

    void write_command() {
        write();
        request.weights_out = dir.file("new.w");
        request.velocity_out = dir.file("new.v");
        request.wire_out = dir.file("new.wire");
        arguments = {"merge",           "--json",         "--base",          dir.file("w"), "--out",
                     dir.file("new.w"), "--velocity-out", dir.file("new.v"), "--wire-out",  dir.file("new.wire")};
        if (v) arguments.insert(arguments.end(), {"--velocity", dir.file("v")});
        for (const auto& s : sites) add_delta(dir.file(s.site) + ":" + std::to_string(s.tokens));
    }
    void add_delta(const std::string& text) { arguments.insert(arguments.end(), {"--delta", text}); }
    [[nodiscard]] std::size_t files_in_folder() const {
        std::size_t count = 0;
        for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(dir.path())) ++count;
        return count;
    }
};

json::value document_of(const darl_outcome& outcome) {
    const auto document = json::parse(outcome.out);
    EXPECT_TRUE(document) << outcome.out << outcome.err;
    return document ? *document : json::value();
}

TEST(darl_merge, gives_the_bits_of_the_reference) {
    command_scene s;
    s.write_command();
    const auto outcome = run_darl(s.arguments);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const auto document = document_of(outcome);
    EXPECT_EQ(document.at("contributions").as_u64(), 3U);
    EXPECT_EQ(document.at("rejected").size(), 0U);
    EXPECT_GT(document.at("drift_max").as_double().value(), 0.0);
    expect_outputs(s, expected_outcome(s, s.sites, {0.7F, 0.9F, step_mode::nesterov}));
    EXPECT_EQ(*document.at("wire_sha256").as_string(), to_hex(sha256_of(bytes_of(s.dir.file("new.wire")))));
    EXPECT_EQ(s.files_in_folder(), 5U + 3U) << "no staging file is left";
    const auto reader = formats::safetensors_reader::open(s.dir.file("new.w"));
    EXPECT_EQ(*reader->header().meta("darl.generation"), "6");
    EXPECT_EQ(*reader->header().meta("darl.run_id"), "run-1");
}

TEST(darl_merge, a_nan_file_among_three_changes_nothing_for_the_others_but_the_shares) {
    command_scene s;
    s.sites[1].values[0].set(3, std::numeric_limits<float>::quiet_NaN());
    s.write_command();
    const auto outcome = run_darl(s.arguments);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const auto document = document_of(outcome);
    EXPECT_EQ(document.at("contributions").as_u64(), 2U);
    ASSERT_EQ(document.at("rejected").size(), 1U);
    EXPECT_EQ(*document.at("rejected").at(0).at("file").as_string(), s.dir.file("beta"));
    EXPECT_EQ(*document.at("rejected").at(0).at("code").as_string(), "not_finite");
    expect_outputs(s, expected_outcome(s, {s.sites[0], s.sites[2]}, {0.7F, 0.9F, step_mode::nesterov}));
}

TEST(darl_merge, truncated_lying_and_flipped_files_are_rejected_alone_each_with_its_code) {
    command_scene s;
    s.sites.push_back({"delta", 70, 3, arbitrary_model(small_model(dtype::bf16), 90), dtype::bf16});
    s.write();
    const auto size = std::filesystem::file_size(s.dir.file("alpha"));
    std::filesystem::resize_file(s.dir.file("alpha"), size - 2);
    std::string bytes = bytes_of(s.dir.file("beta"));
    const std::string digest = to_hex(sha256_of(bytes));
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 16);
    std::ofstream(s.dir.file("beta"), std::ios::binary) << bytes;
    s.arguments = {"merge",      "--json",        "--base", s.dir.file("w"),
                   "--velocity", s.dir.file("v"), "--out",  s.request.weights_out};
    s.add_delta(s.dir.file("alpha") + ":300");
    s.add_delta(s.dir.file("beta") + ":100:" + digest);
    s.add_delta(s.dir.file("gamma") + ":9999");
    s.add_delta(s.dir.file("delta") + ":70");
    const auto outcome = run_darl(s.arguments);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const auto document = document_of(outcome);
    EXPECT_EQ(document.at("contributions").as_u64(), 1U);
    ASSERT_EQ(document.at("rejected").size(), 3U);
    const char* codes[] = {"corrupt", "digest_mismatch", "meta_mismatch"};
    for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(*document.at("rejected").at(i).at("code").as_string(), codes[i]);
        EXPECT_FALSE(document.at("rejected").at(i).at("reason").as_string()->empty());
    }
}

TEST(darl_merge, exits_with_1_and_writes_nothing_when_nothing_is_usable) {
    command_scene s;
    s.write_command();
    s.arguments.insert(s.arguments.end(), {"--generation", "9"});
    const auto outcome = run_darl(s.arguments);
    EXPECT_EQ(outcome.status, 1);
    const auto document = document_of(outcome);
    EXPECT_EQ(document.at("contributions").as_u64(), 0U);
    EXPECT_EQ(document.at("rejected").size(), 3U);
    EXPECT_EQ(*document.at("rejected").at(0).at("code").as_string(), "stale_generation");
    EXPECT_TRUE(document.at("drift_max").is_null());
    EXPECT_EQ(s.files_in_folder(), 5U);
}

TEST(darl_merge, policies_are_those_of_the_library) {
    for (const char* solo : {"full", "outer", "adopt"})
        for (const char* first : {"nesterov", "plain"}) {
            command_scene s;
            s.sites.resize(1);
            s.v.reset();
            s.write_command();
            s.arguments.insert(s.arguments.end(),
                               {"--solo", solo, "--first-step", first, "--eta", "0.5", "--beta", "0.25"});
            const auto outcome = run_darl(s.arguments);
            ASSERT_EQ(outcome.status, 0) << outcome.err;
            const outer_policy policy{0.5, 0.25, *solo_policy_from_word(solo), *first_step_policy_from_word(first)};
            expect_outputs(s, expected_outcome(s, s.sites, rule_for(policy, 1, false)));
        }
}

TEST(darl_merge, bad_input_names_itself_and_exits_with_2) {
    command_scene s;
    s.v.reset();
    s.write_command();
    const auto run_with = [&](std::vector<std::string> more) {
        auto arguments = s.arguments;
        arguments.insert(arguments.end(), more.begin(), more.end());
        return run_darl(arguments);
    };
    const std::pair<std::vector<std::string>, const char*> bad[] = {
        {{"--beta", "1"}, "beta"},         {{"--eta", "0"}, "eta"},        {{"--solo", "none"}, "none"},
        {{"--delta", "file"}, "file"},     {{"--delta", "x:12a"}, "12a"},  {{"--first-step", "fast"}, "fast"},
        {{"--memory-mib", "1"}, "budget"}, {{"--generation", "-1"}, "-1"}, {{"--velocity", "/absent/v"}, "/absent/v"},
        {{"--wrong", "1"}, "wrong"}};
    for (const auto& [arguments, word] : bad) {
        const auto outcome = run_with(arguments);
        EXPECT_EQ(outcome.status, 2) << arguments[0] << ' ' << arguments[1] << outcome.err;
        EXPECT_NE(outcome.err.find(word), std::string::npos) << outcome.err;
        EXPECT_EQ(outcome.out, "");
    }
    EXPECT_EQ(s.files_in_folder(), 4U);
}

TEST(darl_merge, each_malformed_file_ends_with_2_named_with_a_fix_and_nothing_written) {
    command_scene s;
    s.v.reset();
    s.write_command();
    const std::size_t files = s.files_in_folder();
    for (const auto& bad : darlcore::testing::bad_headers()) {
        std::ofstream(s.dir.file("w"), std::ios::binary) << darlcore::testing::file_of(bad);
        const auto outcome = run_darl(s.arguments);
        EXPECT_EQ(outcome.status, 2) << bad.about << ": " << outcome.err;
        EXPECT_EQ(outcome.out, "") << bad.about;
        for (const std::string& named :
             {s.dir.file("w") + ": ", std::string(bad.reason), std::string("copy the file again")})
            EXPECT_NE(outcome.err.find(named), std::string::npos) << bad.about << ": " << outcome.err;
        EXPECT_EQ(s.files_in_folder(), files) << bad.about;
    }
}

TEST(darl_merge, without_json_a_person_reads_who_was_used_and_who_was_not) {
    command_scene s;
    s.write_command();
    s.arguments.erase(s.arguments.begin() + 1);
    s.add_delta(s.dir.file("absent") + ":5");
    const auto outcome = run_darl(s.arguments);
    EXPECT_EQ(outcome.status, 0);
    EXPECT_NE(outcome.out.find("used      alpha"), std::string::npos) << outcome.out;
    EXPECT_NE(outcome.out.find("rejected  " + s.dir.file("absent")), std::string::npos) << outcome.out;
}

// A file of that size whose data is a hole: zeros that need no disk.
void write_sparse(const std::string& path, std::uint64_t elements, const formats::safetensors_metadata& metadata) {
    const std::vector<tensor_spec> specs{{"w", dtype::f32, {elements}}};
    std::ofstream(path, std::ios::binary) << *formats::build_safetensors_header(specs, metadata);
    std::filesystem::resize_file(path, std::filesystem::file_size(path) + 4 * elements);
}

// The address space that the program needs before it does anything (libtorch alone maps hundreds of MiB). Units: KiB.
std::uint64_t address_space_to_start_kib() {
    std::uint64_t low = 0;
    std::uint64_t high = std::uint64_t{1} << 24U;
    while (high - low > 4'096) {
        const std::uint64_t middle = (low + high) / 2;
        const std::string command = "ulimit -v " + std::to_string(middle) +
                                    "; exec timeout -s KILL 3 " DARL_PROGRAM " --version >/dev/null 2>&1";
        (std::system(command.c_str()) == 0 ? high : low) = middle;
    }
    return high;
}

// 8 deltas of 1 GiB (nightly; a sixteenth else) under an address space of 512 MiB beyond the program's own: what is
// merged is larger than what may be mapped.
TEST(darl_merge, eight_large_deltas_merge_within_a_small_address_space) {
    const bool nightly = darlcore::testing::property_runs(10) > 10;
    const std::uint64_t elements = (nightly ? std::uint64_t{1} << 30U : std::uint64_t{1} << 26U) / 4;
    const folder dir;
    write_sparse(dir.file("w"), elements, {});
    std::string command = "ulimit -v " + std::to_string(address_space_to_start_kib() + 524'288) +
                          "; exec " DARL_PROGRAM " merge --json --base " + dir.file("w") + " --out " + dir.file("out");
    for (int i = 0; i < 8; ++i) {
        const std::string path = dir.file("d" + std::to_string(i));
        write_sparse(path, elements, {});
        command += " --delta " + path + ":100";
    }
    command += " >" + dir.file("stdout") + " 2>" + dir.file("stderr");
    const int status = std::system(command.c_str());
    ASSERT_TRUE(WIFEXITED(status));
    ASSERT_EQ(WEXITSTATUS(status), 0) << bytes_of(dir.file("stderr"));
    const auto document = json::parse(bytes_of(dir.file("stdout")));
    ASSERT_TRUE(document);
    EXPECT_EQ(document->at("contributions").as_u64(), 8U);
    EXPECT_EQ(document->at("parameters").as_u64(), elements);
}

}  // namespace
