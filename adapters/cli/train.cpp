// SPDX-License-Identifier: Apache-2.0
// `darl train`: a site's trainer, or the matched centralised baseline.
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "adapters/cli/cli_support.hpp"
#include "adapters/cli/rank_group.hpp"
#include "adapters/cli/run_config.hpp"
#include "adapters/cli/run_match.hpp"
#include "adapters/cli/token_input.hpp"
#include "adapters/cli/torch_trainer.hpp"
#include "adapters/cli/train_inputs.hpp"
#include "adapters/formats/json.hpp"
#include "backends/torch/compute_environment.hpp"
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
    server_access server;
    std::string site;
    std::string out;
    std::string score;
    std::string match;
    bool take_over = false;
    bool centralised = false;
    std::uint64_t global_batch = 0;
    unsigned workers = 1;
    unsigned ranks = 1;
    unsigned rank = 0;            // of this process; not for people
    std::uint16_t rank_port = 0;  // where the leader waits for its ranks; not for people
    int rank_beats = -1;          // the leader's shared memory; not for people
    std::string fault;            // what a test makes go wrong; not for people
};

incarnation random_incarnation() {
    std::random_device source;
    const auto word = [&] { return (static_cast<std::uint64_t>(source()) << 32U) | source(); };
    return {word() | 1U, word()};
}

std::string checkpoint_folder(const run_config& c) { return c.work_dir + "/checkpoints"; }

void log_line(const std::string& site, std::string_view text) { fmt::print(stderr, "{}: {}\n", site, text); }

result<site::session_settings> session_of(const run_config& c, const train_options& o, const site_parts& parts,
                                          const torch_trainer& trainer, const incarnation& me) {
    auto space = block_space::make(space_of(c, parts.num_windows));
    if (!space) return space.error();
    const auto content = parts.content();
    if (!content) return content.error();
    site::session_settings s;
    s.hello.who = {site_id{o.site}, me};
    s.hello.protocol = 2;
    s.hello.digest = to_hex(space->digest(epoch_index{0}));
    s.hello.ranks = o.ranks;
    s.hello.num_samples = parts.num_windows;
    s.hello.block_size = static_cast<std::uint64_t>(c.block_size);
    s.hello.corpus = parts.identity;
    s.hello.corpus_content = *content;
    s.join.who = s.hello.who;
    s.join.pins = {
        trainer.layout_digest(), training::schedule_digest(schedule_of(c)), parts.settings.seq_len, {"bf16", "f32"}};
    s.join.software = "darlcore";
    s.take_over = o.take_over;
    s.windows_per_step = static_cast<std::uint64_t>(c.batch * c.accumulate) * o.ranks;
    s.block_size = static_cast<std::uint64_t>(c.block_size);
    s.groups = static_cast<std::uint64_t>(c.groups);
    s.keepalive_ms = static_cast<std::int64_t>(c.keepalive_s * 1000);
    s.first_ttl_ms = static_cast<std::int64_t>(c.min_ttl_s * 1000);
    s.retry_ms = 250;
    s.give_up_ms = static_cast<std::int64_t>(c.give_up_s * 1000);
    // a restarted site goes on counting its groups, so that no two groups of an epoch share an order of windows
    if (const auto last = training::checkpoint_store::newest(checkpoint_folder(c))) {
        const auto number = [&](const char* key) {
            const auto* v = last->extra.find(key);
            return v != nullptr ? v->as_u64().value_or(0) : 0;
        };
        s.epoch = epoch_index{static_cast<std::uint32_t>(number("epoch"))};
        s.next_counter = number("next_counter");
    }
    return s;
}

