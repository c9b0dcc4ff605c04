// SPDX-License-Identifier: Apache-2.0
// `darl doctor`: will this run start here? The checks that need no batch system.
#include <algorithm>
#include <cstdlib>
#include <memory>

#include <fmt/format.h>

#include "adapters/cli/cli_support.hpp"
#include "adapters/cli/doctor_checks.hpp"
#include "adapters/cli/token_input.hpp"
#include "adapters/formats/json.hpp"

namespace darl {
namespace {

using namespace darlcore;

struct doctor_options {
    std::string config;
    server_access server;
    std::string listen;
    std::uint64_t ranks = 1;
    bool deep = false;
};

std::string variable(const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr ? value : "";
}

void add(health_report& out, health_report more) { out.insert(out.end(), more.begin(), more.end()); }

result<health_report> examine(const doctor_options& o, const run_config& c) {
    health_report out = check_machine();
    if (!o.config.empty()) {
        std::uint64_t folder_bytes = 0;
        add(out, check_inputs(c, o.deep, folder_bytes));
        add(out, check_phase(c, o.ranks));
        add(out, check_disk_space(c.work_dir, folder_bytes));
        add(out, check_run_folder(c.work_dir));
    }
    add(out, check_environment(c, &variable));
    if (!o.listen.empty()) out.push_back(check_listen(o.listen));
    if (o.server.url.empty()) return out;
    const auto secrets = check_token_file(o.server.token_file, &variable);
    add(out, secrets);
    if (std::any_of(secrets.begin(), secrets.end(), [](const auto& s) { return s.outcome == verdict::fail; }))
        return out;
    auto access = o.server;
    if (access.proxy.empty()) access.proxy = c.proxy;
    const auto server = server_options(access);
    if (!server) return server.error();
    add(out, check_server(*server));
    return out;
}

constexpr const char* words[] = {"PASS", "WARN", "FAIL"};
const char* word_of(verdict v) { return words[static_cast<std::size_t>(v)]; }

void print_report(const session& s, const health_report& all, verdict worst) {
    if (s.json) {
        json::array rows;
        for (const auto& check : all)
            rows.push_back(json::make_object({{"group", check.group},
                                              {"check", check.name},
                                              {"value", check.value},
                                              {"verdict", word_of(check.outcome)},
                                              {"fix", check.fix}}));
        return print_line(json::dump(json::make_object({{"verdict", word_of(worst)}, {"checks", std::move(rows)}})));
    }
    for (const auto& check : all) {
        print_line(fmt::format("{}  {:<8} {}: {}", word_of(check.outcome), check.group, check.name, check.value));
        if (!check.fix.empty()) print_line(fmt::format("      fix: {}", check.fix));
    }
    print_line(fmt::format("{}: {} checks", word_of(worst), all.size()));
}

void run_doctor(session& s, const doctor_options& o, const std::vector<std::string>& rest) {
    run_config config;
    const auto overrides = config_overrides(rest);
    if (!overrides) return report(s, overrides.error());
    if (!o.config.empty()) {
        const auto read = read_run_config(o.config, *overrides);
        if (!read) return report(s, read.error());
        config = *read;
    }
    const auto all = examine(o, config);
    if (!all) return report(s, all.error());
    verdict worst = verdict::pass;
    for (const auto& check : *all) worst = std::max(worst, check.outcome);
    print_report(s, *all, worst);
    if (worst == verdict::fail) s.exit_code = exit_failed;
}

}  // namespace

void add_doctor(CLI::App& app, session& s) {
    auto o = std::make_shared<doctor_options>();
    auto* command = app.add_subcommand("doctor", "will this run start here? machine, disk, corpus, network, secrets");
    command->add_option("--config", o->config, "run file: its model, corpus and run folder are looked at");
    command->add_option("--server", o->server.url, "URL of darl serve: is it reached from here?");
    command->add_option("--listen", o->listen, "ADDRESS:PORT that darl serve is to take: is it free?");
    command->add_option("--ranks", o->ranks, "ranks of this site")->check(CLI::Range(1, 1'000'000));
    command->add_flag("--deep", o->deep, "read every byte of the corpus");
    add_server_access(command, o->server);
    take_settings(command, s);
    command->footer(
        "Example: darl doctor --config run.toml --server https://ledger.example.org:8760 --token-file site.token");
    command->callback([&s, o, command] { run_doctor(s, *o, command->remaining()); });
}

}  // namespace darl
