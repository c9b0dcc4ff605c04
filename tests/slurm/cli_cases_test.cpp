// SPDX-License-Identifier: Apache-2.0
// Every text of the vectors through the command, as a person would ask.
#include <cmath>
#include <fstream>

#include "tests/plan/vector_support.hpp"
#include "tests/slurm/same_json.hpp"
#include "tests/slurm/stub_command.hpp"

namespace {

using namespace darlcore::slurm;
using plan_test::json::value;
namespace json = plan_test::json;

// The command with `input` on its stdin.
run_answer parse(const slurm_test::stub_folder& folder, const std::string& input, std::vector<std::string> arguments) {
    std::ofstream(folder.file("in.txt"), std::ios::binary) << input;
    run_request r;
    r.argv = {"/bin/sh", "-c",   "f=$1; shift; exec \"$@\" < \"$f\"", "sh", folder.file("in.txt"), DARL_PROGRAM,
              "slurm",   "parse"};
    r.argv.insert(r.argv.end(), arguments.begin(), arguments.end());
    r.stdout_bytes_max = std::size_t{8} << 20U;
    r.line_bytes_max = std::size_t{8} << 20U;
    return run_command(r, folder.environment());
}

std::vector<std::string> arguments_of(const value& c, const slurm_test::stub_folder& folder) {
    std::vector<std::string> made{plan_test::text(c, "kind")};
    const std::pair<const char*, const char*> names[] = {{"now_s", "--now"},
                                                         {"rc", "--rc"},
                                                         {"assume_utc", "--assume-utc"},
                                                         {"requested_partition", "--requested-partition"},
                                                         {"window_start_s", "--window-start"},
                                                         {"window_end_s", "--window-end"},
                                                         {"min_jobs", "--min-jobs"},
                                                         {"grammar", "--grammar"}};
    if (const value* options = c.find("options")) {
        for (const auto& [key, option] : names)
            if (const value* v = options->find(key))
                made.insert(made.end(), {option, v->as_string() != nullptr ? *v->as_string() : json::dump(*v)});
        if (const value* text = options->find("stderr")) {
            std::ofstream(folder.file("err.txt")) << *text->as_string();
            made.insert(made.end(), {"--stderr", folder.file("err.txt")});
        }
    }
    if (const value* argv = c.find("argv")) {
        made.emplace_back("--");
        for (const auto& a : *argv->as_array()) made.push_back(*a.as_string());
    }
    return made;
}

// The cases are dealt to several tests: each is a process.
class slurm_command_cases : public testing::TestWithParam<int> {};
constexpr int parts = 6;

TEST_P(slurm_command_cases, every_text_of_the_vectors_goes_through_it) {
    const slurm_test::stub_folder folder;
    const value vectors = plan_test::read_vectors("slurm_cases.json");
    int seen = 0;
    for (const auto& c : *vectors.at("cases").as_array()) {
        const std::string kind = plan_test::text(c, "kind"), id = plan_test::text(c, "id");
        if (kind == "estimate" || kind == "limits") continue;  // no KIND of the command: library tests
        if (seen++ % parts != GetParam()) continue;
        const std::string* input = c.at("input").as_string();
        const auto a = parse(folder, input == nullptr ? "" : *input, arguments_of(c, folder));
        ASSERT_EQ(a.rc, 0) << id << ": " << a.err;
        const auto got = json::parse(a.out);
        ASSERT_TRUE(got.has_value()) << id << ": " << a.out;
        EXPECT_TRUE(slurm_test::same(*got, c.at("expect")))
            << id << ": " << a.out << "expected " << json::dump(c.at("expect"));
    }
    EXPECT_EQ(seen, 77);
}

INSTANTIATE_TEST_SUITE_P(parts, slurm_command_cases, testing::Range(0, parts));

TEST(slurm_command, an_unknown_kind_is_refused_with_a_suggestion) {
    const slurm_test::stub_folder folder;
    const auto a = parse(folder, "", {"sact"});
    EXPECT_EQ(a.rc, 2);
    EXPECT_TRUE(a.out.empty());
    EXPECT_NE(a.err.find("did you mean sacct?"), std::string::npos) << a.err;
}

// Each argument that could mean something to a shell or a second option is refused by name, with exit 0 of the parser
// (it answers) and a problem in the answer.
TEST(slurm_command, hostile_arguments_are_refused_by_name) {
    const slurm_test::stub_folder folder;
    for (const std::string bad : {"gpu;rm -rf /", "gpu\nx", "$(id)", "`id`", "gpu'x", "gpu\"x", "a|b", "a&b", "a>b"}) {
        const auto a = parse(folder, "", {"shape", "--", "-p", bad, "-N", "1", "-t", "1:00:00"});
        const auto got = json::parse(a.out);
        ASSERT_TRUE(got.has_value()) << a.err;
        EXPECT_TRUE(got->contains("error") || got->contains("problem")) << bad << ": " << a.out;
        EXPECT_FALSE(got->contains("partition")) << a.out;
    }
}

}  // namespace
