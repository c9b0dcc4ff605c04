// SPDX-License-Identifier: Apache-2.0
// `darl simulate-site`: one site process of `darl simulate`; not for people.
#include <atomic>
#include <csignal>
#include <filesystem>
#include <memory>
#include <random>

#include <fmt/format.h>

#include "adapters/cli/cli_support.hpp"
#include "adapters/cli/token_input.hpp"
#include "adapters/cli/toy_trainer.hpp"
#include "backends/curl/site_driver.hpp"
#include "darlcore/hex.hpp"

namespace darl {
namespace {

using namespace darlcore;

std::atomic<bool> stop_asked{false};
void ask_to_stop(int) { stop_asked.store(true); }

struct options {
    server_access server;
    std::string site;
    std::string dir;
    space_parameters space;
    double seconds_per_window = 0.001;
    std::uint64_t groups = 2;
    bool take_over = false;
    bool read_beyond = false;
};

result<int> run(const options& o) {
    std::random_device source;
    const auto word = [&] { return (static_cast<std::uint64_t>(source()) << 32U) | source(); };
    const incarnation me{word() | 1U, word()};
    auto space = block_space::make(o.space);
    if (!space) return space.error();
    toy_trainer::options to;
    to.space = o.space;
    to.work_dir = o.dir;
    to.record_path = o.dir + "/record.jsonl";
    to.site = o.site;
    to.incarnation = to_text(me);
    to.seconds_per_window = o.seconds_per_window;
    to.read_beyond = o.read_beyond;
    auto trainer = toy_trainer::make(to);
    if (!trainer) return trainer.error();
    site::session_settings s;
    s.hello.who = {site_id{o.site}, me};
    s.hello.protocol = 2;
    s.hello.digest = to_hex(space->digest(epoch_index{0}));
    s.hello.num_samples = o.space.num_samples;
    s.hello.block_size = o.space.block_size;
    s.join.who = s.hello.who;
    s.join.pins = {toy_trainer::layout_digest(o.space.num_samples), "none", 1, {"f32"}};
    s.join.software = "darl simulate";
    s.take_over = o.take_over;
    s.windows_per_step = 8 * o.space.block_size;
    s.block_size = o.space.block_size;
    s.groups = o.groups;
    s.keepalive_ms = 500;
    s.first_ttl_ms = 1'000;
    s.retry_ms = 100;
    s.give_up_ms = 120'000;
    client::driver_options d;
    auto server = server_options(o.server);
    if (!server) return server.error();
    d.server = *server;
    d.work_dir = o.dir + "/transfer";
    d.log = [&o](std::string_view text) { fmt::print(stderr, "{}: {}\n", o.site, text); };
    d.stop = &stop_asked;
    return client::run_site(std::move(s), **trainer, d);
}

}  // namespace

void add_simulate_site(CLI::App& app, session& s) {
    auto o = std::make_shared<options>();
    auto* command = app.add_subcommand("simulate-site", "one site of a simulation")->group("");  // not in the help
    command->add_option("--server", o->server.url)->required();
    command->add_option("--site", o->site)->required();
    command->add_option("--dir", o->dir)->required();
    command->add_option("--num-samples", o->space.num_samples)->required();
    command->add_option("--block-size", o->space.block_size)->required();
    command->add_option("--seed", o->space.seed)->required();
    command->add_option("--seconds-per-window", o->seconds_per_window);
    command->add_option("--groups", o->groups);
    command->add_flag("--take-over", o->take_over);
    add_server_access(command, o->server);
    command->add_flag("--read-beyond", o->read_beyond);  // the mutant: reads without a reservation
    command->callback([&s, o] {
        std::signal(SIGTERM, ask_to_stop);
        std::signal(SIGINT, ask_to_stop);
        std::signal(SIGPIPE, SIG_IGN);
        const auto code = run(*o);
        if (!code) return report(s, code.error());
        s.exit_code = *code;
    });
}

}  // namespace darl
