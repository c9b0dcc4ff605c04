// SPDX-License-Identifier: Apache-2.0
#include "backends/slurm/accounting.hpp"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <set>

#include "backends/slurm/text.hpp"

namespace darlcore::slurm {

std::string_view word(sacct_status s) {
    constexpr std::array<std::string_view, 5> words{"ok", "no_jobs", "outage", "shrink_window", "bad_output"};
    return words[static_cast<std::size_t>(s)];
}

namespace {

struct columns {
    static constexpr std::size_t none = static_cast<std::size_t>(-1);
    std::size_t id = none, partition = none, state = none, start = none, end = none, elapsed = none, limit = none,
                nodes = none, user = none, submit = none;
    [[nodiscard]] bool complete() const {
        return id != none && partition != none && state != none && start != none && end != none && elapsed != none &&
               limit != none && nodes != none;
    }
};

columns columns_of(std::string_view header) {
    columns c;
    const auto names = split(header, '|');
    for (std::size_t i = 0; i < names.size(); ++i) {
        const std::string_view n = trimmed(names[i]);
        if (n == "JobIDRaw" || n == "JobID") c.id = i;
        if (n == "Partition") c.partition = i;
        if (n == "State") c.state = i;
        if (n == "Start") c.start = i;
        if (n == "End") c.end = i;
        if (n == "Elapsed") c.elapsed = i;
        if (n == "Timelimit") c.limit = i;
        if (n == "NNodes") c.nodes = i;
        if (n == "User") c.user = i;
        if (n == "Submit") c.submit = i;
    }
    return c;
}

bool one_of(std::string_view text, std::initializer_list<std::string_view> words) {
    return std::find(words.begin(), words.end(), text) != words.end();
}

// The reason to skip by state; empty: the job ended by itself.
std::string_view skip_by_state(std::string_view state) {
    const std::string_view first = state.substr(0, state.find(' '));
    if (one_of(first, {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "DEADLINE"})) return {};
    if (one_of(first, {"NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "REVOKED"})) return "system_end";
    if (one_of(first,
               {"RUNNING", "PENDING", "REQUEUED", "SUSPENDED", "COMPLETING", "CONFIGURING", "RESIZING", "REQUEUE_HOLD",
                "REQUEUE_FED", "STAGE_OUT", "SIGNALING", "STOPPED", "SPECIAL_EXIT", "RESV_DEL_HOLD"}))
        return "not_terminal";
    return "unknown_state";
}

// Fills `job` or gives the reason to skip the row.
std::string_view read_row(const std::vector<std::string_view>& f, const columns& c, const sacct_options& o,
                          accounted_job& job) {
    const std::string_view id = trimmed(f[c.id]);
    if (contains(id, ".") || contains(id, "+")) return "step";
    if (const std::string_view why = skip_by_state(trimmed(f[c.state])); !why.empty()) return why;
    const duration_reading elapsed = read_reported_duration(f[c.elapsed]);
    const time_reading start = read_time(f[c.start], true);
    if (start.what == time_reading::kind::unknown) return "never_started";
    if (!elapsed.valid || elapsed.none) return "malformed";
    if (elapsed.seconds == 0) return "never_started";
    const time_reading end = read_time(f[c.end], true);
    const auto nodes = digits(trimmed(f[c.nodes]));
    if (start.what != time_reading::kind::instant || end.what != time_reading::kind::instant || !nodes || *nodes == 0)
        return "malformed";
    if (end.epoch_s < o.window_start_s || end.epoch_s > o.window_end_s) return "outside_window";
    const duration_reading limit = read_reported_duration(f[c.limit]);
    if (!limit.valid) return "malformed";
    if (limit.none || limit.seconds == 0) return "no_limit";
    job.partition = std::string(trimmed(f[c.partition]));
    job.used = {static_cast<std::uint64_t>(*nodes), static_cast<double>(elapsed.seconds),
                static_cast<double>(limit.seconds)};
    job.start_s = start.epoch_s;
    job.end_s = end.epoch_s;
    if (c.submit != columns::none) {
        const time_reading submit = read_time(f[c.submit], true);
        if (submit.what == time_reading::kind::instant) job.submit_s = submit.epoch_s;
    }
    return {};
}

bool asks_for_less(std::string_view text) {
    return contains(text, "Too wide of a date range") || contains(text, "MaxQueryTimeRange") ||
           contains(text, "too large") || contains(text, "Response too big");
}

sacct_status status_without_rows(const sacct_options& o, bool empty) {
    if (asks_for_less(o.stderr_text) || o.timed_out) return sacct_status::shrink_window;
    if (o.rc != 0 && empty) return sacct_status::outage;
    return sacct_status::bad_output;
}

}  // namespace

sacct_answer parse_sacct(std::string_view text, const sacct_options& options) {
    sacct_answer a;
    const std::string plain = plain_text(text);
    const auto lines = lines_of(plain);
    const columns c = lines.empty() ? columns() : columns_of(lines.front());
    if (options.timed_out || asks_for_less(options.stderr_text) || !c.complete()) {
        a.status = status_without_rows(options, trimmed(plain).empty());
        return a;
    }
    std::size_t most = 0;
    for (const std::size_t i : {c.id, c.partition, c.state, c.start, c.end, c.elapsed, c.limit, c.nodes})
        most = std::max(most, i);
    if (c.submit != columns::none) most = std::max(most, c.submit);
    std::set<std::string> users;
    std::size_t rows = 0;
    for (std::size_t i = 1; i < lines.size(); ++i) {
        if (trimmed(lines[i]).empty()) continue;
        ++rows;
        const auto fields = split(lines[i], '|');
        if (fields.size() <= most) {
            ++a.skipped["malformed"];
            continue;
        }
        if (c.user != columns::none && c.user < fields.size() && !trimmed(fields[c.user]).empty())
            users.insert(std::string(trimmed(fields[c.user])));
        accounted_job job;
        const std::string_view why = read_row(fields, c, options, job);
        if (why.empty())
            a.jobs.push_back(std::move(job));
        else
            ++a.skipped[std::string(why)];
    }
    a.status = rows == 0 ? sacct_status::no_jobs : sacct_status::ok;
    a.users = users.size();
    if (a.users == 1) a.flags.emplace_back("own_jobs_only");
    std::vector<plan::used_job> all;
    std::map<std::string, std::vector<plan::used_job>> parts;
    for (const accounted_job& j : a.jobs) {
        all.push_back(j.used);
        parts[j.partition].push_back(j.used);
    }
    a.all = plan::usage_of(all, options.jobs_min);
    for (const auto& [partition, jobs] : parts) a.by_partition[partition] = plan::usage_of(jobs, options.jobs_min);
    return a;
}

}  // namespace darlcore::slurm