// The first span that has more than one block loses one, or is trained with one block twice: the audit must see it.
result<trainer_faults> faults_of(const std::string& text) {
    trainer_faults out;
    if (text.empty()) return out;
    const auto done = std::make_shared<std::atomic<bool>>(false);
    if (text == "train-twice") {
        out.spoil = [done](std::vector<span>& spans) {
            if (!done->exchange(true)) spans.push_back({spans[0].start, position{spans[0].start.count + 1}});
        };
        return out;
    }
    if (text == "drop-block") {
        out.spoil = [done](std::vector<span>& spans) {
            for (span& s : spans)
                if (s.size() > 1 && !done->exchange(true)) s.start = position{s.start.count + 1};
        };
        return out;
    }
    // stop-at=STEP asks to stop when a step of a phase begins, kill-at=STEP ends the process there
    const int signal = text.starts_with("kill-at=") ? SIGKILL : SIGTERM;
    const bool at_step = text.starts_with("stop-at=") || signal == SIGKILL;
    const auto step = at_step ? parse_phase_step(std::string_view(text).substr(8)) : std::nullopt;
    if (!step) return fail(errc::bad_request, fmt::format("--fault {}: not known", text));
    out.at = [done, wanted = *step, signal](phase_step at) {
        if (at == wanted && !done->exchange(true)) std::raise(signal);
    };
    return out;
}

// The ranks of a site on this machine: this process leads, the others are started here.
struct local_ranks {
    std::optional<training::gloo_rendezvous> meeting;
    std::unique_ptr<rank_processes> others;
    std::unique_ptr<training::communicator> group;
};

result<local_ranks> gather_ranks(const run_config& c, const train_options& o,
                                 const std::function<void(const std::string&)>& lost) {
    local_ranks out;
    if (o.ranks == 1) {
        out.group = training::single_communicator();
        return out;
    }
    auto meeting = training::gloo_rendezvous::open();
    if (!meeting) return meeting.error();
    out.meeting.emplace(*std::move(meeting));
    const auto together = std::make_shared<std::atomic<bool>>(false);
    auto others =
        rank_processes::start({o.ranks, out.meeting->port(), c.work_dir,
                               static_cast<std::int64_t>(c.rank_patience_s * 1000), [=](const std::string& why) {
                                   if (together->load()) return lost(why);
                                   // nothing has begun, and the meeting would be waited for in vain
                                   log_line(o.site, why);
                                   std::_Exit(exit_failed);
                               }});
    if (!others) return others.error();
    out.others = *std::move(others);
    auto group = out.others->meet();
    if (!group) return group.error();
    out.group = *std::move(group);
    together->store(true);
    log_line(o.site, out.group->description());
    return out;
}

result<int> run_follower(const run_config& c, const train_options& o) {
    for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) std::signal(signal, SIG_IGN);  // the leader decides
    auto parts = open_parts(c);
    if (!parts) return parts.error();
    auto beats = rank_beats::inherited(o.rank_beats, o.ranks);
    if (!beats) return beats.error();
    call_clock unwatched(0);
    auto group = meet_ranks({o.rank, o.ranks, o.rank_port}, *beats, unwatched);
    if (!group) return group.error();
    auto trainer = training::inner_trainer::create(parts->settings, **group);
    if (!trainer) return trainer.error();
    const follower_inputs in{space_of(c, parts->num_windows), parts->windows.get(), parts->held_out.get(),
                             static_cast<std::uint64_t>(c.eval_windows)};
    if (auto followed = follow_orders(**group, *trainer, in); !followed) return followed.error();
    return exit_ok;
}

// Why this process cannot go on, told by whichever thread noticed it first.
class breakdown {
public:
    void tell(const std::string& why) {
        const std::lock_guard lock(mutex_);
        if (why_.empty()) why_ = why;
        stop_asked.store(true);
    }
    [[nodiscard]] std::string why() {
        const std::lock_guard lock(mutex_);
        return why_;
    }

private:
    std::mutex mutex_;
    std::string why_;
};

torch_trainer::options trainer_options(const session& s, const run_config& c, const train_options& o,
                                       const site_parts& parts, const incarnation& me, breakdown& broken) {
    torch_trainer::options to;
    to.settings = parts.settings;
    to.space = space_of(c, parts.num_windows);
    to.site = o.site;
    to.incarnation = to_text(me);
    to.work_dir = c.work_dir;
    to.eval_windows = static_cast<std::uint64_t>(c.eval_windows);
    to.held_out_digest = parts.held_out_digest;
    to.log_every = static_cast<std::uint64_t>(c.log_every);
    to.throttle = c.throttle;
    to.log = [&o](std::string_view text) { log_line(o.site, text); };
    to.broken = [&broken](const std::string& why) { broken.tell(why); };
    if (s.json) to.phase_line = [](const std::string& line) { print_line(line); };
    return to;
}

