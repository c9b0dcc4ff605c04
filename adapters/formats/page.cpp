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

void draw_axes(pen& with, const range& x, const range& y, const chart& what) {
    const auto ticks = [](const range& r, auto&& draw) {
        if (!(r.high > r.low)) return;
        const double step = tick_step(r.high - r.low);
        for (double v = std::ceil(r.low / step) * step; v <= r.high + step * 1e-9; v += step)
            draw(std::abs(v) < step * 1e-9 ? 0.0 : v);
    };
    ticks(x, [&](double v) {
        with.text({x.at(v, left, right), bottom + 16}, pen::anchor::middle, fmt::format("{:g}", v));
    });
    ticks(y, [&](double v) {
        const double at = y.at(v, bottom, top);
        with.stroke({{left, at}, {right, at}}, "#dddddd", 1);
        with.text({left - 6, at + 4}, pen::anchor::end, fmt::format("{:g}", v));
    });
    with.stroke({{left, top}, {left, bottom}, {right, bottom}}, "#444444", 1);
    with.text({(left + right) / 2, bottom + 34}, pen::anchor::middle, what.x_name);
    with.text({14, (top + bottom) / 2}, pen::anchor::middle, what.y_name, false, true);
}

class svg_pen final : public pen {
public:
    void stroke(const std::vector<point>& path, std::string_view colour, double width) override {
        std::string d;
        for (const point& p : path) d += fmt::format("{}{:.1f} {:.1f}", d.empty() ? "M" : "L", p.x, p.y);
        if (path.size() == 1) d += "h0.1";  // a single point is to be seen, too
        body += fmt::format(R"(<path d="{}" fill="none" stroke="{}" stroke-width="{:g}" stroke-linecap="round"/>)", d,
                            colour, width);
    }
    void text(point at, anchor where, std::string_view words, bool bold, bool upwards) override {
        constexpr std::string_view names[] = {"start", "middle", "end"};
        body += fmt::format(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="{}")", at.x, at.y,
                            names[static_cast<std::size_t>(where)]);
        if (bold) body += R"( font-weight="bold")";
        if (upwards) body += fmt::format(R"x( transform="rotate(-90 {:.1f} {:.1f})")x", at.x, at.y);
        body += ">" + escape(words) + "</text>";
    }
    std::string body;
};

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

bool draw_lines(pen& with, const chart& what) {
    range x;
    range y;
    for (const line& l : what.lines)
        for (const auto& [px, py] : l.points) {
            if (!std::isfinite(px) || !std::isfinite(py)) continue;
            x.take(px);
            y.take(py);
        }
    if (!(x.low <= x.high)) return false;
    with.text({left, 18}, pen::anchor::start, what.title, true);
    draw_axes(with, x, y, what);
    std::size_t shown = 0;
    for (std::size_t i = 0; i < what.lines.size(); ++i) {
        std::vector<pen::point> path;
        for (const auto& [px, py] : what.lines[i].points)
            if (std::isfinite(px) && std::isfinite(py)) path.push_back({x.at(px, left, right), y.at(py, bottom, top)});
        if (path.empty()) continue;
        with.stroke(path, colour(i), 1.8);
        const double at = top + 10 + 20 * static_cast<double>(shown++);
        with.stroke({{712, at}, {732, at}}, colour(i), 3);
        with.text({738, at + 4}, pen::anchor::start, what.lines[i].name);
    }
    return true;
}

std::string line_chart(const chart& what) {
    svg_pen with;
    if (!draw_lines(with, what)) return {};
    return fmt::format(R"(<svg viewBox="0 0 {:g} {:g}" role="img" aria-label="{}">)", chart_width, chart_height,
                       escape(what.title)) +
           with.body + "</svg>";
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
