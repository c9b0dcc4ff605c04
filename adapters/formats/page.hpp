// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Pages for people: one HTML file each, readable without script, nothing from outside, every text escaped.
namespace darlcore::page {

/// `text` with `<`, `>`, `&` and quotes as entities, control characters but newline as '?'.
std::string escape(std::string_view text);

/// A whole document around `body`. `head` stands in the head as it is (a refresh), `style` is CSS.
std::string document(std::string_view title, std::string_view style, std::string_view body, std::string_view head = "");

using rows = std::vector<std::vector<std::string>>;

/// A table; without head cells it has no head row.
std::string table(const std::vector<std::string>& head, const rows& cells);

/// One line of a chart: points (x, y) in the order of x.
struct line {
    std::string name;
    std::vector<std::pair<double, double>> points;
};

/// Colours that people with the usual colour vision deficiencies tell apart (Okabe and Ito), again from the first when
/// used up.
const char* colour(std::size_t i);

/// What a chart is drawn with: an SVG text, or a picture. Coordinates are those of `chart_width` x `chart_height`, from
/// the upper left corner; colours are CSS colours of ours, "#rrggbb".
class pen {
public:
    enum class anchor : std::uint8_t { start, middle, end };
    struct point {
        double x = 0, y = 0;
    };
    virtual ~pen() = default;
    virtual void stroke(const std::vector<point>& path, std::string_view colour, double width) = 0;
    /// `at` lies on the base line. `upwards`: turned by a quarter to the left.
    virtual void text(point at, anchor where, std::string_view words, bool bold = false, bool upwards = false) = 0;
};

inline constexpr double chart_width = 860, chart_height = 310;

struct chart {
    std::string title, x_name, y_name;
    std::vector<line> lines;
};

/// A line chart. Points that are not finite and lines without points are left out; false, and nothing drawn, when
/// nothing is left.
bool draw_lines(pen& with, const chart& what);

/// A line chart as SVG; an empty text when there is nothing to draw.
std::string line_chart(const chart& what);

/// A stretch of time in a row of a presence chart, drawn over those before it.
struct stretch {
    double start = 0;
    double end = 0;
    std::string_view fill;  // a CSS colour of ours, never data
};

struct presence_row {
    std::string name;
    std::vector<stretch> parts;
};

/// Rows over one axis from 0 to `until` as SVG, and notes below them at their place.
std::string presence_chart(const std::string& title, const std::vector<presence_row>& sites, double until,
                           const std::vector<std::pair<double, std::string>>& notes = {});

}  // namespace darlcore::page
