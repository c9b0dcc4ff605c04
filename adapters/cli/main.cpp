// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <new>
#include <string>
#include <vector>

#include <unistd.h>

#include <fmt/format.h>

#include "adapters/cli/cli_support.hpp"
#include "adapters/cli/did_you_mean.hpp"

namespace darl {
#define DARL_COMMAND(name) void add_##name(CLI::App& app, session& s);
#include "darl_commands.inc"
#undef DARL_COMMAND
}  // namespace darl

namespace {

std::string version_text() {
#if defined(__clang__)
    const std::string compiler = fmt::format("clang {}.{}", __clang_major__, __clang_minor__);
#else
    const std::string compiler = fmt::format("g++ {}.{}", __GNUC__, __GNUC_MINOR__);
#endif
    return fmt::format("darl {} (commit {}, {}; commands: {})", DARLCORE_VERSION, DARLCORE_COMMIT, compiler,
                       DARL_COMMANDS);
}

/// The first word that is no flag: the command. "--version" counts as one, since every program can answer it.
std::string command_of(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        if (word == "--version" || !word.starts_with('-')) return word;
    }
    return {};
}

/// Becomes the program beside this one that knows all commands and so has the whole help. Returns where there is none.
void hand_over([[maybe_unused]] char** argv) {
#ifdef DARL_FULL_PROGRAM
    std::error_code failed;
    const auto self = std::filesystem::read_symlink("/proc/self/exe", failed);
    if (!failed) ::execv((self.parent_path() / DARL_FULL_PROGRAM).c_str(), argv);
#endif
}

int unknown_command(const std::string& word, const std::vector<std::string>& known) {
    const std::string near = darl::did_you_mean(word, known);
    fmt::print(stderr, "darl: unknown command '{}'{}; `darl --help` lists the commands\n", word,
               near.empty() ? "" : fmt::format(", did you mean '{}'?", near));
    return darl::exit_usage;
}

}  // namespace

int main(int argc, char** argv) {
    darl::session s;
    CLI::App app{"darl: one pre-training run from small allocations at several supercomputers"};
    app.require_subcommand(1);
    app.set_version_flag("--version", version_text());
    app.fallthrough();
    app.add_flag("--json", s.json, "results as one JSON document on stdout");
    app.add_flag("-v{1},-q{-1}", s.verbosity, "say more (-v) or less (-q)");
    app.add_flag("--no-color{false}", s.color, "no colours (also: NO_COLOR)")->envname("NO_COLOR");
#define DARL_COMMAND(name) darl::add_##name(app, s);
#include "darl_commands.inc"
#undef DARL_COMMAND
    std::vector<std::string> known = {"--version"};
    for (const CLI::App* c : app.get_subcommands({})) known.push_back(c->get_name());
    const std::string command = command_of(argc, argv);
    if (std::find(known.begin(), known.end(), command) == known.end()) {
        hand_over(argv);
        if (!command.empty()) return unknown_command(command, known);
    }
    try {
        app.parse(argc, argv);
    } catch (const std::bad_alloc&) {
        std::fputs("darl: out of memory; nothing that was acknowledged is lost, start it again\n", stderr);
        return darl::exit_failed;
    } catch (const CLI::ParseError& e) {
        return app.exit(e) == 0 ? darl::exit_ok : darl::exit_usage;
    }
    return s.exit_code;
}
