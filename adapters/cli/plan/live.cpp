// SPDX-License-Identifier: Apache-2.0
#include "adapters/cli/plan/live.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>

#include <fmt/format.h>

namespace darl::plan_io {

using namespace darlcore::plan;
using darlcore::errc;
using darlcore::fail;
using darlcore::result;

namespace {

constexpr double fresh_s = 1200;  // two cadences of ten minutes
constexpr std::size_t draws_from_max = 500;

std::string text(const json::value& v, std::string_view key) {
    const json::value* m = v.find(key);
    return m == nullptr || m->as_string() == nullptr ? std::string() : *m->as_string();
}

std::optional<double> number(const json::value& v, std::string_view key) {
    const json::value* m = v.find(key);
    return m == nullptr ? std::nullopt : m->as_double();
}

using shape_key = std::pair<std::string, std::string>;

// The newest row of each shape: an edited shape has one per argument list.
std::map<shape_key, const json::value*> newest_rows(const json::array& rows) {
    std::map<shape_key, const json::value*> made;
    for (const json::value& r : rows) {
        const json::value*& kept = made[{text(r, "site"), text(r, "shape")}];
        if (kept == nullptr || number(r, "age_s").value_or(1e18) < number(*kept, "age_s").value_or(1e18)) kept = &r;
    }
    return made;
}

std::optional<double> raw_wait(const json::value& row, wait_choice choice) {
    const auto now = number(row, "wait_raw_s"), p50 = number(row, "wait_p50_s"), p90 = number(row, "wait_p90_s");
    if (choice == wait_choice::p90) return p90 ? p90 : now;
    const bool fresh = number(row, "age_s").value_or(1e18) < fresh_s;
    if (choice == wait_choice::p50 || (choice == wait_choice::choose && !fresh)) return p50 ? p50 : now;
    return now;
}

class filler {
public:
    filler(const json::value& estimates, const json::value& probes, wait_choice choice, std::string unit)
        : rows_(newest_rows(*estimates.at("estimates").as_array())), choice_(choice), unit_(std::move(unit)) {
        if (const json::value* scores = estimates.find("scores"); scores != nullptr && scores->is_array())
            for (const json::value& s : *scores->as_array()) scores_[{text(s, "site"), text(s, "partition")}] = &s;
        const json::value* records = probes.find("records");
        if (records == nullptr || !records->is_array()) return;
        for (const json::value& r : *records->as_array())
            if (const auto wait = number(r, "wait_s"); wait && text(r, "class") == "accepted")
                waits_[{text(r, "site"), text(r, "shape")}].emplace_back(*wait);
    }

    [[nodiscard]] const std::map<shape_key, const json::value*>& rows() const { return rows_; }

    void fill(json::value& row, const std::string& site, const std::string& shape) const {
        if (row.contains("wait_" + unit_) || row.contains("wait_raw_" + unit_) || row.contains("class")) return;
        const auto known = rows_.find({site, shape});
        if (known == rows_.end()) {
            row.set("class", "no_probe");
            return;
        }
        const json::value& e = *known->second;
        const double scale = unit_ == "h" ? 3600 : 1;
        const auto wait = number(e, "wait_s") ? raw_wait(e, choice_) : std::nullopt;
        row.set("age_s", number(e, "age_s").value_or(0));
        const std::string kind = text(e, "class");
        row.set("class", wait ? "accepted" : kind);  // the last good reading stands in for a passing refusal
        if (!text(e, "reason").empty()) row.set("reason", text(e, "reason"));
        if (const json::value* flags = e.find("flags"); flags != nullptr && flags->is_array()) row.set("flags", *flags);
        if (const auto walltime = number(e, "walltime_s"); walltime && !row.contains("walltime_" + unit_))
            row.set("walltime_" + unit_, *walltime / scale);
        for (const char* name : {"gpus", "nodes", "args", "partition"})
            if (const json::value* v = e.find(name);
                v != nullptr && !v->is_null() && takes(name) && !row.contains(name))
                row.set(name, *v);
        if (!wait) return;
        row.set("wait_raw_" + unit_, *wait / scale);
        for (const char* name : {"wait_p50_s", "wait_p90_s"})
            if (unit_ == "s" && number(e, name)) row.set(name, *number(e, name));
        const bool discounted = e.contains("discounted") && e.at("discounted").as_bool().value_or(false);
        if (discounted && number(e, "gamma")) row.set("gamma", *number(e, "gamma"));
        if (unit_ == "s") add_draws(row, e, site, shape);
    }

private:
    [[nodiscard]] bool takes(std::string_view name) const { return unit_ == "s" || name == "gpus" || name == "args"; }

