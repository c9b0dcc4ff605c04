// SPDX-License-Identifier: Apache-2.0
// `darl journal inspect|verify|salvage`: look into, check, rescue a state directory.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "adapters/cli/cli_support.hpp"
#include "adapters/formats/json.hpp"
#include "backends/storage/inspect.hpp"
#include "backends/storage/ledger_replay.hpp"
#include "backends/storage/posix.hpp"
#include "backends/storage/rollback.hpp"
#include "darlcore/ledger/machine.hpp"

namespace darl {
namespace {

namespace storage = darlcore::storage;
namespace json = darlcore::json;
using darlcore::errc;
using darlcore::fail;

struct journal_arguments {
    std::string directory;
    bool records = false;
    std::uint64_t first = 0;
    std::uint64_t count = 1000;
    std::string out;
    std::optional<std::uint64_t> generation;
};

json::value to_json(const storage::finding& f) {
    return json::make_object(
        {{"file", f.file}, {"offset", f.offset}, {"sequence", f.sequence}, {"what", f.what}, {"damage", f.is_damage}});
}

json::value to_json(const storage::inspection& seen) {
    json::array segments;
    for (const auto& s : seen.segments)
        segments.push_back(json::make_object({{"file", s.file},
                                              {"bytes", s.bytes},
                                              {"used_bytes", s.used_bytes},
                                              {"term", s.term},
                                              {"first_sequence", s.first_sequence},
                                              {"last_sequence", s.last_sequence},
                                              {"records", s.records}}));
    json::array snapshots;
    for (const auto& s : seen.snapshots)
        snapshots.push_back(
            json::make_object({{"file", s.file}, {"bytes", s.bytes}, {"sequence", s.sequence}, {"good", s.good}}));
    json::array findings;
    for (const auto& f : seen.findings) findings.push_back(to_json(f));
    const auto acked = seen.acked_sequence ? json::value(*seen.acked_sequence) : json::value();
    const auto term = seen.term ? json::value(*seen.term) : json::value();
    return json::make_object({{"verdict", seen.is_damaged() ? "damaged" : "good"},
                              {"last_sequence", seen.last_sequence},
                              {"acked_sequence", acked},
                              {"term", term},
                              {"segments", std::move(segments)},
                              {"snapshots", std::move(snapshots)},
                              {"findings", std::move(findings)}});
}

json::value to_json(const storage::record_place& place) {
    return json::make_object({{"sequence", place.record.sequence},
                              {"type", darlcore::ledger::type_name(place.record.type)},
                              {"batch", place.record.batch},
                              {"ends_batch", place.record.ends_batch},
                              {"ledger_ms", place.record.ledger_ms},
                              {"payload_bytes", place.record.payload.size()},
                              {"file", place.file},
                              {"offset", place.offset}});
}

void print_findings(const std::vector<storage::finding>& findings) {
    for (const auto& f : findings)
        print_line(fmt::format("  {} offset {}{}: {}{}", f.file, f.offset,
                               f.sequence != 0 ? fmt::format(", sequence {}", f.sequence) : "", f.what,
                               f.is_damage ? "" : " (a start repairs this)"));
}

void print_text(const storage::inspection& seen) {
    for (const auto& s : seen.segments)
        print_line(fmt::format("{}: {} records, sequence {} to {}, term {}, {} of {} bytes used", s.file, s.records,
                               s.first_sequence, s.last_sequence, s.term, s.used_bytes, s.bytes));
    for (const auto& s : seen.snapshots)
        print_line(fmt::format("{}: sequence {}, {}", s.file, s.sequence, s.good ? "good" : "DAMAGED"));
    print_line(fmt::format("acknowledged through {}, unbroken through {}",
                           seen.acked_sequence ? std::to_string(*seen.acked_sequence) : std::string("(unknown)"),
                           seen.last_sequence));
    print_findings(seen.findings);
    print_line(seen.is_damaged() ? "verdict: damaged" : "verdict: good");
}

darlcore::result<void> inspect(const session& s, const journal_arguments& a) {
    storage::posix_file_system files;
    json::array records;
    const auto seen = storage::inspect(files, a.directory, [&](const storage::record_place& place) {
        if (!a.records || place.record.sequence < a.first || records.size() >= a.count) return;
        if (s.json) {
            records.push_back(to_json(place));
        } else {
            records.emplace_back();
            print_line(fmt::format("{:>10} {:<22} batch {}{} {} bytes, {} offset {}", place.record.sequence,
                                   darlcore::ledger::type_name(place.record.type), place.record.batch,
                                   place.record.ends_batch ? "." : " ", place.record.payload.size(), place.file,
                                   place.offset));
        }
    });
    if (!seen) return seen.error();
    if (!s.json) {
        print_text(*seen);
        return {};
    }
    auto document = to_json(*seen);
    if (a.records) document.set("records", std::move(records));
    print_line(json::dump(document));
    return {};
}

darlcore::result<void> verify(const session& s, const journal_arguments& a) {
    storage::posix_file_system files;
    const auto seen = storage::inspect(files, a.directory);
    if (!seen) return seen.error();
    storage::ledger_replay replay;
    const auto read = storage::read_journal(files, storage::join(a.directory, "journal"), replay.target());
    if (!read) return read.error();
    if (replay.machine() != nullptr)
        if (const auto good = replay.machine()->verify(); !good)
            return fail(errc::corrupt, "the replayed books contradict each other: " + good.error().context);
    if (seen->is_damaged()) {
        const auto& first =
            *std::find_if(seen->findings.begin(), seen->findings.end(), [](const auto& f) { return f.is_damage; });
        return fail(errc::corrupt,
                    fmt::format("{} offset {}: {} (a start would do without it; `darl journal inspect` lists all)",
                                first.file, first.offset, first.what));
    }
    json::array warnings(read->warnings.begin(), read->warnings.end());
    if (s.json)
        print_line(json::dump(json::make_object({{"verdict", "good"},
                                                 {"sequence", read->position.sequence},
                                                 {"records_replayed", read->records_replayed},
                                                 {"snapshot_sequence", read->snapshot_sequence},
                                                 {"term", read->term},
                                                 {"warnings", std::move(warnings)}})));
    else
        print_line(fmt::format("good: {} records replayed, state of sequence {}, term {}", read->records_replayed,
                               read->position.sequence, read->term));
    return {};
}

std::string new_directory(const journal_arguments& a) {
    std::string from = a.directory;
    while (from.size() > 1 && from.back() == '/') from.pop_back();
    return a.out.empty() ? from + "-salvaged" : a.out;
}

void print_text(const storage::salvage_report& report, const std::string& to) {
    print_line(fmt::format("{}: kept everything through sequence {}", to, report.kept_through));
    for (const auto& lost : report.lost)
        print_line(fmt::format("  not kept: sequence {}, {}, {} offset {}", lost.sequence,
                               darlcore::ledger::type_name(lost.type), lost.file, lost.offset));
    for (const auto& gap : report.unreadable)
        print_line(fmt::format("  unreadable: sequences {} to {}", gap.first, gap.last));
    print_findings(report.findings);
}

json::value to_json(const storage::salvage_report& report, const std::string& to) {
    json::array lost;
    for (const auto& l : report.lost)
        lost.push_back(json::make_object({{"sequence", l.sequence},
                                          {"type", darlcore::ledger::type_name(l.type)},
                                          {"file", l.file},
                                          {"offset", l.offset}}));
    json::array gaps;
    for (const auto& g : report.unreadable) gaps.push_back(json::make_object({{"first", g.first}, {"last", g.last}}));
    json::array findings;
    for (const auto& f : report.findings) findings.push_back(to_json(f));
    return json::make_object({{"directory", to},
                              {"kept_through", report.kept_through},
                              {"records_kept", report.records_kept},
                              {"snapshot_sequence", report.snapshot_sequence},
                              {"lost", std::move(lost)},
                              {"unreadable", std::move(gaps)},
                              {"findings", std::move(findings)}});
}

darlcore::result<void> salvage(const session& s, const journal_arguments& a) {
    const std::string to = new_directory(a);
    storage::posix_file_system files;
    storage::ledger_replay replay;
    const auto report = storage::salvage(files, a.directory, to, replay.target());
    if (!report) return report.error();
    if (s.json) {
        print_line(json::dump(to_json(*report, to)));
        return {};
    }
    print_text(*report, to);
    print_line("the old directory is unchanged; move model/ and blobs/ over before serving the new one");
    return {};
}

json::value to_json(const darlcore::ledger::records::blocks_of_epoch& part, const darlcore::span& s) {
    return json::make_object(
        {{"epoch", std::uint64_t{part.epoch.count}}, {"first", s.start.count}, {"end", s.end.count}});
}

darlcore::result<void> roll_back(const session& s, const journal_arguments& a) {
    const std::string to = new_directory(a);
    storage::posix_file_system files;
    const auto threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    const auto back = storage::roll_back(files, a.directory, to, *a.generation, threads);
    if (!back) return back.error();
    if (s.json) {
        auto document = to_json(back->journal, to);
        json::array undone;
        for (const auto& part : back->undone)
            for (const auto& run : part.spans) undone.push_back(to_json(part, run));
        document.set("target", back->target);
        document.set("newest", back->newest);
        document.set("generation", back->next);
        document.set("epoch", std::uint64_t{back->epoch});
        document.set("undone", std::move(undone));
        document.set("windows_lost", back->windows_lost);
        print_line(json::dump(document));
        return {};
    }
    print_text(back->journal, to);
    print_line(fmt::format("generation {} goes on as generation {} in epoch {}; generations up to {} are left behind",
                           back->target, back->next, back->epoch, back->newest));
    for (const auto& part : back->undone)
        for (const auto& run : part.spans)
            print_line(fmt::format("  trained again: epoch {}, blocks [{}, {})", part.epoch.count, run.start.count,
                                   run.end.count));
    if (back->windows_lost > 0)
        print_line(fmt::format("  {} windows were committed at checkpoints but are in no model; they stay committed",
                               back->windows_lost));
    print_line(fmt::format("the old directory is unchanged; go on with: darl serve --state-dir {} --resume", to));
    return {};
}

darlcore::result<void> rescue(const session& s, const journal_arguments& a) {
    return a.generation ? roll_back(s, a) : salvage(s, a);
}

using action = darlcore::result<void> (*)(const session&, const journal_arguments&);

CLI::App* add_action(CLI::App& group, session& s, const std::shared_ptr<journal_arguments>& a, const char* name,
                     const char* help, action run) {
    auto* command = group.add_subcommand(name, help);
    command->add_option("DIR", a->directory, "state directory")->required();
    command->callback([&s, a, run] {
        if (const auto done = run(s, *a); !done) report(s, done.error());
    });
    return command;
}

}  // namespace

void add_journal(CLI::App& app, session& s) {
    auto* group = app.add_subcommand("journal", "look into, check, rescue a state directory (no server is needed)");
    group->require_subcommand(1);
    auto a = std::make_shared<journal_arguments>();
    auto* looking = add_action(*group, s, a, "inspect",
                               "what the files hold, and where they are damaged; changes nothing", inspect);
    looking->add_flag("--records", a->records, "list records too");
    looking->add_option("--first", a->first, "first sequence to list");
    looking->add_option("--count", a->count, "records to list (default 1000)");
    add_action(*group, s, a, "verify",
               "replay as a start would, changing nothing; exit 3 when a start would refuse or a file is damaged",
               verify);
    auto* rescuing =
        add_action(*group, s, a, "salvage", "write what can be kept into a new directory and list what cannot", rescue);
    rescuing->add_option("--out", a->out, "the new directory (default DIR-salvaged)");
    rescuing->add_option("--generation", a->generation,
                         "go back on purpose (the server is stopped): the model of this generation under a new number, "
                         "its files included; what later ones trained is trained again");
    group->footer(
        "Example: darl journal inspect run --records --first 100 --count 20\n"
        "         darl journal salvage run --out run-rescued\n"
        "         darl journal salvage run --generation 41 --out run-from-41 && darl serve --state-dir run-from-41 "
        "--resume");
}

}  // namespace darl
