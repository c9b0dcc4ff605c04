// SPDX-License-Identifier: Apache-2.0
#include "backends/slurm/probe_store.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "backends/slurm/durable_file.hpp"
#include "backends/slurm/text.hpp"
#include "darlcore/units.hpp"

namespace darlcore::slurm {

namespace fs = std::filesystem;
using json::value;

namespace {

constexpr double day_s = 86400;
constexpr std::size_t records_max = 1000;
constexpr std::size_t pairs_max = 1000;
constexpr std::size_t ratios_max = 100;

std::string text_of(const value& v, std::string_view key) {
    const value* m = v.find(key);
    return m == nullptr || m->as_string() == nullptr ? std::string() : *m->as_string();
}

std::optional<double> number_of(const value& v, std::string_view key) {
    const value* m = v.find(key);
    const auto n = m == nullptr ? std::nullopt : m->as_double();
    return n && std::isfinite(*n) ? n : std::nullopt;
}

// "2026-08" of an instant, UTC.
std::string month_of(double t) { return utc_text(static_cast<std::int64_t>(t)).substr(0, 7); }

struct flaw {
    std::string field, reason;
};

std::optional<flaw> flaw_of(const value& r, double now_s) {
    if (!r.is_object()) return flaw{"", "a record must be an object"};
    if (number_of(r, "schema").value_or(0) != 1) return flaw{"schema", "must be 1"};
    const std::string type = text_of(r, "type");
    if (type != "probe" && type != "usage" && type != "start") return flaw{"type", "must be probe, usage or start"};
    const std::string id = text_of(r, "id");
    if (id.empty() || id.size() > 128 || !is_valid_name(id.substr(0, 64)) ||
        (id.size() > 64 && !is_valid_name("x" + id.substr(64))))
        return flaw{"id", "must be a name"};
    if (!is_valid_name(text_of(r, "site"))) return flaw{"site", "must match [A-Za-z0-9][A-Za-z0-9._-]{0,63}"};
    if (type == "probe" && !is_valid_name(text_of(r, "shape")))
        return flaw{"shape", "must match [A-Za-z0-9][A-Za-z0-9._-]{0,63}"};
    if (type != "probe" && !is_valid_name(text_of(r, "partition"))) return flaw{"partition", "must be a name"};
    const auto collected = number_of(r, "collected_s");
    if (!collected) return flaw{"collected_s", "must be a finite number"};
    if (*collected > now_s + 300) return flaw{"collected_s", "lies in the future: such a row would never grow stale"};
    if (*collected < now_s - 400 * day_s) return flaw{"collected_s", "is older than 400 days"};
    if (type == "start" && r.find("predicted_s") == nullptr) {
        for (const char* key : {"realised_s", "submit_s"})
            if (!(number_of(r, key).value_or(-1) >= 0)) return flaw{key, "must be a finite number, 0 or more"};
        if (!is_valid_name(text_of(r, "shape"))) return flaw{"shape", "must be the name of a probed shape"};
        return std::nullopt;
    }
    if (type == "start") {
        for (const char* key : {"predicted_s", "realised_s", "p50_s", "p90_s"})
            if (!(number_of(r, key).value_or(-1) >= 0)) return flaw{key, "must be a finite number, 0 or more"};
        return std::nullopt;
    }
    if (type == "usage") {
        const value* gamma = r.find("gamma");
        if (gamma != nullptr && !gamma->is_null() &&
            !(number_of(r, "gamma").value_or(-1) >= 0 && *number_of(r, "gamma") <= 1))
            return flaw{"gamma", "must be null or lie between 0 and 1"};
        return std::nullopt;
    }
    const auto kind = plan::probe_class_from_word(text_of(r, "class"));
    if (!kind) return flaw{"class", "is unknown"};
    if (*kind == plan::probe_class::accepted && !(number_of(r, "wait_s").value_or(-1) >= 0))
        return flaw{"wait_s", "an accepted probe needs a finite wait, 0 or more"};
    return std::nullopt;
}

plan::reading reading_of(const value& r) {
    plan::reading made;
    made.site = text_of(r, "site");
    made.shape = text_of(r, "shape");
    made.args_digest = text_of(r, "args_digest");
    made.partition = text_of(r, "partition");
    made.nodes = static_cast<std::uint32_t>(std::clamp(number_of(r, "nodes").value_or(1), 0.0, 1e9));
    made.gpus = static_cast<std::uint32_t>(std::clamp(number_of(r, "gpus").value_or(0), 0.0, 1e9));
    made.collected_s = number_of(r, "collected_s").value_or(0);
    made.kind = plan::probe_class_from_word(text_of(r, "class")).value_or(plan::probe_class::outage);
    made.start_s = number_of(r, "start_s");
    made.wait_s = number_of(r, "wait_s");
    made.reason = text_of(r, "reason");
    if (const value* flags = r.find("flags"); flags != nullptr && flags->is_array())
        for (const value& f : *flags->as_array())
            if (f.as_string() != nullptr) made.flags.push_back(*f.as_string());
    return made;
}

std::string key_of(const value& record) { return text_of(record, "site") + " " + text_of(record, "id"); }

std::string file_of(const value& record) {
    return text_of(record, "site") + "." + month_of(*number_of(record, "collected_s")) + ".jsonl";
}

template <class T>
value or_null(const std::optional<T>& v) {
    return v ? value(*v) : value();
}

// Partitions where a reservation bounds the start, from the newest reading of each shape of one site.
std::vector<std::string> bound_among(std::vector<plan::reading> newest) {
    double last = 0;
    for (const plan::reading& r : newest) last = std::max(last, r.collected_s);
    std::erase_if(newest, [&](const plan::reading& r) { return r.collected_s <= last - 600; });
    return plan::reservation_bound_partitions(newest);
}

plan::estimate_options options_for(const std::vector<std::string>& bound, const std::string& partition,
                                   const value& usage, double now_s, double strength) {
    plan::estimate_options o;
    o.now_s = now_s;
    o.strength = strength;
    if (!usage.is_null()) {
        o.gamma = number_of(usage, "gamma");
        o.gamma_age_s = now_s - *number_of(usage, "collected_s");
    }
    o.reservation_bound = std::find(bound.begin(), bound.end(), partition) != bound.end();
    return o;
}

}  // namespace

probe_store::probe_store(probe_store&& other) noexcept { *this = std::move(other); }

probe_store& probe_store::operator=(probe_store&& other) noexcept {
    std::swap(folder_, other.folder_);
    std::swap(open_files_, other.open_files_);
    std::swap(read_files_, other.read_files_);
    std::swap(ids_, other.ids_);
    std::swap(recent_, other.recent_);
    std::swap(recent_bytes_, other.recent_bytes_);
    std::swap(recent_bytes_max_, other.recent_bytes_max_);
    std::swap(cut_s_, other.cut_s_);
    std::swap(series_, other.series_);
    std::swap(asked_, other.asked_);
    std::swap(usage_, other.usage_);
    std::swap(scores_, other.scores_);
    return *this;
}

probe_store::~probe_store() {
    for (const auto& [file, fd] : open_files_) ::close(fd);
}

result<probe_store> probe_store::open(const std::string& folder, double now_s) {
    probe_store s;
    s.folder_ = folder;
    std::error_code failed;
    fs::create_directories(folder, failed);
    if (failed) return fail(errc::io_error, folder + ": cannot be made: " + failed.message());
    const std::string oldest = month_of(now_s - 31 * day_s);
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(folder, failed)) {
        const std::string name = entry.path().filename().string();  // SITE.YYYY-MM.jsonl
        if (name.size() < 15 || name.compare(name.size() - 6, 6, ".jsonl") != 0) continue;
        if (name.substr(name.size() - 13, 7) >= oldest) files.push_back(name);
    }
    std::sort(files.begin(), files.end());
    for (const std::string& file : files) s.read_file(file, now_s, false);
    s.forget(now_s);
    return s;
}

