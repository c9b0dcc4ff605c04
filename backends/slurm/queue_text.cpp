// SPDX-License-Identifier: Apache-2.0
#include "backends/slurm/queue_text.hpp"

#include <algorithm>

namespace darlcore::slurm {

namespace {

std::optional<std::int64_t> reported_s(std::string_view text) {
    const duration_reading d = read_reported_duration(text);
    if (!d.valid || d.none) return std::nullopt;
    return d.seconds;
}

// The first `count - 1` fields, then everything that is left: the last field may hold the separator.
std::vector<std::string_view> fields_of(std::string_view line, std::size_t count) {
    std::vector<std::string_view> made;
    while (made.size() + 1 < count) {
        const std::size_t at = line.find('|');
        if (at == std::string_view::npos) break;
        made.push_back(trimmed(line.substr(0, at)));
        line.remove_prefix(at + 1);
    }
    made.push_back(trimmed(line));
    return made;
}

bool is_absent(std::string_view value) {
    return value.empty() || value == "(null)" || value == "N/A" || value == "None" || value == "Unknown" ||
           value == "n/a";
}

// "Key=" at the start of a word: letters, digits, '/', ':', '_' before the first '='.
std::size_t key_length(std::string_view word) {
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos || equals == 0 || word[0] < 'A' || word[0] > 'Z') return 0;
    for (const char c : word.substr(0, equals)) {
        const bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '/' ||
                        c == ':' || c == '_';
        if (!ok) return 0;
    }
    return equals;
}

job_record record_of(std::string_view line) {
    job_record r;
    for (const std::string_view word : words_of(line)) {
        const std::size_t key = key_length(word);
        if (key > 0)
            r.fields.emplace_back(std::string(word.substr(0, key)), std::string(word.substr(key + 1)));
        else if (!r.fields.empty())
            r.fields.back().second += " " + std::string(word);
    }
    for (const auto& [key, value] : r.fields) {
        if (key == "RunTime") r.run_s = reported_s(value);
        if (key == "TimeLimit") r.limit_s = reported_s(value);
        if (is_absent(value)) r.absent.push_back(key);
    }
    r.fields.erase(std::remove_if(r.fields.begin(), r.fields.end(), [](const auto& f) { return is_absent(f.second); }),
                   r.fields.end());
    return r;
}

}  // namespace

rows_answer<queue_row> parse_squeue(std::string_view text) {
    rows_answer<queue_row> a;
    const std::string plain = plain_text(text);
    for (const std::string_view line : lines_of(plain)) {
        if (trimmed(line).empty()) continue;
        const auto f = fields_of(line, 5);
        if (f.size() != 5 || f[0].empty() || f[0].front() < '0' || f[0].front() > '9') {
            ++a.malformed;
            continue;
        }
        queue_row r;
        r.job = std::string(f[0]);
        r.state = std::string(f[1]);
        r.elapsed_s = reported_s(f[2]);
        r.nodes = digits(f[3]);
        if (f[4].size() >= 2 && f[4].front() == '(' && f[4].back() == ')')
            r.reason = std::string(f[4].substr(1, f[4].size() - 2));
        else if (!f[4].empty())
            r.nodes_at = std::string(f[4]);
        a.rows.push_back(std::move(r));
    }
    return a;
}

rows_answer<partition_row> parse_sinfo(std::string_view text) {
    rows_answer<partition_row> a;
    const std::string plain = plain_text(text);
    for (const std::string_view line : lines_of(plain)) {
        if (trimmed(line).empty()) continue;
        const auto f = fields_of(line, 6);
        const auto nodes = f.size() == 6 ? digits(f[3]) : std::nullopt;
        const duration_reading limit = f.size() == 6 ? read_reported_duration(f[2]) : duration_reading{};
        if (!nodes || !limit.valid || f[0].empty()) {
            ++a.malformed;
            continue;
        }
        partition_row r;
        r.is_default = f[0].back() == '*';
        r.partition = std::string(r.is_default ? f[0].substr(0, f[0].size() - 1) : f[0]);
        r.avail = std::string(f[1]);
        if (!limit.none) r.limit_s = limit.seconds;
        r.nodes = *nodes;
        r.state = std::string(f[4]);
        r.node_list = std::string(f[5]);
        a.rows.push_back(std::move(r));
    }
    return a;
}

rows_answer<job_record> parse_scontrol(std::string_view text) {
    rows_answer<job_record> a;
    const std::string plain = plain_text(text);
    for (const std::string_view line : lines_of(plain)) {
        if (trimmed(line).empty()) continue;
        job_record r = record_of(line);
        if (r.fields.empty() || r.fields.front().first != "JobId")
            ++a.malformed;
        else
            a.rows.push_back(std::move(r));
    }
    return a;
}

rows_answer<limit_row> parse_qos(std::string_view text) {
    rows_answer<limit_row> a;
    const std::string plain = plain_text(text);
    const auto lines = lines_of(plain);
    if (lines.empty()) return a;
    const auto names = split(lines.front(), '|');
    for (std::size_t i = 1; i < lines.size(); ++i) {
        if (trimmed(lines[i]).empty()) continue;
        const auto values = split(lines[i], '|');
        if (values.size() < names.size()) {
            ++a.malformed;
            continue;
        }
        limit_row row;
        for (std::size_t k = 0; k < names.size(); ++k)
            if (!trimmed(values[k]).empty() && !trimmed(names[k]).empty())
                row[std::string(trimmed(names[k]))] = std::string(trimmed(values[k]));
        a.rows.push_back(std::move(row));
    }
    return a;
}

