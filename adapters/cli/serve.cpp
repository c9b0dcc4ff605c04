// SPDX-License-Identifier: Apache-2.0
// `darl serve`: ledger, rounds, blobs and the status page in one process.
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "adapters/cli/cli_support.hpp"
#include "adapters/cli/run_config.hpp"
#include "adapters/formats/json.hpp"
#include "adapters/formats/manifest.hpp"
#include "backends/asio/serve_ledger.hpp"
#include "darlcore/hex.hpp"
#include "darlcore/merge/outer_policy.hpp"
#ifdef DARLCORE_HAS_PROBE_ROUTES
#include "adapters/cli/plan/output.hpp"
#include "backends/asio/probe_routes.hpp"
#endif

namespace darl {
namespace {

using darlcore::errc;
using darlcore::fail;
using darlcore::result;
namespace http = darlcore::http;
namespace ledger = darlcore::ledger;

struct serve_arguments {
    std::string state_dir;
    std::string config;
    std::string manifest;
    std::uint64_t num_samples = 0;
    std::uint64_t block_size = 0;
    std::int64_t seed = 42;
    std::uint64_t max_epochs = 1;
    std::string listen = "127.0.0.1:8760";
    std::string commit_policy;
    std::string init;
    std::string token_file;
    std::string tls_certificate;
    std::string tls_key;
    std::string tls_client_ca;
    std::vector<std::string> host_names;
    std::uint64_t connections_per_address = 64;
    double reserve_mib = 1024;
    bool resume = false;
    bool fresh = false;
    bool change_outer_policy = false;
    bool no_sync = false;
    std::string plant = "none";
};

result<std::pair<std::string, std::uint16_t>> split_listen(const std::string& text) {
    const auto bad = [&] {
        return fail(errc::invalid_argument,
                    fmt::format("--listen '{}' must be ADDRESS:PORT, for example 127.0.0.1:8760 or [::1]:0", text));
    };
    const std::size_t colon = text.rfind(':');
    if (colon == std::string::npos) return bad();
    std::string address = text.substr(0, colon);
    if (address.size() > 2 && address.front() == '[' && address.back() == ']')
        address = address.substr(1, address.size() - 2);
    const std::string digits = text.substr(colon + 1);
    if (address.empty() || digits.empty() || digits.size() > 5 ||
        digits.find_first_not_of("0123456789") != std::string::npos)
        return bad();
    const int port = std::stoi(digits);
    if (port > 65535) return bad();
    return std::pair{address, static_cast<std::uint16_t>(port)};
}

std::int64_t milliseconds(double s) { return static_cast<std::int64_t>(std::llround(s * 1000.0)); }

void take_config(const run_config& c, ledger::run_settings& s) {
    s.space.seed = c.seed;
    s.outer.eta = c.eta;
    s.outer.beta = c.beta;
    s.outer.solo = c.solo == "outer"   ? ledger::solo_policy::outer
                   : c.solo == "adopt" ? ledger::solo_policy::adopt
                                       : ledger::solo_policy::full;
    s.outer.first_step =
        c.first_step == "plain" ? ledger::first_step_policy::plain : ledger::first_step_policy::nesterov;
    s.round.quorum = static_cast<std::uint32_t>(c.quorum);
    s.round.live_window_ms = milliseconds(c.live_window_s);
    s.round.keepalive_ms = milliseconds(c.keepalive_s);
    s.round.round_limit_ms = milliseconds(c.round_limit_s);
    s.round.failed_retry_ms = milliseconds(c.failed_retry_s);
    s.round.unknown_phase_ms = milliseconds(c.unknown_phase_s);
    s.round.unknown_transfer_ms = milliseconds(c.unknown_transfer_s);
    s.round.overdue_gap_ms = milliseconds(c.overdue_gap_s);
    s.round.lagging_rounds = static_cast<std::uint32_t>(c.lagging_rounds);
    s.round.budget = c.budget;
    s.round.inner_steps = static_cast<std::uint64_t>(c.inner_steps);
    s.round.eval_every = static_cast<std::uint32_t>(c.eval_every);
    s.round.keep_generations = static_cast<std::uint32_t>(c.keep_generations);
    s.lease.answer_generations = s.round.keep_generations + s.round.answers_generations;
    s.lease.commit_policy = c.commit_policy == "on_checkpoint" ? darlcore::lease::commit_policy::on_checkpoint
                                                               : darlcore::lease::commit_policy::on_merge;
    s.lease.min_ttl_s = c.min_ttl_s;
    s.lease.default_ttl_s = c.default_ttl_s;
    s.lease.max_epochs = static_cast<std::uint32_t>(c.max_epochs);
}

result<void> take_manifest(const std::string& path, ledger::run_settings& s) {
    std::ifstream in(path, std::ios::binary);
    if (!in) return fail(errc::not_found, fmt::format("{}: the manifest cannot be read", path));
    const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    const auto manifest = darlcore::formats::parse_manifest(text);
    if (!manifest) return fail(manifest.error().code, fmt::format("{}: {}", path, manifest.error().context));
    s.space.num_samples = manifest->num_windows;
    s.seq_len = manifest->seq_len;
    s.corpus = darlcore::to_hex(manifest->corpus());
    if (manifest->corpus_content) s.corpus_content = darlcore::to_hex(*manifest->corpus_content);
    return {};
}

result<void> take_tokens(const serve_arguments& a, http::serve_options& o) {
    o.token_file = a.token_file;
    if (!a.token_file.empty()) return {};
    const char* variable = std::getenv("DARL_TOKEN");
    if (variable == nullptr) return {};
    o.bare_token = variable;
    if (o.bare_token.empty())
        return fail(errc::invalid_argument, "DARL_TOKEN is set but empty; unset it, or give it a token");
    return {};
}

bool names_section(const std::vector<std::pair<std::string, std::string>>& overrides, std::string_view section) {
    for (const auto& [key, value] : overrides)
        if (key.starts_with(section)) return true;
    return false;
}

result<http::serve_options> options_of(const serve_arguments& a, const std::vector<std::string>& rest) {
    http::serve_options o;
    const auto overrides = config_overrides(rest);
    if (!overrides) return overrides.error();
    const auto config =
        a.config.empty() ? parse_run_config("", "defaults", *overrides) : read_run_config(a.config, *overrides);
    if (!config) return config.error();
    take_config(*config, o.settings);
    o.outer_given = !a.config.empty() || names_section(*overrides, "outer.");
    o.policy_given = !a.config.empty() || !a.commit_policy.empty() || names_section(*overrides, "lease.commit_policy");
    if (a.config.empty()) {
        o.settings.space.seed = a.seed;
        o.settings.lease.max_epochs = static_cast<std::uint32_t>(a.max_epochs);
        if (names_section(*overrides, "round.max_epochs"))
            o.settings.lease.max_epochs = static_cast<std::uint32_t>(config->max_epochs);
    }
    if (a.commit_policy == "on_checkpoint")
        o.settings.lease.commit_policy = darlcore::lease::commit_policy::on_checkpoint;
    if (a.commit_policy == "on_merge") o.settings.lease.commit_policy = darlcore::lease::commit_policy::on_merge;
    const std::string manifest = !a.manifest.empty() ? a.manifest : config->manifest;
    if (!manifest.empty() && a.num_samples == 0) {
        if (auto ok = take_manifest(manifest, o.settings); !ok) return ok.error();
    }
    if (a.num_samples != 0) o.settings.space.num_samples = a.num_samples;
    o.settings.space.block_size = a.block_size != 0 ? a.block_size : static_cast<std::uint64_t>(config->block_size);
    o.geometry_given = a.num_samples != 0 || !manifest.empty();
    if (a.num_samples != 0 && a.block_size == 0 && a.config.empty())
        return fail(errc::invalid_argument,
                    "--num-samples needs --block-size: how many windows are leased as one block");
    const auto where = split_listen(a.listen);
    if (!where) return where.error();
    o.address = where->first;
    o.port = where->second;
    if (a.resume && a.fresh) return fail(errc::invalid_argument, "--resume and --fresh exclude each other");
    o.mode = a.resume ? http::start_mode::resume : a.fresh ? http::start_mode::fresh : http::start_mode::any;
    o.state_dir = a.state_dir;
    o.change_outer_policy = a.change_outer_policy;
    o.init_file = a.init;
    o.host_names = a.host_names;
    o.sync = !a.no_sync;
    if (a.plant == "pledge") o.plant = http::planted_fault::pledge;
    if (a.plant == "steal_replay") o.plant = http::planted_fault::steal_replay;
    o.limits.connections_per_address_max = a.connections_per_address;
    o.service.reserve_bytes = static_cast<std::uint64_t>(a.reserve_mib * 1024 * 1024);
    if (a.tls_certificate.empty() != a.tls_key.empty())
        return fail(errc::invalid_argument, "--tls-certificate and --tls-key belong together");
    if (!a.tls_certificate.empty()) o.tls = http::tls_options{a.tls_certificate, a.tls_key, a.tls_client_ca};
    o.work = http::make_model_work();
#ifdef DARLCORE_HAS_PROBE_ROUTES
    o.make_probes = [](asio::thread_pool& pool, http::ledger_service& service, std::string folder) {
        return std::make_unique<http::probe_routes>(pool, service, std::move(folder), plan_io::plan_html);
    };
#endif
    if (auto ok = take_tokens(a, o); !ok) return ok.error();
    return o;
}

void run_serve(session& s, const serve_arguments& a, const std::vector<std::string>& rest) {
    auto options = options_of(a, rest);
    if (!options) return report(s, options.error());
    http::serve_reports reports;
    reports.log = [&s](std::string_view text) {
        if (s.verbosity >= 0) fmt::print(stderr, "darl serve: {}\n", text);
    };
    reports.listening = [](const std::string& url, std::uint32_t term) {
        print_line(
            darlcore::json::dump(darlcore::json::make_object({{"event", "listening"}, {"url", url}, {"term", term}})));
    };
    if (auto served = http::serve_ledger(std::move(*options), reports); !served) {
        report(s, served.error());
        if (served.error().code == errc::fenced) s.exit_code = exit_refused;
    }
}

}  // namespace

void add_serve(CLI::App& app, session& s) {
    auto a = std::make_shared<serve_arguments>();
    auto* c = app.add_subcommand("serve", "ledger, rounds, blobs and the status page of one run, in one process");
    c->add_option("--state-dir", a->state_dir, "folder of the run's journal, model and blobs")->required();
    c->add_option("--config", a->config, "run file (darl init writes one); settings also as --section.key value");
    c->add_option("--manifest", a->manifest, "manifest.json of the corpus: gives the number of windows");
    c->add_option("--num-samples", a->num_samples, "windows in the corpus, instead of a manifest");
    c->add_option("--block-size", a->block_size, "windows per block");
    c->add_option("--seed", a->seed, "of the block permutation")->capture_default_str();
    c->add_option("--max-epochs", a->max_epochs, "passes over the corpus")->capture_default_str();
    c->add_option("--listen", a->listen, "ADDRESS:PORT; port 0 picks one")->capture_default_str();
    c->add_option("--commit-policy", a->commit_policy, "when a block counts")
        ->check(CLI::IsMember({"on_merge", "on_checkpoint"}));
    c->add_option("--init", a->init, "safetensors file (f32) of the first weights; else the first site makes them");
    c->add_option("--token-file", a->token_file, "token file (mode 0600); else DARL_TOKEN; SIGHUP reads it again");
    c->add_option("--tls-certificate", a->tls_certificate, "PEM file with the certificate chain");
    c->add_option("--tls-key", a->tls_key, "PEM file with its key");
    c->add_option("--tls-client-ca", a->tls_client_ca, "PEM file: clients must show a certificate of this authority");
    c->add_option("--host-name", a->host_names, "a name under which browsers reach a server without tokens");
    c->add_option("--connections-per-address", a->connections_per_address,
                  "cap of one address (raise it behind a tunnel)")
        ->capture_default_str();
    c->add_option("--reserve-mib", a->reserve_mib, "free space that uploads never touch")->capture_default_str();
    c->add_flag("--resume", a->resume, "go on with a run that is there; an empty folder is an error");
    c->add_flag("--fresh", a->fresh, "begin a new run; what is there is moved aside, never deleted");
    c->add_flag("--change-outer-policy", a->change_outer_policy,
                "take outer.* of this command for a run that has others");
    c->add_flag("--no-sync", a->no_sync, "never fsync (benchmarks only: a power cut loses acknowledged work)");
    // for the tests of the audit only: takes a mechanism away
    c->add_option("--plant", a->plant)->check(CLI::IsMember({"none", "pledge", "steal_replay"}))->group("");
    take_settings(c, s);
    c->footer("Example: darl serve --state-dir run --num-samples 100000 --block-size 32 --listen 127.0.0.1:0");
    c->callback([&s, a, c] { run_serve(s, *a, c->remaining()); });
}

}  // namespace darl