// A torn last line is cut off: it was never acknowledged, the sync had not happened.
void probe_store::read_file(const std::string& file, double now_s, bool ids_only) {
    if (!read_files_.insert(file).second) return;
    const std::string path = folder_ + "/" + file;
    const std::string text = read_whole(path);
    const std::size_t whole = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
    std::error_code failed;
    if (whole < text.size()) fs::resize_file(path, whole, failed);
    for (std::size_t at = 0; at < whole;) {
        const std::size_t end = text.find('\n', at);
        std::string line = text.substr(at, end - at);
        at = end + 1;
        const auto record = json::parse(line);
        if (!record || flaw_of(*record, now_s)) continue;
        if (ids_only)
            ids_.insert(key_of(*record));
        else
            remember(*record, std::move(line));
    }
}

void probe_store::remember(const value& record, std::string line) {
    if (!ids_.insert(key_of(record)).second) return;
    const std::string type = text_of(record, "type");
    const std::string site = text_of(record, "site");
    const double collected = *number_of(record, "collected_s");
    recent_bytes_ += line.size();
    recent_.push_back({collected, type, site, text_of(record, "shape"), std::move(line)});
    if (type == "probe") {
        plan::reading r = reading_of(record);
        auto& series = series_[{site, r.shape, r.args_digest}];
        value& asked = asked_[{site, r.shape, r.args_digest}];
        for (const char* key : {"args", "walltime_s"})
            if (const value* v = record.find(key)) asked.set(key, *v);
        const auto later = [](const plan::reading& a, const plan::reading& b) { return a.collected_s < b.collected_s; };
        series.insert(std::upper_bound(series.begin(), series.end(), r, later), std::move(r));
        const double newest = series.back().collected_s;
        std::erase_if(series, [&](const plan::reading& x) { return x.collected_s < newest - day_s; });
    } else if (type == "usage") {
        value& kept = usage_[{site, text_of(record, "partition")}];
        if (kept.is_null() || *number_of(kept, "collected_s") <= collected) kept = record;
    } else {
        auto& pairs = scores_[{site, text_of(record, "partition")}];
        pairs.push_back({*number_of(record, "predicted_s"), *number_of(record, "realised_s"),
                         *number_of(record, "p50_s"), *number_of(record, "p90_s")});
        if (pairs.size() > pairs_max) pairs.erase(pairs.begin());
    }
}