result<int> run_federated(const session& s, const run_config& c, const train_options& o) {
    if (!is_valid_name(o.site))
        return fail(errc::bad_request,
                    "--site must be 1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or digit");
    auto access = o.server;
    if (access.proxy.empty()) access.proxy = c.proxy;
    auto server = server_options(access);
    if (!server) return server.error();
    auto faults = faults_of(o.fault);
    if (!faults) return faults.error();
    auto parts = open_parts(c);
    if (!parts) return parts.error();
    std::error_code failed;
    std::filesystem::create_directories(c.work_dir, failed);
    if (failed) return fail(errc::io_error, fmt::format("{}: {}", c.work_dir, failed.message()));
    breakdown broken;
    auto ranks = gather_ranks(c, o, [&broken](const std::string& why) { broken.tell(why); });
    if (!ranks) return ranks.error();
    const incarnation me = random_incarnation();
    auto to = trainer_options(s, c, o, *parts, me, broken);
    to.faults = *faults;
    auto trainer = torch_trainer::make(to, *ranks->group, std::move(parts->windows), std::move(parts->held_out));
    if (!trainer) return trainer.error();
    auto session = session_of(c, o, *parts, **trainer, me);
    if (!session) return session.error();
    client::driver_options d;
    d.server = *server;
    d.work_dir = c.work_dir + "/transfer";
    d.log = to.log;
    d.stop = &stop_asked;
    const auto code = client::run_site(*std::move(session), **trainer, d);
    if (ranks->others) {
        ranks->others->expect_end();
        if (broken.why().empty()) (void)rank_orders(*ranks->group).stop();
        ranks->group->abort();
        ranks->others->finish();
    }
    if (broken.why().empty()) return code;
    log_line(o.site, broken.why());
    return exit_failed;
}

struct baseline {
    bool pictures = false;
    std::uint64_t global_batch = 0;
    std::optional<run_figures> sites;  // of the run that it is the match of
    training::phase_summary trained;
    training::evaluation before;
    training::evaluation after;
    json::array curve;  // [tokens, seconds, loss] every log_every steps
};

// Hands out the whole epoch in the order of the block space.
training::phase_hooks whole_epoch(std::uint64_t blocks, std::uint64_t log_every, json::array& curve) {
    training::phase_hooks hooks;
    const std::uint64_t per_group = std::max<std::uint64_t>(1, blocks / 16);
    hooks.group = [=, next = std::uint64_t{0}, counter = std::uint64_t{0}]() mutable -> training::next_group {
        if (next >= blocks) return training::group_end{};
        const std::uint64_t end = std::min(blocks, next + per_group);
        const phase_group group{counter++, {make_span(next, end)}};
        next = end;
        return group;
    };
    const auto begun = std::chrono::steady_clock::now();
    hooks.stepped = [=, &curve, tokens = std::uint64_t{0}](const training::step_report& s) mutable {
        tokens += s.tokens;
        if (s.step % log_every == 0) {
            log_line("centralised", fmt::format("step {}, loss {:.3f}", s.step, s.loss));
            const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
            curve.push_back(json::array{json::value(tokens), json::value(seconds), json::value(s.loss)});
        }
        return stop_asked.load() ? training::after_step::drop : training::after_step::go_on;
    };
    return hooks;
}

