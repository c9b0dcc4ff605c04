// SPDX-License-Identifier: Apache-2.0
// `darl probe run, loop, usage`: collect queue probes and walltime usage, spool, upload (POST /probes).
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "adapters/cli/cli_support.hpp"
#include "adapters/cli/plan/document.hpp"
#include "adapters/cli/token_input.hpp"
#include "backends/curl/json_call.hpp"
#include "backends/slurm/collector.hpp"
#include "backends/slurm/spool.hpp"
#include "darlcore/random.hpp"
#include "darlcore/units.hpp"

namespace darl {
namespace {

using darlcore::errc;
using darlcore::fail;
using darlcore::result;
using darlcore::json::value;
namespace slurm = darlcore::slurm;

struct probe_arguments {
    std::string site;
    std::string shapes;
    std::string spool;
    server_access server;
    double every_s = 900;
    unsigned cycles = 0;
    std::string shape;
    std::string job;
};

std::atomic<bool> stop_asked{false};

void ask_stop(int) { stop_asked = true; }

std::string default_spool(const std::string& site) {
    const char* state = std::getenv("XDG_STATE_HOME");
    const char* home = std::getenv("HOME");
    const std::string base = state != nullptr && *state != '\0'
                                 ? std::string(state)
                                 : std::string(home == nullptr ? "." : home) + "/.local/state";
    return base + "/darl/probes-" + site;
}

constexpr std::size_t records_at_once = 200;
constexpr std::size_t bytes_at_once = std::size_t{900} << 10U;  // a request holds 1 MiB

// Sends what is spooled, oldest first; what the server has or refuses for good leaves the spool. Gives what is left.
result<std::size_t> upload(slurm::spool& spool, darlcore::client::http_client& client) {
    while (spool.count() > 0) {
        const auto records = spool.pending(records_at_once, bytes_at_once);
        if (records.empty()) break;
        const auto reply = darlcore::client::json_call(
            client, "/probes", darlcore::json::make_object({{"records", darlcore::json::array(records)}}));
        if (!reply) return reply.error();
        if (!reply->ok()) return reply->as_error();
        if (const value* rejected = reply->body.find("rejected"); rejected != nullptr && rejected->is_array())
            for (const value& r : *rejected->as_array())
                fmt::print(stderr, "darl: the server rejected a record: {}\n", darlcore::json::dump(r));
        std::vector<std::string> ids;
        for (const value& r : records) ids.push_back(*r.at("id").as_string());
        spool.remove(ids);
    }
    return spool.count();
}

struct collector {
    slurm::collector_config config;
    slurm::spool spool;
    std::optional<darlcore::client::http_client> client;
    unsigned failures = 0;
    std::time_t next_upload_s = 0;
};

result<collector> open_collector(const probe_arguments& a) {
    const auto document = plan_io::read_document(a.shapes);
    if (!document) return document.error();
    auto config = slurm::read_collector_config(*document);
    if (!config) return fail(config.error().code, fmt::format("{}: {}", a.shapes, config.error().context));
    if (!a.site.empty()) config->site = a.site;
    if (!darlcore::is_valid_name(config->site))
        return fail(errc::bad_request,
                    "give --site NAME, or site = \"NAME\" in the shapes file ([A-Za-z0-9][A-Za-z0-9._-]{0,63})");
    auto spool = slurm::spool::open(a.spool.empty() ? default_spool(config->site) : a.spool, config->site);
    if (!spool) return spool.error();
    collector c{std::move(*config), std::move(*spool), std::nullopt, 0, 0};
    if (a.server.url.empty()) return c;
    auto o = server_options(a.server);
    if (!o) return o.error();
    auto client = darlcore::client::http_client::make(std::move(*o));
    if (!client) return client.error();
    c.client.emplace(std::move(*client));
    return c;
}

result<void> keep(session& s, collector& c, std::vector<value> records) {
    for (value& r : records) {
        const auto id = c.spool.append(r);
        if (!id) return id.error();
        r.set("id", *id);
        if (s.json)
            print_line(darlcore::json::dump(r));
        else if (const value* realised = r.find("realised_s"))
            print_line(fmt::format("{} {}: job {} waited {:.0f} s", *r.at("site").as_string(),
                                   *r.at("shape").as_string(), *r.at("job").as_string(), *realised->as_double()));
        else if (const value* shape = r.find("shape"))
            print_line(
                fmt::format("{} {}: {}{}", *r.at("site").as_string(), *shape->as_string(), *r.at("class").as_string(),
                            r.at("wait_s").as_double() ? fmt::format(", wait {:.0f} s", *r.at("wait_s").as_double())
                                                       : fmt::format(" ({})", *r.at("reason").as_string())));
        else
            print_line(
                fmt::format("{} {}: {} jobs, gamma {}", *r.at("site").as_string(), *r.at("partition").as_string(),
                            *r.at("jobs").as_u64(),
                            r.at("gamma").as_double() ? fmt::format("{:.4f}", *r.at("gamma").as_double()) : "unknown"));
    }
    return {};
}

bool never_cured_by_waiting(errc code) {
    return code == errc::token || code == errc::wrong_scope || code == errc::not_owner || code == errc::no_route;
}

// One attempt when its time has come; a failure keeps the records and moves the next attempt on.
// Errors: those that no later attempt can cure (a wrong token).
result<void> send(collector& c, darlcore::xoshiro256& random) {
    if (!c.client || std::time(nullptr) < c.next_upload_s) return {};
    const auto left = upload(c.spool, *c.client);
    if (left) {
        c.failures = 0;
        return {};
    }
    if (never_cured_by_waiting(left.error().code))
        return fail(left.error().code,
                    fmt::format("{} ({} records stay spooled)", left.error().context, c.spool.count()));
    const double uniform = static_cast<double>(random.below(1000)) / 1000;
    const double pause = slurm::upload_backoff_s(c.failures++, uniform);
    c.next_upload_s = std::time(nullptr) + static_cast<std::time_t>(std::ceil(pause));
    fmt::print(stderr, "darl: {} records stay spooled, next attempt in {:.0f} s: {}\n", c.spool.count(), pause,
               to_text(left.error()));
    return {};
}

darlcore::xoshiro256 seeded() {
    std::random_device device;
    return darlcore::xoshiro256((static_cast<std::uint64_t>(device()) << 32U) | device());
}

void catch_signals() {
    struct sigaction action {};
    action.sa_handler = ask_stop;
    for (const int number : {SIGINT, SIGTERM}) ::sigaction(number, &action, nullptr);
}

void sleep_until(std::time_t when) {
    while (!stop_asked && std::time(nullptr) < when) {
        const timespec tick{0, 200000000};
        ::nanosleep(&tick, nullptr);
    }
}

constexpr unsigned tries_of_one_call = 4;  // over about 8 s; the next call goes on

result<void> send_with_tries(collector& c, darlcore::xoshiro256& random) {
    for (unsigned i = 0; i < tries_of_one_call && !stop_asked; ++i) {
        sleep_until(c.next_upload_s);
        if (auto ok = send(c, random); !ok || c.failures == 0) return ok;
    }
    return {};
}

result<void> run_once(session& s, const probe_arguments& a) {
    auto c = open_collector(a);
    if (!c) return c.error();
    catch_signals();
    auto random = seeded();
    if (auto ok = keep(s, *c, slurm::probe_cycle(c->config, slurm::system_runner(), [] { return stop_asked.load(); }));
        !ok)
        return ok;
    return send_with_tries(*c, random);
}

result<void> run_usage(session& s, const probe_arguments& a) {
    auto c = open_collector(a);
    if (!c) return c.error();
    catch_signals();
    auto random = seeded();
    const auto cycle =
        slurm::collect_usage(c->config, slurm::system_runner(), static_cast<std::int64_t>(std::time(nullptr)));
    if (cycle.records.empty()) {
        if (cycle.status == "outage" || cycle.status == "shrink_window")
            return fail(errc::unreachable, fmt::format("sacct gave no usage: {} ({}); the last measurement ages",
                                                       cycle.status, cycle.reason));
        if (cycle.status == "bad_output")
            return fail(errc::unsupported, "sacct printed no header; is accounting configured at this site?");
        fmt::print(stderr, "darl: no ended job in the window\n");
    }
    if (auto ok = keep(s, *c, cycle.records); !ok) return ok;
    return send_with_tries(*c, random);
}

result<void> run_started(session& s, const probe_arguments& a) {
    std::string job = a.job;
    if (const char* own = std::getenv("SLURM_JOB_ID"); job.empty() && own != nullptr) job = own;
    if (job.empty())
        return fail(errc::bad_request, "give --job ID, or call it inside the job (SLURM_JOB_ID is not set)");
    auto c = open_collector(a);
    if (!c) return c.error();
    catch_signals();
    auto random = seeded();
    auto record = slurm::start_record(c->config, a.shape, job, slurm::system_runner());
    if (!record) return record.error();
    std::vector<value> records;
    records.push_back(std::move(*record));
    if (auto ok = keep(s, *c, std::move(records)); !ok) return ok;
    return send_with_tries(*c, random);
}

result<void> run_loop(session& s, const probe_arguments& a) {
    auto c = open_collector(a);
    if (!c) return c.error();
    catch_signals();
    auto random = seeded();
    for (unsigned cycle = 0; !stop_asked && (a.cycles == 0 || cycle < a.cycles); ++cycle) {
        const std::time_t begun = std::time(nullptr);
        if (auto ok =
                keep(s, *c, slurm::probe_cycle(c->config, slurm::system_runner(), [] { return stop_asked.load(); }));
            !ok)
            return ok;
        if (auto ok = send(*c, random); !ok) return ok;
        if (a.cycles != 0 && cycle + 1 == a.cycles) break;
        const double jitter = a.every_s >= 120 ? static_cast<double>(random.below(121)) - 60 : 0;
        const auto next = begun + static_cast<std::time_t>(std::max(1.0, a.every_s + jitter));
        while (!stop_asked && std::time(nullptr) < next) {
            const bool waiting = c->client && c->spool.count() > 0 && c->next_upload_s < next;
            sleep_until(waiting ? std::max<std::time_t>(std::time(nullptr) + 1, c->next_upload_s) : next);
            if (stop_asked || !waiting) continue;
            if (auto ok = send(*c, random); !ok) return ok;
        }
    }
    return {};
}

template <class Command>
void attach(CLI::App* command, session& s, const std::shared_ptr<probe_arguments>& a, Command run) {
    command->add_option("--site", a->site, "name of this site (default: site of the shapes file)");
    command->add_option("--shapes", a->shapes, "TOML or JSON file: site, account, qos, [[shapes]] name and args")
        ->required();
    command->add_option("--spool", a->spool,
                        "folder of records on their way (default: ~/.local/state/darl/probes-SITE)");
    command->add_option("--server", a->server.url, "URL of the server; without it records stay in the spool");
    add_server_access(command, a->server);
    command->callback([&s, a, run] {
        if (const auto done = run(s, *a); !done) report(s, done.error());
    });
}

}  // namespace

void add_probe(CLI::App& app, session& s) {
    auto* group = app.add_subcommand("probe", "what the queues of this site say: collect, spool, upload");
    group->require_subcommand(1);
    const auto a = std::make_shared<probe_arguments>();
    auto* once = group->add_subcommand("run", "one cycle over the shapes (for cron, every 10 minutes)");
    attach(once, s, a, run_once);
    once->footer("Example: darl probe run --shapes shapes.toml --server https://host:8760 --token-file ~/.darl-token");
    auto* loop = group->add_subcommand("loop", "cycles until SIGTERM, which ends after the shape in hand");
    attach(loop, s, a, run_loop);
    loop->add_option("--every", a->every_s, "seconds between cycles, +-60 s (default 900)")
        ->check(CLI::Range(1.0, 86400.0));
    loop->add_option("--cycles", a->cycles, "end after so many cycles (default: never)");
    loop->footer("Example: darl probe loop --every 900 --shapes shapes.toml --server https://host:8760");
    auto* usage = group->add_subcommand("usage", "how much of their walltime jobs used, from sacct (daily)");
    attach(usage, s, a, run_usage);
    auto* started = group->add_subcommand("started", "a submitted job has started: score what was predicted for it");
    attach(started, s, a, run_started);
    started->add_option("--shape", a->shape, "name of the shape that was submitted")->required();
    started->add_option("--job", a->job, "its job id (default: SLURM_JOB_ID)");
    started->footer("Example, first line of a job: darl probe started --shapes shapes.toml --shape g4_8h --server URL");
    usage->footer("Example: darl probe usage --shapes shapes.toml");
}

}  // namespace darl
