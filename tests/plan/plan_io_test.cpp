// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <fstream>

#include "adapters/cli/plan/output.hpp"
#include "darlcore/plan/fluid.hpp"
#include "tests/plan/vector_support.hpp"
#include "tests/slurm/stub_command.hpp"

namespace {

using namespace darl::plan_io;
using namespace plan_test;
using darlcore::slurm::run_answer;
using darlcore::slurm::run_command;
using darlcore::slurm::run_end;

json::value with_calibration(json::value c) {
    c.set("calibration", planner().at("calibration"));
    return c;
}

// The darl command on a document; the answer's streams and exit status.
run_answer darl(const slurm_test::stub_folder& folder, const json::value& document, std::vector<std::string> args) {
    std::ofstream(folder.file("in.json")) << json::dump(document);
    std::vector<std::string> argv{DARL_PROGRAM, "plan"};
    argv.insert(argv.end(), args.begin(), args.end());
    argv.insert(argv.end(), {"--input", folder.file("in.json")});
    darlcore::slurm::run_request r;
    r.argv = argv;
    r.stdout_bytes_max = std::size_t{8} << 20U;
    r.line_bytes_max = std::size_t{8} << 20U;
    return run_command(r, folder.environment());
}

TEST(plan_command, every_waterfill_vector_goes_through_it) {
    const slurm_test::stub_folder folder;
    for (const auto& c : *planner().at("waterfill").at("cases").as_array()) {
        const auto a = darl(folder, c, {"waterfill", "--json"});
        ASSERT_EQ(a.rc, 0) << text(c, "id") << a.err;
        const auto d = json::parse(a.out);
        ASSERT_TRUE(d.has_value());
        const auto& e = c.at("expect");
        EXPECT_EQ(*d->at("assigned").as_u64(), *e.at("assigned").as_u64()) << text(c, "id");
        EXPECT_NEAR(number(*d, "makespan_h"), number(e, "makespan_h"), 1e-9);
        for (const auto& [name, s] : *e.at("sites").as_object())
            EXPECT_EQ(*d->at("sites").at(name).at("units").as_u64(), *s.at("units").as_u64()) << text(c, "id") << name;
    }
}

TEST(plan_command, every_scenario_goes_through_it_under_both_rule_sets) {
    const slurm_test::stub_folder folder;
    for (const auto& c : *planner().at("simulate").as_array()) {
        for (const std::string rules : {"reference", "strict"}) {
            SCOPED_TRACE(text(c, "id") + " " + rules);
            const auto a =
                darl(folder, with_calibration(c), {"campaign", "--json", "--rules", rules, "--leave-margin", "0"});
            const auto d = json::parse(a.out);
            ASSERT_TRUE(d.has_value()) << a.err;
            const auto& r = d->at("recommended");
            const auto& e = c.at("expect_" + rules);
            EXPECT_EQ(*r.at("federated_rounds").as_u64(), *e.at("federated_rounds").as_u64());
            EXPECT_EQ(*r.at("solo_rounds").as_u64(), *e.at("solo_rounds").as_u64());
            EXPECT_EQ(*r.at("tokens").as_u64(), *e.at("tokens").as_u64());
            EXPECT_NEAR(number(r, "run_end_s") / number(e, "run_end_s"), 1, 1e-9);
            EXPECT_EQ(a.rc, r.at("traps").size() == 0 ? 0 : 1);
            EXPECT_TRUE(r.at("idealised_time_to_target_s").is_null() || !r.at("time_to_target_s").as_double() ||
                        number(r, "idealised_time_to_target_s") <= number(r, "time_to_target_s"));
            if (rules == "reference") {
                EXPECT_EQ(text(r, "quality"), text(e, "quality"));
            }
        }
    }
}

TEST(plan_command, the_same_input_gives_the_same_bytes) {
    const slurm_test::stub_folder folder;
    const auto c = with_calibration(planner().at("simulate").at(5));
    const auto a = darl(folder, c, {"campaign", "--json", "--search"});
    EXPECT_EQ(a.out, darl(folder, c, {"campaign", "--json", "--search"}).out);
    EXPECT_FALSE(a.out.empty());
}

TEST(plan_command, show_draws_a_page_and_escapes_names) {
    const slurm_test::stub_folder folder;
    json::value c = planner().at("waterfill").at("cases").at(0);
    auto* sites = (*c.as_object())[2].second.as_array();
    ASSERT_NE(sites, nullptr);
    (*sites)[0].set("site", "<script>x</script>");
    const auto plan = darl(folder, c, {"waterfill", "--json"});
    ASSERT_EQ(plan.rc, 0) << plan.err;
    const auto shown = darl(folder, *json::parse(plan.out), {"show", "--html", folder.file("p.html")});
    EXPECT_EQ(shown.rc, 0) << shown.err;
    EXPECT_NE(shown.out.find("done after 10.4 h"), std::string::npos);
    const std::string page = folder.read("p.html");
    EXPECT_NE(page.find("<svg"), std::string::npos);
    EXPECT_EQ(page.find("<script"), std::string::npos);
    EXPECT_NE(page.find("&lt;script&gt;"), std::string::npos);
}

// The message of a refused waterfill whose first shape is changed.
std::string refusal(const std::string& key, const json::value& v) {
    const slurm_test::stub_folder folder;
    json::value c = planner().at("waterfill").at("cases").at(0);
    for (auto& [name, member] : *c.as_object()) {
        if (name != "sites") continue;
        for (auto& [k, shapes] : *(*member.as_array())[0].as_object())
            if (k == "shapes") (*shapes.as_array())[0].set(key, v);
    }
    const auto a = darl(folder, c, {"waterfill"});
    EXPECT_EQ(a.rc, 2) << key;
    EXPECT_TRUE(a.out.empty());
    return a.err;
}

TEST(plan_command, bad_input_is_refused_with_its_row) {
    for (const auto& text : {refusal("wait_h", json::value()), refusal("wait_h", -1), refusal("wait_h", "soon"),
                             refusal("units_per_h", 0), refusal("units_per_h", -3.5), refusal("walltime_h", -1),
                             refusal("gamma", 1.4), refusal("units_per_h", json::value())}) {
        EXPECT_NE(text.find("sites[0] (first)"), std::string::npos) << text;
        EXPECT_NE(text.find("shapes[0] (f1)"), std::string::npos) << text;
    }
    EXPECT_NE(refusal("wait_hh", 1).find("did you mean 'wait_h'?"), std::string::npos);
}

TEST(plan_command, toml_says_the_same_as_json_and_its_nan_is_refused) {
    const auto same = toml_to_json(
        "units = 20\n[[sites]]\nsite = \"a\"\n[[sites.shapes]]\nname = \"s\"\ngpus = 1\nunits_per_h = 10\nwait_h = 2\n",
        "x");
    ASSERT_TRUE(same.has_value());
    const auto input = read_waterfill(*same);
    ASSERT_TRUE(input.has_value()) << input.error().context;
    EXPECT_EQ(input->request.units, 20U);
    const auto bad = toml_to_json(
        "units = 20\n[[sites]]\nsite = \"a\"\n[[sites.shapes]]\nname = \"s\"\nunits_per_h = inf\nwait_h = nan\n", "x");
    const auto refused = read_waterfill(*bad);
    ASSERT_FALSE(refused.has_value());
    EXPECT_NE(refused.error().context.find("finite"), std::string::npos);
    EXPECT_FALSE(toml_to_json("units = = 3", "x").has_value());
}

TEST(plan_command, every_configured_shape_is_placed_or_listed_with_a_number_and_a_fix) {
    const slurm_test::stub_folder folder;
    json::value c = with_calibration(planner().at("simulate").at(0));
    for (auto& [name, options] : *c.as_object()) {
        if (name != "options") continue;
        json::value old = options.at(0), denied = options.at(0), unknown = options.at(0);
        old.set("shape", "old").set("age_s", 30000);
        denied.set("shape", "denied").set("class", "denied").set("reason", "Access/permission denied");
        unknown.set("shape", "unknown").set("gpus", 3);
        for (const auto& extra : {old, denied, unknown}) options.push_back(extra);
    }
    const auto a = darl(folder, c, {"campaign", "--json"});
    const auto d = json::parse(a.out);
    ASSERT_TRUE(d.has_value()) << a.err;
    std::string codes;
    for (const auto& e : *d->at("excluded").as_array()) {
        codes += text(e, "shape") + "=" + text(e, "code") + " ";
        EXPECT_TRUE(e.at("number").is_number());
        EXPECT_FALSE(text(e, "fix").empty());
    }
    EXPECT_EQ(codes, "old=probe_too_old denied=denied unknown=no_rate ");
}

}  // namespace