// One rank of the baseline; all of them make the same calls. With `weights` nothing is trained: they are scored.
result<baseline> baseline_of(const run_config& c, const site_parts& parts, training::communicator& ranks,
                             const std::string& weights, const std::string& out_folder) {
    const auto map = block_space::build(space_of(c, parts.num_windows), epoch_index{0});
    if (!map) return map.error();
    auto trainer = training::inner_trainer::create(parts.settings, ranks);
    if (!trainer) return trainer.error();
    trainer->initialise();
    baseline out;
    out.pictures = parts.images();
    if (!weights.empty())
        if (auto loaded = trainer->load_generation(weights); !loaded) return loaded.error();
    const auto score = [&](training::evaluation& into) -> result<void> {
        if (!parts.held_out) return {};
        auto scored = trainer->evaluate(*parts.held_out, static_cast<std::uint64_t>(c.eval_windows));
        if (!scored) return scored.error();
        into = *scored;
        return {};
    };
    if (auto scored = score(out.before); !scored) return scored.error();
    if (!weights.empty()) {
        out.after = out.before;
        return out;
    }
    auto trained = trainer->train_phase(
        *map, *parts.windows, whole_epoch((*map)->num_blocks(), static_cast<std::uint64_t>(c.log_every), out.curve));
    if (!trained) return trained.error();
    if (trained->ending != training::phase_ending::finished)
        return fail(errc::cancelled, "the baseline was stopped: " + trained->problem);
    out.trained = *trained;
    if (auto scored = score(out.after); !scored) return scored.error();
    if (out_folder.empty() || ranks.rank() != 0) return out;
    const auto written =
        models::write_model_folder(out_folder, parts.settings.model, [&](std::uint64_t first, std::span<float> values) {
            std::copy_n(trainer->weights().begin() + static_cast<std::ptrdiff_t>(first), values.size(), values.begin());
        });
    if (!written) return written.error();
    return out;
}

// The sites' run that was named, when there is one; a baseline that would not match it is not begun.
result<std::optional<run_figures>> matched_run(const train_options& o, const site_parts& parts, std::uint64_t batch) {
    std::optional<run_figures> none;
    if (o.match.empty() || !o.score.empty()) return none;
    const auto sites = figures_of_generation(o.match);
    if (!sites) return sites.error();
    const std::uint64_t window_tokens = parts.settings.seq_len;
    const run_figures planned{parts.num_windows * window_tokens, (parts.num_windows + batch - 1) / batch};
    log_line("centralised", "match: " + match_text(planned, *sites, window_tokens));
    std::string differences;
    for (const auto& d : match_differences(planned, *sites, window_tokens))
        differences += (differences.empty() ? "" : "; ") + d;
    if (!differences.empty())
        return fail(errc::meta_mismatch, fmt::format("no match of {}: the baseline has {}", o.match, differences));
    return std::optional<run_figures>(*sites);
}

// Trains every window of the epoch once, with the batch of all sites together; ranks are threads.
result<baseline> run_centralised(const run_config& c, const train_options& o) {
    auto parts = open_parts(c);
    if (!parts) return parts.error();
    if (o.global_batch != 0) {
        parts->settings.batch = o.global_batch;
        parts->settings.accumulate = 1;
    }
    if (parts->settings.batch % o.ranks != 0)
        return fail(errc::invalid_argument,
                    fmt::format("a batch of {} windows cannot be shared by {} ranks", parts->settings.batch, o.ranks));
    const std::uint64_t batch = parts->settings.batch * parts->settings.accumulate;
    const auto sites = matched_run(o, *parts, batch);
    if (!sites) return sites.error();
    parts->settings.batch /= o.ranks;
    const auto ranks = training::thread_communicators(o.ranks);
    std::vector<std::thread> others;
    for (unsigned r = 1; r < o.ranks; ++r)
        others.emplace_back([&, r] { (void)baseline_of(c, *parts, *ranks[r], o.score, {}); });
    auto out = baseline_of(c, *parts, *ranks[0], o.score, o.out);
    if (!out) ranks[0]->abort();
    for (auto& t : others) t.join();
    if (!out) return out;
    out->global_batch = batch;
    out->sites = *sites;
    return out;
}

json::value optional_number(std::optional<double> v) { return v ? json::value(*v) : json::value(); }

// Of pictures; a language model has none.
json::value accuracy_of(const baseline& b, const training::evaluation& e) {
    if (!b.pictures || e.windows == 0) return {};
    return static_cast<double>(e.correct) / static_cast<double>(e.windows);
}

