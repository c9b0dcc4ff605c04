// SPDX-License-Identifier: Apache-2.0
// Plan documents for people: text and an HTML page.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "adapters/cli/plan/output.hpp"
#include "adapters/formats/page.hpp"

namespace darl::plan_io {

using darlcore::errc;
using darlcore::fail;
using darlcore::result;
namespace page = darlcore::page;

namespace {

constexpr std::size_t bar_cells = 60;

double number(const json::value& v, std::string_view key, double fallback = 0) {
    const json::value* m = v.find(key);
    return m == nullptr ? fallback : m->as_double().value_or(fallback);
}

std::string text(const json::value& v, std::string_view key) {
    const json::value* m = v.find(key);
    return m == nullptr || m->as_string() == nullptr ? std::string() : *m->as_string();
}

const json::array& list(const json::value& v, std::string_view key) {
    static const json::array none;
    const json::value* m = v.find(key);
    return m == nullptr || m->as_array() == nullptr ? none : *m->as_array();
}

// "2 d 3 h", "5 h 12 min", "40 s"; "never" when the document has none.
std::string duration(const json::value& v, std::string_view key) {
    const json::value* m = v.find(key);
    if (m == nullptr || !m->as_double()) return "not reached";
    const double s = *m->as_double();
    if (s >= 86400) return fmt::format("{:.2f} d ({:.1f} h)", s / 86400, s / 3600);
    if (s >= 3600) return fmt::format("{:.2f} h", s / 3600);
    if (s >= 60) return fmt::format("{:.1f} min", s / 60);
    return fmt::format("{:.0f} s", s);
}

// What a site does at a moment, as a class: 0 absent, 1 queued, 2 starting, 3 alone, 4 together, 5 present without
// training.
struct presence {
    double start_s, end_s;
    int what;
};

std::vector<presence> presence_of(const json::value& plan, const json::value& site) {
    std::vector<presence> made;
    const std::string name = text(site, "site") + "-l";
    const double until = number(plan, "run_end_s");
    for (const json::value& l : list(site, "links")) {
        made.push_back({number(l, "submit_s"), number(l, "arrival_s"), 1});
        made.push_back({number(l, "arrival_s"), number(l, "productive_s"), 2});
        made.push_back({number(l, "productive_s"), std::min(until, number(l, "end_s")), 5});
    }
    for (const json::value& v : list(plan, "intervals")) {
        bool here = false, others = false;
        for (const json::value& m : list(v, "members")) {
            const std::string* label = m.as_string();
            if (label == nullptr) continue;
            const bool own = label->substr(0, name.size()) == name;
            here = here || own;
            others = others || !own;
        }
        if (here) made.push_back({number(v, "start_s"), number(v, "end_s"), others ? 4 : 3});
    }
    return made;
}

std::string bar(const json::value& plan, const json::value& site, double until_s) {
    constexpr std::string_view marks = " .:-#_";
    std::string cells(bar_cells, ' ');
    std::vector<int> at(bar_cells, 0);
    for (const presence& p : presence_of(plan, site)) {
        for (std::size_t i = 0; i < bar_cells; ++i) {
            const double middle = (static_cast<double>(i) + 0.5) / bar_cells * until_s;
            const bool stronger = p.what == 5 ? at[i] < 2 || at[i] == 5 : at[i] == 5 || p.what > at[i];
            if (middle >= p.start_s && middle < p.end_s && stronger) at[i] = p.what;
        }
    }
    for (std::size_t i = 0; i < bar_cells; ++i) cells[i] = marks[static_cast<std::size_t>(at[i])];
    return cells;
}

std::string excluded_text(const json::value& document) {
    std::string out;
    for (const json::value& e : list(document, "excluded")) {
        const std::string shape = text(e, "shape");
        const json::value* n = e.find("number");
        const std::string shown =
            n != nullptr && n->as_double() ? fmt::format("{:g} ", *n->as_double()) : std::string();
        out += fmt::format("  {}{}: {}: {}{}; fix: {}\n", text(e, "site"), shape.empty() ? "" : " " + shape,
                           text(e, "code"), shown, text(e, "what"), text(e, "fix"));
    }
    return out.empty() ? out : "not used:\n" + out;
}

std::string readings_text(const json::value& document) {
    std::string out;
    const json::value* inputs = document.find("inputs");
    if (inputs == nullptr) return out;
    for (const json::value& r : list(*inputs, "readings")) {
        const json::value* wait = r.find("wait_s");
        if (wait == nullptr || !wait->as_double()) continue;
        const bool discounted = r.find("discounted") != nullptr && r.at("discounted").as_bool().value_or(false);
        out +=
            fmt::format("  {:<16} {:<12} wait {}{}\n", text(r, "site"), text(r, "shape"), duration(r, "wait_s"),
                        discounted ? fmt::format(" (raw {}, gamma {:g})", duration(r, "wait_raw_s"), number(r, "gamma"))
                                   : std::string(" (as given, not discounted)"));
    }
    return out.empty() ? out : "waits assumed:\n" + out;
}

std::string waterfill_text(const json::value& d) {
    std::string out = fmt::format("waterfill: {:g} units assigned, {:g} left over, done after {:.4g} h\n",
                                  number(d, "assigned"), number(d, "unassigned"), number(d, "makespan_h"));
    out += "(nobody waits for anybody: an optimistic bound; `darl plan campaign` adds barrier and overheads)\n";
    const json::value* sites = d.find("sites");
    if (sites != nullptr && sites->as_object() != nullptr) {
        for (const auto& [name, s] : *sites->as_object()) {
            if (number(s, "units") == 0) {
                out += fmt::format("  {:<16} not used\n", name);
                continue;
            }
            const double until = std::max(number(d, "makespan_h"), 1e-9);
            std::string cells(bar_cells, ' ');
            for (std::size_t i = 0; i < bar_cells; ++i) {
                const double t = (static_cast<double>(i) + 0.5) / bar_cells * until;
                cells[i] = t < number(s, "start_h") ? '.' : t < number(s, "finish_h") ? '#' : ' ';
            }
            out += fmt::format("  {:<16} |{}| {:g} units, shape {}, {:.4g} to {:.4g} h, walltime {:.4g} h, jobs {:g}\n",
                               name, cells, number(s, "units"), text(s, "shape"), number(s, "start_h"),
                               number(s, "finish_h"), number(s, "walltime_h"), number(s, "jobs"));
        }
    }
    return out + readings_text(d) + excluded_text(d);
}

std::string alternatives_text(const json::value& d) {
    std::string out;
    for (const json::value& a : list(d, "alternatives")) {
        std::string sites;
        for (const json::value& o : list(a, "options"))
            sites += fmt::format("{}{} {}", sites.empty() ? "" : " + ", text(o, "site"), text(o, "shape"));
        out += fmt::format("  {}: {}, {:g} federated rounds, {:.4g} node-hours; lost by {}\n", sites,
                           duration(a, "time_to_target_s"), number(a, "federated_rounds"), number(a, "node_hours"),
                           text(a, "lost_by"));
    }
    if (!out.empty()) out = "alternatives:\n" + out;
    std::string rows;
    for (const json::value& s : list(d, "sensitivity")) {
        const bool same = s.find("same_choice") != nullptr && s.at("same_choice").as_bool().value_or(false);
        rows += fmt::format("  {:<14} {} {}\n", text(s, "setting"), duration(s, "time_to_target_s"),
                            same ? "(same choice)" : "(another plan)");
    }
    return rows.empty() ? out : out + "planned anew with:\n" + rows;
}

std::string chances_text(const json::value& d) {
    const json::value* about = d.find("distribution");
    if (about == nullptr || about->is_null()) return {};
    std::string out =
        fmt::format("under drawn waits ({:g} draws, seed {:g}): time to target p10 / p50 / p90, regret mean / p90\n",
                    number(*about, "draws"), number(*about, "seed"));
    for (const json::value& r : list(d, "distributions")) {
        out +=
            fmt::format("  {:<14} {} / {} / {}, {} / {}", text(r, "name"), duration(r, "p10_s"), duration(r, "p50_s"),
                        duration(r, "p90_s"), duration(r, "regret_mean_s"), duration(r, "regret_p90_s"));
        if (number(*about, "deadline_s") > 0) out += fmt::format("; in time {:.0f} %", 100 * number(r, "by_deadline"));
        if (number(r, "trapped") > 0) out += fmt::format("; trapped {:.0f} %", 100 * number(r, "trapped"));
        out += "\n";
    }
    for (const json::value& w : list(d, "waits_from"))
        out += fmt::format("  waits of {} {}: {}, {:g} samples\n", text(w, "site"), text(w, "shape"), text(w, "source"),
                           number(w, "samples"));
    return out;
}

std::string campaign_text(const json::value& d) {
    const json::value& p = d.at("recommended");
    const double until = std::max(number(p, "run_end_s"), 1.0);
    std::string out =
        fmt::format("time to target: {} with barrier, link ends and overheads; {} if nobody waited for anybody\n",
                    duration(p, "time_to_target_s"), duration(p, "idealised_time_to_target_s"));
    out += fmt::format("{:g} federated and {:g} solo rounds, {:g} tokens, {:.4g} node-hours, ended by {}, figures {}\n",
                       number(p, "federated_rounds"), number(p, "solo_rounds"), number(p, "tokens"),
                       number(p, "node_hours"), text(p, "ended_by"), text(p, "quality"));
    for (const json::value& t : list(p, "traps"))
        if (t.as_string() != nullptr) out += fmt::format("TRAP: {}\n", *t.as_string());
    for (const json::value& w : list(p, "warnings"))
        if (w.as_string() != nullptr) out += fmt::format("warning: {}\n", *w.as_string());
    out += fmt::format("presence until {} (. queued, : starting, - alone, # together, _ idle):\n",
                       duration(p, "run_end_s"));
    for (const json::value& s : list(p, "sites"))
        out += fmt::format("  {:<16} |{}| {:g} merges, {:.1f} h compute, {:.1f} h idle\n", text(s, "site"),
                           bar(p, s, until), number(s, "merges"), number(s, "compute_s") / 3600,
                           number(s, "idle_s") / 3600);
    out += "submit:\n";
    for (const json::value& o : list(p, "options"))
        out += fmt::format("  {:<16} shape {}, {:g} lanes x {:g} links ({}), begin at {:g} s, accumulation {:g}\n",
                           text(o, "site"), text(o, "shape"), number(o, "lanes"), number(o, "links"), text(o, "chain"),
                           number(o, "begin_s"), number(o, "accumulation"));
    const bool exact = d.find("exact") != nullptr && d.at("exact").as_bool().value_or(false);
    if (!exact) out += fmt::format("not proven best; at most {} better plans could exist\n", duration(d, "gap_s"));
    return out + alternatives_text(d) + chances_text(d) + readings_text(d) + excluded_text(d);
}

constexpr std::string_view fills[] = {"none", "#d8d8d8", "#f0c674", "#7aa6da", "#2a8c55", "#eeeeee"};

// The presence of a site, what matters most on top.
page::presence_row row_of(const std::string& name, std::vector<presence> parts) {
    std::stable_sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) {
        return (a.what == 5 ? 0 : a.what) < (b.what == 5 ? 0 : b.what);
    });
    page::presence_row row{name, {}};
    for (const presence& p : parts) row.parts.push_back({p.start_s, p.end_s, fills[static_cast<std::size_t>(p.what)]});
    return row;
}