    // What a wait may turn out to be: ratios of earlier predictions where there are enough, else the readings of a day.
    void add_draws(json::value& row, const json::value& e, const std::string& site, const std::string& shape) const {
        const auto score = scores_.find({site, text(e, "partition")});
        const json::value* ratios = score == scores_.end() ? nullptr : score->second->find("ratios");
        if (ratios != nullptr && ratios->size() >= 20) row.set("wait_ratios", *ratios);
        const auto waits = waits_.find({site, shape});
        if (waits == waits_.end()) return;
        const auto& all = waits->second;
        const std::size_t from = all.size() - std::min(all.size(), draws_from_max);
        row.set("waits_s", json::array(all.begin() + static_cast<std::ptrdiff_t>(from), all.end()));
    }

    std::map<shape_key, const json::value*> rows_;
    std::map<shape_key, const json::value*> scores_;
    std::map<shape_key, json::array> waits_;
    wait_choice choice_;
    std::string unit_;
};

json::value* member(json::value& object, std::string_view key) {
    json::object* members = object.as_object();
    if (members == nullptr) return nullptr;
    for (auto& [name, value] : *members)
        if (name == key) return &value;
    return nullptr;
}

// Every shape the server knows at a site of the calibration, as options.
json::value all_options(const filler& f, const json::value& input) {
    const json::value* calibration = input.find("calibration");
    const json::value* transfer = calibration == nullptr ? nullptr : calibration->find("transfer_s");
    json::value made = json::array{};
    for (const auto& [key, row] : f.rows())
        if (transfer == nullptr || transfer->contains(key.first))
            made.push_back(json::make_object({{"site", key.first}, {"shape", key.second}}));
    return made;
}

}  // namespace

result<json::value> with_estimates(json::value input, const json::value& estimates, const json::value& probes,
                                   wait_choice choice) {
    const json::value* rows = estimates.find("estimates");
    if (rows == nullptr || !rows->is_array())
        return fail(errc::invalid_argument, "the server's answer is no list of estimates; is it a newer darl serve?");
    if (!input.is_object()) return fail(errc::invalid_argument, "the input must be an object with named values");
    if (json::value* sites = member(input, "sites"); sites != nullptr && sites->is_array()) {
        const filler f(estimates, probes, choice, "h");
        for (json::value& site : *sites->as_array()) {
            json::value* shapes = member(site, "shapes");
            if (shapes == nullptr || !shapes->is_array()) continue;
            for (json::value& row : *shapes->as_array())
                if (row.is_object()) f.fill(row, text(site, "site"), text(row, "name"));
        }
        return input;
    }
    const filler f(estimates, probes, choice, "s");
    if (!input.contains("options")) input.set("options", all_options(f, input));
    if (json::value* options = member(input, "options"); options != nullptr && options->is_array())
        for (json::value& row : *options->as_array())
            if (row.is_object()) f.fill(row, text(row, "site"), text(row, "shape"));
    return input;
}

namespace {

// The median past wait of jobs like a row in place of whatever wait it has.
result<void> take_past_wait(json::value& row, const std::string& name, const std::string& unit,
                            const std::vector<past_job>& jobs, const trace_settings& t) {
    const double scale = unit == "h" ? 3600 : 1;
    const auto walltime = number(row, "walltime_" + unit);
    if (!walltime || !(*walltime > 0))
        return fail(errc::invalid_argument,
                    fmt::format("{}: add walltime_{}: past jobs are compared by nodes and walltime", name, unit));
    const double nodes = std::clamp(number(row, "nodes").value_or(1), 1.0, 1e6);
    const auto waits =
        waits_from_trace(jobs, text(row, "partition"), static_cast<std::uint32_t>(nodes), *walltime * scale, t);
    const std::string replaced[] = {"wait_" + unit, "wait_raw_" + unit, "gamma",      "class", "age_s", "reason",
                                    "flags",        "waits_s",          "wait_ratios"};
    std::erase_if(*row.as_object(), [&](const auto& m) {
        return std::find(std::begin(replaced), std::end(replaced), m.first) != std::end(replaced);
    });
    if (waits.empty()) {
        row.set("class", "no_history").set("reason", fmt::format("the history has {} in all", jobs.size()));
        return {};
    }
    row.set("wait_" + unit, waits.at(0.5) / scale);
    row.set("flags", json::array{waits.pooled() ? "trace_pooled" : "trace"});
    if (unit == "s") row.set("wait_p50_s", waits.at(0.5)).set("wait_p90_s", waits.at(0.9));
    return {};
}

}  // namespace

result<json::value> with_history(json::value input, const histories& past, double now_s) {
    const auto take = [&](json::value& row, const std::string& site, std::string_view name,
                          const std::string& unit) -> result<void> {
        const auto jobs = past.find(site);
        if (!row.is_object() || jobs == past.end() || jobs->second.empty()) return {};
        trace_settings t;
        t.now_s = now_s > 0 ? now_s : jobs->second.back().start_s;
        return take_past_wait(row, fmt::format("site {}, shape {}", site, text(row, name)), unit, jobs->second, t);
    };
    if (json::value* options = member(input, "options"); options != nullptr && options->is_array())
        for (json::value& row : *options->as_array())
            if (auto ok = take(row, text(row, "site"), "shape", "s"); !ok) return ok.error();
    if (json::value* sites = member(input, "sites"); sites != nullptr && sites->is_array())
        for (json::value& site : *sites->as_array())
            if (json::value* shapes = member(site, "shapes"); shapes != nullptr && shapes->is_array())
                for (json::value& row : *shapes->as_array())
                    if (auto ok = take(row, text(site, "site"), "name", "h"); !ok) return ok.error();
    return input;
}

std::string estimates_text(const json::value& estimates) {
    std::string out;
    const auto shown = [](const json::value& e, std::string_view key) {
        const auto s = number(e, key);
        return s ? fmt::format("{:.0f} s", *s) : std::string("-");
    };
    if (const json::value* rows = estimates.find("estimates"); rows != nullptr && rows->is_array()) {
        out += rows->size() == 0 ? "no probe has arrived at this server\n"
                                 : "queues (wait as planned with; raw now, p50, p90 of a day; age):\n";
        for (const json::value& e : *rows->as_array())
            out += fmt::format("  {:<16} {:<16} {:<15} wait {:<10} raw {}, p50 {}, p90 {}; gamma {}, {} old{}{}\n",
                               text(e, "site"), text(e, "shape"), text(e, "class"), shown(e, "wait_s"),
                               shown(e, "wait_raw_s"), shown(e, "wait_p50_s"), shown(e, "wait_p90_s"),
                               number(e, "gamma") ? fmt::format("{:.3f}", *number(e, "gamma")) : "unknown",
                               shown(e, "age_s"), text(e, "reason").empty() ? "" : "; ", text(e, "reason"));
    }
    if (const json::value* rows = estimates.find("scores"); rows != nullptr && rows->is_array() && rows->size() > 0) {
        out += "predicted and real starts of own jobs:\n";
        for (const json::value& s : *rows->as_array())
            out += fmt::format(
                "  {:<16} {:<16} {:.0f} jobs, bias {:+.0f} s, spread {:.0f} s; within p50 {:.0f} %, p90 "
                "{:.0f} %\n",
                text(s, "site"), text(s, "partition"), number(s, "pairs").value_or(0), number(s, "bias_s").value_or(0),
                number(s, "spread_s").value_or(0), 100 * number(s, "within_p50").value_or(0),
                100 * number(s, "within_p90").value_or(0));
    }
    return out;
}

}  // namespace darl::plan_io
