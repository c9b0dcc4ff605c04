// SPDX-License-Identifier: Apache-2.0
// `darl slurm parse`: what the parsers make of a text.
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "adapters/cli/cli_support.hpp"
#include "adapters/cli/did_you_mean.hpp"
#include "backends/slurm/parse_json.hpp"

namespace darl {
namespace {

using darlcore::errc;
using darlcore::fail;
using darlcore::json::value;

struct parse_arguments {
    std::string kind;
    long long now_s = 0;
    int rc = 0;
    bool assume_utc = true;
    std::string requested_partition;
    long long window_start_s = 0;
    long long window_end_s = INT64_MAX;
    unsigned min_jobs = 30;
    std::string stderr_file;
    std::string grammar;
    std::vector<std::string> tokens;
};

constexpr std::size_t input_bytes_max = std::size_t{64} << 20U;

darlcore::result<std::string> read_stdin() {
    std::string text;
    char buffer[65536];
    while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, stdin)) {
        if (text.size() + n > input_bytes_max)
            return fail(errc::invalid_argument, "more than 64 MiB on stdin; give a shorter window");
        text.append(buffer, n);
    }
    return text;
}

darlcore::result<void> parse(const parse_arguments& a) {
    const auto& kinds = darlcore::slurm::parse_kinds;
    if (std::find(std::begin(kinds), std::end(kinds), a.kind) == std::end(kinds)) {
        const std::string near = did_you_mean(a.kind, kinds);
        std::string known;
        for (const auto k : kinds) known += (known.empty() ? "" : ", ") + std::string(k);
        return fail(errc::bad_request, fmt::format("unknown kind '{}'{}; one of {}", a.kind,
                                                   near.empty() ? "" : fmt::format(", did you mean {}?", near), known));
    }
    value options;
    options.set("now_s", a.now_s != 0 ? a.now_s : static_cast<long long>(std::time(nullptr)));
    options.set("rc", a.rc).set("assume_utc", a.assume_utc).set("requested_partition", a.requested_partition);
    options.set("window_start_s", a.window_start_s).set("window_end_s", a.window_end_s).set("min_jobs", a.min_jobs);
    if (!a.grammar.empty()) options.set("grammar", a.grammar);
    if (!a.stderr_file.empty()) {
        std::ifstream in(a.stderr_file, std::ios::binary);
        if (!in)
            return fail(
                errc::not_found,
                fmt::format("{}: cannot be read; give the file that holds the command's stderr", a.stderr_file));
        options.set("stderr", std::string((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>()));
    }
    std::string text;
    if (a.kind != "shape") {
        auto got = read_stdin();
        if (!got) return got.error();
        text = std::move(*got);
    }
    const auto made = darlcore::slurm::parse_as_json(a.kind, text, options, a.tokens);
    if (!made) return made.error();
    print_line(darlcore::json::dump(*made));
    return {};
}

}  // namespace

void add_slurm(CLI::App& app, session& s) {
    auto* group = app.add_subcommand("slurm", "texts of the batch system");
    group->require_subcommand(1);
    auto* command =
        group->add_subcommand("parse", "what the parsers make of a text on stdin; one JSON object on stdout");
    auto a = std::make_shared<parse_arguments>();
    command
        ->add_option("KIND", a->kind,
                     "test-only, sacct, timelimit, shape, squeue, sinfo, scontrol, qos, submit, array, start-time, swf "
                     "or swf-header")
        ->required();
    command->add_option("--now", a->now_s, "test-only: epoch seconds when the call returned (default: now)");
    command->add_option("--rc", a->rc, "exit status of the command");
    command->add_option("--assume-utc", a->assume_utc, "the command ran with TZ=UTC (default true)");
    command->add_option("--requested-partition", a->requested_partition, "test-only: the partition that was asked for");
    command->add_option("--window-start", a->window_start_s, "sacct: epoch seconds");
    command->add_option("--window-end", a->window_end_s, "sacct: epoch seconds");
    command->add_option("--min-jobs", a->min_jobs, "sacct: smallest sample that gives a ratio (default 30)");
    command->add_option("--stderr", a->stderr_file, "sacct: file with the command's stderr");
    command->add_option("--grammar", a->grammar, "timelimit: request (what -t accepts) or report (what is printed)");
    command->add_option("TOKENS", a->tokens, "shape: the arguments of sbatch, after --");
    command->footer(
        "Example: sbatch --test-only -p gpu -t 60 --wrap true 2>&1 | darl slurm parse test-only\n"
        "         darl slurm parse shape -- -p gpu -N 1 --gpus-per-node=4 -t 8:00:00");
    command->callback([&s, a] {
        if (const auto done = parse(*a); !done) report(s, done.error());
    });
}

}  // namespace darl
