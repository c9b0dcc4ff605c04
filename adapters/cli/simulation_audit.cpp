// SPDX-License-Identifier: Apache-2.0
#include "adapters/cli/simulation_audit.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "adapters/formats/json.hpp"

namespace darl {
namespace {

using namespace darlcore;

constexpr std::size_t examples_max = 8;

/// The reads of one group of one phase of one process.
using group_key = std::pair<std::uint64_t, std::uint64_t>;
using group_reads = std::map<group_key, std::vector<std::uint64_t>>;

struct contribution_reads {
    std::string site;
    std::vector<std::uint64_t> positions;
};

struct site_books {
    audit_site figures;
    std::vector<contribution_reads> finished;
    std::map<std::string, contribution_reads> by_id;
};

std::optional<std::uint64_t> number(const json::value& line, std::string_view key) {
    const auto* v = line.find(key);
    return v != nullptr ? v->as_u64() : std::nullopt;
}

// Adds one line of a record. False: it says nothing that can be used.
bool take_line(const json::value& line, std::uint32_t epoch, const std::string& site, group_reads& reads,
               site_books& books) {
    const auto* kind = line.find("kind");
    if (kind == nullptr || kind->as_string() == nullptr) return false;
    if (*kind->as_string() == "started") {
        reads.clear();  // a new process numbers its phases anew
        return true;
    }
    if (*kind->as_string() == "settled") return true;
    const auto phase = number(line, "phase");
    if (!phase) return false;
    if (*kind->as_string() == "read") {
        const auto group = number(line, "group");
        const auto in_epoch = number(line, "epoch");
        const auto* spans = line.find("spans");
        if (!group || !in_epoch || spans == nullptr || spans->as_array() == nullptr) return false;
        auto& positions = reads[{*phase, *group}];
        for (const auto& s : *spans->as_array()) {
            const auto begin = s.size() == 2 ? s.at(std::size_t{0}).as_u64() : std::nullopt;
            const auto end = s.size() == 2 ? s.at(std::size_t{1}).as_u64() : std::nullopt;
            if (!begin || !end || *begin > *end) return false;
            if (*in_epoch != epoch) continue;
            for (std::uint64_t p = *begin; p < *end; ++p) positions.push_back(p);
            books.figures.read += *end - *begin;
        }
        return true;
    }
    const auto groups = number(line, "groups");
    const auto* id = line.find("id");
    if (*kind->as_string() != "contribution" || !groups || id == nullptr || id->as_string() == nullptr) return false;
    contribution_reads done{site, {}};
    for (std::uint64_t g = 0; g < *groups; ++g) {
        const auto& positions = reads[{*phase, g}];
        done.positions.insert(done.positions.end(), positions.begin(), positions.end());
    }
    books.by_id[*id->as_string()] = std::move(done);
    return true;
}

result<site_books> read_books(const std::string& site, const std::vector<std::string>& lines, std::uint32_t epoch) {
    site_books books;
    books.figures.site = site;
    group_reads reads;
    for (std::size_t i = 0; i < lines.size(); ++i) {
        const auto line = json::parse(lines[i]);
        const bool usable = line && take_line(*line, epoch, site, reads, books);
        if (!usable && i + 1 != lines.size())
            return fail(errc::corrupt, fmt::format("record of site {}, line {}: cannot be read", site, i + 1));
    }
    return books;
}

void check_table(const audit_input& in, const epoch_map& map, const std::vector<float>& expected,
                 audit_report& report) {
    if (in.table.size() != in.space.num_samples) {
        report.findings.push_back(
            fmt::format("the model has {} counters for {} windows", in.table.size(), in.space.num_samples));
        report.pass = false;
        return;
    }
    std::uint64_t wrong = 0;
    for (std::uint64_t p = 0; p < expected.size(); ++p) {
        const auto range = map.windows_of(position{p});
        for (std::uint64_t w = range.begin; w < range.end; ++w) {
            if (in.table[w] == expected[p]) continue;
            if (++wrong <= examples_max)
                report.findings.push_back(fmt::format("window {}: the model says {}, the sites' records say {}", w,
                                                      in.table[w], expected[p]));
        }
    }
    if (wrong != 0) report.pass = false;
}

}  // namespace

result<audit_report> audit_simulation(const audit_input& in) {
    auto map = block_space::build(in.space, epoch_index{in.epoch});
    if (!map) return map.error();
    audit_report report;
    report.blocks = (*map)->num_blocks();
    std::vector<std::uint32_t> times(report.blocks, 0);
    std::map<std::string, contribution_reads> finished;
    for (const auto& [site, lines] : in.records) {
        auto books = read_books(site, lines, in.epoch);
        if (!books) return books.error();
        for (auto& [id, reads] : books->by_id) finished[id] = std::move(reads);
        report.sites.push_back(books->figures);
    }
    report.pass = true;
    const auto find = [&](const std::string& text) {
        report.findings.push_back(text);
        report.pass = false;
    };
    std::vector<float> expected(report.blocks, 0.0F);
    for (const auto& [id, share] : in.merged) {
        const auto reads = finished.find(id);
        if (reads == finished.end()) {
            find(fmt::format("contribution {} is in the model, but no site has a record of it", id));
            continue;
        }
        for (const std::uint64_t p : reads->second.positions) {
            if (p >= report.blocks) {
                find(fmt::format("contribution {} holds position {}, which does not exist", id, p));
                continue;
            }
            ++times[p];
            expected[p] += share;
            report.holders[p] = id;
        }
        for (auto& site : report.sites)
            if (site.site == reads->second.site) site.merged += reads->second.positions.size();
    }
    const std::set<std::uint64_t> quarantined(in.quarantined.begin(), in.quarantined.end());
    for (std::uint64_t p = 0; p < report.blocks; ++p) {
        if (times[p] == 1) ++report.covered;
        if (times[p] > 1 && ++report.duplicates <= examples_max)
            find(fmt::format("position {} was merged {} times", p, times[p]));
        if (times[p] == 0 && !quarantined.contains(p) && ++report.missing <= examples_max)
            find(fmt::format("position {} was never merged", p));
    }
    for (auto& site : report.sites) {
        site.retrained = site.read - std::min(site.read, site.merged);
        report.retrained += site.retrained;
    }
    if (!in.table.empty()) check_table(in, **map, expected, report);
    const std::uint64_t merged_blocks = report.covered + report.duplicates;
    if (in.ledger_committed && *in.ledger_committed != merged_blocks)
        find(fmt::format("the ledger counts {} committed blocks, the model holds {}", *in.ledger_committed,
                         merged_blocks));
    return report;
}

}  // namespace darl
