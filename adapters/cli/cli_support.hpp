// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

#include "darlcore/error.hpp"

namespace darl {

/// What every subcommand shares: where results go, how much is said, and the exit code that main returns.
struct session {
    int exit_code = 0;
    bool json = false;
    bool color = true;
    int verbosity = 0;
};

/// Exit codes of the command line (docs/cli.md).
enum exit_code : int { exit_ok = 0, exit_failed = 1, exit_usage = 2, exit_refused = 3, exit_try_later = 75 };

/// The exit code that a failure of the world means.
int exit_code_of(const darlcore::error& failure);

/// One line on stderr: "darl: <context>" (the code's word when there is no context); sets the exit code.
void report(session& s, const darlcore::error& failure);

/// As report, for a failure of reading what the user gave: damaged and cut files are bad input like any other, exit 2.
void report_input(session& s, const darlcore::error& failure);

/// For commands that take settings of the run file as `--section.key value`: what the command does not know stays in
/// `command->remaining()` (see config_overrides) instead of being an error of the program's own options.
void take_settings(CLI::App* command, session& s);

/// One line on stdout, ended and flushed.
void print_line(std::string_view text);

}  // namespace darl