json::value match_json(const std::optional<run_figures>& sites) {
    if (!sites) return {};
    return json::make_object({{"tokens", sites->tokens}, {"steps", sites->steps}});
}

void print_baseline(const session& s, const baseline& b) {
    json::value out = json::make_object(
        {{"steps", b.trained.steps},
         {"tokens", b.trained.tokens},
         {"windows", b.trained.windows},
         {"global_batch", b.global_batch},
         {"match", match_json(b.sites)},
         {"train_loss", b.trained.tokens > 0 ? b.trained.loss_sum / static_cast<double>(b.trained.tokens) : 0.0},
         {"untrained_perplexity", optional_number(b.before.perplexity())},
         {"untrained_accuracy", accuracy_of(b, b.before)},
         {"perplexity", optional_number(b.after.perplexity())},
         {"loss", optional_number(b.after.loss())},
         {"accuracy", accuracy_of(b, b.after)},
         {"curve", b.curve}});
    if (s.json) return print_line(json::dump(out));
    print_line(fmt::format("{} steps of {} windows, {} tokens", b.trained.steps, b.global_batch, b.trained.tokens));
    if (b.sites) print_line(fmt::format("the sites: {} steps, {} tokens", b.sites->steps, b.sites->tokens));
    if (const auto accuracy = accuracy_of(b, b.after).as_double())
        return print_line(fmt::format("accuracy {:.4f} on {} pictures (untrained {:.4f})", *accuracy, b.after.windows,
                                      *accuracy_of(b, b.before).as_double()));
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
    std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of that write, not the end of the process
    training::restart_with_worker_environment(o.workers * o.ranks, static_cast<unsigned>(config->threads));
    if (o.rank != 0) {
        const auto code = run_follower(*config, o);
        return code ? void(s.exit_code = *code) : report(s, code.error());
    }
    if (o.centralised) {
        const auto done = run_centralised(*config, o);
        if (!done) return report(s, done.error());
        return print_baseline(s, *done);
    }
    if (o.server.url.empty() || o.site.empty())
        return report(s, fail(errc::bad_request, "darl train needs --server URL and --site NAME, or --centralised"));
    const auto code = run_federated(s, *config, o);
    if (!code) return report(s, code.error());
    s.exit_code = *code;
}

}  // namespace

void add_train(CLI::App& app, session& s) {
    auto o = std::make_shared<train_options>();
    auto* command = app.add_subcommand("train", "train at one site, or the centralised baseline");
    command->add_option("--config", o->config, "run file (darl init writes one)")->required();
    command->add_option("--server", o->server.url, "URL of darl serve");
    command->add_option("--site", o->site, "name of this site");
    command->add_flag("--take-over", o->take_over, "replace an earlier process of this site (a requeued job)");
    add_server_access(command, o->server);
    command->add_flag("--centralised", o->centralised, "one process, every window once: the baseline");
    command->add_option("--global-batch", o->global_batch, "windows per step of the baseline: the sum over the sites");
    command
        ->add_option("--workers", o->workers,
                     "training processes that share this machine; each takes its part of the cores")
        ->check(CLI::Range(1, 4096));
    command
        ->add_option("--ranks", o->ranks,
                     "ranks of this site on this machine, each with the whole model and its part of the batch")
        ->check(CLI::Range(1, 64));
    command->add_option("--rank", o->rank)->group("");
    command->add_option("--rank-port", o->rank_port)->group("");
    command->add_option("--rank-beats", o->rank_beats)->group("");
    command->add_option("--fault", o->fault)->group("");
    command->add_option("--score", o->score, "with --centralised: only score this generation (safetensors)");
    command->add_option(
        "--match", o->match,
        "with --centralised: a generation of the sites' run (its folder or meta.json); tokens, steps and "
        "windows per step must agree to 0.5 %, else nothing is trained and the exit code is 1");
    command->add_option("--out", o->out, "folder for the baseline's model");
    take_settings(command, s);
    command->footer(
        "Example: darl train --config run.toml --server http://127.0.0.1:8760 --site alpha --train.batch 8");
    command->callback([&s, o, command] { run_train(s, *o, command->remaining()); });
}

}  // namespace darl
