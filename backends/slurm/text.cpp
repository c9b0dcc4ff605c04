// SPDX-License-Identifier: Apache-2.0
#include "backends/slurm/text.hpp"

#include <array>
#include <cstddef>
#include <cstdio>

namespace darlcore::slurm {

std::string plain_text(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (c == '\x1b') {  // CSI: up to its final byte; others: one byte
            if (i + 1 < text.size() && text[i + 1] == '[') {
                i += 2;
                while (i < text.size() && (text[i] < '@' || text[i] > '~') && text[i] != '\n') ++i;
                if (i < text.size() && text[i] == '\n') out.push_back('\n');
            } else if (i + 1 < text.size() && text[i + 1] != '\n') {
                ++i;
            }
            continue;
        }
        const auto byte = static_cast<unsigned char>(c);
        if (c == '\n' || c == '\t' || byte >= 0x20) out.push_back(c);
    }
    return out;
}

std::vector<std::string_view> lines_of(std::string_view text) {
    std::vector<std::string_view> made = split(text, '\n');
    if (!made.empty() && made.back().empty()) made.pop_back();
    return made;
}

std::string_view trimmed(std::string_view text) {
    const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
    while (!text.empty() && blank(text.front())) text.remove_prefix(1);
    while (!text.empty() && blank(text.back())) text.remove_suffix(1);
    return text;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> made;
    while (true) {
        const std::size_t at = text.find(separator);
        made.push_back(text.substr(0, at));
        if (at == std::string_view::npos) return made;
        text.remove_prefix(at + 1);
    }
}

std::vector<std::string_view> words_of(std::string_view text) {
    std::vector<std::string_view> made;
    for (const std::string_view part : split(text, ' '))
        if (!trimmed(part).empty()) made.push_back(trimmed(part));
    return made;
}

bool starts_with(std::string_view text, std::string_view prefix) { return text.substr(0, prefix.size()) == prefix; }
bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

std::optional<std::int64_t> digits(std::string_view text) {
    if (text.empty() || text.size() > 18) return std::nullopt;
    std::int64_t value = 0;
    for (const char c : text) {
        if (c < '0' || c > '9') return std::nullopt;
        value = value * 10 + (c - '0');
    }
    return value;
}

