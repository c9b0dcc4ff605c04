// SPDX-License-Identifier: Apache-2.0
// `darl plan waterfill|campaign|show`: plans with reasons.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "adapters/cli/cli_support.hpp"
#include "adapters/cli/did_you_mean.hpp"
#include "adapters/cli/plan/chance.hpp"
#include "adapters/cli/plan/live.hpp"
#include "adapters/cli/plan/output.hpp"
#include "adapters/cli/plan_sources.hpp"
#include "darlcore/plan/fluid.hpp"

namespace darl {
namespace {

using namespace darlcore::plan;
using namespace plan_io;
using darlcore::errc;
using darlcore::fail;
using darlcore::result;

struct plan_arguments {
    std::string input;
    std::string calibration;
    std::string html;
    std::string rules;
    std::string objective;
    std::string balance;
    std::optional<double> now_s;  // without it the document does not depend on the clock
    double strength = 0.5;
    double budget_s = 60;
    double margin_s = -1;
    long long target_tokens = -1;
    bool search = false;
    bool sensitivity = false;
    server_access server;
    std::string wait = "choose";
    bool publish = false;
    std::size_t draws = 0;
    std::uint64_t seed = 1;
    std::string rank;
    double deadline_s = -1;
    double history_now_s = 0;
    std::vector<std::string> history;
};

// The input with the waits of the server in its rows.
result<json::value> asked_of_server(json::value document, plan_arguments& a) {
    const auto estimates = ask_server(a.server, fmt::format("/estimates?strength={}", a.strength));
    if (!estimates) return estimates.error();
    json::value probes;
    if (a.draws > 0) {
        auto got = ask_server(a.server, "/probes?limit=10000");
        if (!got) return got.error();
        probes = std::move(*got);
    }
    if (!a.now_s && estimates->contains("now_s")) a.now_s = estimates->at("now_s").as_double();
    const wait_choice choice = a.wait == "now"   ? wait_choice::now
                               : a.wait == "p50" ? wait_choice::p50
                               : a.wait == "p90" ? wait_choice::p90
                                                 : wait_choice::choose;
    return with_estimates(std::move(document), *estimates, probes, choice);
}

// The input with the waits of the server or of histories in its rows, when they are named.
result<json::value> planned_input(plan_arguments& a) {
    if (a.input.empty()) return fail(errc::bad_request, "give --input FILE (JSON or TOML, - for stdin)");
    if (a.publish && a.server.url.empty()) return fail(errc::bad_request, "--publish needs --server URL");
    if (a.wait == "trace" && a.history.empty())
        return fail(errc::bad_request, "--wait trace plans with past waits; give --history SITE=FILE");
    auto document = read_document(a.input);
    if (document && !a.server.url.empty()) document = asked_of_server(std::move(*document), a);
    if (!document || a.wait != "trace") return document;
    const auto past = read_histories(a.history);
    if (!past) return past.error();
    return with_history(std::move(*document), *past, a.history_now_s);
}

result<void> deliver(session& s, const json::value& document, const plan_arguments& a) {
    if (a.publish) {
        if (auto ok = publish_plan(a.server, document); !ok) return ok;
    }
    if (!a.html.empty()) {
        const auto page = plan_html(document);
        if (!page) return page.error();
        std::ofstream out(a.html, std::ios::binary | std::ios::trunc);
        out << *page;
        out.close();
        if (!out)
            return fail(errc::io_error,
                        fmt::format("{}: could not be written; choose another path for --html", a.html));
    }
    if (s.json) {
        print_line(json::dump(document));
        return {};
    }
    const auto text = plan_text(document);
    if (!text) return text.error();
    std::fputs(text->c_str(), stdout);
    return {};
}

result<void> waterfill_command(session& s, plan_arguments& a) {
    const auto document = planned_input(a);
    if (!document) return document.error();
    const auto input = read_waterfill(*document, a.strength);
    if (!input) return input.error();
    auto plan = waterfill(input->request);
    if (!plan) return plan.error();
    // a site whose shapes are all excluded above is listed there, once
    for (const exclusion& e : input->excluded)
        plan->excluded.erase(
            std::remove_if(plan->excluded.begin(), plan->excluded.end(),
                           [&](const exclusion& x) { return x.site == e.site && x.code == exclusion_code::no_probe; }),
            plan->excluded.end());
    if (plan->assigned == 0 && input->request.units > 0) s.exit_code = exit_usage;
    return deliver(s, waterfill_document(*input, *plan, a.now_s), a);
}

// The same work if nobody waited for anybody.
double idealised_s(const campaign_input& input, const std::vector<plan_option>& options,
                   const campaign_config& config) {
    std::vector<std::vector<capacity_curve>> curves;
    for (const plan_option& o : options) {
        const auto cost = cost_of(input.calibration, o.site, o.gpus);
        if (!cost) continue;
        waterfill_shape s;
        s.units_per_h = 3600 * static_cast<double>(cost->batch) / cost->step_s;
        s.jobs = o.lanes;
        s.wait_h = (o.begin_s + o.wait_s) / 3600;
        s.walltime_h = o.walltime_s / 3600;
        s.startup_h = o.startup_s / 3600;
        if (o.chain != chain_policy::none && o.links > 1) {
            s.link_h = s.walltime_h;
            s.links_max = o.links;
            const double gap_s = o.chain == chain_policy::singleton ? o.wait_s : std::max(0.0, o.wait_s - o.walltime_s);
            s.gap_h = gap_s / 3600;
        }
        curves.push_back({capacity_curve(s, 0, 1)});
    }
    double goal = std::max(0.0, config.blocks_unassigned - config.blocks_reserve) * input.calibration.block_windows;
    if (config.target_tokens)
        goal = std::min(goal, static_cast<double>(*config.target_tokens) / input.calibration.seq_len);
    double most = 0;
    for (const auto& c : curves) most += c.front().cap_units();
    if (most < goal * (1 - 1e-12)) return std::numeric_limits<double>::infinity();
    return 3600 * water_level_h(goal, curves);
}

result<planned_campaign> planned(const campaign_input& input, std::vector<plan_option> options,
                                 const campaign_config& config) {
    planned_campaign p;
    p.options = std::move(options);
    for (const plan_option& o : p.options) {
        std::vector<std::string> args;
        for (std::size_t i = 0; i < input.options.size(); ++i)
            if (input.options[i].site == o.site && input.options[i].shape == o.shape) args = input.args[i];
        p.args.push_back(std::move(args));
    }
    p.config = config;
    auto model = make_campaign(input.calibration, p.options, config);
    if (!model) return model.error();
    p.model = std::move(*model);
    p.outcome = simulate(p.model, config);
    p.report = report_of(p.model, p.options, config, input.calibration, p.outcome);
    p.idealised_s = idealised_s(input, p.options, config);
    return p;
}

result<search_settings> settings_of(const plan_arguments& a) {
    search_settings settings;
    if (!a.objective.empty()) {
        settings.objectives.order.clear();
        std::string rest = a.objective;
        while (!rest.empty()) {
            const auto comma = rest.find(',');
            const std::string name = rest.substr(0, comma);
            rest = comma == std::string::npos ? std::string() : rest.substr(comma + 1);
            const auto o = objective_from_word(name);
            if (!o) {
                const std::string near = did_you_mean(name, objective_words);
                return fail(errc::bad_request,
                            fmt::format("unknown objective '{}'{}; use time, merges, tokens, node_hours or utility",
                                        name, near.empty() ? "" : ", did you mean " + near + "?"));
            }
            settings.objectives.order.push_back(*o);
        }
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(a.budget_s);
    settings.out_of_time = [end] { return std::chrono::steady_clock::now() > end; };
    return settings;
}

result<void> apply_arguments(campaign_input& input, const plan_arguments& a) {
    if (!a.rules.empty() && a.rules != "strict" && a.rules != "reference")
        return fail(errc::bad_request, "--rules must be strict or reference");
    if (!a.rules.empty()) input.config.rules = a.rules == "reference" ? rule_set::reference : rule_set::strict;
    if (a.margin_s >= 0) input.config.leave_margin_s = a.margin_s;
    if (a.target_tokens >= 0) input.config.target_tokens = static_cast<std::uint64_t>(a.target_tokens);
    if (!a.balance.empty() && a.balance != "on" && a.balance != "off")
        return fail(errc::bad_request, "--balance must be on or off");
    if (!a.balance.empty()) input.config.balance = a.balance == "on";
    return {};
}

std::vector<site_choices> choices_of(const campaign_input& input) {
    std::map<std::string, std::vector<plan_option>> by_site;
    for (const plan_option& o : input.options) by_site[o.site].push_back(o);
    std::vector<site_choices> made;
    for (auto& [site, options] : by_site) made.push_back({site, std::move(options)});
    return made;
}

std::vector<candidate_shape> candidates_of(const campaign_input& input) {
    std::vector<candidate_shape> made;
    for (std::size_t i = 0; i < input.options.size(); ++i) {
        const plan_option& o = input.options[i];
        candidate_shape c;
        c.base = o;
        c.wait_raw_s = o.wait_s;
        c.wait_p50_s = input.waits[i].p50_s;
        c.wait_p90_s = input.waits[i].p90_s;
        for (const reading_row& r : input.readings) {
            if (r.site != o.site || r.shape != o.shape || !r.wait_raw_s) continue;
            c.wait_raw_s = *r.wait_raw_s;
            c.gamma = r.gamma;
        }
        made.push_back(std::move(c));
    }
    return made;
}

// A shape that is in no plan so far: the recommended one with this shape at its site.
result<std::vector<scored_plan>> plans_of_the_others(const campaign_input& input, const planned_campaign& p) {
    const auto shows = [](const std::vector<plan_option>& plan, const plan_option& o) {
        return std::any_of(plan.begin(), plan.end(),
                           [&](const plan_option& x) { return x.site == o.site && x.shape == o.shape; });
    };
    std::vector<scored_plan> made;
    for (const plan_option& o : input.options) {
        bool shown = shows(p.options, o);
        for (const losing_plan& l : p.alternatives) shown = shown || shows(l.plan.options, o);
        for (const scored_plan& s : made) shown = shown || shows(s.options, o);
        if (shown) continue;
        std::vector<plan_option> changed = p.options;
        std::erase_if(changed, [&](const plan_option& x) { return x.site == o.site; });
        changed.push_back(o);
        std::stable_sort(changed.begin(), changed.end(), [](const auto& x, const auto& y) { return x.site < y.site; });
        auto scored = score_plan(input.calibration, changed, p.config);
        if (!scored) return scored.error();
        made.push_back(std::move(*scored));
    }
    return made;
}

// The given plan with the alternatives that its sites allow; or, when a site has several options or it is asked for,
// the best one.
result<planned_campaign> choose(const campaign_input& input, const std::vector<site_choices>& choices,
                                const plan_arguments& a) {
    const auto settings = settings_of(a);
    if (!settings) return settings.error();
    planning_view view;
    view.strength = a.strength;
    view.delayed_begins = a.search;
    const bool choosing = a.search || input.several_per_site;
    auto found = search_plans(input.calibration, choices, input.config, *settings);
    if (!found) return found.error();
    if (!found->best) return fail(errc::bad_request, "no plan can be made of these options");
    auto p = planned(input, choosing ? found->best->options : input.options, input.config);
    if (!p) return p.error();
    p->exact = found->exact;
    p->gap_s = found->gap_s;
    p->marginal_s = found->marginal_s;
    std::vector<plan_option> sorted = p->options;
    std::stable_sort(sorted.begin(), sorted.end(), [](const auto& x, const auto& y) { return x.site < y.site; });
    const auto given = score_plan(input.calibration, sorted, input.config);
    if (!given) return given.error();
    const auto add = [&](const scored_plan& other) {
        if (other.options == given->options) return;
        const auto order = compare(other, *given, settings->objectives);
        p->alternatives.push_back(
            {other, order.better ? "not lost: better by " + order.key + ", but not asked for" : order.key});
    };
    if (!choosing) add(*found->best);
    for (const losing_plan& l : found->per_set) add(l.plan);
    for (const losing_plan& l : found->runners_up) {
        const auto same = [&](const losing_plan& x) { return x.plan.options == l.plan.options; };
        if (std::none_of(p->alternatives.begin(), p->alternatives.end(), same)) add(l.plan);
    }
    auto others = plans_of_the_others(input, *p);
    if (!others) return others.error();
    for (const scored_plan& other : *others) add(other);
    if (a.sensitivity) {
        auto rows = sensitivity(input.calibration, candidates_of(input), input.config, view, *settings, *given);
        if (!rows) return rows.error();
        p->sensitivity = std::move(*rows);
    }
    return p;
}

// What there is to choose from: with --search also delayed begins.
result<std::vector<site_choices>> all_choices(const campaign_input& input, const plan_arguments& a) {
    if (!a.search) return choices_of(input);
    planning_view view;
    view.strength = a.strength;
    return make_options(candidates_of(input), view, input.config.horizon_s);
}

// The plan under drawn waits; with --rank the best by it is put in front and the plain one becomes an alternative.
result<chances> rank_by_chance(const campaign_input& input, const std::vector<site_choices>& choices,
                               planned_campaign& p, const plan_arguments& a) {
    chance_settings c;
    c.draws.draws = a.draws;
    c.draws.seed = a.seed;
    if (a.deadline_s >= 0) c.draws.deadline_s = a.deadline_s;
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(a.budget_s);
    c.draws.out_of_time = [end] { return std::chrono::steady_clock::now() > end; };
    c.history_now_s = a.history_now_s;
    const auto past = read_histories(a.history);
    if (!past) return past.error();
    const wait_book waits(input, *past, c);
    auto drawn = draw_chances(input, p, choices, waits, c);
    if (!drawn || a.rank.empty()) return drawn;
    const std::size_t best = best_by(*drawn, a.rank);
    if (best == 0) return drawn;
    const auto former = score_plan(input.calibration, p.options, input.config);
    if (!former) return former.error();
    auto next = planned(input, p.alternatives[best - 1].plan.options, input.config);
    if (!next) return next.error();
    next->exact = p.exact;
    next->gap_s = p.gap_s;
    next->marginal_s = std::move(p.marginal_s);
    next->sensitivity = std::move(p.sensitivity);
    next->alternatives = std::move(p.alternatives);
    next->alternatives[best - 1] = {*former, a.rank};
    std::swap(drawn->rows[0].options, drawn->rows[best].options);
    std::swap(drawn->rows[0].outcome, drawn->rows[best].outcome);
    p = std::move(*next);
    return drawn;
}

result<void> campaign_command(session& s, plan_arguments& a) {
    if (a.draws == 0 && (!a.rank.empty() || !a.history.empty() || a.deadline_s >= 0)) a.draws = 200;
    json::value calibration;
    if (!a.calibration.empty()) {
        auto read = read_document(a.calibration);
        if (!read) return read.error();
        calibration = read->contains("calibration") ? read->at("calibration") : *read;
    }
    const auto document = planned_input(a);
    if (!document) return document.error();
    auto input = read_campaign(*document, a.calibration.empty() ? nullptr : &calibration, a.strength);
    if (!input) return input.error();
    if (auto ok = apply_arguments(*input, a); !ok) return ok.error();
    if (input->options.empty()) {
        std::string why;
        for (const exclusion& e : input->excluded)
            why += fmt::format("; {} {}: {} ({})", e.site, e.shape, word(e.code), e.fix);
        return fail(errc::bad_request, "no option is admissible" + why);
    }
    const auto choices = all_choices(*input, a);
    if (!choices) return choices.error();
    auto p = choose(*input, *choices, a);
    if (!p) return p.error();
    std::optional<chances> drawn;
    if (a.draws > 0) {
        auto made = rank_by_chance(*input, *choices, *p, a);
        if (!made) return made.error();
        drawn = std::move(*made);
    }
    if (!p->report.traps.empty()) s.exit_code = exit_failed;
    json::value made = campaign_document(*input, *p, a.now_s);
    if (drawn) {
        chance_settings c;
        c.draws.draws = a.draws;
        c.draws.seed = a.seed;
        if (a.deadline_s >= 0) c.draws.deadline_s = a.deadline_s;
        add_chances(made, *drawn, c);
    }
    return deliver(s, made, a);
}

// What the server knows of the queues, how its predictions were met, and the plan that was published there.
result<void> show_server(session& s, const plan_arguments& a) {
    const auto estimates = ask_server(a.server, "/estimates");
    if (!estimates) return estimates.error();
    const auto plan = ask_server(a.server, "/plan");
    if (!plan && plan.error().code != errc::not_found) return plan.error();
    if (s.json) {
        print_line(json::dump(json::make_object({{"estimates", *estimates}, {"plan", plan ? *plan : json::value()}})));
        return {};
    }
    std::fputs(estimates_text(*estimates).c_str(), stdout);
    if (!plan) {
        print_line("no plan is published; darl plan campaign --server URL --publish does");
        return {};
    }
    return deliver(s, *plan, a);
}

result<void> show_command(session& s, plan_arguments& a) {
    if (a.input.empty() && a.server.url.empty())
        return fail(errc::bad_request, "give --input FILE (a plan document) or --server URL");
    if (a.input.empty()) return show_server(s, a);
    const auto document = read_document(a.input);
    if (!document) return document.error();
    return deliver(s, *document, a);
}

template <class Command>
void attach(CLI::App* command, session& s, const std::shared_ptr<plan_arguments>& a, Command run) {
    command->add_option("--input", a->input, "JSON or TOML file, - for stdin");
    command->add_option("--server", a->server.url, "URL of darl serve: waits from its newest probes");
    add_server_access(command, a->server);
    command->add_option("--now", a->now_s,
                        "epoch seconds to write as now_s (default: none, so that the same input gives the same bytes)");
    command->add_option("--html", a->html, "also write a page (inline SVG, no scripts)");
    command->callback([&s, a, run] {
        if (const auto done = run(s, *a); !done) report(s, done.error());
    });
}

}  // namespace

void add_plan(CLI::App& app, session& s) {
    auto* group = app.add_subcommand("plan", "where to submit what, when, and why");
    group->require_subcommand(1);
    const auto a = std::make_shared<plan_arguments>();
    const auto live = [&](CLI::App* command) {
        command
            ->add_option(
                "--wait", a->wait,
                "which of the server's waits: choose (now while fresh, else p50), now, p50, p90; or trace: the "
                "median past wait of like jobs, for sites with a --history")
            ->check(CLI::IsMember({"choose", "now", "p50", "p90", "trace"}));
        command->add_option(
            "--history", a->history,
            "SITE=FILE with past jobs (SWF or sacct rows): draws for that site, waits with --wait trace");
        command->add_option("--history-now", a->history_now_s,
                            "epoch seconds at which histories are read (default: their end)");
        command->add_flag("--publish", a->publish, "also make it the plan page of the server (a token of scope probe)");
    };
    auto* fill = group->add_subcommand("waterfill",
                                       "split work over sites so that it ends soonest, if nobody waits for anybody");
    attach(fill, s, a, waterfill_command);
    fill->add_option("--strength", a->strength, "discount of raw waits by gamma, 0 to 1 (default 0.5)")
        ->check(CLI::Range(0.0, 1.0));
    live(fill);
    fill->footer("Example: darl plan waterfill --input work.toml --server http://127.0.0.1:8760");
    auto* campaign = group->add_subcommand(
        "campaign", "what happens round by round, with barrier, link ends, joiners and a finite corpus");
    attach(campaign, s, a, campaign_command);
    campaign->add_option("--calibration", a->calibration, "calibration file, when the input has none");
    campaign->add_option("--rules", a->rules, "strict (default) or reference");
    campaign->add_option("--objective", a->objective, "order of time,merges,tokens,node_hours (or utility)");
    campaign->add_option("--balance", a->balance, "on or off: accumulation on fast sites");
    campaign->add_option("--strength", a->strength, "discount of raw waits by gamma, 0 to 1 (default 0.5)")
        ->check(CLI::Range(0.0, 1.0));
    campaign->add_option("--target-tokens", a->target_tokens, "time to this many tokens instead of the whole corpus");
    campaign->add_option("--leave-margin", a->margin_s, "seconds before its end at which a job stops (default 60)");
    campaign->add_option("--budget-s", a->budget_s, "time for the search (default 60)");
    campaign->add_flag("--search", a->search, "choose shapes and begin times; default: the options as given, one plan");
    campaign->add_flag("--sensitivity", a->sensitivity, "plan anew under other discounts, startups, waits and H");
    live(campaign);
    campaign
        ->add_option("--draws", a->draws, "also under so many drawn waits (default 0; 200 with --rank or --history)")
        ->check(CLI::Range(1, 100000));
    campaign->add_option("--seed", a->seed, "of the draws (default 1)");
    campaign->add_option("--rank", a->rank, "recommend the plan that is best by p50, p90 or mean of the draws")
        ->check(CLI::IsMember({"p50", "p90", "mean"}));
    campaign->add_option("--deadline-s", a->deadline_s, "also the share of draws that reach the target by then")
        ->check(CLI::NonNegativeNumber);
    campaign->footer("Example: darl plan campaign --input run.toml --calibration measured.json --search");
    auto* show = group->add_subcommand("show", "a plan document as text or page");
    attach(show, s, a, show_command);
    show->footer(
        "Example: darl plan campaign --input run.toml --json > plan.json && darl plan show --input plan.json --html "
        "plan.html");
}

}  // namespace darl
