// SPDX-License-Identifier: Apache-2.0
#include "adapters/cli/demo_report.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

namespace darl {
namespace {

namespace page = darlcore::page;

constexpr double left = 60, right = 700;

constexpr std::string_view style =
    "body{font:15px/1.5 sans-serif;max-width:56em;margin:2em auto;padding:0 1em;color:#222}"
    "svg{width:100%;height:auto;font-size:12px}table{border-collapse:collapse;margin:1em 0}"
    "td,th{border:1px solid #ccc;padding:.25em .6em;text-align:left}.PASS{color:#007a3d}.FAIL{color:#b00020}";

std::string strip_svg(const demo_figures& f) {
    std::map<std::string, std::size_t> colors;
    for (const auto& b : f.blocks) colors.emplace(b.site, 0);
    std::size_t next = 0;
    for (auto& [site, color] : colors) color = next++;
    const double width = (right - left) / static_cast<double>(std::max<std::uint64_t>(1, f.num_blocks));
    std::string out = R"(<svg viewBox="0 0 720 80" role="img" aria-label="blocks by owner">)";
    out += fmt::format(R"(<rect x="{}" y="10" width="{}" height="30" fill="#eee"/>)", left, right - left);
    for (const auto& b : f.blocks)
        out += fmt::format(
            R"(<rect x="{:.2f}" y="10" width="{:.2f}" height="30" fill="{}"><title>position {}: {}</title></rect>)",
            left + width * static_cast<double>(b.position), width + 0.1, page::colour(colors[b.site]), b.position,
            page::escape(b.site));
    double x = left;
    for (const auto& [site, color] : colors) {
        out += fmt::format(R"(<rect x="{}" y="52" width="12" height="12" fill="{}"/><text x="{}" y="63">{}</text>)", x,
                           page::colour(color), x + 17, page::escape(site));
        x += 110;
    }
    return out + "</svg>";
}

std::string table_html(const std::vector<std::string>& head, const std::vector<table_row>& rows) {
    page::rows cells;
    for (const table_row& row : rows) cells.push_back(row.cells);
    return page::table(head, cells);
}

}  // namespace

page::chart loss_chart(const demo_figures& f) {
    return {"training loss by tokens", "tokens", "loss [nats]", f.loss_by_tokens};
}

std::string demo_report_html(const demo_figures& f) {
    std::string out;
    out += fmt::format("<h1>darlcore demo: <span class=\"{0}\">{0}</span></h1><p>{1}</p>", page::escape(f.verdict),
                       page::escape(f.headline));
    out += table_html({}, f.facts);
    for (const auto& finding : f.findings) out += "<p class=\"FAIL\">" + page::escape(finding) + "</p>";
    out += "<h2>Loss</h2>" + page::line_chart(loss_chart(f));
    out += page::line_chart({"training loss by time", "seconds", "loss [nats]", f.loss_by_time});
    out +=
        "<h2>Blocks by owner</h2><p>Each position of the epoch, coloured by the site whose contribution holds it; grey "
        "is in nobody's.</p>" +
        strip_svg(f);
    if (!f.times.empty())
        out +=
            "<h2>Where the time went</h2><p>Waiting is for the server and for the other sites; the middle and the slow "
            "site are slowed down on purpose, inside of training.</p>" +
            table_html(f.times_head, f.times);
    out += "<h2>Rounds</h2>" + table_html(f.head, f.rounds);
    return page::document("darlcore demo", style, out);
}

}  // namespace darl
