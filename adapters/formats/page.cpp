// SPDX-License-Identifier: Apache-2.0
#include "adapters/formats/page.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace darlcore::page {

namespace {

constexpr const char* palette[] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"};

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
                       escape(x_name));
    out += fmt::format(R"x(<text x="14" y="{0}" text-anchor="middle" transform="rotate(-90 14 {0})">{1}</text>)x",
                       (top + bottom) / 2, escape(y_name));
    return out;
}

constexpr double row_left = 140, row_width = 640, row_height = 28;

std::string drawn(const presence_row& r, double y, double until) {
    std::string out = fmt::format(R"(<text x="4" y="{}">{}</text>)", y + 15, escape(r.name));
    for (const stretch& s : r.parts) {
        const double start = std::clamp(s.start / until, 0.0, 1.0), end = std::clamp(s.end / until, 0.0, 1.0);
        if (end > start)
            out += fmt::format(R"(<rect x="{:.2f}" y="{}" width="{:.2f}" height="20" fill="{}"/>)",
                               row_left + row_width * start, y, row_width * (end - start), s.fill);
    }
    return out + "\n";
}

}  // namespace

std::string escape(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    for (const char c : text) {
        switch (c) {
            case '<':
                out += "&lt;";
                break;
            case '>':
                out += "&gt;";
                break;
            case '&':
                out += "&amp;";
                break;
            case '"':
                out += "&quot;";
                break;
            case '\'':
                out += "&#39;";
                break;
            default:
                out += static_cast<unsigned char>(c) < 32 && c != '\n' ? '?' : c;
        }
    }
    return out;
}

std::string document(std::string_view title, std::string_view style, std::string_view body, std::string_view head) {
    std::string out = "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">";
    out.append(head).append("<meta name=\"viewport\" content=\"width=device-width\"><title>").append(escape(title));
    out.append("</title><style>").append(style).append("</style></head><body>");
    return out.append(body).append("</body></html>\n");
}

std::string table(const std::vector<std::string>& head, const rows& cells) {
    std::string out = "<table>";
    if (!head.empty()) {
        out += "<thead><tr>";
        for (const auto& cell : head) out += "<th>" + escape(cell) + "</th>";
        out += "</tr></thead>";
    }
    out += "<tbody>";
    for (const auto& row : cells) {
        out += "<tr>";
        for (const auto& cell : row) out += "<td>" + escape(cell) + "</td>";
        out += "</tr>";
    }
    return out + "</tbody></table>";
}

const char* colour(std::size_t i) { return palette[i % (sizeof palette / sizeof *palette)]; }

std::string line_chart(const std::string& title, const std::string& x_name, const std::string& y_name,
                       const std::vector<line>& lines) {
    range x;
    range y;
    for (const line& l : lines)
        for (const auto& [px, py] : l.points) {
            if (!std::isfinite(px) || !std::isfinite(py)) continue;
            x.take(px);
            y.take(py);
        }
    if (!(x.low <= x.high)) return {};
    std::string out = fmt::format(
        R"(<svg viewBox="0 0 860 310" role="img" aria-label="{0}"><text x="{1}" y="18" font-weight="bold">{0}</text>)",
        escape(title), left);
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
                           colour(i));
        const double at = top + 10 + 20 * static_cast<double>(shown++);
        out += fmt::format(R"(<path d="M712 {0}H732" stroke="{1}" stroke-width="3"/><text x="738" y="{2}">{3}</text>)",
                           at, colour(i), at + 4, escape(lines[i].name));
    }
    return out + "</svg>";
}

std::string presence_chart(const std::string& title, const std::vector<presence_row>& sites, double until,
                           const std::vector<std::pair<double, std::string>>& notes) {
    std::string body;
    double y = 6;
    for (const presence_row& r : sites) {
        body += drawn(r, y, until);
        y += row_height;
    }
    for (const auto& [at, text] : notes)
        body += fmt::format(R"(<text x="{:.1f}" y="{}" font-size="11">{}</text>)",
                            row_left + row_width * std::clamp(at / until, 0.0, 1.0), y + 12, escape(text));
    if (!notes.empty()) y += 18;
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 800 {0}\" width=\"800\" height=\"{0}\" role=\"img\" "
        "aria-label=\"{1}\" font-family=\"sans-serif\" font-size=\"13\">\n{2}</svg>\n",
        y + 6, escape(title), body);
}

}  // namespace darlcore::page
