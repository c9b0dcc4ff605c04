// SPDX-License-Identifier: Apache-2.0
#include "adapters/cli/plan/input.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "darlcore/plan/argument.hpp"
#include "darlcore/plan/estimate.hpp"
#include "darlcore/plan/trace.hpp"

namespace darl::plan_io {

using namespace darlcore::plan;
using darlcore::errc;
using darlcore::fail;
using darlcore::result;

namespace {

constexpr double age_max_s = 6 * 3600.0;
constexpr std::uint32_t links_max = 100000;

// The verdict that a row carries about its own probe; nothing when the row may be used.
std::optional<exclusion> row_verdict(fields& f, const std::string& site, const std::string& shape) {
    const std::string kind = f.text("class", "accepted");
    const auto age = f.optional_number("age_s");
    if (kind == "no_probe")
        return exclusion{
            site, shape, exclusion_code::no_probe, 0.0, "probes of this shape", "run `darl probe run` at the site"};
    if (kind == "no_history")
        return exclusion{site,
                         shape,
                         exclusion_code::no_estimate,
                         trace_settings().effective_min,
                         "past jobs like this one are needed, newer ones counting more; " + f.text("reason", ""),
                         "give a longer --history, or plan with another --wait"};
    const auto known = probe_class_from_word(kind);
    if (!known) {
        f.refuse(
            fmt::format("class '{}' is unknown; use accepted, no_probe, no_estimate, denied, permanent_limit, "
                        "temporary_limit or outage",
                        kind));
        return std::nullopt;
    }
    if (*known != probe_class::accepted) {
        reading r;
        r.site = site;
        r.shape = shape;
        r.kind = *known;
        r.reason = f.text("reason", kind);
        return darlcore::plan::detail::excluded_because(r, age.value_or(0), age_max_s);
    }
    if (age && *age > age_max_s)
        return exclusion{site,
                         shape,
                         exclusion_code::probe_too_old,
                         *age,
                         "age of the reading in s; the limit is 21600",
                         "run `darl probe run` at the site"};
    return std::nullopt;
}

// The wait of a row, in its own unit: given, or the raw one discounted by gamma.
std::optional<double> row_wait(fields& f, const std::string& unit, double strength, reading_row& seen) {
    const double scale = unit == "h" ? 3600.0 : 1.0;
    const auto gamma = f.optional_number("gamma");
    const auto raw = f.optional_number("wait_raw_" + unit);
    seen.gamma = gamma;
    if (gamma && !(*gamma >= 0 && *gamma <= 1)) f.refuse("gamma must lie between 0 and 1");
    if (!raw) {
        const double wait = f.number("wait_" + unit);
        if (!(wait >= 0))
            f.refuse(fmt::format(
                "wait_{} must be 0 or more; no wait known is not a wait of 0: use class = \"no_probe\"", unit));
        seen.wait_raw_s = wait * scale;
        seen.wait_s = wait * scale;
        return wait;
    }
    if (f.find("wait_" + unit) != nullptr) f.refuse(fmt::format("give wait_{0} or wait_raw_{0}, not both", unit));
    const auto wait = discounted_wait_s(*raw, gamma, strength);
    if (!wait) {
        f.refuse(wait.error().context);
        return std::nullopt;
    }
    seen.wait_raw_s = *raw * scale;
    seen.wait_s = *wait * scale;
    seen.discounted = gamma.has_value();
    return *wait;
}

void take_flags(fields& f, reading_row& seen) {
    if (const json::array* flags = f.list("flags", false))
        for (const json::value& flag : *flags)
            if (flag.as_string() != nullptr) seen.flags.push_back(*flag.as_string());
}

std::string named(const std::string& path, std::size_t index, const json::value& row, std::string_view key) {
    const json::value* name = row.find(key);
    const std::string* text = name == nullptr ? nullptr : name->as_string();
    return fmt::format("{}[{}]{}", path, index, text == nullptr ? "" : " (" + *text + ")");
}

result<void> read_shape(const json::value& row, const std::string& where, const std::string& site_name, double strength,
                        waterfill_site& site, waterfill_input& into) {
    fields f(row, where,
             {"name", "gpus", "units_per_h", "wait_h", "wait_raw_h", "gamma", "walltime_h", "startup_h", "jobs",
              "link_h", "gap_h", "max_links", "class", "age_s", "reason", "flags", "args", "nodes", "partition"});
    waterfill_shape shape;
    shape.name = f.text("name");
    shape.gpus = f.count32("gpus", 1);
    reading_row seen;
    seen.site = site_name;
    seen.shape = shape.name;
    seen.kind = f.text("class", "accepted");
    seen.age_s = f.optional_number("age_s");
    take_flags(f, seen);
    const auto verdict = row_verdict(f, site_name, shape.name);
    if (f.failure()) return *f.failure();
    if (verdict) {
        into.excluded.push_back(*verdict);
        into.readings.push_back(seen);
        return {};
    }
    if (f.find("units_per_h") == nullptr) {
        into.excluded.push_back({site_name, shape.name, exclusion_code::no_rate, 0.0, "measured rates of this shape",
                                 "add units_per_h from a finished run"});
        return {};
    }
    shape.units_per_h = f.number("units_per_h");
    shape.wait_h = row_wait(f, "h", strength, seen).value_or(0);
    if (f.find("walltime_h") != nullptr) shape.walltime_h = f.number("walltime_h");
    shape.startup_h = f.number("startup_h", 0);
    shape.jobs = f.count32("jobs", 1);
    shape.link_h = f.number("link_h", 0);
    shape.gap_h = f.number("gap_h", 0);
    shape.links_max = f.count32("max_links", 0);
    if (!(shape.units_per_h > 0)) f.refuse("units_per_h must be more than 0");
    if (!(shape.walltime_h > 0)) f.refuse("walltime_h must be more than 0");
    if (f.failure()) return *f.failure();
    into.readings.push_back(seen);
    site.shapes.push_back(std::move(shape));
    return {};
}

}  // namespace

result<waterfill_input> read_waterfill(const json::value& document, double strength) {
    waterfill_input made;
    fields f(document, "waterfill",
             {"id", "why", "expect", "reference", "units", "min_units", "reserve_units", "max_gpus", "sites"});
    made.request.units = f.count("units");
    const std::uint64_t min_units = f.count("min_units", 0);
    made.request.reserve_units = f.number("reserve_units", 0);
    if (f.find("max_gpus") != nullptr) made.request.gpus_max = f.count32("max_gpus");
    const json::array* sites = f.list("sites", true);
    if (f.failure()) return *f.failure();
    for (std::size_t i = 0; i < sites->size(); ++i) {
        const json::value& row = (*sites)[i];
        fields s(row, named("sites", i, row, "site"), {"site", "shapes", "min_units", "quantum", "account"});
        waterfill_site site;
        site.site = s.text("site");
        site.min_units = s.count("min_units", min_units);
        site.quantum = s.count("quantum", 1);
        const json::array* shapes = s.list("shapes", true);
        if (s.failure()) return *s.failure();
        for (std::size_t k = 0; k < shapes->size(); ++k) {
            const std::string where = s.where() + ", " + named("shapes", k, (*shapes)[k], "name");
            if (auto ok = read_shape((*shapes)[k], where, site.site, strength, site, made); !ok) return ok.error();
        }
        made.request.sites.push_back(std::move(site));
    }
    return made;
}

result<calibration> read_calibration(const json::value& object) {
    calibration c;
    fields f(object, "calibration",
             {"merge_s", "transfer_s", "eval_fixed_s", "eval_windows", "eval_speedup", "join_stall_s", "seq_len",
              "block_windows", "geometry", "overhead", "regimes", "about"});
    c.merge_s = f.number("merge_s");
    c.eval_windows = f.number("eval_windows", 512);
    c.eval_speedup = f.number("eval_speedup", 3);
    c.join_stall_s = f.number("join_stall_s", 0);
    c.seq_len = f.count32("seq_len");
    c.block_windows = f.count32("block_windows");
    const std::string overhead = f.text("overhead", "sum");
    if (overhead != "sum" && overhead != "max") f.refuse("overhead must be sum or max");
    c.overhead = overhead == "max" ? overhead_rule::max : overhead_rule::sum;
    if (c.seq_len == 0 || c.block_windows == 0) f.refuse("seq_len and block_windows must be 1 or more");
    const auto numbers = [&](std::string_view key, auto& into) {
        const json::value* v = f.find(key);
        const json::object* members = v == nullptr ? nullptr : v->as_object();
        if (members == nullptr) return f.refuse(fmt::format("{} must be a table of seconds by site", key));
        for (const auto& [site, s] : *members) {
            if (!s.as_double() || !(*s.as_double() >= 0))
                f.refuse(fmt::format("{}.{} must be a finite number, 0 or more", key, site));
            else
                into[site] = *s.as_double();
        }
    };
    numbers("transfer_s", c.transfer_s);
    numbers("eval_fixed_s", c.eval_fixed_s);
    const json::value* geometries = f.find("geometry");
    if (geometries == nullptr || geometries->as_object() == nullptr)
        f.refuse("geometry must be a table of {seq_per_s, batch} by site@gpus");
    if (f.failure()) return *f.failure();
    for (const auto& [key, g] : *geometries->as_object()) {
        fields row(g, "calibration.geometry." + key, {"seq_per_s", "batch", "source"});
        geometry made{row.number("seq_per_s"), row.count32("batch")};
        if (!(made.seq_per_s > 0) || made.batch == 0) row.refuse("seq_per_s and batch must be more than 0");
        if (row.failure()) return *row.failure();
        c.geometries[key] = made;
    }
    c.regimes = {{"snellius@4", quality::identified},
                 {"lumi@8+snellius@4", quality::derived_by_subtraction},
                 {"snellius@1", quality::identified}};
    if (const json::value* regimes = f.find("regimes"); regimes != nullptr && regimes->as_object() != nullptr) {
        c.regimes.clear();
        for (const auto& [key, word] : *regimes->as_object()) {
            const auto q = word.as_string() == nullptr ? std::nullopt : quality_from_word(*word.as_string());
            if (!q)
                return fail(
                    errc::invalid_argument,
                    fmt::format("calibration.regimes.{}: use identified, derived_by_subtraction or extrapolated", key));
            c.regimes[key] = *q;
        }
    }
    return c;
}

namespace {

result<void> read_inner_steps(fields& f, campaign_config& c) {
    const json::value* v = f.find("inner_steps");
    if (v != nullptr && v->is_array()) {
        h_trace trace;
        for (const auto& h : *v->as_array()) {
            if (!h.as_u64() || *h.as_u64() == 0 || *h.as_u64() > 1000000)
                return fail(errc::invalid_argument, "config: inner_steps must list whole numbers, 1 or more");
            trace.steps.push_back(static_cast<std::uint32_t>(*h.as_u64()));
        }
        c.inner_steps = trace;
        return {};
    }
    if (v != nullptr && v->is_object()) {
        fields q(*v, "config.inner_steps",
                 {"h0", "max_h", "warmup", "total_steps", "peak_lr", "decay_ratio", "min_factor"});
        qsr_schedule s;
        s.h0 = q.count32("h0");
        s.h_max = q.count32("max_h");
        s.lr = {q.count("warmup"), q.count("total_steps"), q.number("peak_lr"), q.number("decay_ratio"),
                q.number("min_factor")};
        if (s.h0 == 0 || s.h_max < s.h0 || s.lr.total_steps == 0 || !(s.lr.decay_ratio >= 0 && s.lr.decay_ratio <= 1))
            q.refuse("needs 1 <= h0 <= max_h, total_steps >= 1 and decay_ratio in [0, 1]");
        if (q.failure()) return *q.failure();
        c.inner_steps = s;
        return {};
    }
    const std::uint64_t h = f.count("inner_steps", 100);
    if (h == 0 || h > 1000000) f.refuse("inner_steps must lie between 1 and 1000000");
    c.inner_steps = static_cast<std::uint32_t>(h);
    return {};
}

result<void> read_config(const json::value& object, campaign_config& c) {
    fields f(object, "config",
             {"horizon_s", "num_rounds", "inner_steps", "leave_margin_s", "rules", "target_tokens", "blocks_reserve"});
    c.horizon_s = f.number("horizon_s");
    c.num_rounds = f.count("num_rounds", UINT64_MAX);
    c.leave_margin_s = f.number("leave_margin_s", 60);
    c.blocks_reserve = f.number("blocks_reserve", 0);
    if (f.find("target_tokens") != nullptr) c.target_tokens = f.count("target_tokens");
    const std::string rules = f.text("rules", "strict");
    if (rules != "strict" && rules != "reference") f.refuse("rules must be strict or reference");
    c.rules = rules == "reference" ? rule_set::reference : rule_set::strict;
    if (auto ok = read_inner_steps(f, c); !ok) return ok.error();
    if (f.failure()) return *f.failure();
    return {};
}

std::vector<std::string> plain_arguments(fields& f) {
    std::vector<std::string> args;
    const json::array* list = f.list("args", false);
    if (list == nullptr) return args;
    for (const json::value& a : *list) {
        if (a.as_string() == nullptr || !is_plain_argument(*a.as_string()))
            f.refuse(
                fmt::format("args[{}] must be text of [A-Za-z0-9_.,:=+@%/[]-]; anything else could mean something "
                            "to a shell: remove it",
                            args.size()));
        args.push_back(a.as_string() == nullptr ? std::string() : *a.as_string());
    }
    return args;
}

// A list of finite numbers, 0 or more; empty when it is not given.
std::vector<double> positive_list(fields& f, std::string_view key) {
    std::vector<double> made;
    const json::array* items = f.list(key, false);
    if (items == nullptr) return made;
    for (const json::value& v : *items) {
        const auto n = v.as_double();
        if (!n || !std::isfinite(*n) || *n < 0) {
            f.refuse(fmt::format("{} must list finite numbers, 0 or more", key));
            break;
        }
        made.push_back(*n);
    }
    return made;
}

result<void> read_option(const json::value& row, std::size_t i, double strength, campaign_input& into) {
    fields f(row, named("options", i, row, "site"),
             {"site",           "shape",     "nodes",       "gpus",       "wait_s",    "wait_raw_s",     "gamma",
              "walltime_s",     "startup_s", "lanes",       "links",      "chain",     "begin_s",        "lead_s",
              "has_checkpoint", "class",     "age_s",       "reason",     "args",      "max_walltime_s", "flags",
              "partition",      "waits_s",   "wait_ratios", "wait_p50_s", "wait_p90_s"});
    plan_option o;
    o.site = f.text("site");
    o.shape = f.text("shape", "");
    o.nodes = f.count32("nodes", 1);
    const bool usable = f.text("class", "accepted") == "accepted";  // else it is only listed, with its reason
    o.gpus = usable ? f.count32("gpus") : f.count32("gpus", 1);
    if (o.shape.empty()) o.shape = fmt::format("{}gpu", o.gpus);
    reading_row seen;
    seen.site = o.site;
    seen.shape = o.shape;
    seen.kind = f.text("class", "accepted");
    seen.age_s = f.optional_number("age_s");
    take_flags(f, seen);
    auto verdict = row_verdict(f, o.site, o.shape);
    if (!verdict && !f.failure()) o.wait_s = row_wait(f, "s", strength, seen).value_or(0);
    o.walltime_s = usable ? f.number("walltime_s") : f.number("walltime_s", 3600);
    o.startup_s = f.number("startup_s", 0);
    o.lanes = f.count32("lanes", 1);
    o.links = f.count32("links", 1);
    o.begin_s = f.number("begin_s", 0);
    o.lead_s = f.number("lead_s", 0);
    o.has_checkpoint = f.flag("has_checkpoint", false);
    const std::string chain = f.text("chain", "none");
    if (const auto c = chain_from_word(chain))
        o.chain = *c;
    else
        f.refuse(fmt::format("chain '{}' is unknown; use none, self or singleton", chain));
    if (!(o.walltime_s > 0)) f.refuse("walltime_s must be more than 0");
    if (!(o.startup_s >= 0 && o.begin_s >= 0 && o.lead_s >= 0))
        f.refuse("startup_s, begin_s and lead_s must be 0 or more");
    if (o.lanes == 0 || o.lanes > lanes_max) f.refuse(fmt::format("lanes must lie between 1 and {}", lanes_max));
    if (o.links == 0 || o.links > links_max) f.refuse(fmt::format("links must lie between 1 and {}", links_max));
    auto args = plain_arguments(f);
    const auto cap = f.optional_number("max_walltime_s");
    option_waits waits{f.text("partition", ""), positive_list(f, "waits_s"), positive_list(f, "wait_ratios"),
                       f.optional_number("wait_p50_s"), f.optional_number("wait_p90_s")};
    if (waits.p50_s.value_or(0) < 0 || waits.p90_s.value_or(0) < 0)
        f.refuse("wait_p50_s and wait_p90_s must be 0 or more");
    if (f.failure()) return *f.failure();
    if (!verdict && cap && o.walltime_s > *cap)
        verdict = exclusion{o.site,
                            o.shape,
                            exclusion_code::walltime_above_cap,
                            o.walltime_s,
                            fmt::format("seconds of walltime; the partition allows {:g}", *cap),
                            "ask for a shorter walltime"};
    if (!verdict && o.walltime_s <= o.startup_s)
        verdict = exclusion{o.site,
                            o.shape,
                            exclusion_code::walltime_le_startup_plus_reserve,
                            o.startup_s,
                            "seconds of startup, which leave nothing of the walltime",
                            "ask for a longer walltime"};
    into.readings.push_back(seen);
    if (verdict) {
        into.excluded.push_back(*verdict);
        return {};
    }
    into.options.push_back(std::move(o));
    into.args.push_back(std::move(args));
    into.waits.push_back(std::move(waits));
    return {};
}

}  // namespace

result<campaign_input> read_campaign(const json::value& document, const json::value* calibration_document,
                                     double strength) {
    campaign_input made;
    fields f(document, "campaign",
             {"id", "why", "about", "expect_reference", "expect_strict", "blocks_unassigned", "balance", "config",
              "options", "calibration"});
    made.config.blocks_unassigned = f.number("blocks_unassigned");
    if (made.config.blocks_unassigned < 0) f.refuse("blocks_unassigned must be 0 or more");
    made.config.balance = f.flag("balance", false);
    const json::value* config = f.find("config");
    if (config == nullptr) f.refuse("config is missing; add {horizon_s, num_rounds, inner_steps}");
    const json::value* inside = f.find("calibration");
    if (inside == nullptr) inside = calibration_document;
    if (inside == nullptr) f.refuse("calibration is missing; add it to the input or give --calibration FILE");
    const json::array* options = f.list("options", true);
    if (f.failure()) return *f.failure();
    if (auto ok = read_config(*config, made.config); !ok) return ok.error();
    auto c = read_calibration(*inside);
    if (!c) return c.error();
    made.calibration = std::move(*c);
    for (std::size_t i = 0; i < options->size(); ++i)
        if (auto ok = read_option((*options)[i], i, strength, made); !ok) return ok.error();
    std::set<std::string> sites;
    for (auto o = made.options.begin(); o != made.options.end();) {
        const auto cost = cost_of(made.calibration, o->site, o->gpus);
        if (cost) {
            made.several_per_site = !sites.insert(o->site).second || made.several_per_site;
            ++o;
            continue;
        }
        made.excluded.push_back({o->site, o->shape, exclusion_code::no_rate, static_cast<double>(o->gpus),
                                 "GPUs; " + cost.error().context,
                                 "add the figures of a finished run to the calibration"});
        made.args.erase(made.args.begin() + (o - made.options.begin()));
        made.waits.erase(made.waits.begin() + (o - made.options.begin()));
        o = made.options.erase(o);
    }
    return made;
}

}  // namespace darl::plan_io