result<submitted_job> parse_submit(std::string_view text) {
    const std::string plain = plain_text(text);
    for (const std::string_view raw : lines_of(plain)) {
        const std::string_view line = trimmed(raw);
        constexpr std::string_view phrase = "Submitted batch job ";
        if (starts_with(line, phrase)) {
            const auto words = words_of(line.substr(phrase.size()));
            const auto id = words.empty() ? std::nullopt : digits(words[0]);
            if (!id) continue;
            return submitted_job{*id,
                                 words.size() == 4 && words[2] == "cluster" ? std::string(words[3]) : std::string()};
        }
        const std::size_t semicolon = line.find(';');
        if (const auto id = digits(line.substr(0, semicolon)); id && *id > 0)
            return submitted_job{
                *id, semicolon == std::string_view::npos ? std::string() : std::string(line.substr(semicolon + 1))};
    }
    return fail(errc::parse_error, "sbatch named no job; look at its error output");
}

result<array_tasks> parse_array(std::string_view text) {
    array_tasks a;
    std::string_view t = trimmed(text);
    const auto wrong = [] { return fail(errc::parse_error, "not an array of tasks; expected a form like 1-5:2,9%3"); };
    if (const std::size_t bracket = t.find("_["); bracket != std::string_view::npos) {
        a.job = digits(t.substr(0, bracket));
        if (!a.job || t.back() != ']') return wrong();
        t = t.substr(bracket + 2, t.size() - bracket - 3);
    }
    if (const std::size_t percent = t.find('%'); percent != std::string_view::npos) {
        a.at_once = digits(t.substr(percent + 1));
        if (!a.at_once || *a.at_once < 1) return wrong();
        t = t.substr(0, percent);
    }
    for (const std::string_view part : split(t, ',')) {
        const std::size_t colon = part.find(':');
        const std::string_view range = part.substr(0, colon);
        const std::size_t dash = range.find('-');
        const auto first = digits(range.substr(0, dash));
        const auto last = dash == std::string_view::npos ? first : digits(range.substr(dash + 1));
        const auto step =
            colon == std::string_view::npos ? std::optional<std::int64_t>(1) : digits(part.substr(colon + 1));
        if (!first || !last || !step || *step < 1 || *last < *first) return wrong();
        if ((*last - *first) / *step >= 100000 - static_cast<std::int64_t>(a.tasks.size())) return wrong();
        for (std::int64_t k = *first; k <= *last; k += *step) a.tasks.push_back(k);
    }
    return a;
}

namespace {

std::optional<std::int64_t> swf_number(std::string_view text) {
    const bool negative = starts_with(text, "-");
    std::string_view magnitude = negative ? text.substr(1) : text;
    magnitude = magnitude.substr(0, magnitude.find('.'));
    const auto n = digits(magnitude);
    if (!n) return std::nullopt;
    return negative ? -*n : *n;
}

void read_header_line(std::string_view line, swf_header& h) {
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) return;
    const std::string_view key = trimmed(line.substr(0, colon));
    const std::string_view value = trimmed(line.substr(colon + 1));
    if (key == "UnixStartTime") {
        h.unix_start_s = digits(value);
    } else if (key == "MaxProcs") {
        h.procs_max = digits(value);
    } else if (key == "MaxNodes") {
        h.nodes_max = digits(value);
    } else if (key == "Queue") {
        const auto words = words_of(value);
        if (words.size() >= 2 && digits(words[0])) h.queues[std::string(words[0])] = std::string(words[1]);
    } else if (!key.empty() && key.find(' ') == std::string_view::npos) {
        h.ignored.emplace_back(key);
    }
}

}  // namespace

swf_answer parse_swf(std::string_view text) {
    swf_answer a;
    const std::string plain = plain_text(text);
    for (const std::string_view raw : lines_of(plain)) {
        const std::string_view line = trimmed(raw);
        if (line.empty()) continue;
        if (line.front() == ';') {
            read_header_line(line.substr(1), a.header);
            continue;
        }
        std::vector<std::optional<std::int64_t>> f;
        std::string spaced(line);
        std::replace(spaced.begin(), spaced.end(), '\t', ' ');
        for (const std::string_view word : words_of(spaced)) f.push_back(swf_number(word));
        if (f.size() < 18 || !f[1] || !f[2] || !f[3] || !f[4] || !f[7] || !f[8] || !f[14]) {
            ++a.skipped["malformed"];
            continue;
        }
        if (*f[3] <= 0 || *f[2] < 0) {
            ++a.skipped["never_started"];
            continue;
        }
        const std::int64_t procs = *f[4] > 0 ? *f[4] : *f[7];
        if (procs <= 0 || *f[8] <= 0) {
            ++a.skipped[procs <= 0 ? "no_processors" : "no_limit"];
            continue;
        }
        a.jobs.push_back({*f[1], *f[2], *f[3], procs, *f[8], *f[14]});
    }
    return a;
}

}  // namespace darlcore::slurm
