// SPDX-License-Identifier: Apache-2.0
#include "adapters/formats/nfc.hpp"

#include <algorithm>
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

result<void> append_nfc(std::string_view run, std::string& out) {
    constexpr auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(run.data());
    const auto size = static_cast<utf8proc_ssize_t>(run.size());
    // Form C decomposes one character of UTF-8 into at most 4; one more place for the terminator of reencode.
    std::vector<utf8proc_int32_t> points(run.size() + 8);
    auto count = utf8proc_decompose(bytes, size, points.data(), static_cast<utf8proc_ssize_t>(points.size()), options);
    if (count > static_cast<utf8proc_ssize_t>(points.size()) - 1) {
        points.resize(static_cast<std::size_t>(count) + 1);
        count = utf8proc_decompose(bytes, size, points.data(), count, options);
    }
    if (count >= 0) count = utf8proc_reencode(points.data(), count, options);
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