void probe_store::forget(double now_s) {
    while (!recent_.empty() &&
           (recent_.front().collected_s < now_s - 31 * day_s || recent_bytes_ > recent_bytes_max_)) {
        recent_bytes_ -= recent_.front().line.size();
        cut_s_ = std::max(cut_s_, recent_.front().collected_s);
        recent_.pop_front();
    }
}

result<void> probe_store::append(const std::string& file, const std::string& lines) {
    const std::string path = folder_ + "/" + file;
    auto at = open_files_.find(file);
    if (at == open_files_.end()) {
        const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (fd < 0) return system_failure(path, "cannot be opened");
        at = open_files_.emplace(file, fd).first;
        if (auto ok = sync_folder(folder_); !ok) return ok;
    }
    const off_t before = ::lseek(at->second, 0, SEEK_END);
    auto written = append_durably(at->second, path, lines);
    if (!written && ::ftruncate(at->second, before) != 0) {  // a torn line is cut off at the next start
        ::close(at->second);
        open_files_.erase(at);
    }
    return written;
}

// What was predicted for the shape of a start when it was submitted: its readings of the day before, discounted as a
// plan made then would have.
std::optional<value> probe_store::completed(const value& start) const {
    if (start.find("predicted_s") != nullptr) return start;
    const double submit_s = *number_of(start, "submit_s");
    const std::string site = text_of(start, "site"), shape = text_of(start, "shape");
    const std::string digest = text_of(start, "args_digest");
    std::vector<plan::reading> series;
    std::map<std::string, plan::reading> newest;  // of each shape
    std::map<std::string, value> used;            // of each partition
    for (const stored& s : recent_) {
        const bool usage = s.type == "usage";
        if (s.site != site || s.type == "start" || s.collected_s > submit_s) continue;
        if (s.collected_s < submit_s - (usage ? plan::estimate_options().gamma_age_max_s : day_s)) continue;
        const auto record = json::parse(s.line);
        if (!record) continue;
        if (usage) {
            value& kept = used[text_of(*record, "partition")];
            if (kept.is_null() || *number_of(kept, "collected_s") <= s.collected_s) kept = *record;
            continue;
        }
        plan::reading r = reading_of(*record);
        plan::reading& last = newest[s.shape];
        if (last.collected_s <= r.collected_s) last = r;
        if (s.shape != shape || (!digest.empty() && r.args_digest != digest)) continue;
        std::erase_if(series, [&](const plan::reading& x) { return x.args_digest != r.args_digest; });
        series.push_back(std::move(r));
    }
    if (series.empty()) return std::nullopt;
    std::vector<plan::reading> cycle;
    for (auto& [name, r] : newest) cycle.push_back(std::move(r));
    const std::string partition = series.back().partition;
    const auto o = options_for(bound_among(std::move(cycle)), partition, used[partition], submit_s, 0.5);
    const auto e = plan::estimate_wait(series, o);
    if (!e || !e->wait_s) return std::nullopt;
    const auto as_planned = [&](const std::optional<double>& raw) {
        const auto gamma = e->discounted ? e->gamma : std::nullopt;
        const auto wait = plan::discounted_wait_s(raw.value_or(*e->wait_raw_s), gamma, o.strength);
        return wait ? *wait : *e->wait_s;
    };
    value made = start;
    made.set("predicted_s", *e->wait_s);
    made.set("p50_s", as_planned(e->raw_p50_s)).set("p90_s", as_planned(e->raw_p90_s));
    return made;
}

