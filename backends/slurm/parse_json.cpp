// SPDX-License-Identifier: Apache-2.0
#include "backends/slurm/parse_json.hpp"

#include "backends/slurm/accounting.hpp"
#include "backends/slurm/queue_text.hpp"
#include "backends/slurm/shape.hpp"
#include "backends/slurm/test_only.hpp"

namespace darlcore::slurm {

namespace {

using json::value;

template <class T>
value or_null(const std::optional<T>& v) {
    return v ? value(*v) : value();
}

template <class T>
value list_of(const std::vector<T>& items) {
    json::array made;
    for (const T& i : items) made.emplace_back(i);
    return made;
}

value counts_of(const std::map<std::string, std::size_t>& counts) {
    value made{json::object{}};
    for (const auto& [name, n] : counts) made.set(name, n);
    return made;
}

std::int64_t option_i64(const value& options, std::string_view key, std::int64_t fallback) {
    const value* v = options.find(key);
    return v == nullptr ? fallback : v->as_i64().value_or(fallback);
}

std::string option_text(const value& options, std::string_view key) {
    const value* v = options.find(key);
    const std::string* text = v == nullptr ? nullptr : v->as_string();
    return text == nullptr ? std::string() : *text;
}

bool option_flag(const value& options, std::string_view key, bool fallback) {
    const value* v = options.find(key);
    return v == nullptr ? fallback : v->as_bool().value_or(fallback);
}

value of_test_only(std::string_view text, const value& o) {
    const test_only_answer a =
        parse_test_only(text, {option_i64(o, "now_s", 0), static_cast<int>(option_i64(o, "rc", 0)),
                               option_flag(o, "assume_utc", true), option_text(o, "requested_partition")});
    return json::make_object({{"class", plan::word(a.kind)},
                              {"start_s", or_null(a.start_s)},
                              {"wait_s", or_null(a.wait_s)},
                              {"skew_s", or_null(a.skew_s)},
                              {"job_id", or_null(a.job_id)},
                              {"processors", or_null(a.processors)},
                              {"nodes", or_null(a.nodes)},
                              {"partition", or_null(a.partition)},
                              {"cluster", or_null(a.cluster)},
                              {"preempts", list_of(a.preempts)},
                              {"reason", a.reason},
                              {"messages", list_of(a.messages)},
                              {"flags", list_of(a.flags)}});
}

value of_usage(const plan::usage_ratio& u) {
    return json::make_object({{"jobs", u.jobs},
                              {"node_s_used", u.node_s_used},
                              {"node_s_limit", u.node_s_limit},
                              {"gamma", or_null(u.gamma)},
                              {"p10", or_null(u.p10)},
                              {"p50", or_null(u.p50)},
                              {"p90", or_null(u.p90)}});
}

value of_sacct(std::string_view text, const value& o) {
    sacct_options options;
    options.window_start_s = option_i64(o, "window_start_s", 0);
    options.window_end_s = option_i64(o, "window_end_s", INT64_MAX);
    options.jobs_min = static_cast<std::size_t>(std::max<std::int64_t>(1, option_i64(o, "min_jobs", 30)));
    options.rc = static_cast<int>(option_i64(o, "rc", 0));
    options.stderr_text = option_text(o, "stderr");
    const sacct_answer a = parse_sacct(text, options);
    value parts{json::object{}};
    for (const auto& [name, usage] : a.by_partition) parts.set(name, of_usage(usage));
    return json::make_object({{"status", word(a.status)},
                              {"used", a.all.jobs},
                              {"skipped", counts_of(a.skipped)},
                              {"gamma", or_null(a.all.gamma)},
                              {"p10", or_null(a.all.p10)},
                              {"p50", or_null(a.all.p50)},
                              {"p90", or_null(a.all.p90)},
                              {"partitions", parts},
                              {"users", a.users},
                              {"flags", list_of(a.flags)}});
}

result<value> of_timelimit(std::string_view text, const value& o) {
    const std::string grammar = option_text(o, "grammar");
    if (!grammar.empty() && grammar != "request" && grammar != "report")
        return fail(errc::invalid_argument, "grammar must be request or report");
    const duration_reading d = grammar == "report" ? read_reported_duration(text) : read_requested_duration(text);
    if (!d.valid) return json::make_object({{"error", "bad_time"}});
    if (d.none) return json::make_object({{"none", true}});
    return json::make_object({{"seconds", d.seconds}, {"minutes", (d.seconds + 59) / 60}});
}

value of_shape(std::span<const std::string> args) {
    const shape_answer a = read_shape(args);
    if (!a.key) return json::make_object({{"error", a.problem.word}, {"detail", a.problem.detail}});
    const shape_key& k = *a.key;
    const auto text_or_null = [](const std::string& t) { return t.empty() ? value() : value(t); };
    return json::make_object({{"partition", k.partition},
                              {"nodes", k.nodes},
                              {"gpus_per_node", k.gpus_per_node},
                              {"gpu_type", text_or_null(k.gpu_type)},
                              {"walltime_s", k.walltime_s},
                              {"account", text_or_null(k.account)},
                              {"qos", text_or_null(k.qos)},
                              {"args_digest", args_digest(args)}});
}

value of_squeue(std::string_view text) {
    const auto a = parse_squeue(text);
    json::array rows;
    for (const queue_row& r : a.rows)
        rows.push_back(json::make_object({{"job", r.job},
                                          {"state", r.state},
                                          {"elapsed_s", or_null(r.elapsed_s)},
                                          {"nodes", or_null(r.nodes)},
                                          {"nodes_at", or_null(r.nodes_at)},
                                          {"reason", or_null(r.reason)}}));
    return json::make_object({{"rows", rows}, {"malformed", a.malformed}});
}

value of_sinfo(std::string_view text) {
    const auto a = parse_sinfo(text);
    json::array rows;
    for (const partition_row& r : a.rows)
        rows.push_back(json::make_object({{"partition", r.partition},
                                          {"default", r.is_default},
                                          {"avail", r.avail},
                                          {"limit_s", or_null(r.limit_s)},
                                          {"nodes", r.nodes},
                                          {"state", r.state},
                                          {"node_list", r.node_list}}));
    return json::make_object({{"rows", rows}, {"malformed", a.malformed}});
}

value of_record(const job_record& r) {
    value fields{json::object{}};
    for (const auto& [key, text] : r.fields) fields.set(key, text);
    return json::make_object({{"fields", fields},
                              {"run_s", or_null(r.run_s)},
                              {"limit_s", or_null(r.limit_s)},
                              {"null", list_of(r.absent)}});
}

value of_scontrol(std::string_view text) {
    const auto a = parse_scontrol(text);
    value made = a.rows.empty() ? value(json::object{}) : of_record(a.rows.front());
    if (a.rows.size() > 1) {
        json::array jobs;
        for (const job_record& r : a.rows) jobs.push_back(of_record(r));
        made.set("jobs", jobs);
    }
    made.set("malformed", a.malformed);
    return made;
}

value of_qos(std::string_view text) {
    const auto a = parse_qos(text);
    json::array rows;
    for (const limit_row& r : a.rows) {
        value row{json::object{}};
        for (const auto& [name, v] : r) row.set(name, v);
        rows.push_back(row);
    }
    return json::make_object({{"rows", rows}, {"malformed", a.malformed}});
}

value of_submit(std::string_view text) {
    const auto a = parse_submit(text);
    if (!a) return json::make_object({{"error", "no_job"}, {"detail", a.error().context}});
    return json::make_object({{"job", a->job}, {"cluster", a->cluster.empty() ? value() : value(a->cluster)}});
}

value of_array(std::string_view text) {
    const auto a = parse_array(text);
    if (!a) return json::make_object({{"error", "bad_array"}, {"detail", a.error().context}});
    return json::make_object({{"job", or_null(a->job)},
                              {"count", a->tasks.size()},
                              {"tasks", list_of(a->tasks)},
                              {"at_once", or_null(a->at_once)}});
}

value of_start_time(std::string_view text, const value& o) {
    const std::string plain = plain_text(text);
    const auto lines = lines_of(plain);
    const time_reading t =
        read_time(lines.empty() ? std::string_view() : lines.front(), option_flag(o, "assume_utc", true));
    switch (t.what) {
        case time_reading::kind::instant:
            return json::make_object({{"start_s", t.epoch_s}, {"flags", json::array{}}});
        case time_reading::kind::unknown:
            return json::make_object({{"start_s", value()}, {"flags", json::array{}}});
        case time_reading::kind::foreign:
            break;
        case time_reading::kind::ambiguous_zone:
            return json::make_object({{"start_s", value()}, {"flags", json::array{"ambiguous_zone"}}});
    }
    return json::make_object({{"start_s", value()}, {"flags", json::array{"foreign_time_format"}}});
}

value of_swf_header(const swf_header& h) {
    value queues{json::object{}};
    for (const auto& [id, name] : h.queues) queues.set(id, name);
    return json::make_object({{"unix_start_s", or_null(h.unix_start_s)},
                              {"max_procs", or_null(h.procs_max)},
                              {"max_nodes", or_null(h.nodes_max)},
                              {"queues", queues},
                              {"ignored", list_of(h.ignored)}});
}

value of_swf(const swf_answer& a) {
    json::array jobs;
    for (const swf_job& j : a.jobs)
        jobs.push_back(json::make_object({{"submit_s", j.submit_s},
                                          {"wait_s", j.wait_s},
                                          {"run_s", j.run_s},
                                          {"procs", j.procs},
                                          {"limit_s", j.limit_s},
                                          {"queue", j.queue}}));
    return json::make_object({{"header", of_swf_header(a.header)}, {"jobs", jobs}, {"skipped", counts_of(a.skipped)}});
}

}  // namespace

result<json::value> parse_as_json(std::string_view kind, std::string_view text, const json::value& options,
                                  std::span<const std::string> args) {
    if (kind == "test-only") return of_test_only(text, options);
    if (kind == "sacct") return of_sacct(text, options);
    if (kind == "timelimit") return of_timelimit(text, options);
    if (kind == "shape") return of_shape(args);
    if (kind == "squeue") return of_squeue(text);
    if (kind == "sinfo") return of_sinfo(text);
    if (kind == "scontrol") return of_scontrol(text);
    if (kind == "qos") return of_qos(text);
    if (kind == "submit") return of_submit(text);
    if (kind == "array") return of_array(text);
    if (kind == "start-time") return of_start_time(text, options);
    if (kind == "swf") return of_swf(parse_swf(text));
    if (kind == "swf-header") return of_swf_header(parse_swf(text).header);
    std::string known;
    for (const std::string_view k : parse_kinds) known += (known.empty() ? "" : ", ") + std::string(k);
    return fail(errc::invalid_argument, "unknown kind '" + std::string(kind) + "'; one of " + known);
}

}  // namespace darlcore::slurm
