// SPDX-License-Identifier: Apache-2.0
#include "backends/slurm/test_only.hpp"

#include <algorithm>
#include <initializer_list>

#include "backends/slurm/text.hpp"

namespace darlcore::slurm {

using plan::probe_class;

namespace {

bool any_of(std::string_view text, std::initializer_list<std::string_view> parts) {
    return std::any_of(parts.begin(), parts.end(), [&](std::string_view p) { return contains(text, p); });
}

// A long verdict may be wrapped after "on nodes" or a comma of the node list.
std::vector<std::string> joined_lines(std::string_view text) {
    std::vector<std::string> made;
    bool open = false;
    for (const std::string_view raw : lines_of(text)) {
        const std::string line(trimmed(raw));
        if (open && !made.empty() && !line.empty()) {
            const bool list_goes_on = made.back().back() == ',';
            made.back() += (list_goes_on ? "" : " ") + line;
        } else {
            made.push_back(line);
        }
        const std::string& last = made.back();
        const bool wraps =
            last.size() >= 8 && (last.compare(last.size() - 8, 8, "on nodes") == 0 || last.back() == ',');
        open = wraps && contains(last, "to start at");
    }
    return made;
}

std::string_view without_sbatch(std::string_view line) {
    if (starts_with(line, "sbatch:")) line.remove_prefix(7);
    return trimmed(line);
}

std::string_view without_severity(std::string_view line) {
    for (const std::string_view word : {"error:", "warning:", "info:", "fatal:"})
        if (starts_with(line, word)) return trimmed(line.substr(word.size()));
    return line;
}

bool is_ruler(std::string_view line) {
    return std::all_of(line.begin(), line.end(), [](char c) {
        return c == '-' || c == '=' || c == '*' || c == '_' || c == '#' || c == '~' || c == '+' || c == '.' || c == ' ';
    });
}

// "Job <digits> to start at REST"; the id and REST.
std::optional<std::pair<std::int64_t, std::string_view>> verdict_of(std::string_view line) {
    if (!starts_with(line, "Job ")) return std::nullopt;
    line.remove_prefix(4);
    const std::size_t blank = line.find(' ');
    if (blank == std::string_view::npos) return std::nullopt;
    const auto id = digits(line.substr(0, blank));
    constexpr std::string_view phrase = " to start at ";
    if (!id || line.substr(blank, phrase.size()) != phrase) return std::nullopt;
    return std::make_pair(*id, line.substr(blank + phrase.size()));
}

std::optional<std::string> word_after(std::string_view text, std::string_view phrase) {
    const std::size_t at = text.find(phrase);
    if (at == std::string_view::npos) return std::nullopt;
    const std::string_view rest = trimmed(text.substr(at + phrase.size()));
    const std::string_view word = rest.substr(0, rest.find(' '));
    if (word.empty()) return std::nullopt;
    return std::string(word);
}

void read_placement(test_only_answer& a, std::string_view rest, const test_only_options& o) {
    if (const auto n = word_after(rest, " using ")) a.processors = digits(*n);
    a.nodes = word_after(rest, " processors on nodes ");
    if (!a.nodes) a.nodes = word_after(rest, " processors on ");
    a.cluster = word_after(rest, " on cluster ");
    a.partition = word_after(rest, " in partition ");
    if (!a.partition) {
        a.flags.emplace_back("partition_from_request");
        if (!o.requested_partition.empty()) a.partition = o.requested_partition;
    } else if (!o.requested_partition.empty() && *a.partition != o.requested_partition) {
        a.flags.emplace_back("rerouted");
    }
}

void read_start(test_only_answer& a, std::string_view rest, const test_only_options& o) {
    std::size_t end = rest.size();
    for (const std::string_view stop : {" on cluster ", " a using ", " using "}) end = std::min(end, rest.find(stop));
    const time_reading t = read_time(rest.substr(0, end), o.assume_utc);
    a.kind = probe_class::no_estimate;
    switch (t.what) {
        case time_reading::kind::unknown:
            a.reason = "the scheduler names no start time";
            return;
        case time_reading::kind::foreign:
            a.flags.emplace_back("foreign_time_format");
            a.reason = "the start time is in a format that cannot be read safely; set SLURM_TIME_FORMAT=%s";
            return;
        case time_reading::kind::ambiguous_zone:
            a.flags.emplace_back("ambiguous_zone");
            a.reason = "a local time without a zone; run the command with TZ=UTC";
            return;
        case time_reading::kind::instant:
            break;
    }
    a.start_s = t.epoch_s;
    const std::int64_t ahead = t.epoch_s - o.now_s;
    if (ahead < 0) a.skew_s = ahead;
    if (ahead < -past_max_s) {
        a.flags.emplace_back("skew");
        a.reason = "the start lies in the past; clocks or zones disagree";
        return;
    }
    if (ahead > ahead_max_s) {
        a.flags.emplace_back("implausible");
        a.reason = "the start lies more than 30 days ahead";
        return;
    }
    a.kind = probe_class::accepted;
    a.wait_s = std::max<std::int64_t>(0, ahead);
}

// A limit by its name, such as QOSMaxSubmitJobPerUserLimit; empty when there is none.
std::string_view named_limit(std::string_view line) {
    for (std::string_view word : words_of(line)) {
        while (!word.empty() && (word.back() == '.' || word.back() == ',' || word.back() == ')')) word.remove_suffix(1);
        while (!word.empty() && word.front() == '(') word.remove_prefix(1);
        for (const std::string_view prefix : {"QOS", "Assoc"}) {
            if (!starts_with(word, prefix) || word.size() < prefix.size() + 4) continue;
            const std::string_view tail = word.substr(prefix.size());
            const bool letters = std::all_of(tail.begin(), tail.end(),
                                             [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); });
            if (letters && (starts_with(tail, "Max") || starts_with(tail, "Min") || starts_with(tail, "Grp")))
                return word;
        }
    }
    return {};
}

probe_class class_of_limit(std::string_view name) {
    if (any_of(name, {"MaxSubmit", "MaxJobs"}) || starts_with(name, "QOSGrp") || starts_with(name, "AssocGrp"))
        return probe_class::temporary_limit;
    return probe_class::permanent_limit;
}

bool is_outage(std::string_view line) {
    return any_of(line, {"Unable to contact slurm controller", "Socket timed out", "Connection refused",
                         "Connection timed out", "Zero Bytes were transmitted", "command not found",
                         "Unable to establish controller machine", "Transport endpoint is not connected"});
}

constexpr std::string_view policy_line = "Job violates accounting/QOS policy";

probe_class class_of_refusal(std::string_view text) {
    if (is_outage(text)) return probe_class::outage;
    if (any_of(text,
               {"node configuration is not available", "Node count specification invalid", "time limit is invalid",
                "More processors requested than permitted", "Requested time limit exceeds"}))
        return probe_class::permanent_limit;
    if (contains(text, policy_line)) return probe_class::temporary_limit;
    return probe_class::denied;
}

bool says_nothing(std::string_view refusal) {
    return refusal.empty() || contains(refusal, "Unspecified error") || contains(refusal, policy_line);
}

void judge_refusal(test_only_answer& a, const std::optional<std::string>& refusal, int rc) {
    std::string_view limit = refusal ? named_limit(*refusal) : std::string_view();
    for (auto m = a.messages.rbegin(); limit.empty() && m != a.messages.rend(); ++m) limit = named_limit(*m);
    if (!limit.empty()) {
        a.kind = class_of_limit(limit);
        a.reason = std::string(limit);
        return;
    }
    if (refusal) {
        a.kind = class_of_refusal(*refusal);
        a.reason = says_nothing(*refusal) && !a.messages.empty() ? a.messages.back() : *refusal;
        return;
    }
    const auto outage = std::find_if(a.messages.begin(), a.messages.end(), is_outage);
    if (outage != a.messages.end() || a.messages.empty()) {
        a.kind = probe_class::outage;
        a.reason = a.messages.empty() ? "no output" : *outage;
        return;
    }
    a.kind = rc != 0 ? class_of_refusal(a.messages.back()) : probe_class::no_estimate;
    a.reason = rc != 0 ? a.messages.back() : "no verdict in the output";
}

bool rewrites_shape(std::string_view message) {
    return any_of(message, {" set to ", " changed to ", " adjusted to ", " increased to ", " reduced to ", " moved to ",
                            " rounded up", "rewritten", "has been modified"});
}

void keep_message(test_only_answer& a, std::string_view line) {
    const std::string_view text = trimmed(without_severity(line));
    if (text.empty() || is_ruler(text) || a.messages.size() >= messages_max) return;
    a.messages.emplace_back(text.substr(0, message_bytes_max));
    const bool known = std::find(a.flags.begin(), a.flags.end(), "shape_rewritten") != a.flags.end();
    if (!known && rewrites_shape(text)) a.flags.emplace_back("shape_rewritten");
}

}  // namespace

test_only_answer parse_test_only(std::string_view text, const test_only_options& options) {
    test_only_answer a;
    const std::string plain = plain_text(text);
    const std::vector<std::string> lines = joined_lines(plain);
    std::optional<std::string> refusal;
    std::string_view verdict;
    constexpr std::string_view failure = "allocation failure:";
    for (const std::string& raw : lines) {
        const std::string_view line = without_sbatch(raw);
        if (line.empty()) continue;
        if (const auto v = verdict_of(line)) {
            a.job_id = v->first;
            verdict = v->second;
        } else if (starts_with(line, failure)) {
            refusal = std::string(trimmed(line.substr(failure.size())).substr(0, message_bytes_max));
        } else if (starts_with(line, "Preempts:")) {
            for (const std::string_view id : split(line.substr(9), ','))
                if (const auto n = digits(trimmed(id))) a.preempts.push_back(*n);
        } else if (!starts_with(line, "debug")) {
            keep_message(a, line);
        }
    }
    if (!verdict.empty()) {
        read_placement(a, verdict, options);
        if (!refusal) {
            read_start(a, verdict, options);
            return a;
        }
    }
    judge_refusal(a, refusal, options.rc);
    return a;
}

}  // namespace darlcore::slurm