result<value> probe_store::post(const value& body, const site_rule& may_speak_for, double now_s) {
    const value* records = body.find("records");
    if (records == nullptr || !records->is_array())
        return fail(errc::bad_request, "the body must be {\"records\": [...]}");
    if (records->size() > records_max) return fail(errc::bad_request, "at most 1000 records in one call");
    json::array rejected;
    const auto reject = [&](std::size_t i, std::string_view field, std::string_view reason) {
        rejected.push_back(json::make_object({{"index", i}, {"field", field}, {"reason", reason}}));
    };
    std::vector<value> readings;
    std::vector<std::pair<std::size_t, const value*>> starts;
    std::unordered_set<std::string> here;
    std::size_t duplicate = 0;
    for (std::size_t i = 0; i < records->size(); ++i) {
        const value& r = records->at(i);
        if (const auto bad = flaw_of(r, now_s)) {
            reject(i, bad->field, bad->reason);
            continue;
        }
        if (!may_speak_for(text_of(r, "site")))
            return fail(errc::not_owner, "record " + std::to_string(i) + " is of another site than the token");
        read_file(file_of(r), now_s, true);  // an old record sent again is found in its month
        if (ids_.count(key_of(r)) != 0 || !here.insert(key_of(r)).second)
            ++duplicate;
        else if (text_of(r, "type") == "start")
            starts.emplace_back(i, &r);
        else
            readings.push_back(r);
    }
    std::size_t accepted = readings.size();
    if (auto ok = keep(std::move(readings)); !ok) return ok.error();
    std::vector<value> scored;  // after the readings that came with them
    for (const auto& [i, start] : starts) {
        if (auto whole = completed(*start))
            scored.push_back(std::move(*whole));
        else
            reject(i, "submit_s", "no usable reading of this shape in the 6 h before: nothing was predicted");
    }
    accepted += scored.size();
    if (auto ok = keep(std::move(scored)); !ok) return ok.error();
    forget(now_s);
    return json::make_object({{"accepted", accepted}, {"duplicate", duplicate}, {"rejected", rejected}});
}

// Durable, then remembered: file by file, so that a failure in between is never followed by a second copy.
result<void> probe_store::keep(std::vector<value> fresh) {
    std::map<std::string, std::pair<std::string, std::vector<std::pair<value, std::string>>>> by_file;
    for (value& r : fresh) {
        auto& [text, lines] = by_file[file_of(r)];
        std::string line = json::dump(r);
        text += line + "\n";
        lines.emplace_back(std::move(r), std::move(line));
    }
    for (auto& [file, part] : by_file) {
        if (auto ok = append(file, part.first); !ok) return ok;
        for (auto& [record, line] : part.second) remember(record, std::move(line));
    }
    return {};
}

