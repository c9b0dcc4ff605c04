// SPDX-License-Identifier: Apache-2.0
// `darl train`: a site's trainer, or the matched centralised baseline.
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "adapters/cli/cli_support.hpp"
#include "adapters/cli/run_config.hpp"
#include "adapters/cli/token_input.hpp"
#include "adapters/cli/torch_trainer.hpp"
#include "adapters/formats/json.hpp"
#include "backends/torch/compute_environment.hpp"
#include "backends/torch/token_source.hpp"
#include "darlcore/hex.hpp"

namespace darl {
namespace {

using namespace darlcore;

std::atomic<bool> stop_asked{false};

void ask_to_stop(int) {
    // a second request from a person ends at once; batch systems send several of them within seconds
    stop_asked.store(true);
}

struct train_options {
    std::string config;
    std::string server;
    std::string site;
    std::string token_file;
    std::string proxy;
    std::string out;
    bool take_over = false;
    bool insecure = false;
    bool centralised = false;
    std::uint64_t global_batch = 0;
    unsigned workers = 1;
};

training::lr_schedule schedule_of(const run_config& c) {
    training::lr_schedule s;
    s.peak = c.peak_lr;
    s.warmup_steps = static_cast<std::uint64_t>(c.warmup_steps);
    s.total_steps = c.total_steps > 0 ? static_cast<std::uint64_t>(c.total_steps) : std::uint64_t{1} << 40U;
    s.decay_fraction = c.total_steps > 0 ? c.decay_fraction : 0;
    s.floor_fraction = c.min_lr_factor;
    return s;
}

result<training::trainer_settings> settings_of(const run_config& c, const formats::token_manifest& corpus) {
    training::trainer_settings t;
    auto model = models::flavour(c.flavour, static_cast<std::int64_t>((corpus.vocab_size + 255) / 256 * 256));
    if (!model) return model.error();
    t.model = *model;
    t.seed = c.seed;
    t.seq_len = corpus.seq_len;
    t.batch = static_cast<std::uint64_t>(c.batch);
    t.accumulate = static_cast<std::uint64_t>(c.accumulate);
    t.schedule = schedule_of(c);
    t.beta1 = c.beta1;
    t.beta2 = c.beta2;
    t.eps = c.eps;
    t.weight_decay = c.weight_decay;
    t.clip_norm = c.clip;
    return t;
}

space_parameters space_of(const run_config& c, const formats::token_manifest& corpus) {
    space_parameters s;
    s.num_samples = corpus.num_windows;
    s.block_size = static_cast<std::uint64_t>(c.block_size);
    s.seed = c.seed;
    return s;
}

std::string hex(std::span<const std::uint8_t> bytes) { return to_hex(bytes); }

incarnation random_incarnation() {
    std::random_device source;
    const auto word = [&] { return (static_cast<std::uint64_t>(source()) << 32U) | source(); };
    return {word() | 1U, word()};
}

result<std::shared_ptr<const formats::token_corpus>> open_corpus(const std::string& path, const char* key) {
    if (path.empty())
        return fail(errc::invalid_argument,
                    fmt::format("{} is not set; 'darl tokenize' writes a manifest to name there", key));
    auto corpus = formats::token_corpus::open(path);
    if (!corpus) return corpus.error();
    return std::shared_ptr<const formats::token_corpus>(
        std::make_shared<const formats::token_corpus>(*std::move(corpus)));
}

void log_line(const std::string& site, std::string_view text) { fmt::print(stderr, "{}: {}\n", site, text); }

result<site::session_settings> session_of(const run_config& c, const train_options& o,
                                          const formats::token_corpus& corpus, const torch_trainer& trainer,
                                          const incarnation& me) {
    auto space = block_space::make(space_of(c, corpus.manifest()));
    if (!space) return space.error();
    const auto content = corpus.content();
    if (!content) return content.error();
    site::session_settings s;
    s.hello.who = {site_id{o.site}, me};
    s.hello.protocol = 2;
    s.hello.digest = hex(space->digest(epoch_index{0}));
    s.hello.ranks = 1;
    s.hello.num_samples = corpus.num_windows();
    s.hello.block_size = static_cast<std::uint64_t>(c.block_size);
    s.hello.corpus = hex(corpus.identity());
    s.hello.corpus_content = hex(*content);
    s.join.who = s.hello.who;
    s.join.pins = {
        trainer.layout_digest(), training::schedule_digest(schedule_of(c)), corpus.manifest().seq_len, {"bf16", "f32"}};
    s.join.software = "darlcore";
    s.take_over = o.take_over;
    s.windows_per_step = static_cast<std::uint64_t>(c.batch * c.accumulate);
    s.block_size = static_cast<std::uint64_t>(c.block_size);
    s.groups = static_cast<std::uint64_t>(c.groups);
    s.keepalive_ms = static_cast<std::int64_t>(c.keepalive_s * 1000);
    s.first_ttl_ms = static_cast<std::int64_t>(c.min_ttl_s * 1000);
    s.retry_ms = 250;
    s.give_up_ms = static_cast<std::int64_t>(c.give_up_s * 1000);
    return s;
}

result<std::unique_ptr<training::window_source>> held_out_of(const run_config& c, const models::model_config& model) {
    if (c.held_out.empty()) return std::unique_ptr<training::window_source>();
    auto corpus = open_corpus(c.held_out, "data.held_out");
    if (!corpus) return corpus.error();
    return training::token_source(*corpus, model.vocab_size);
}

result<int> run_federated(const run_config& c, const train_options& o) {
    if (!is_valid_name(o.site))
        return fail(errc::bad_request,
                    "--site must be 1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or digit");
    auto corpus = open_corpus(c.manifest, "data.manifest");
    if (!corpus) return corpus.error();
    auto settings = settings_of(c, (*corpus)->manifest());
    if (!settings) return settings.error();
    auto held_out = held_out_of(c, settings->model);
    if (!held_out) return held_out.error();
    const incarnation me = random_incarnation();
    torch_trainer::options to;
    to.settings = *settings;
    to.space = space_of(c, (*corpus)->manifest());
    to.site = o.site;
    to.incarnation = to_text(me);
    to.work_dir = c.work_dir;
    to.eval_windows = static_cast<std::uint64_t>(c.eval_windows);
    to.log_every = static_cast<std::uint64_t>(c.log_every);
    to.throttle = c.throttle;
    to.log = [&o](std::string_view text) { log_line(o.site, text); };
    const auto ranks = training::single_communicator();
    auto source = training::token_source(*corpus, settings->model.vocab_size);
    if (!source) return source.error();
    auto trainer = torch_trainer::make(to, *ranks, *std::move(source), *std::move(held_out));
    if (!trainer) return trainer.error();
    auto session = session_of(c, o, **corpus, **trainer, me);
    if (!session) return session.error();
    client::driver_options d;
    auto server = server_options(o.server, o.token_file, o.proxy.empty() ? c.proxy : o.proxy, o.insecure);
    if (!server) return server.error();
    d.server = *server;
    d.work_dir = c.work_dir + "/transfer";
    d.log = to.log;
    d.stop = &stop_asked;
    return client::run_site(*std::move(session), **trainer, d);
}

struct baseline {
    training::phase_summary trained;
    training::evaluation before;
    training::evaluation after;
};

// One process trains every window of the epoch once, in the order of the block space, with the batch of all sites
// together.
result<baseline> run_centralised(const run_config& c, const train_options& o) {
    auto corpus = open_corpus(c.manifest, "data.manifest");
    if (!corpus) return corpus.error();
    auto settings = settings_of(c, (*corpus)->manifest());
    if (!settings) return settings.error();
    if (o.global_batch != 0) {
        settings->batch = o.global_batch;
        settings->accumulate = 1;
    }
    auto held_out = held_out_of(c, settings->model);
    if (!held_out) return held_out.error();
    const auto map = block_space::build(space_of(c, (*corpus)->manifest()), epoch_index{0});
    if (!map) return map.error();
    const auto ranks = training::single_communicator();
    auto trainer = training::inner_trainer::create(*settings, *ranks);
    if (!trainer) return trainer.error();
    const auto source = training::token_source(*corpus, settings->model.vocab_size);
    if (!source) return source.error();
    trainer->initialise();
    baseline out;
    const auto windows = static_cast<std::uint64_t>(c.eval_windows);
    if (*held_out) {
        auto before = trainer->evaluate(**held_out, windows);
        if (!before) return before.error();
        out.before = *before;
    }
    const std::uint64_t blocks = (*map)->num_blocks();
    const std::uint64_t per_group = std::max<std::uint64_t>(1, blocks / 16);
    std::uint64_t next = 0;
    std::uint64_t counter = 0;
    training::phase_hooks hooks;
    hooks.group = [&]() -> training::next_group {
        if (next >= blocks) return training::group_end{};
        const std::uint64_t end = std::min(blocks, next + per_group);
        const phase_group group{counter++, {make_span(next, end)}};
        next = end;
        return group;
    };
    hooks.stepped = [&](const training::step_report& s) {
        if (s.step % static_cast<std::uint64_t>(c.log_every) == 0)
            log_line("centralised", fmt::format("step {}, loss {:.3f}", s.step, s.loss));
        return stop_asked.load() ? training::after_step::drop : training::after_step::go_on;
    };
    auto trained = trainer->train_phase(*map, **source, hooks);
    if (!trained) return trained.error();
    if (trained->ending != training::phase_ending::finished)
        return fail(errc::cancelled, "the baseline was stopped: " + trained->problem);
    out.trained = *trained;
    if (*held_out) {
        auto after = trainer->evaluate(**held_out, windows);
        if (!after) return after.error();
        out.after = *after;
    }
    if (!o.out.empty()) {
        const auto written =
            models::write_model_folder(o.out, settings->model, [&](std::uint64_t first, std::span<float> values) {
                std::copy_n(trainer->weights().begin() + static_cast<std::ptrdiff_t>(first), values.size(),
                            values.begin());
            });
        if (!written) return written.error();
    }
    return out;
}

json::value optional_number(std::optional<double> v) { return v ? json::value(*v) : json::value(); }

void print_baseline(const session& s, const baseline& b, std::uint64_t batch) {
    json::value out = json::make_object(
        {{"steps", b.trained.steps},
         {"tokens", b.trained.tokens},
         {"windows", b.trained.windows},
         {"global_batch", batch},
         {"train_loss", b.trained.tokens > 0 ? b.trained.loss_sum / static_cast<double>(b.trained.tokens) : 0.0},
         {"untrained_perplexity", optional_number(b.before.perplexity())},
         {"perplexity", optional_number(b.after.perplexity())},
         {"loss", optional_number(b.after.loss())}});
    if (s.json) return print_line(json::dump(out));
    print_line(fmt::format("{} steps of {} windows, {} tokens", b.trained.steps, batch, b.trained.tokens));
    if (b.after.perplexity())
        print_line(fmt::format("held-out perplexity {:.3f} (untrained {:.3f})", *b.after.perplexity(),
                               *b.before.perplexity()));
}

void run_train(session& s, const train_options& o, const std::vector<std::string>& rest) {
    const auto overrides = config_overrides(rest);
    if (!overrides) return report(s, overrides.error());
    const auto config = read_run_config(o.config, *overrides);
    if (!config) return report(s, config.error());
    std::signal(SIGTERM, ask_to_stop);
    std::signal(SIGINT, ask_to_stop);
    std::signal(SIGUSR1, ask_to_stop);
    std::signal(SIGPIPE, SIG_IGN);
    training::restart_with_worker_environment(o.workers);
    if (o.centralised) {
        const auto done = run_centralised(*config, o);
        if (!done) return report(s, done.error());
        return print_baseline(
            s, *done,
            o.global_batch != 0 ? o.global_batch : static_cast<std::uint64_t>(config->batch * config->accumulate));
    }
    if (o.server.empty() || o.site.empty())
        return report(s, fail(errc::bad_request, "darl train needs --server URL and --site NAME, or --centralised"));
    const auto code = run_federated(*config, o);
    if (!code) return report(s, code.error());
    s.exit_code = *code;
}

}  // namespace

void add_train(CLI::App& app, session& s) {
    auto o = std::make_shared<train_options>();
    auto* command = app.add_subcommand("train", "train at one site, or the centralised baseline");
    command->add_option("--config", o->config, "run file (darl init writes one)")->required();
    command->add_option("--server", o->server, "URL of darl serve");
    command->add_option("--site", o->site, "name of this site");
    command->add_option("--token-file", o->token_file, "file (mode 0600) with this site's token; else DARL_TOKEN");
    command->add_option("--proxy", o->proxy, "none, env or a URL; wins over network.proxy");
    command->add_flag("--take-over", o->take_over, "replace an earlier process of this site (a requeued job)");
    command->add_flag("--insecure", o->insecure, "allow a token over plain HTTP to another machine");
    command->add_flag("--centralised", o->centralised, "one process, every window once: the baseline");
    command->add_option("--global-batch", o->global_batch, "windows per step of the baseline: the sum over the sites");
    command
        ->add_option("--workers", o->workers,
                     "training processes that share this machine; each takes its part of the cores")
        ->check(CLI::Range(1, 4096));
    command->add_option("--out", o->out, "folder for the baseline's model");
    take_settings(command, s);
    command->footer(
        "Example: darl train --config run.toml --server http://127.0.0.1:8760 --site alpha --train.batch 8");
    command->callback([&s, o, command] { run_train(s, *o, command->remaining()); });
}

}  // namespace darl
