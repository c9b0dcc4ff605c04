// SPDX-License-Identifier: Apache-2.0
#include "adapters/cli/cli_support.hpp"

#include <cstdio>

#include <fmt/format.h>

namespace darl {

int exit_code_of(const darlcore::error& failure) {
    using darlcore::errc;
    switch (failure.code) {
        case errc::locked:
        case errc::corrupt:
        case errc::refused:
            return exit_refused;
        case errc::unreachable:
        case errc::timeout:
        case errc::restarting:
        case errc::overloaded:
        case errc::cluster_busy:
            return exit_try_later;
        case errc::invalid_argument:
        case errc::overflow:
        case errc::too_many_blocks:
        case errc::parse_error:
        case errc::unknown_key:
        case errc::layout_mismatch:
        case errc::unsupported:
        case errc::already_exists:
        case errc::not_found:
        case errc::bad_request:
        case errc::token:
        case errc::wrong_scope:
        case errc::digest_mismatch:
        case errc::corpus_mismatch:
            return exit_usage;
        default:
            return exit_failed;
    }
}

void report(session& s, const darlcore::error& failure) {
    const std::string text = failure.context.empty() ? std::string(word(failure.code)) : failure.context;
    fmt::print(stderr, "darl: {}\n", text);
    s.exit_code = exit_code_of(failure);
}

void report_input(session& s, const darlcore::error& failure) {
    using darlcore::errc;
    report(s, failure);
    for (const errc damaged : {errc::corrupt, errc::truncated, errc::short_read, errc::too_large})
        if (failure.code == damaged) s.exit_code = exit_usage;
}

void take_settings(CLI::App* command, session& s) {
    command->allow_extras();
    command->fallthrough(false);
    // the program's own flags do not fall through any more: they are known here too
    command->add_flag("--json", s.json, "results as one JSON document on stdout");
    command->add_flag("-v{1},-q{-1}", s.verbosity, "say more (-v) or less (-q)");
}

void print_line(std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fputc('\n', stdout);
    std::fflush(stdout);
}

}  // namespace darl
