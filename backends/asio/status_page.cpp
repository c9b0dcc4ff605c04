// SPDX-License-Identifier: Apache-2.0
#include "backends/asio/status_page.hpp"

#include <cmath>
#include <iterator>

#include <fmt/format.h>

#include "adapters/formats/page.hpp"

namespace darlcore::http {

namespace {

std::string cell(const json::value& v) {
    if (const std::string* s = v.as_string()) return *s;
    if (v.is_integer() || v.as_bool()) return json::dump(v);
    if (const auto d = v.as_double()) return fmt::format("{:.3g}", *d);
    return {};
}

std::string member(const json::value& v, std::string_view name) {
    const json::value* m = v.find(name);
    return m == nullptr ? std::string() : cell(*m);
}

double number(const json::value& v, std::string_view name) {
    const json::value* m = v.find(name);
    return m == nullptr ? 0.0 : m->as_double().value_or(0.0);
}

std::string duration(double s) {
    if (s < 0) s = 0;
    if (s < 120) return fmt::format("{:.0f} s", s);
    if (s < 7200) return fmt::format("{:.0f} min", s / 60);
    if (s < 172800) return fmt::format("{:.1f} h", s / 3600);
    return fmt::format("{:.1f} d", s / 86400);
}

constexpr std::string_view style =
    "body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:64rem;padding:0 "
    "1rem;color:#222;background:#fff}"
    "h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}table{border-collapse:collapse;width:100%}"
    "th,td{text-align:left;padding:.25rem .6rem;border-bottom:1px solid #ddd;font-variant-numeric:tabular-nums}"
    ".bar{display:flex;height:1.2rem;border:1px solid #999;background:#eee}.bar i{display:block;height:100%}"
    ".c{background:#2a7}.p{background:#69c}.l{background:#fb3}.q{background:#c33}.note{color:#666}.bad{color:#b00;font-"
    "weight:600}";

void bar(std::string& out, const json::value& s) {
    const double blocks = std::max(1.0, number(s, "num_blocks"));
    out += "<div class=\"bar\" role=\"img\" aria-label=\"blocks by state\">";
    for (const auto& [css, name] :
         {std::pair{"c", "committed"}, {"p", "pledged"}, {"l", "leased"}, {"q", "quarantined"}})
        fmt::format_to(std::back_inserter(out), "<i class=\"{}\" style=\"width:{:.2f}%\"></i>", css,
                       100.0 * number(s, name) / blocks);
    out += "</div><p>";
    for (const char* name : {"committed", "pledged", "leased", "unassigned", "quarantined"})
        fmt::format_to(std::back_inserter(out), "{} <b>{}</b> &nbsp; ", name, page::escape(member(s, name)));
    fmt::format_to(std::back_inserter(out), "of <b>{}</b> blocks, epoch {} of {}</p>",
                   page::escape(member(s, "num_blocks")), page::escape(member(s, "epoch")),
                   page::escape(member(s, "max_epochs")));
}

void table(std::string& out, std::string_view title, const std::vector<std::string>& heads, const page::rows& lines,
           std::string_view empty) {
    fmt::format_to(std::back_inserter(out), "<h2>{}</h2>", page::escape(title));
    if (lines.empty())
        fmt::format_to(std::back_inserter(out), "<p class=\"note\">{}</p>", page::escape(empty));
    else
        out += page::table(heads, lines);
}

using page::rows;

rows waiting_rows(const json::value& s) {
    rows out;
    const json::value* waiting = s.find("waiting");
    if (waiting == nullptr || waiting->as_array() == nullptr) return out;
    for (const json::value& w : *waiting->as_array())
        out.push_back({member(w, "who"), member(w, "for"), duration(number(w, "since_s"))});
    return out;
}

rows site_rows(const json::value& s) {
    rows out;
    const json::value* clusters = s.find("clusters");
    if (clusters == nullptr || clusters->as_object() == nullptr) return out;
    for (const auto& [name, c] : *clusters->as_object())
        out.push_back({name, c.at("live").as_bool().value_or(false) ? "live" : "silent", member(c, "mode"),
                       member(c, "held"), member(c, "pledged"), member(c, "blocks_committed"), member(c, "blocks_lost"),
                       fmt::format("{:.3g}", number(c, "rate")), member(c, "ranks")});
    return out;
}

rows lease_rows(const json::value& s) {
    rows out;
    const json::value* leases = s.find("leases");
    if (leases == nullptr || leases->as_array() == nullptr) return out;
    for (const json::value& l : *leases->as_array())
        out.push_back({member(l, "lease_id"), member(l, "cluster"), member(l, "start"), member(l, "committed_end"),
                       member(l, "reserved_end"), member(l, "end"), duration(number(l, "ttl"))});
    return out;
}

rows event_rows(const json::value& s) {
    rows out;
    const json::value* events = s.find("recent_events");
    if (events == nullptr || events->as_array() == nullptr) return out;
    for (auto it = events->as_array()->rbegin(); it != events->as_array()->rend() && out.size() < 20; ++it)
        out.push_back({member(*it, "seq"), member(*it, "event"), member(*it, "cluster"), member(*it, "text")});
    return out;
}

rows member_rows(const json::value& round) {
    rows out;
    const json::value* participants = round.find("participants");
    if (participants == nullptr || participants->as_array() == nullptr) return out;
    for (const json::value& p : *participants->as_array())
        out.push_back({member(p, "site"), member(p, "status"), duration(number(p, "started_s_ago")),
                       duration(number(p, "due_in_s"))});
    return out;
}

const json::array& listed(const json::value& s, std::string_view part) {
    static const json::array none;
    const json::value* probes = s.find("probes");
    const json::value* found = probes == nullptr ? nullptr : probes->find(part);
    return found == nullptr || found->as_array() == nullptr ? none : *found->as_array();
}

rows estimate_rows(const json::value& s) {
    rows out;
    for (const json::value& e : listed(s, "estimates")) {
        const auto shown = [&](std::string_view key) {
            const json::value* v = e.find(key);
            return v == nullptr || !v->as_double() ? std::string("-") : duration(*v->as_double());
        };
        out.push_back({member(e, "site"), member(e, "shape"), member(e, "class"), shown("wait_s"), shown("wait_raw_s"),
                       shown("wait_p50_s"), shown("wait_p90_s"), member(e, "gamma"), shown("age_s")});
    }
    return out;
}

rows score_rows(const json::value& s) {
    rows out;
    for (const json::value& e : listed(s, "scores"))
        out.push_back({member(e, "site"), member(e, "partition"), member(e, "pairs"),
                       fmt::format("{:+.0f} s", number(e, "bias_s")), duration(number(e, "spread_s")),
                       fmt::format("{:.0f} %", 100 * number(e, "within_p50")),
                       fmt::format("{:.0f} %", 100 * number(e, "within_p90"))});
    return out;
}

void text_table(std::string& out, std::string_view title, const rows& lines) {
    if (lines.empty()) return;
    out += "\n" + std::string(title) + "\n";
    std::vector<std::size_t> widths;
    for (const auto& row : lines)
        for (std::size_t i = 0; i < row.size(); ++i) {
            if (i == widths.size()) widths.push_back(0);
            widths[i] = std::max(widths[i], row[i].size());
        }
    for (const auto& row : lines) {
        out += " ";
        for (std::size_t i = 0; i < row.size(); ++i)
            fmt::format_to(std::back_inserter(out), " {:<{}}", row[i], i + 1 < row.size() ? widths[i] : 0);
        out += "\n";
    }
}

}  // namespace

std::string status_page(const json::value& s) {
    std::string out = "<h1>darl run " + page::escape(member(s, "run_id").substr(0, 8)) + "</h1>";
    if (!member(s, "degraded").empty())
        fmt::format_to(std::back_inserter(out), "<p class=\"bad\">Degraded: {}</p>",
                       page::escape(member(s, "degraded")));
    bar(out, s);
    fmt::format_to(
        std::back_inserter(out),
        "<p>generation <b>{}</b>, commit policy {}, term {}, up {}, {} blocks/s, about {} to the end of the epoch</p>",
        page::escape(member(s, "generation")), page::escape(member(s, "commit_policy")),
        page::escape(member(s, "term")), duration(number(s, "uptime_s")), page::escape(member(s, "blocks_per_s")),
        duration(number(s, "eta_s")));
    table(out, "Who waits for what", {"who", "for", "since"}, waiting_rows(s), "nobody waits");
    if (const json::value* round = s.find("round")) {
        fmt::format_to(std::back_inserter(out), "<h2>Round</h2><p>{}: {}</p>", page::escape(member(*round, "state")),
                       page::escape(member(*round, "waiting_for")));
        table(out, "Participants", {"site", "status", "started", "due in"}, member_rows(*round),
              "no site trains this generation yet");
    }
    table(out, "Sites", {"site", "state", "mode", "held", "pledged", "committed", "lost", "blocks/s", "ranks"},
          site_rows(s), "no site has registered");
    table(out, "Leases", {"lease", "site", "start", "done", "reserved", "end", "ttl"}, lease_rows(s),
          "no lease is open");
    if (s.find("probes") != nullptr) {
        table(out, "Waits of the queues", {"site", "shape", "class", "wait", "raw", "p50", "p90", "gamma", "age"},
              estimate_rows(s), "no probe has arrived; darl probe run collects them");
        table(out, "Predicted and real starts",
              {"site", "partition", "jobs", "bias", "spread", "within p50", "within p90"}, score_rows(s),
              "no start of an own job has been told; darl probe started tells one");
    }
    table(out, "Recent events", {"seq", "event", "site", ""}, event_rows(s), "none yet");
    out +=
        "<p class=\"note\"><a href=\"status\">status as JSON</a> &middot; <a href=\"round\">round</a> &middot; <a "
        "href=\"metrics\">metrics</a>"
        " &middot; <a href=\"events\">events</a> &middot; <a href=\"plan\">plan</a></p>";
    return page::document("darl status", style, out, "<meta http-equiv=\"refresh\" content=\"10\">");
}

std::string status_text(const json::value& s) {
    std::string out =
        fmt::format("darl run {}  epoch {} of {}  generation {}  {}\n", member(s, "run_id").substr(0, 8),
                    member(s, "epoch"), member(s, "max_epochs"), member(s, "generation"), member(s, "verdict"));
    fmt::format_to(
        std::back_inserter(out),
        "blocks {}: committed {}, pledged {}, leased {}, unassigned {}, quarantined {}; {} blocks/s, about {} to go\n",
        member(s, "num_blocks"), member(s, "committed"), member(s, "pledged"), member(s, "leased"),
        member(s, "unassigned"), member(s, "quarantined"), member(s, "blocks_per_s"), duration(number(s, "eta_s")));
    if (const json::value* round = s.find("round")) {
        fmt::format_to(std::back_inserter(out), "round {}: {}\n", member(*round, "state"),
                       member(*round, "waiting_for"));
        text_table(out, "participants: site, status, started, due in", member_rows(*round));
    }
    text_table(out, "waiting: who, for what, since", waiting_rows(s));
    text_table(out, "sites: name, state, mode, held, pledged, committed, lost, blocks/s, ranks", site_rows(s));
    text_table(out, "queues: site, shape, class, wait, raw, p50, p90, gamma, age", estimate_rows(s));
    text_table(out, "starts: site, partition, jobs, bias, spread, within p50, within p90", score_rows(s));
    text_table(out, "leases: id, site, start, done, reserved, end, ttl", lease_rows(s));
    return out;
}

}  // namespace darlcore::http