std::string chart_of(const json::value& d) {
    std::vector<page::presence_row> rows;
    std::vector<std::pair<double, std::string>> notes;
    double until = 1;
    if (text(d, "kind") == "campaign") {
        const json::value& p = d.at("recommended");
        until = std::max(number(p, "run_end_s"), 1.0);
        for (const json::value& s : list(p, "sites")) rows.push_back(row_of(text(s, "site"), presence_of(p, s)));
        for (const json::value& v : list(p, "intervals"))
            if (number(v, "end_s") - number(v, "start_s") > until / 20)
                notes.emplace_back(number(v, "start_s"), fmt::format("{:g} rounds", number(v, "rounds")));
    } else if (const json::value* sites = d.find("sites"); sites != nullptr && sites->as_object() != nullptr) {
        until = std::max(number(d, "makespan_h"), 1e-9);
        for (const auto& [name, s] : *sites->as_object()) {
            std::vector<presence> parts;
            if (number(s, "units") > 0)
                parts = {{0, number(s, "start_h"), 1}, {number(s, "start_h"), number(s, "finish_h"), 4}};
            rows.push_back(row_of(name, std::move(parts)));
        }
    }
    return page::presence_chart("who is present when", rows, until, notes);
}

constexpr std::string_view style =
    "body{font-family:sans-serif;max-width:60em;margin:2em auto}pre{background:#f6f6f6;padding:1em;overflow:auto}"
    "span{padding:0 .5em}";

