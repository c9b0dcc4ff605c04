// SPDX-License-Identifier: Apache-2.0
#include "adapters/cli/demo_report.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include <fmt/format.h>

namespace darl {
namespace {

// Distinguishable by people with the usual colour vision deficiencies (Okabe and Ito).
constexpr const char* palette[] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"};
const char* color_of(std::size_t i) { return palette[i % (sizeof palette / sizeof *palette)]; }

struct range {
    double low = std::numeric_limits<double>::infinity();
    double high = -std::numeric_limits<double>::infinity();
    void take(double v) {
        low = std::min(low, v);
        high = std::max(high, v);
    }
    [[nodiscard]] double at(double v, double from, double to) const {
        const double width = high - low;
        return from + (width > 0 ? (v - low) / width : 0.5) * (to - from);
    }
};

constexpr double left = 60, right = 700, top = 30, bottom = 260;

// A round step of about a fifth of the width.
double tick_step(double width) {
    const double raw = width / 5;
    const double power = std::pow(10.0, std::floor(std::log10(raw)));
    for (const double m : {1.0, 2.0, 5.0})
        if (raw <= m * power) return m * power;
    return 10 * power;
}

std::string axes(const range& x, const range& y, const std::string& x_name, const std::string& y_name) {
    std::string out =
        fmt::format(R"(<path d="M{0} {1}V{2}H{3}" fill="none" stroke="#444"/>)", left, top, bottom, right);
    const auto ticks = [](const range& r, auto&& draw) {
        if (!(r.high > r.low)) return;
        const double step = tick_step(r.high - r.low);
        for (double v = std::ceil(r.low / step) * step; v <= r.high + step * 1e-9; v += step)
            draw(std::abs(v) < step * 1e-9 ? 0.0 : v);
    };
    ticks(x, [&](double v) {
        out += fmt::format(R"(<text x="{:.1f}" y="{}" text-anchor="middle">{:g}</text>)", x.at(v, left, right),
                           bottom + 16, v);
    });
    ticks(y, [&](double v) {
        const double at = y.at(v, bottom, top);
        out += fmt::format(
            R"(<path d="M{} {:.1f}H{}" stroke="#ddd"/><text x="{}" y="{:.1f}" text-anchor="end">{:g}</text>)", left, at,
            right, left - 6, at + 4, v);
    });
    out += fmt::format(R"(<text x="{}" y="{}" text-anchor="middle">{}</text>)", (left + right) / 2, bottom + 34,
                       html_escape(x_name));
    out += fmt::format(R"x(<text x="14" y="{0}" text-anchor="middle" transform="rotate(-90 14 {0})">{1}</text>)x",
                       (top + bottom) / 2, html_escape(y_name));
    return out;
}

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
            left + width * static_cast<double>(b.position), width + 0.1, color_of(colors[b.site]), b.position,
            html_escape(b.site));
    double x = left;
    for (const auto& [site, color] : colors) {
        out += fmt::format(R"(<rect x="{}" y="52" width="12" height="12" fill="{}"/><text x="{}" y="63">{}</text>)", x,
                           color_of(color), x + 17, html_escape(site));
        x += 110;
    }
    return out + "</svg>";
}

std::string table_html(const std::vector<std::string>& head, const std::vector<table_row>& rows) {
    std::string out = "<table>";
    if (!head.empty()) {
        out += "<tr>";
        for (const auto& cell : head) out += "<th>" + html_escape(cell) + "</th>";
        out += "</tr>";
    }
    for (const auto& row : rows) {
        out += "<tr>";
        for (const auto& cell : row.cells) out += "<td>" + html_escape(cell) + "</td>";
        out += "</tr>";
    }
    return out + "</table>";
}

}  // namespace

std::string html_escape(std::string_view text) {
    std::string out;
    for (const char c : text) {
        switch (c) {
            case '&':
                out += "&amp;";
                break;
            case '<':
                out += "&lt;";
                break;
            case '>':
                out += "&gt;";
                break;
            case '"':
                out += "&quot;";
                break;
            case '\'':
                out += "&#39;";
                break;
            default:
                out += c;
        }
    }
    return out;
}

std::string chart_svg(const std::string& title, const std::string& x_name, const std::string& y_name,
                      const std::vector<chart_line>& lines) {
    range x;
    range y;
    for (const auto& line : lines)
        for (const auto& [px, py] : line.points) {
            if (!std::isfinite(px) || !std::isfinite(py)) continue;
            x.take(px);
            y.take(py);
        }
    if (!(x.low <= x.high)) return {};
    std::string out = fmt::format(
        R"(<svg viewBox="0 0 860 310" role="img" aria-label="{0}"><text x="{1}" y="18" font-weight="bold">{0}</text>)",
        html_escape(title), left);
    out += axes(x, y, x_name, y_name);
    std::size_t shown = 0;
    for (std::size_t i = 0; i < lines.size(); ++i) {
        std::string path;
        for (const auto& [px, py] : lines[i].points)
            if (std::isfinite(px) && std::isfinite(py))
                path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x.at(px, left, right),
                                    y.at(py, bottom, top));
        if (path.empty()) continue;
        if (path.find('L') == std::string::npos) path += "h0.1";  // a single point is to be seen, too
        out += fmt::format(R"(<path d="{}" fill="none" stroke="{}" stroke-width="1.8" stroke-linecap="round"/>)", path,
                           color_of(i));
        const double at = top + 10 + 20 * static_cast<double>(shown++);
        out += fmt::format(R"(<path d="M712 {0}H732" stroke="{1}" stroke-width="3"/><text x="738" y="{2}">{3}</text>)",
                           at, color_of(i), at + 4, html_escape(lines[i].name));
    }
    return out + "</svg>";
}

std::string demo_report_html(const demo_figures& f) {
    std::string out =
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
        "content=\"width=device-width\">"
        "<title>darlcore demo</title><style>body{font:15px/1.5 sans-serif;max-width:56em;margin:2em auto;padding:0 "
        "1em;color:#222}"
        "svg{width:100%;height:auto;font-size:12px}table{border-collapse:collapse;margin:1em 0}td,th{border:1px solid "
        "#ccc;padding:.25em .6em;text-align:left}"
        ".PASS{color:#007a3d}.FAIL{color:#b00020}</style></head><body>";
    out += fmt::format("<h1>darlcore demo: <span class=\"{0}\">{0}</span></h1><p>{1}</p>", html_escape(f.verdict),
                       html_escape(f.headline));
    out += table_html({}, f.facts);
    for (const auto& finding : f.findings) out += "<p class=\"FAIL\">" + html_escape(finding) + "</p>";
    out += "<h2>Loss</h2>" + chart_svg("training loss by tokens", "tokens", "loss [nats]", f.loss_by_tokens);
    out += chart_svg("training loss by time", "seconds", "loss [nats]", f.loss_by_time);
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
    return out + "</body></html>\n";
}

}  // namespace darl
