// SPDX-License-Identifier: Apache-2.0
#include "backends/slurm/job_history.hpp"

#include <algorithm>
#include <cmath>

#include "backends/slurm/accounting.hpp"
#include "backends/slurm/queue_text.hpp"
#include "backends/slurm/text.hpp"

namespace darlcore::slurm {

namespace {

std::uint32_t nodes_of(double n) { return static_cast<std::uint32_t>(std::clamp(std::ceil(n), 1.0, 1e9)); }

void take_swf(std::string_view text, job_history& into) {
    const swf_answer a = parse_swf(text);
    into.skipped = a.skipped;
    const auto zero = static_cast<double>(a.header.unix_start_s.value_or(0));
    double per_node = 1;
    if (a.header.procs_max && a.header.nodes_max && *a.header.nodes_max > 0)
        per_node = std::max(1.0, static_cast<double>(*a.header.procs_max) / static_cast<double>(*a.header.nodes_max));
    for (const swf_job& j : a.jobs) {
        const std::string number = std::to_string(j.queue);
        const auto name = a.header.queues.find(number);
        const auto submit = zero + static_cast<double>(j.submit_s);
        into.jobs.push_back({name == a.header.queues.end() ? number : name->second, submit,
                             submit + static_cast<double>(j.wait_s), static_cast<double>(j.run_s),
                             static_cast<double>(j.limit_s), nodes_of(static_cast<double>(j.procs) / per_node)});
    }
}

void take_sacct(std::string_view text, job_history& into) {
    const sacct_answer a = parse_sacct(text, {});
    into.skipped = a.skipped;
    for (const accounted_job& j : a.jobs) {
        if (!j.submit_s || *j.submit_s > j.start_s) {
            ++into.skipped["no_submit"];
            continue;
        }
        into.jobs.push_back({j.partition, static_cast<double>(*j.submit_s), static_cast<double>(j.start_s),
                             j.used.elapsed_s, j.used.limit_s, nodes_of(static_cast<double>(j.used.nodes))});
    }
}

}  // namespace

result<job_history> read_history(std::string_view text) {
    job_history made;
    const std::size_t end = text.find('\n');
    if (text.substr(0, end).find('|') != std::string_view::npos)
        take_sacct(text, made);
    else
        take_swf(text, made);
    std::erase_if(made.jobs, [](const plan::past_job& j) {
        return !(std::isfinite(j.submit_s) && std::isfinite(j.start_s) && j.start_s >= j.submit_s && j.limit_s > 0);
    });
    if (made.jobs.empty()) {
        std::string why;
        for (const auto& [reason, n] : made.skipped)
            why += (why.empty() ? "; skipped: " : ", ") + std::to_string(n) + " " + reason;
        return fail(errc::parse_error,
                    "no usable job: give a Standard Workload Format file, or the output of sacct -X -a -P -o "
                    "JobIDRaw,Partition,State,Submit,Start,End,Elapsed,Timelimit,NNodes" +
                        why);
    }
    std::stable_sort(made.jobs.begin(), made.jobs.end(),
                     [](const plan::past_job& a, const plan::past_job& b) { return a.start_s < b.start_s; });
    made.last_start_s = made.jobs.back().start_s;
    return made;
}

}  // namespace darlcore::slurm
