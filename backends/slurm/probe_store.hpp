// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "adapters/formats/json.hpp"
#include "darlcore/plan/estimate.hpp"

namespace darlcore::slurm {

/// What a query asks for. Empty texts: any.
struct probe_query {
    std::string site;
    std::string shape;
    std::optional<double> since_s;  // default: the last 24 h
    std::size_t limit = 10000;
};

/// Whether the caller may speak for a site.
using site_rule = std::function<bool(std::string_view site)>;

/// The server's side of probes: one append-only file of JSON lines per site and month, and what answers need in memory,
/// so that a query does not read a year of text. Records are kept by id: the same id twice is one record.
/// Thread-safety: none; the owner calls it from one thread.
class probe_store {
public:
    /// Opens the folder and reads the newest two months of every site. A torn last line is cut off.
    /// Errors: errc::io_error.
    static result<probe_store> open(const std::string& folder, double now_s);
    probe_store(probe_store&& other) noexcept;
    probe_store& operator=(probe_store&& other) noexcept;
    ~probe_store();

    /// POST /probes {"records": [...]}: at most 1000 records of sites that the caller may speak for, collected_s within
    /// [now - 400 d, now + 300 s]. A start without predicted_s is completed with what was predicted for its shape when
    /// it was submitted. Durable before it returns. Gives {"accepted", "duplicate", "rejected": [{"index", "field",
    /// "reason"}]}. Errors: errc::bad_request (shape of the body), errc::not_owner (a record of another site: nothing
    /// is stored), errc::io_error, errc::no_space.
    result<json::value> post(const json::value& body, const site_rule& may_speak_for, double now_s);

    /// GET /probes and GET /usage: the lines of the records, oldest first.
    struct selection {
        std::vector<std::string> lines;
        bool truncated = false;
    };
    [[nodiscard]] selection select(std::string_view type, const probe_query& q, double now_s) const;
    [[nodiscard]] std::size_t records() const { return ids_.size(); }
    /// Lines that answer queries are kept up to this size; older ones stay in the files.
    void set_recent_bytes_max(std::size_t most) { recent_bytes_max_ = most; }

    /// GET /estimates: newest reading per shape and the gamma of its partition side by side, never blended; age, class,
    /// flags, p50, p90, and how predictions of own jobs were met.
    [[nodiscard]] json::value estimates(double now_s, double strength = 0.5) const;

private:
    probe_store() = default;
    struct series_key {
        std::string site, shape, digest;
        friend auto operator<=>(const series_key&, const series_key&) = default;
    };
    struct stored {
        double collected_s = 0;
        std::string type;
        std::string site;
        std::string shape;
        std::string line;
    };
    void remember(const json::value& record, std::string line);
    void forget(double now_s);
    void read_file(const std::string& file, double now_s, bool ids_only);
    result<void> keep(std::vector<json::value> fresh);
    result<void> append(const std::string& file, const std::string& lines);
    [[nodiscard]] std::optional<json::value> completed(const json::value& start) const;
    [[nodiscard]] std::vector<std::string> bound_partitions(const std::string& site) const;

    std::string folder_;
    std::map<std::string, int> open_files_;
    std::set<std::string> read_files_;
    std::unordered_set<std::string> ids_;  // "site id"
    std::deque<stored> recent_;            // newest 31 days, by arrival
    std::size_t recent_bytes_ = 0;
    std::size_t recent_bytes_max_ = std::size_t{64} << 20U;
    double cut_s_ = 0;                                                  // lines up to here are in the files only
    std::map<series_key, std::vector<plan::reading>> series_;           // newest 24 h of each, at least the newest one
    std::map<series_key, json::value> asked_;                           // args and walltime_s of the newest of each
    std::map<std::pair<std::string, std::string>, json::value> usage_;  // newest per (site, partition)
    std::map<std::pair<std::string, std::string>, std::vector<plan::wait_pair>> scores_;
};

}  // namespace darlcore::slurm
