// SPDX-License-Identifier: Apache-2.0
#include "backends/slurm/collector.hpp"

#include <algorithm>
#include <set>

#include "backends/slurm/accounting.hpp"
#include "backends/slurm/queue_text.hpp"
#include "backends/slurm/test_only.hpp"
#include "backends/slurm/text.hpp"
#include "darlcore/units.hpp"

namespace darlcore::slurm {

using json::value;

command_runner system_runner() {
    return [](const run_request& r) { return run_command(r, scrubbed_environment(own_environment())); };
}

namespace {

result<std::string> text_of(const value& object, std::string_view key, const std::string& where, bool required) {
    const value* v = object.find(key);
    if (v == nullptr && !required) return std::string();
    if (v == nullptr || v->as_string() == nullptr)
        return fail(errc::invalid_argument, where + ": " + std::string(key) + " must be text");
    return *v->as_string();
}

result<void> known_keys(const value& object, const std::string& where, std::initializer_list<std::string_view> known) {
    if (!object.is_object()) return fail(errc::invalid_argument, where + " must be a table");
    for (const auto& [key, member] : *object.as_object()) {
        if (std::find(known.begin(), known.end(), key) != known.end()) continue;
        std::string all;
        for (const auto k : known) all += (all.empty() ? "" : ", ") + std::string(k);
        return fail(errc::unknown_key, where + ": unknown key '" + key + "'; known are " + all);
    }
    return {};
}

result<probed_shape> read_probed_shape(const value& row, const std::string& where) {
    if (auto ok = known_keys(row, where, {"name", "args"}); !ok) return ok.error();
    auto name = text_of(row, "name", where, true);
    if (!name) return name.error();
    if (!is_valid_name(*name))
        return fail(errc::invalid_argument, where + ": name must match [A-Za-z0-9][A-Za-z0-9._-]{0,63}");
    probed_shape s{*name, {}};
    const value* args = row.find("args");
    if (args == nullptr || !args->is_array())
        return fail(errc::invalid_argument, where + " (" + *name + "): args must be a list, one token each");
    for (const value& a : *args->as_array()) {
        if (a.as_string() == nullptr)
            return fail(errc::invalid_argument, where + " (" + *name + "): args must be text; quote numbers");
        s.args.push_back(*a.as_string());
    }
    const shape_answer shape = read_shape(s.args);
    if (!shape.key)
        return fail(errc::invalid_argument,
                    where + " (" + *name + "): " + shape.problem.word + ": " + shape.problem.detail);
    return s;
}

}  // namespace

result<collector_config> read_collector_config(const value& document) {
    collector_config c;
    if (auto ok = known_keys(document, "the shapes file",
                             {"site", "account", "qos", "sbatch", "sacct", "scontrol", "limit_s", "shapes"});
        !ok)
        return ok.error();
    const auto read = [&](std::string_view key, std::string& into) -> result<void> {
        auto t = text_of(document, key, "the shapes file", false);
        if (!t) return t.error();
        if (!t->empty()) into = *t;
        return {};
    };
    for (auto& [key, into] :
         std::initializer_list<std::pair<std::string_view, std::string*>>{{"site", &c.site},
                                                                          {"account", &c.account},
                                                                          {"qos", &c.qos},
                                                                          {"sbatch", &c.sbatch},
                                                                          {"sacct", &c.sacct},
                                                                          {"scontrol", &c.scontrol}})
        if (auto ok = read(key, *into); !ok) return ok.error();
    if (const value* limit = document.find("limit_s")) {
        c.limit_s = limit->as_double().value_or(0);
        if (!(c.limit_s > 0 && c.limit_s <= 3600))
            return fail(errc::invalid_argument, "the shapes file: limit_s must lie between 0 and 3600");
    }
    const value* shapes = document.find("shapes");
    if (shapes == nullptr || !shapes->is_array() || shapes->size() == 0)
        return fail(errc::invalid_argument, "the shapes file: add at least one [[shapes]] with name and args");
    if (shapes->size() > shapes_max)
        return fail(errc::invalid_argument, "the shapes file: more than 30 shapes; one cycle would take too long");
    std::set<std::string> names;
    for (std::size_t i = 0; i < shapes->size(); ++i) {
        auto s = read_probed_shape(shapes->at(i), "shapes[" + std::to_string(i) + "]");
        if (!s) return s.error();
        if (!names.insert(s->name).second)
            return fail(errc::invalid_argument,
                        "shapes[" + std::to_string(i) + "]: the name " + s->name + " is given twice");
        c.shapes.push_back(std::move(*s));
    }
    return c;
}

std::vector<std::string> probe_argv(const collector_config& c, const probed_shape& shape) {
    std::vector<std::string> argv{c.sbatch, "--test-only"};
    argv.insert(argv.end(), shape.args.begin(), shape.args.end());
    argv.insert(argv.end(), {"--wrap", "true"});
    return argv;
}

namespace {

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

// A call that failed as a call says nothing about the queue.
void judge_call(test_only_answer& a, const run_answer& r, double limit_s) {
    if (r.end == run_end::exited) return;
    a = {};
    a.kind = plan::probe_class::outage;
    switch (r.end) {
        case run_end::timed_out:
            a.reason = "sbatch gave no answer within " + std::to_string(static_cast<int>(limit_s)) + " s";
            break;
        case run_end::not_found:
            a.reason = "sbatch was not found in PATH";
            break;
        default:
            a.reason = "sbatch could not be run";
            break;
    }
}

value probe_record(const collector_config& c, const probed_shape& s, const run_answer& r) {
    const shape_answer shape = read_shape(s.args);
    test_only_options o{r.now_s, r.rc, true, shape.key ? shape.key->partition : std::string()};
    test_only_answer a = parse_test_only(r.err, o);
    judge_call(a, r, c.limit_s);
    if (!a.partition && shape.key) a.partition = shape.key->partition;
    return json::make_object({{"schema", 1},
                              {"type", "probe"},
                              {"site", c.site},
                              {"shape", s.name},
                              {"args", list_of(s.args)},
                              {"args_digest", args_digest(s.args)},
                              {"collected_s", r.now_s},
                              {"call_ms", r.call_ms},
                              {"class", plan::word(a.kind)},
                              {"start_s", or_null(a.start_s)},
                              {"wait_s", or_null(a.wait_s)},
                              {"skew_s", or_null(a.skew_s)},
                              {"processors", or_null(a.processors)},
                              {"nodes", shape.key ? value(shape.key->nodes) : value()},
                              {"gpus", shape.key ? value(shape.key->gpus()) : value()},
                              {"walltime_s", shape.key ? value(shape.key->walltime_s) : value()},
                              {"node_list", or_null(a.nodes)},
                              {"partition", or_null(a.partition)},
                              {"cluster", or_null(a.cluster)},
                              {"preempts", list_of(a.preempts)},
                              {"reason", a.reason},
                              {"messages", list_of(a.messages)},
                              {"flags", list_of(a.flags)},
                              {"account", c.account},
                              {"qos", c.qos},
                              {"collector", "0.1.0"}});
}

}  // namespace

std::vector<value> probe_cycle(const collector_config& c, const command_runner& run,
                               const std::function<bool()>& stop) {
    std::vector<value> records;
    for (const probed_shape& s : c.shapes) {
        if (stop && stop()) break;
        run_request r;
        r.argv = probe_argv(c, s);
        r.limit_s = c.limit_s;
        records.push_back(probe_record(c, s, run(r)));
    }
    return records;
}

namespace {

std::vector<std::string> usage_argv(const collector_config& c, std::int64_t start_s, std::int64_t end_s) {
    std::string partitions;
    std::set<std::string> names;
    for (const probed_shape& s : c.shapes)
        if (const auto shape = read_shape(s.args); shape.key) names.insert(shape.key->partition);
    for (const std::string& n : names) partitions += (partitions.empty() ? "" : ",") + n;
    return {c.sacct, "-X",
            "-a",    "-P",
            "-S",    utc_text(start_s),
            "-E",    utc_text(end_s),
            "-r",    partitions,
            "-o",    "JobIDRaw,Partition,State,Start,End,Elapsed,Timelimit,NNodes,User"};
}

value usage_record(const collector_config& c, const std::string& partition, const plan::usage_ratio& u,
                   const sacct_answer& a, const sacct_options& o, std::int64_t now_s) {
    value skipped{json::object{}};
    for (const auto& [why, n] : a.skipped) skipped.set(why, n);
    return json::make_object({{"schema", 1},
                              {"type", "usage"},
                              {"site", c.site},
                              {"partition", partition},
                              {"collected_s", now_s},
                              {"window_start_s", o.window_start_s},
                              {"window_end_s", o.window_end_s},
                              {"jobs", u.jobs},
                              {"skipped", skipped},
                              {"node_s_used", u.node_s_used},
                              {"node_s_limit", u.node_s_limit},
                              {"gamma", or_null(u.gamma)},
                              {"p10", or_null(u.p10)},
                              {"p50", or_null(u.p50)},
                              {"p90", or_null(u.p90)},
                              {"users", a.users},
                              {"flags", list_of(a.flags)}});
}

// What a command that failed said last.
std::string last_line(const run_answer& r) {
    if (r.end == run_end::not_found) return "the command was not found in PATH";
    if (r.end == run_end::timed_out) return "no answer in time";
    const std::string plain = plain_text(r.err);
    std::string said;
    for (const std::string_view line : lines_of(plain))
        if (!trimmed(line).empty()) said = std::string(trimmed(line).substr(0, message_bytes_max));
    return said;
}

}  // namespace

usage_cycle collect_usage(const collector_config& c, const command_runner& run, std::int64_t now_s) {
    usage_cycle made;
    std::int64_t window_s = c.usage_window_s;
    for (int attempt = 0; attempt < 5; ++attempt, window_s /= 2) {
        run_request r;
        r.argv = usage_argv(c, now_s - window_s, now_s);
        r.limit_s = c.usage_limit_s;
        r.stdout_bytes_max = std::size_t{256} << 20U;
        const run_answer got = run(r);
        sacct_options o;
        o.window_start_s = now_s - window_s;
        o.window_end_s = now_s;
        o.rc = got.rc;
        o.timed_out = got.end == run_end::timed_out;
        o.stderr_text = got.err;
        const sacct_answer a = parse_sacct(got.out, o);
        made.status = std::string(word(a.status));
        made.reason = last_line(got);
        if (a.status == sacct_status::shrink_window) continue;
        for (const auto& [partition, usage] : a.by_partition)
            made.records.push_back(usage_record(c, partition, usage, a, o, now_s));
        break;
    }
    return made;
}

result<value> start_record(const collector_config& c, const std::string& shape, const std::string& job,
                           const command_runner& run) {
    const auto probed =
        std::find_if(c.shapes.begin(), c.shapes.end(), [&](const probed_shape& s) { return s.name == shape; });
    if (probed == c.shapes.end())
        return fail(errc::invalid_argument,
                    "the shapes file has no shape of that name; a start is compared with its probes");
    if (!digits(job)) return fail(errc::invalid_argument, "the job must be a number, as sbatch printed it");
    run_request r;
    r.argv = {c.scontrol, "-o", "show", "job", job};
    r.limit_s = c.limit_s;
    const run_answer got = run(r);
    if (got.end != run_end::exited)
        return fail(errc::unreachable, "scontrol could not be run, or gave no answer in time");
    const auto jobs = parse_scontrol(got.out);
    if (got.rc != 0 || jobs.rows.empty())
        return fail(errc::not_found, "scontrol does not know this job (it forgets ended ones after minutes)");
    const auto field = [&](std::string_view name) {
        for (const auto& [key, text] : jobs.rows.front().fields)
            if (key == name) return text;
        return std::string();
    };
    const auto submitted = read_time(field("SubmitTime"), true), begun = read_time(field("StartTime"), true);
    const auto eligible = read_time(field("EligibleTime"), true);
    using kind = time_reading::kind;
    if (submitted.what != kind::instant || begun.what != kind::instant || begun.epoch_s > got.now_s)
        return fail(errc::not_found, "the job has not started yet");
    const std::int64_t from =
        eligible.what == kind::instant ? std::max(submitted.epoch_s, eligible.epoch_s) : submitted.epoch_s;
    return json::make_object({{"schema", 1},
                              {"type", "start"},
                              {"site", c.site},
                              {"shape", shape},
                              {"args_digest", args_digest(probed->args)},
                              {"partition", field("Partition")},
                              {"job", job},
                              {"collected_s", got.now_s},
                              {"submit_s", from},
                              {"start_s", begun.epoch_s},
                              {"realised_s", std::max<std::int64_t>(0, begun.epoch_s - from)}});
}

}  // namespace darlcore::slurm