result<void> check_document(const json::value& d) {
    const std::string kind = text(d, "kind");
    if (number(d, "schema") != 1 || (kind != "campaign" && kind != "waterfill"))
        return fail(errc::bad_request,
                    "not a plan document of schema 1; make one with `darl plan waterfill|campaign --json`");
    if (kind == "campaign" && d.find("recommended") == nullptr)
        return fail(errc::bad_request, "the plan document has no recommended plan");
    return {};
}

}  // namespace

result<std::string> plan_text(const json::value& d) {
    if (auto ok = check_document(d); !ok) return ok.error();
    return text(d, "kind") == "campaign" ? campaign_text(d) : waterfill_text(d);
}

result<std::string> plan_html(const json::value& d) {
    const auto body = plan_text(d);
    if (!body) return body.error();
    const std::string title = text(d, "kind") == "campaign" ? "Campaign plan" : "Waterfill plan";
    const std::string legend =
        "<p><span style=\"background:#d8d8d8\">queued</span> <span style=\"background:#f0c674\">starting</span> "
        "<span style=\"background:#7aa6da\">alone</span> <span style=\"background:#2a8c55\">together</span></p>\n";
    return page::document(
        "darl plan", style,
        fmt::format("<h1>{}</h1>\n{}{}<pre>{}</pre>\n", title, chart_of(d), legend, page::escape(*body)));
}

}  // namespace darl::plan_io
