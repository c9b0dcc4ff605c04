// SPDX-License-Identifier: Apache-2.0
#include "adapters/formats/nfc.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include <utf8proc.h>

namespace darlcore::formats {

namespace {

// Characters below U+0300 (lead bytes below 0xcc) neither combine nor decompose under form C.
bool is_plain(char c) { return static_cast<unsigned char>(c) < 0xcc; }
bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

std::size_t first_not_plain(std::string_view text, std::size_t from) {
    const auto at =
        std::find_if(text.begin() + static_cast<std::ptrdiff_t>(from), text.end(), [](char c) { return !is_plain(c); });
    return static_cast<std::size_t>(at - text.begin());
}

constexpr auto form_c = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);

// The code points of a run, decomposed, marks not yet in order. utf8proc_decompose would order them too, but in
// quadratic time: a run of 10^6 marks would take hours.
result<void> decompose(std::string_view run, std::vector<utf8proc_int32_t>& points) {
    const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(run.data());
    const auto size = static_cast<utf8proc_ssize_t>(run.size());
    for (utf8proc_ssize_t at = 0; at < size;) {
        utf8proc_int32_t point = 0;
        const auto used = utf8proc_iterate(bytes + at, size - at, &point);
        std::array<utf8proc_int32_t, 8> parts{};  // form C decomposes one character into at most 4
        const auto count =
            used < 0 ? used : utf8proc_decompose_char(point, parts.data(), parts.size(), form_c, nullptr);
        if (count < 0 || count > static_cast<utf8proc_ssize_t>(parts.size()))
            return fail(errc::parse_error, std::string("normalisation: ") + utf8proc_errmsg(count));
        points.insert(points.end(), parts.begin(), parts.begin() + count);
        at += used;
    }
    return {};
}

// Between characters of class 0, marks stand in ascending order of their classes, equal ones as they came (Unicode
// 3.11, D109).
void order_marks(std::vector<utf8proc_int32_t>& points) {
    const auto mark_class = [](utf8proc_int32_t point) { return utf8proc_get_property(point)->combining_class; };
    const auto is_mark = [&](utf8proc_int32_t point) { return mark_class(point) != 0; };
    for (auto begin = points.begin(); begin != points.end();) {
        begin = std::find_if(begin, points.end(), is_mark);
        const auto end = std::find_if_not(begin, points.end(), is_mark);
        if (!std::ranges::is_sorted(begin, end, {}, mark_class)) std::ranges::stable_sort(begin, end, {}, mark_class);
        begin = end;
    }
}

result<void> append_nfc(std::string_view run, std::string& out) {
    std::vector<utf8proc_int32_t> points;
    points.reserve(run.size() + 1);  // one more place for the terminator of reencode
    if (const auto ok = decompose(run, points); !ok) return ok;
    order_marks(points);
    const auto length = static_cast<utf8proc_ssize_t>(points.size());
    points.push_back(0);
    const auto count = utf8proc_reencode(points.data(), length, form_c);
    if (count < 0) return fail(errc::too_large, std::string("normalisation: ") + utf8proc_errmsg(count));
    out.append(reinterpret_cast<const char*>(points.data()), static_cast<std::size_t>(count));
    return {};
}

}  // namespace

result<std::string_view> to_nfc(std::string_view text, std::string& buffer) {
    std::size_t at = first_not_plain(text, 0);
    if (at == text.size()) return text;
    buffer.clear();
    for (std::size_t done = 0;;) {
        // A run is an ASCII character and all that follows up to the next one: nothing reaches over these borders.
        std::size_t begin = at;
        while (begin > done && !is_ascii(text[begin])) --begin;
        std::size_t end = at;
        while (end < text.size() && !is_ascii(text[end])) ++end;
        buffer.append(text.substr(done, begin - done));
        if (const auto ok = append_nfc(text.substr(begin, end - begin), buffer); !ok) return ok.error();
        done = end;
        at = first_not_plain(text, end);
        if (at == text.size()) {
            buffer.append(text.substr(done));
            return std::string_view(buffer);
        }
    }
}

}  // namespace darlcore::formats