probe_store::selection probe_store::select(std::string_view type, const probe_query& q, double now_s) const {
    const double since = q.since_s.value_or(now_s - day_s);
    const std::size_t limit = std::min<std::size_t>(q.limit, 10000);
    selection made;
    made.truncated = since < std::max(now_s - 31 * day_s, cut_s_);  // older rows are in the files only
    for (const stored& s : recent_) {
        if (s.type != type || s.collected_s < since) continue;
        if ((!q.site.empty() && s.site != q.site) || (!q.shape.empty() && s.shape != q.shape)) continue;
        if (made.lines.size() >= limit) {
            made.truncated = true;
            break;
        }
        made.lines.push_back(s.line);
    }
    return made;
}

std::vector<std::string> probe_store::bound_partitions(const std::string& site) const {
    std::vector<plan::reading> newest;
    for (const auto& [key, series] : series_)
        if (key.site == site) newest.push_back(series.back());
    return bound_among(std::move(newest));
}

value probe_store::estimates(double now_s, double strength) const {
    json::array rows;
    std::map<std::string, std::vector<std::string>> bound;
    for (const auto& [key, series] : series_) {
        const plan::reading& newest = series.back();
        if (bound.count(key.site) == 0) bound[key.site] = bound_partitions(key.site);
        const auto used = usage_.find({newest.site, newest.partition});
        const auto o = options_for(bound[key.site], newest.partition, used == usage_.end() ? value() : used->second,
                                   now_s, strength);
        const auto e = plan::estimate_wait(series, o);
        if (!e) continue;
        const auto asked = asked_.find(key);
        const auto asked_for = [&](std::string_view name) {
            const value* v = asked == asked_.end() ? nullptr : asked->second.find(name);
            return v == nullptr ? value() : *v;
        };
        json::array flags;
        for (const std::string& f : e->flags) flags.emplace_back(f);
        rows.push_back(json::make_object({{"site", key.site},
                                          {"shape", key.shape},
                                          {"args_digest", key.digest},
                                          {"partition", newest.partition},
                                          {"nodes", newest.nodes},
                                          {"gpus", newest.gpus},
                                          {"args", asked_for("args")},
                                          {"walltime_s", asked_for("walltime_s")},
                                          {"class", plan::word(e->kind)},
                                          {"reason", newest.reason},
                                          {"age_s", e->age_s},
                                          {"wait_raw_s", or_null(e->raw_now_s)},
                                          {"wait_p50_s", or_null(e->raw_p50_s)},
                                          {"wait_p90_s", or_null(e->raw_p90_s)},
                                          {"wait_s", or_null(e->wait_s)},
                                          {"gamma", or_null(e->gamma)},
                                          {"gamma_age_s", o.gamma ? value(o.gamma_age_s) : value()},
                                          {"discounted", e->discounted},
                                          {"share_not_accepted", e->share_not_accepted},
                                          {"readings", e->readings},
                                          {"flags", flags}}));
    }
    json::array scores;
    for (const auto& [key, pairs] : scores_) {
        const plan::wait_score s = plan::score_waits(pairs);
        json::array ratios;  // the newest, for draws
        for (std::size_t i = pairs.size() - std::min<std::size_t>(pairs.size(), ratios_max); i < pairs.size(); ++i)
            if (pairs[i].predicted_s > 0) ratios.emplace_back(pairs[i].realised_s / pairs[i].predicted_s);
        scores.push_back(json::make_object({{"site", key.first},
                                            {"partition", key.second},
                                            {"pairs", s.pairs},
                                            {"bias_s", s.bias_s},
                                            {"spread_s", s.spread_s},
                                            {"within_p50", s.within_p50},
                                            {"within_p90", s.within_p90},
                                            {"ratios", ratios}}));
    }
    return json::make_object({{"now_s", now_s}, {"estimates", rows}, {"scores", scores}});
}

}  // namespace darlcore::slurm