namespace {

// Days since 1970-01-01 of a date of the Gregorian calendar.
std::int64_t days_of(std::int64_t year, std::int64_t month, std::int64_t day) {
    const std::int64_t y = month <= 2 ? year - 1 : year;
    const std::int64_t era = y / 400;
    const std::int64_t year_of_era = y - era * 400;
    const std::int64_t day_of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
    const std::int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    return era * 146097 + day_of_era - 719468;
}

std::int64_t days_in(std::int64_t year, std::int64_t month) {
    constexpr std::array<std::int64_t, 12> usual{31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return month == 2 && leap ? 29 : usual[static_cast<std::size_t>(month - 1)];
}

// Offset of "+HHMM" in seconds.
std::optional<std::int64_t> offset_s(std::string_view text) {
    if (text.size() != 5 || (text[0] != '+' && text[0] != '-')) return std::nullopt;
    const auto hours = digits(text.substr(1, 2));
    const auto minutes = digits(text.substr(3, 2));
    if (!hours || !minutes || *hours > 15 || *minutes > 59) return std::nullopt;
    const std::int64_t seconds = *hours * 3600 + *minutes * 60;
    return text[0] == '-' ? -seconds : seconds;
}

struct iso_time {
    std::int64_t utc_s = 0;
    bool has_offset = false;
};

std::optional<iso_time> read_iso(std::string_view t) {
    if (t.size() != 19 && t.size() != 24) return std::nullopt;
    if (t[4] != '-' || t[7] != '-' || t[10] != 'T' || t[13] != ':' || t[16] != ':') return std::nullopt;
    const auto year = digits(t.substr(0, 4)), month = digits(t.substr(5, 2)), day = digits(t.substr(8, 2));
    const auto hour = digits(t.substr(11, 2)), minute = digits(t.substr(14, 2)), second = digits(t.substr(17, 2));
    if (!year || !month || !day || !hour || !minute || !second) return std::nullopt;
    if (*year < 1970 || *month < 1 || *month > 12 || *day < 1 || *day > days_in(*year, *month)) return std::nullopt;
    if (*hour > 23 || *minute > 59 || *second > 60) return std::nullopt;
    iso_time made;
    made.utc_s = days_of(*year, *month, *day) * 86400 + *hour * 3600 + *minute * 60 + *second;
    if (t.size() == 19) return made;
    const auto offset = offset_s(t.substr(19));
    if (!offset) return std::nullopt;
    made.utc_s -= *offset;
    made.has_offset = true;
    return made;
}

// Two-digit fields below 60 after the first one; the first may be long.
std::optional<std::vector<std::int64_t>> clock_fields(std::string_view text) {
    std::vector<std::int64_t> made;
    for (const std::string_view part : split(text, ':')) {
        const auto value = digits(part);
        if (!value || part.size() > 9) return std::nullopt;
        if (!made.empty() && (*value > 59 || part.size() > 2)) return std::nullopt;
        made.push_back(*value);
    }
    return made;
}

bool is_word(std::string_view text, std::initializer_list<std::string_view> words) {
    for (const std::string_view w : words) {
        if (text.size() != w.size()) continue;
        bool same = true;
        for (std::size_t i = 0; i < w.size(); ++i) {
            const char c = text[i] >= 'A' && text[i] <= 'Z' ? static_cast<char>(text[i] - 'A' + 'a') : text[i];
            same = same && c == w[i];
        }
        if (same) return true;
    }
    return false;
}

duration_reading of_seconds(std::int64_t seconds) { return {true, false, seconds}; }

// days-hours[:minutes[:seconds]]; nothing if there is no day field or the text is none of it.
std::optional<duration_reading> read_days(std::string_view text) {
    const std::size_t dash = text.find('-');
    if (dash == std::string_view::npos) return std::nullopt;
    const auto days = digits(text.substr(0, dash));
    const auto fields = clock_fields(text.substr(dash + 1));
    if (!days || *days > 100000 || !fields || fields->size() > 3 || fields->front() > 1000000)
        return duration_reading{};
    std::int64_t seconds = *days * 86400;
    constexpr std::array<std::int64_t, 3> units{3600, 60, 1};
    for (std::size_t i = 0; i < fields->size(); ++i) seconds += (*fields)[i] * units[i];
    return of_seconds(seconds);
}

}  // namespace

time_reading read_time(std::string_view text, bool assume_utc) {
    using kind = time_reading::kind;
    const std::string_view t = trimmed(text);
    if (is_word(t, {"unknown", "none", "n/a", "(null)"}) || t.empty()) return {kind::unknown, 0};
    if (const auto epoch = digits(t)) {
        if (*epoch == 0) return {kind::unknown, 0};
        if (t.size() < 9 || t.size() > 11) return {kind::foreign, 0};
        return {kind::instant, *epoch};
    }
    const auto iso = read_iso(t);
    if (!iso) return {kind::foreign, 0};
    if (!iso->has_offset && !assume_utc) return {kind::ambiguous_zone, 0};
    return {kind::instant, iso->utc_s};
}

duration_reading read_requested_duration(std::string_view text) {
    const std::string_view t = trimmed(text);
    if (is_word(t, {"unlimited", "infinite", "-1"})) return {true, true, 0};
    if (const auto days = read_days(t))
        return days->valid && days->seconds == 0 ? duration_reading{true, true, 0} : *days;
    const auto fields = clock_fields(t);
    if (!fields || fields->size() > 3) return {};
    std::int64_t seconds = 0;
    if (fields->size() == 1) seconds = (*fields)[0] * 60;
    if (fields->size() == 2) seconds = (*fields)[0] * 60 + (*fields)[1];
    if (fields->size() == 3) seconds = (*fields)[0] * 3600 + (*fields)[1] * 60 + (*fields)[2];
    return seconds == 0 ? duration_reading{true, true, 0} : of_seconds(seconds);
}

duration_reading read_reported_duration(std::string_view text) {
    const std::string_view t = trimmed(text);
    if (t.empty() ||
        is_word(t, {"unlimited", "infinite", "partition_limit", "invalid", "not_set", "n/a", "unknown", "none"}))
        return {true, true, 0};
    if (const auto days = read_days(t)) return *days;
    const std::size_t dot = t.find('.');  // sacct prints fractions for short steps
    const auto fields = clock_fields(t.substr(0, dot));
    if (!fields || fields->size() < 2 || fields->size() > 3) return {};
    if (fields->size() == 2) return of_seconds((*fields)[0] * 60 + (*fields)[1]);
    return of_seconds((*fields)[0] * 3600 + (*fields)[1] * 60 + (*fields)[2]);
}

// Civil date from days since the epoch: years of 365.2425 days that begin in March.
std::string utc_text(std::int64_t t) {
    const std::int64_t z = t / 86400 + 719468, era = z / 146097, doe = z - era * 146097;
    const std::int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    const std::int64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100), mp = (5 * doy + 2) / 153;
    const std::int64_t day = doy - (153 * mp + 2) / 5 + 1, month = mp < 10 ? mp + 3 : mp - 9;
    const std::int64_t year = yoe + era * 400 + (month <= 2 ? 1 : 0), s = t % 86400;
    char text[40];
    std::snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d", static_cast<int>(year), static_cast<int>(month),
                  static_cast<int>(day), static_cast<int>(s / 3600), static_cast<int>(s / 60 % 60),
                  static_cast<int>(s % 60));
    return text;
}

}  // namespace darlcore::slurm
