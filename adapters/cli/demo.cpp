// SPDX-License-Identifier: Apache-2.0
// `darl demo`: the main job on this machine: a server, three unequal sites, one killed, one late, an audit, a baseline,
// a report.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <poll.h>

#include "adapters/cli/chart_png.hpp"
#include "adapters/cli/child_process.hpp"
#include "adapters/cli/cli_support.hpp"
#include "adapters/cli/demo_report.hpp"
#include "adapters/cli/demo_run.hpp"
#include "adapters/cli/demo_text.hpp"
#include "adapters/cli/run_config.hpp"
#include "adapters/cli/simulation_audit.hpp"
#include "adapters/formats/json.hpp"

namespace darl {
namespace {

using namespace darlcore;

struct demo_options {
    bool quick = false;
    bool synthetic = false;
    std::vector<std::string> text;
    std::string keep_dir;
    std::string fault;        // not for people: what the fast site does wrong
    std::uint64_t bytes = 0;  // not for people: of text to train on
};

std::string read_file(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

result<demo_corpus> corpus_of(const demo_options& o, std::uint64_t train_bytes, std::uint64_t held_out_bytes) {
    if (o.synthetic) return synthetic_corpus(train_bytes, held_out_bytes);
    std::vector<std::string> documents;
    if (o.text.empty()) {
        auto novels = demo_novels();
        if (!novels) return novels.error();
        documents = *std::move(novels);
    }
    for (const auto& path : o.text) {
        std::ifstream in(path, std::ios::binary);
        if (!in) return fail(errc::not_found, fmt::format("{}: cannot be read", path));
        documents.push_back(read_file(path));
    }
    return split_documents(std::move(documents), train_bytes, held_out_bytes);
}

struct report_files {
    std::string html;
    std::string picture;  // of the main figure
};

report_files write_report(const demo_figures& figures, const std::string& dir) {
    const report_files files{dir + "/report.html", dir + "/loss.png"};
    std::ofstream(files.html) << demo_report_html(figures);
    std::ofstream(files.picture, std::ios::binary) << chart_png(loss_chart(figures));
    return files;
}

json::value demo_json(const demo_outcome& r, const report_files& files) {
    const auto& a = r.audit;
    const json::value floor = r.floor ? json::value(*r.floor) : json::value();
    return json::make_object({{"verdict", r.pass ? "PASS" : "FAIL"},
                              {"coverage", json::make_object({{"blocks", a.blocks},
                                                              {"covered", a.covered},
                                                              {"duplicates", a.duplicates},
                                                              {"missing", a.missing},
                                                              {"retrained", a.retrained}})},
                              {"perplexity", json::make_object({{"federated", r.federated},
                                                                {"centralised", r.centralised},
                                                                {"untrained", r.untrained},
                                                                {"floor", floor}})},
                              {"seconds", r.seconds},
                              {"sample", r.sample},
                              {"report", files.html},
                              {"picture", files.picture}});
}

void print_outcome(const demo_outcome& r, const report_files& files) {
    const auto& a = r.audit;
    print_line("");
    print_line(fmt::format(
        "coverage    {} of {} blocks trained into the model exactly once, {} twice, {} missing, {} read in vain",
        a.covered, a.blocks, a.duplicates, a.missing, a.retrained));
    for (const auto& site : a.sites)
        print_line(fmt::format("            {:<8} {:>5} in the model, {:>3} read in vain", site.site, site.merged,
                               site.retrained));
    print_line(fmt::format("perplexity  federated {:.3f}, centralised {:.3f} (ratio {:.3f}), untrained {:.1f}{}",
                           r.federated, r.centralised, r.federated / r.centralised, r.untrained,
                           r.floor ? fmt::format(", floor {:.3f}", *r.floor) : std::string()));
    if (!r.sample.empty()) print_line(fmt::format("the model says: {}", r.sample));
    for (const auto& f : r.findings) print_line("finding     " + f);
    print_line(fmt::format("report      {}\npicture     {}", files.html, files.picture));
    print_line(fmt::format("{} in {:.0f} s", r.pass ? "PASS" : "FAIL", r.seconds));
}

void run_demo(session& s, const demo_options& o) {
    demo_settings d;
    d.quick = o.quick;
    d.fault = o.fault;
    d.verbose = s.verbosity >= 0;
    if (o.keep_dir.empty()) {
        std::string pattern = (std::filesystem::temp_directory_path() / "darl-demo-XXXXXX").string();
        if (::mkdtemp(pattern.data()) == nullptr)
            return report(s, fail(errc::io_error, "no temporary folder can be made"));
        d.dir = pattern;
    } else {
        d.dir = o.keep_dir;
        if (std::filesystem::exists(d.dir) && !std::filesystem::is_empty(d.dir))
            return report(s, fail(errc::already_exists, fmt::format("{}: is not empty; choose another folder", d.dir)));
        std::error_code failed;
        std::filesystem::create_directories(d.dir, failed);
        if (failed) return report(s, fail(errc::io_error, fmt::format("{}: {}", d.dir, failed.message())));
    }
    const std::uint64_t bytes = o.bytes != 0 ? o.bytes : o.quick ? 310'000 : 1'150'000;
    auto corpus = corpus_of(o, bytes, std::min<std::uint64_t>(40'000, bytes));
    if (!corpus) return report(s, corpus.error());
    const auto outcome = run_demo_in(d, *corpus);
    if (!outcome) {
        fmt::print(stderr, "darl demo: logs are in {}\n", d.dir);
        return report(s, outcome.error());
    }
    const report_files files = write_report(outcome->figures, d.dir);
    if (s.json)
        print_line(json::dump(demo_json(*outcome, files)));
    else
        print_outcome(*outcome, files);
    if (!outcome->pass) s.exit_code = exit_failed;
}

}  // namespace

void add_demo(CLI::App& app, session& s) {
    auto o = std::make_shared<demo_options>();
    auto* command = app.add_subcommand(
        "demo", "the main job on this machine: server, three unequal sites, kills, audit, baseline, report");
    command->add_flag("--quick", o->quick, "a quarter of the text, no server kill; about a minute");
    auto* text =
        command->add_option("--text", o->text, "own text files: the last is held out (of a single one its last tenth)");
    command->add_flag("--synthetic", o->synthetic, "text of a known entropy rate instead, so that the floor is known")
        ->excludes(text);
    command->add_option("--keep", o->keep_dir, "empty folder for everything; default: a temporary one");
    command->add_option("--fault", o->fault)->group("");
    command->add_option("--bytes", o->bytes)->group("");
    command->footer("Example: darl demo --quick");
    command->callback([&s, o] { run_demo(s, *o); });
}

}  // namespace darl
