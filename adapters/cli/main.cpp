// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "adapters/cli/cli_support.hpp"

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
    std::string commands;
#define DARL_COMMAND(name) commands += (commands.empty() ? "" : ", ") + std::string(#name);
#include "darl_commands.inc"
#undef DARL_COMMAND
    return fmt::format("darl {} (commit {}, {}; commands: {})", DARLCORE_VERSION, DARLCORE_COMMIT, compiler, commands);
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
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
        return app.exit(e) == 0 ? darl::exit_ok : darl::exit_usage;
    }
    return s.exit_code;
}
