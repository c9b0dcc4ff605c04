// SPDX-License-Identifier: Apache-2.0
#include "adapters/cli/chart_png.hpp"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

namespace darl {
namespace {

namespace page = darlcore::page;

struct glyph {
    char letter;
    std::uint64_t rows;  // seven rows of five pixels, the upper left one in bit 34
};

// Drawn for this project.
constexpr glyph font[] = {
    {'0', 0x3a33ae62e}, {'1', 0x11842108e}, {'2', 0x3a213221f}, {'3', 0x3a213062e}, {'4', 0x08ca97c42},
    {'5', 0x7e1e0862e}, {'6', 0x3a10f462e}, {'7', 0x7c2211084}, {'8', 0x3a317462e}, {'9', 0x3a317842e},
    {'A', 0x11518fe31}, {'B', 0x7a31f463e}, {'C', 0x3a308422e}, {'D', 0x7a318c63e}, {'E', 0x7e10f421f},
    {'F', 0x7e10f4210}, {'G', 0x3a30bc62f}, {'H', 0x4631fc631}, {'I', 0x38842108e}, {'J', 0x1c4210a4c},
    {'K', 0x4654c5251}, {'L', 0x42108421f}, {'M', 0x4775ac631}, {'N', 0x4739ace71}, {'O', 0x3a318c62e},
    {'P', 0x7a31f4210}, {'Q', 0x3a318d64d}, {'R', 0x7a31f5251}, {'S', 0x3e107043e}, {'T', 0x7c8421084},
    {'U', 0x46318c62e}, {'V', 0x46318c544}, {'W', 0x4631ad771}, {'X', 0x462a22a31}, {'Y', 0x462a21084},
    {'Z', 0x7c222221f}, {'a', 0x000e0be2f}, {'b', 0x421e8c63e}, {'c', 0x000f8420f}, {'d', 0x042f8c62f},
    {'e', 0x000e8fe0e}, {'f', 0x191e42108}, {'g', 0x000f8bc2e}, {'h', 0x421e8c631}, {'i', 0x100c2108e},
    {'j', 0x080610a4c}, {'k', 0x4212a6292}, {'l', 0x30842108e}, {'m', 0x001aad6b5}, {'n', 0x001e8c631},
    {'o', 0x000e8c62e}, {'p', 0x001e8fa10}, {'q', 0x000f8bc21}, {'r', 0x0016cc210}, {'s', 0x000f8383e},
    {'t', 0x211e42106}, {'u', 0x00118c62f}, {'v', 0x00118c544}, {'w', 0x0011ad6aa}, {'x', 0x001151151},
    {'y', 0x00118bc2e}, {'z', 0x001f1111f}, {'.', 0x00000018c}, {',', 0x000003088}, {':', 0x018c03180},
    {'-', 0x0000f0000}, {'+', 0x0084f9080}, {'=', 0x001f07c00}, {'_', 0x00000001f}, {'/', 0x042222210},
    {'%', 0x672222273}, {'(', 0x088842082}, {')', 0x208210888}, {'[', 0x39084210e}, {']', 0x38421084e},
    {'?', 0x3a2111004},
};

std::uint64_t rows_of(char letter) {
    for (const glyph& g : font)
        if (g.letter == letter) return g.rows;
    return letter == ' ' ? 0 : rows_of('?');
}

using colour = std::array<double, 3>;

colour colour_of(std::string_view text) {
    colour out{};
    for (std::size_t i = 0; i < 3 && text.size() == 7; ++i)
        out[i] = std::stoi(std::string(text.substr(1 + 2 * i, 2)), nullptr, 16);
    return out;
}

constexpr double scale = 2;
constexpr auto width = static_cast<std::size_t>(scale * page::chart_width);
constexpr auto height = static_cast<std::size_t>(scale * page::chart_height);

class picture final : public page::pen {
public:
    void stroke(const std::vector<point>& path, std::string_view with, double thickness) override {
        for (std::size_t i = 0; i + 1 < path.size(); ++i) segment(path[i], path[i + 1], colour_of(with), thickness);
        if (path.size() == 1) segment(path[0], path[0], colour_of(with), thickness);
    }
    void text(point at, anchor where, std::string_view words, bool bold, bool upwards) override {
        constexpr double advance = 6;  // of a letter, in the chart's units
        const double length = advance * static_cast<double>(words.size());
        double along = where == anchor::start ? 0 : where == anchor::middle ? -length / 2 : -length;
        for (const char c : words) {
            letter(at, along, c, bold, upwards);
            along += advance;
        }
    }

