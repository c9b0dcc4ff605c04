// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

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

json::value* member(json::value& object, std::string_view key) {
    for (auto& [name, v] : *object.as_object())
        if (name == key) return &v;
    return nullptr;
}

// Seen red: without the plans of the shapes that lost everywhere, most of the twelve are in no list.
TEST(plan_command, of_many_shapes_each_is_chosen_an_alternative_or_excluded) {
    const slurm_test::stub_folder folder;
    json::value c = with_calibration(planner().at("simulate").at(0));
    json::value* options = member(c, "options");
    const json::value first = options->at(0);
    for (int i = 0; i < 10; ++i) {
        json::value more = first;
        more.set("shape", "more" + std::to_string(i)).set("wait_s", 1000 * (i + 2));
        options->push_back(more);
    }
    json::value denied = first;
    denied.set("shape", "denied").set("class", "denied").set("age_s", 5).set("reason", "no account");
    options->push_back(denied);
    for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--search"}}) {
        std::vector<std::string> args{"campaign", "--json"};
        args.insert(args.end(), more.begin(), more.end());
        const auto a = darl(folder, c, args);
        const auto d = json::parse(a.out);
        ASSERT_TRUE(d.has_value()) << a.err;
        std::set<std::string> seen;
        const auto see = [&](const json::value& plan) {
            for (const auto& o : *plan.at("options").as_array()) seen.insert(text(o, "site") + " " + text(o, "shape"));
        };
        see(d->at("recommended"));
        for (const auto& other : *d->at("alternatives").as_array()) {
            see(other);
            EXPECT_FALSE(text(other, "lost_by").empty());
        }
        for (const auto& e : *d->at("excluded").as_array()) seen.insert(text(e, "site") + " " + text(e, "shape"));
        for (const auto& r : *d->at("inputs").at("readings").as_array())
            EXPECT_EQ(seen.count(text(r, "site") + " " + text(r, "shape")), 1U) << text(r, "shape");
        EXPECT_EQ(d->at("inputs").at("readings").size(), options->size());
    }
    const std::string shown = darl(folder, c, {"campaign"}).out;
    EXPECT_NE(shown.find(" with barrier, link ends and overheads; "), std::string::npos) << shown;
    EXPECT_NE(shown.find(" if nobody waited for anybody"), std::string::npos);
    EXPECT_NE(shown.find("denied: 5 s ago the answer was: no account; fix: "), std::string::npos) << shown;
}

// Each row of the table against the command run with that setting.
TEST(plan_command, sensitivity_rows_equal_fresh_runs_with_that_setting) {
    const slurm_test::stub_folder folder;
    json::value c = with_calibration(planner().at("simulate").at(0));
    json::value* options = member(c, "options");
    for (auto& o : *options->as_array()) {
        const double wait = number(o, "wait_s") + 7000;
        std::erase_if(*o.as_object(), [](const auto& m) { return m.first == "wait_s"; });
        o.set("wait_raw_s", wait).set("gamma", 0.3).set("wait_p50_s", wait + 4000).set("wait_p90_s", wait + 30000);
    }
    const auto base = json::parse(darl(folder, c, {"campaign", "--json", "--search", "--sensitivity"}).out);
    ASSERT_TRUE(base.has_value());
    const auto with = [&](const std::string& key, double factor, const std::string& from) {
        json::value changed = c;
        for (auto& o : *member(changed, "options")->as_array()) o.set(key, factor * number(o, from));
        return changed;
    };
    const auto inner_steps = [&](double factor) {
        json::value changed = c;
        json::value* config = member(changed, "config");
        const std::uint64_t h = config->contains("inner_steps") ? *config->at("inner_steps").as_u64() : 100;
        config->set("inner_steps", static_cast<std::uint64_t>(factor * static_cast<double>(h)));
        return changed;
    };
    struct setting {
        json::value input;
        std::string strength;
    };
    const std::map<std::string, setting> fresh{{"strength 0", {c, "0"}},
                                               {"strength 0.5", {c, "0.5"}},
                                               {"strength 1", {c, "1"}},
                                               {"startup x0.5", {with("startup_s", 0.5, "startup_s"), "0.5"}},
                                               {"startup x2", {with("startup_s", 2, "startup_s"), "0.5"}},
                                               {"wait p50", {with("wait_raw_s", 1, "wait_p50_s"), "0.5"}},
                                               {"wait p90", {with("wait_raw_s", 1, "wait_p90_s"), "0.5"}},
                                               {"H x0.5", {inner_steps(0.5), "0.5"}},
                                               {"H x2", {inner_steps(2), "0.5"}}};
    std::set<std::string> times;
    ASSERT_EQ(base->at("sensitivity").size(), fresh.size());
    for (const auto& row : *base->at("sensitivity").as_array()) {
        const setting& s = fresh.at(text(row, "setting"));
        const auto run = darl(folder, s.input, {"campaign", "--json", "--search", "--strength", s.strength});
        const auto d = json::parse(run.out);
        ASSERT_TRUE(d.has_value()) << run.err;
        const auto& r = d->at("recommended");
        for (const char* key : {"time_to_target_s", "federated_rounds", "tokens", "node_hours"})
            EXPECT_EQ(json::dump(row.at(key)), json::dump(r.at(key))) << text(row, "setting") << " " << key;
        times.insert(json::dump(row.at("node_hours")) + json::dump(row.at("time_to_target_s")));
    }
    EXPECT_GT(times.size(), 4U) << "the settings change something";
}

}  // namespace
