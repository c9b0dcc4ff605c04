// SPDX-License-Identifier: Apache-2.0
// Waits of a server in a plan's input, drawn waits, and what is refused in a campaign's input.
#include <fstream>

#include "adapters/cli/plan/chance.hpp"
#include "adapters/cli/plan/live.hpp"
#include "tests/plan/vector_support.hpp"
#include "tests/slurm/stub_command.hpp"

namespace {

using namespace darl::plan_io;
using namespace plan_test;
using darlcore::plan::wait_choice;
using darlcore::slurm::run_answer;
using darlcore::slurm::run_command;

json::value estimate(const std::string& site, const std::string& shape, double wait_s,
                     const std::string& kind = "accepted", double age_s = 60) {
    return json::make_object({{"site", site},
                              {"shape", shape},
                              {"partition", "gpu"},
                              {"nodes", 1},
                              {"gpus", 4},
                              {"args", json::array{"-p", "gpu"}},
                              {"walltime_s", 28800},
                              {"class", kind},
                              {"reason", kind == "accepted" ? "" : "because"},
                              {"age_s", age_s},
                              {"wait_raw_s", wait_s >= 0 ? json::value(wait_s) : json::value()},
                              {"wait_p50_s", wait_s >= 0 ? json::value(2 * wait_s) : json::value()},
                              {"wait_p90_s", wait_s >= 0 ? json::value(3 * wait_s) : json::value()},
                              {"wait_s", wait_s >= 0 ? json::value(wait_s) : json::value()},
                              {"gamma", 0.2},
                              {"discounted", true},
                              {"flags", json::array{}}});
}

json::value estimates(std::vector<json::value> rows) {
    return json::make_object({{"now_s", 1788000000}, {"estimates", json::array(rows)}, {"scores", json::array{}}});
}

json::value row(const std::string& name) { return json::make_object({{"name", name}, {"units_per_h", 10}}); }

json::value waterfill_of(std::vector<json::value> shapes) {
    const json::value site = json::make_object({{"site", "here"}, {"shapes", json::array(shapes)}});
    return json::make_object({{"units", 20}, {"sites", json::array{site}}});
}

TEST(live_plan, a_shape_takes_the_wait_and_the_walltime_of_its_probe) {
    const auto got =
        with_estimates(waterfill_of({row("g4")}), estimates({estimate("here", "g4", 7200)}), {}, wait_choice::choose);
    ASSERT_TRUE(got.has_value());
    const auto input = read_waterfill(*got, 0.5);
    ASSERT_TRUE(input.has_value()) << input.error().context;
    const auto& shape = input->request.sites.at(0).shapes.at(0);
    EXPECT_NEAR(shape.wait_h, 2 * 0.6, 1e-12);
    EXPECT_EQ(shape.walltime_h, 8);
    EXPECT_EQ(shape.gpus, 4U);
    EXPECT_TRUE(input->readings.at(0).discounted);
}

TEST(live_plan, the_quantile_asked_for_is_taken_and_a_stale_reading_gives_way_to_the_median) {
    const auto wait = [](wait_choice choice, double age_s) {
        const auto got = with_estimates(waterfill_of({row("g4")}),
                                        estimates({estimate("here", "g4", 100, "accepted", age_s)}), {}, choice);
        return 3600 * number(got->at("sites").at(0).at("shapes").at(0), "wait_raw_h");
    };
    EXPECT_NEAR(wait(wait_choice::now, 5000), 100, 1e-9);
    EXPECT_NEAR(wait(wait_choice::p50, 60), 200, 1e-9);
    EXPECT_NEAR(wait(wait_choice::p90, 60), 300, 1e-9);
    EXPECT_NEAR(wait(wait_choice::choose, 60), 100, 1e-9);
    EXPECT_NEAR(wait(wait_choice::choose, 5000), 200, 1e-9);
}

// Seen red: with a wait of 0 for what the server does not know, "new" is placed first.
TEST(live_plan, what_the_server_does_not_know_or_cannot_use_is_listed_and_a_given_wait_stays) {
    json::value own = row("own");
    own.set("wait_h", 1).set("walltime_h", 8);
    const auto got = with_estimates(
        waterfill_of({row("new"), row("denied"), row("old"), row("busy"), own}),
        estimates({estimate("here", "denied", -1, "denied"), estimate("here", "old", -1, "accepted", 30000),
                   estimate("here", "busy", 500, "temporary_limit"), estimate("here", "own", 9)}),
        {}, wait_choice::choose);
    const auto input = read_waterfill(*got, 0.5);
    ASSERT_TRUE(input.has_value()) << input.error().context;
    std::string codes;
    for (const auto& e : input->excluded) {
        codes += e.shape + "=" + std::string(word(e.code)) + " ";
        EXPECT_TRUE(e.number.has_value());
        EXPECT_FALSE(e.fix.empty());
    }
    EXPECT_EQ(codes, "new=no_probe denied=denied old=probe_too_old ");
    ASSERT_EQ(input->request.sites.at(0).shapes.size(), 2U) << "the last good reading stands in for a passing refusal";
    EXPECT_EQ(input->request.sites.at(0).shapes.at(1).wait_h, 1);
}

// Like jobs wait 600 s, three in four, or an hour; wide ones ten hours.
histories past_jobs() {
    std::vector<darlcore::plan::past_job> jobs;
    for (int i = 0; i < 60; ++i) {
        const double at = 1780000000 + 600.0 * i;
        jobs.push_back({"gpu", at, at + (i % 4 == 0 ? 3600 : 600), 3000, 28800, 1});
        jobs.push_back({"gpu", at, at + 36000, 3000, 28800, 16});
    }
    return {{"here", jobs}};
}

TEST(past_waits, a_row_takes_the_median_of_like_jobs_undiscounted_and_other_sites_keep_theirs) {
    json::value mine = row("g4"), wide = row("wide"), other = row("x");
    mine.set("wait_raw_h", 9).set("gamma", 0.1).set("walltime_h", 8).set("partition", "gpu");
    wide.set("nodes", 16).set("walltime_h", 8).set("partition", "gpu");
    other.set("wait_h", 2).set("walltime_h", 8);
    json::value input = waterfill_of({mine, wide});
    for (auto& [key, sites] : *input.as_object())
        if (key == "sites") sites.push_back(json::make_object({{"site", "there"}, {"shapes", json::array{other}}}));
    const auto made = with_history(input, past_jobs(), 0);
    ASSERT_TRUE(made.has_value()) << made.error().context;
    const auto read = read_waterfill(*made, 0.5);
    ASSERT_TRUE(read.has_value()) << read.error().context;
    EXPECT_NEAR(read->request.sites.at(0).shapes.at(0).wait_h, 600 / 3600.0, 1e-12);
    EXPECT_NEAR(read->request.sites.at(0).shapes.at(1).wait_h, 10, 1e-12);
    EXPECT_EQ(read->request.sites.at(1).shapes.at(0).wait_h, 2);
    EXPECT_FALSE(read->readings.at(0).discounted);
    EXPECT_EQ(read->readings.at(0).flags, std::vector<std::string>{"trace"});
}

TEST(past_waits, too_few_like_jobs_are_a_listed_reason_and_a_missing_walltime_is_an_error) {
    json::value mine = row("g4");
    mine.set("walltime_h", 8).set("wait_h", 1);
    histories few = past_jobs();
    few["here"].resize(10);
    const auto read = read_waterfill(*with_history(waterfill_of({mine}), few, 0), 0.5);
    ASSERT_TRUE(read.has_value()) << read.error().context;
    ASSERT_EQ(read->excluded.size(), 1U);
    EXPECT_EQ(read->excluded[0].code, darlcore::plan::exclusion_code::no_estimate);
    EXPECT_NE(read->excluded[0].what.find("10 in all"), std::string::npos) << read->excluded[0].what;
    const auto refused = with_history(waterfill_of({row("g4")}), past_jobs(), 0);
    ASSERT_FALSE(refused.has_value());
    EXPECT_NE(refused.error().context.find("site here, shape g4: add walltime_h"), std::string::npos);
}

// The darl command on a document.
run_answer darl(const slurm_test::stub_folder& folder, const json::value& document, std::vector<std::string> args) {
    std::ofstream(folder.file("in.json")) << json::dump(document);
    darlcore::slurm::run_request r;
    r.argv = {DARL_PROGRAM, "plan"};
    r.argv.insert(r.argv.end(), args.begin(), args.end());
    r.argv.insert(r.argv.end(), {"--input", folder.file("in.json")});
    r.stdout_bytes_max = std::size_t{8} << 20U;
    r.line_bytes_max = std::size_t{8} << 20U;
    return run_command(r, folder.environment());
}

json::value campaign_of(std::size_t scenario) {
    json::value c = planner().at("simulate").at(scenario);
    c.set("calibration", planner().at("calibration"));
    return c;
}

json::value* option_of(json::value& c, std::size_t i) {
    for (auto& [name, member] : *c.as_object())
        if (name == "options") return &(*member.as_array())[i];
    return nullptr;
}

TEST(drawn_waits, without_spread_every_quantile_is_the_plain_plan_and_nothing_is_regretted) {
    const slurm_test::stub_folder folder;
    const auto plain = darl(folder, campaign_of(0), {"campaign", "--json"});
    const auto a = darl(folder, campaign_of(0), {"campaign", "--json", "--draws", "20"});
    const auto d = json::parse(a.out), p = json::parse(plain.out);
    ASSERT_TRUE(d && p) << a.err;
    const json::value& about = d->at("distribution");
    const json::value time = p->at("recommended").at("time_to_target_s");
    EXPECT_EQ(about.at("p10"), time);
    EXPECT_EQ(about.at("p50"), time);
    EXPECT_EQ(about.at("p90"), time);
    std::string names;
    for (const auto& r : *d->at("distributions").as_array()) names += text(r, "name") + " ";
    for (const char* name : {"recommended", "wait_for_all", "fastest_site", "soonest_site", "waterfill"})
        EXPECT_NE(names.find(name), std::string::npos) << names;
    EXPECT_NE(darl(folder, campaign_of(0), {"campaign", "--draws", "20"}).out.find("under drawn waits"),
              std::string::npos);
}

TEST(drawn_waits, a_history_gives_the_draws_of_its_site_and_the_same_seed_the_same_bytes) {
    const slurm_test::stub_folder folder;
    json::value c = campaign_of(0);
    const std::string site = text(*option_of(c, 0), "site");
    std::ofstream swf(folder.file("jobs.swf"));
    swf << "; UnixStartTime: 1780000000\n";
    for (int i = 0; i < 60; ++i)  // job, submit, wait, run, procs, cpu, mem, req procs, req time, ...
        swf << i + 1 << ' ' << i * 600 << ' ' << (i % 3 != 0 ? 60 : 36000)
            << " 3600 1 -1 -1 1 28800 -1 1 1 1 1 1 1 -1 -1\n";
    swf.close();
    const std::vector<std::string> args{"campaign", "--json",    "--draws",
                                        "40",       "--history", site + "=" + folder.file("jobs.swf")};
    const auto a = darl(folder, c, args);
    const auto d = json::parse(a.out);
    ASSERT_TRUE(d.has_value()) << a.err;
    bool told = false;
    for (const auto& w : *d->at("waits_from").as_array())
        told = told || (text(w, "site") == site && text(w, "source").find("history") == 0);
    EXPECT_TRUE(told) << a.out;
    EXPECT_EQ(a.out, darl(folder, c, args).out);
    std::vector<std::string> trace = args;
    trace.insert(trace.end(), {"--wait", "trace"});
    const auto planned = json::parse(darl(folder, c, trace).out);
    ASSERT_TRUE(planned.has_value());
    const json::value& reading = planned->at("inputs").at("readings").at(0);
    EXPECT_EQ(text(reading, "site"), site);
    EXPECT_EQ(number(reading, "wait_s"), 60) << "two in three past jobs waited a minute";
    EXPECT_EQ(darl(folder, c, {"campaign", "--wait", "trace"}).rc, 2);
    EXPECT_EQ(darl(folder, c, {"campaign", "--history", site + "=" + folder.file("none")}).rc, 2);
    EXPECT_EQ(darl(folder, c, {"campaign", "--history", folder.file("jobs.swf")}).rc, 2);
    EXPECT_EQ(darl(folder, c, {"campaign", "--history", site + "=" + folder.file("in.json")}).rc, 2);
}

TEST(drawn_waits, readings_in_a_row_are_drawn_from_and_a_rank_puts_the_best_in_front) {
    const slurm_test::stub_folder folder;
    json::value c = campaign_of(0);
    json::array waits;
    for (int i = 0; i < 20; ++i) waits.emplace_back(i * 3600);
    option_of(c, 0)->set("waits_s", waits);
    for (const std::string rank : {"p50", "p90", "mean"}) {
        const auto a =
            darl(folder, c, {"campaign", "--json", "--rank", rank, "--draws", "50", "--deadline-s", "100000"});
        const auto d = json::parse(a.out);
        ASSERT_TRUE(d.has_value()) << a.err;
        double best = 1e300;
        for (const auto& r : *d->at("distributions").as_array()) {
            EXPECT_GE(number(r, "regret_mean_s"), 0);
            if (text(r, "name").rfind("alternative", 0) == 0 && number(r, "trapped") == 0 &&
                r.at(rank + "_s").as_double())
                best = std::min(best, number(r, rank + "_s"));
        }
        const auto& first = d->at("distributions").at(0);
        EXPECT_EQ(text(first, "name"), "recommended");
        if (first.at(rank + "_s").as_double() && number(first, "trapped") == 0) {
            EXPECT_LE(number(first, rank + "_s"), best) << rank;
        }
    }
}

// What a campaign's input is refused for.
std::string refused(const json::value& c) {
    const auto input = read_campaign(c, nullptr);
    EXPECT_FALSE(input.has_value());
    return input ? std::string() : input.error().context;
}

TEST(plan_refusals, the_command_says_it_on_stderr_and_ends_with_2) {
    const slurm_test::stub_folder folder;
    json::value c = campaign_of(0);
    option_of(c, 0)->set("startup_s", -1);
    const auto a = darl(folder, c, {"campaign", "--json"});
    EXPECT_EQ(a.rc, 2);
    EXPECT_TRUE(a.out.empty()) << a.out;
    EXPECT_NE(a.err.find(refused(c)), std::string::npos) << a.err;
}

TEST(plan_refusals, every_bad_number_of_an_option_names_its_row) {
    const std::pair<const char*, json::value> rows[] = {{"wait_s", -1},
                                                        {"wait_s", json::value()},
                                                        {"wait_s", "soon"},
                                                        {"wait_s", "2026-08-04T13:00:00"},
                                                        {"walltime_s", 0},
                                                        {"walltime_s", -5},
                                                        {"walltime_s", "8:00:00"},
                                                        {"walltime_s", json::value()},
                                                        {"startup_s", -1},
                                                        {"gpus", -1},
                                                        {"lanes", 1.5},
                                                        {"chain", "sometimes"},
                                                        {"class", "perhaps"},
                                                        {"gamma", 1.5},
                                                        {"waits_s", json::array{-1}},
                                                        {"begin_s", -1}};
    for (const auto& [key, bad] : rows) {
        json::value c = campaign_of(0);
        option_of(c, 0)->set(key, bad);
        const std::string told = refused(c);
        EXPECT_NE(told.find("options[0]"), std::string::npos) << key << ": " << told;
    }
}

TEST(plan_refusals, an_unknown_key_is_refused_with_a_suggestion_at_every_level) {
    json::value c = campaign_of(0);
    option_of(c, 0)->set("walltime", 5);
    EXPECT_NE(refused(c).find("did you mean 'walltime_s'?"), std::string::npos);
    c = campaign_of(0);
    c.set("optoins", 5);
    EXPECT_NE(refused(c).find("did you mean 'options'?"), std::string::npos);
    c = campaign_of(0);
    json::value calibration = planner().at("calibration");
    calibration.set("merg_s", 5);
    c.set("calibration", calibration);
    EXPECT_NE(refused(c).find("did you mean 'merge_s'?"), std::string::npos);
}

TEST(plan_refusals, rates_of_the_calibration_must_be_positive_and_finite) {
    for (const json::value& bad : {json::value(0), json::value(-1), json::value("fast"), json::value()}) {
        json::value c = campaign_of(0), calibration = planner().at("calibration");
        for (auto& [name, geometry] : *calibration.as_object())
            if (name == "geometry") (*geometry.as_object())[0].second.set("seq_per_s", bad);
        c.set("calibration", calibration);
        EXPECT_NE(refused(c).find("calibration.geometry."), std::string::npos);
    }
}

// Seen red: without the bound the count of units up to a time runs through 2^53 of them.
TEST(plan_refusals, numbers_beyond_what_times_can_tell_apart_are_refused_by_row) {
    for (const auto& [key, bad] : {std::pair{"wait_h", 1e308}, {"startup_h", 1e7}, {"units_per_h", 1e300}}) {
        json::value r = row("g4");
        r.set("wait_h", 5).set("walltime_h", 8).set(key, bad);
        const auto input = read_waterfill(waterfill_of({r}));
        ASSERT_TRUE(input.has_value()) << input.error().context;
        const auto plan = waterfill(input->request);
        ASSERT_FALSE(plan.has_value()) << key;
        EXPECT_NE(plan.error().context.find("site here, shape g4"), std::string::npos) << plan.error().context;
    }
    json::value r = row("g4");
    r.set("wait_h", 5).set("gpus", 4294967297.0);
    EXPECT_FALSE(read_waterfill(waterfill_of({r})).has_value()) << "a count is not cut to 32 bits";
}

// Seen red: without the check the arguments reach the document, from which scripts are made.
TEST(plan_refusals, arguments_that_a_shell_would_read_are_refused_by_name) {
    for (const std::string bad : {"-p gpu; rm x", "a\nb", "$(id)", "`id`", "it's", "\"q\"", "a|b"}) {
        json::value c = campaign_of(0);
        option_of(c, 0)->set("args", json::array{"-N", bad});
        EXPECT_NE(refused(c).find("args[1]"), std::string::npos) << bad;
    }
}

}  // namespace