    /// A file of one compressed block of rows without filters.
    [[nodiscard]] std::string png() const {
        std::string rows;
        for (std::size_t y = 0; y < height; ++y) {
            rows += '\0';
            rows.append(reinterpret_cast<const char*>(pixels_.data()) + 3 * width * y, 3 * width);
        }
        uLongf packed_size = ::compressBound(rows.size());
        std::string packed(packed_size, '\0');
        const int packing = ::compress2(reinterpret_cast<Bytef*>(packed.data()), &packed_size,
                                        reinterpret_cast<const Bytef*>(rows.data()), rows.size(), 6);
        if (packing != Z_OK) return {};  // only without memory
        packed.resize(packed_size);
        const std::string size = big_endian(width) + big_endian(height) + std::string("\x08\x02\0\0\0", 5);
        return std::string("\x89PNG\r\n\x1a\n") + chunk("IHDR", size) + chunk("IDAT", packed) + chunk("IEND", "");
    }

private:
    static std::string big_endian(std::uint64_t v) {
        std::string out;
        for (unsigned shift = 32; shift > 0;) out += static_cast<char>((v >> (shift -= 8)) & 255U);
        return out;
    }
    static std::string chunk(std::string_view kind, const std::string& data) {
        const std::string body = std::string(kind) + data;
        const auto sum = ::crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
        return big_endian(data.size()) + body + big_endian(sum);
    }

    void blend(std::size_t x, std::size_t y, const colour& with, double share) {
        for (std::size_t i = 0; i < 3; ++i) {
            std::uint8_t& p = pixels_[3 * (y * width + x) + i];
            p = static_cast<std::uint8_t>(std::lround(p + share * (with[i] - p)));
        }
    }

    // Pixels by their distance from the segment, so that edges are smooth.
    void segment(point from, point to, const colour& with, double thickness) {
        const double ax = from.x * scale, ay = from.y * scale, bx = to.x * scale, by = to.y * scale;
        const double half = thickness * scale / 2;
        const auto low = [&](double v) { return static_cast<std::size_t>(std::max(0.0, std::floor(v - half - 1))); };
        const auto high = [&](double v, std::size_t end) {
            return std::min(end, static_cast<std::size_t>(std::max(0.0, std::ceil(v + half + 2))));
        };
        const double length2 = (bx - ax) * (bx - ax) + (by - ay) * (by - ay);
        for (std::size_t y = low(std::min(ay, by)); y < high(std::max(ay, by), height); ++y)
            for (std::size_t x = low(std::min(ax, bx)); x < high(std::max(ax, bx), width); ++x) {
                const double px = static_cast<double>(x) + 0.5 - ax, py = static_cast<double>(y) + 0.5 - ay;
                const double along =
                    length2 > 0 ? std::clamp((px * (bx - ax) + py * (by - ay)) / length2, 0.0, 1.0) : 0;
                const double away = std::hypot(px - along * (bx - ax), py - along * (by - ay));
                const double share = std::clamp(half + 0.5 - away, 0.0, 1.0);
                if (share > 0) blend(x, y, with, share);
            }
    }

    void letter(point at, double along, char c, bool bold, bool upwards) {
        const std::uint64_t rows = rows_of(c);
        const auto dot = [&](double right, double down) {  // from the beginning of the base line, in pixels
            const double x = at.x * scale + (upwards ? down : along * scale + right);
            const double y = at.y * scale + (upwards ? -along * scale - right : down);
            if (x >= 0 && y >= 0 && x < static_cast<double>(width) && y < static_cast<double>(height))
                blend(static_cast<std::size_t>(x), static_cast<std::size_t>(y), {34, 34, 34}, 1);
        };
        for (unsigned bit = 0; bit < 35; ++bit) {
            if (((rows >> (34 - bit)) & 1U) == 0) continue;
            for (unsigned i = 0; i < (bold ? 6U : 4U); ++i) dot(2 * (bit % 5) + i / 2, 2.0 * (bit / 5) - 14 + i % 2);
        }
    }

    std::vector<std::uint8_t> pixels_ = std::vector<std::uint8_t>(3 * width * height, 255);
};

}  // namespace

std::string chart_png(const page::chart& what) {
    picture drawn;
    if (!page::draw_lines(drawn, what)) return {};
    return drawn.png();
}

}  // namespace darl
