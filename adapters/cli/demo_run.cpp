// SPDX-License-Identifier: Apache-2.0
#include "adapters/cli/demo_run.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include <fmt/format.h>
#include <poll.h>

#include "adapters/cli/child_process.hpp"
#include "adapters/cli/local_server.hpp"
#include "adapters/cli/progress_line.hpp"
#include "adapters/cli/run_config.hpp"
#include "adapters/formats/json.hpp"
#include "darlcore/random.hpp"

namespace darl {
namespace {

using namespace darlcore;
using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

constexpr std::int64_t batch = 8;
constexpr std::size_t num_sites = 3;

struct demo_site {
    std::string name;
    double throttle = 1;          // slower by this factor
    std::int64_t accumulate = 1;  // the fast site fills the barrier with more windows a step, not with waiting
    std::optional<child_process> process;
    bool started = false;
    std::uint64_t starts = 0;
};

class demo_run {
public:
    demo_run(const demo_settings& settings, const demo_corpus& corpus)
        : settings_(settings), corpus_(corpus), progress_line_(settings.verbose) {
        // speeds 4 : 2 : 1; the middle one is killed, the slowest comes late
        for (const auto& [name, throttle] :
             {std::pair("fast", 1.0), std::pair("middle", 2.0), std::pair("slow", 4.0)}) {
            sites_.emplace_back();
            sites_.back().name = name;
            sites_.back().throttle = throttle;
        }
        sites_[0].accumulate = 2;
    }

    result<demo_outcome> run() {
        if (auto made = make_corpus(); !made) return made.error();
        say(fmt::format("{} windows of {} bytes in {} blocks; three sites with speeds 4 : 2 : 1", windows_,
                        config_.seq_len, blocks_));
        if (auto trained = federate(); !trained) return trained.error();
        demo_outcome out;
        out.floor = corpus_.floor;
        if (auto audited = audit(out); !audited) return audited.error();
        say("all sites are done; the centralised baseline: the same windows, tokens and initial weights in one "
            "process");
        if (auto done = baseline(out); !done) return done.error();
        say("scoring the federated model");
        if (auto done = score(out); !done) return done.error();
        judge(out);
        out.seconds = std::chrono::duration<double>(steady::now() - begun_).count();
        draw(out);
        return out;
    }

private:
    [[nodiscard]] std::string timed(const std::string& text) const {
        return fmt::format("demo {:5.1f} s: {}", std::chrono::duration<double>(steady::now() - begun_).count(), text);
    }
    void say(const std::string& text) {
        if (settings_.verbose) progress_line_.event(timed(text));
    }
    // A bar on a terminal, a line per change in a log.
    void say_progress(std::uint64_t done) {
        if (progress_line_.shown())
            progress_line_.show(timed(progress_bar(done, blocks_) + " blocks in the model"));
        else if (done != shown_)
            say(fmt::format("{} of {} blocks in the model", done, blocks_));
        shown_ = done;
    }
    [[nodiscard]] std::string path(const std::string& name) const { return settings_.dir + "/" + name; }

    /// Runs a command of this program to its end; its standard output, or an error that names the log.
    result<std::string> command(std::vector<std::string> arguments, std::chrono::seconds at_most) const {
        child_process::options o;
        o.argv = std::move(arguments);
        o.argv.insert(o.argv.begin(), own_program());
        o.read_stdout = true;
        o.stderr_file = path("commands.log");
        auto child = child_process::start(o);
        if (!child) return child.error();
        std::string out;
        const auto until = steady::now() + at_most;
        while (const auto line =
                   child->read_line(std::chrono::duration_cast<std::chrono::milliseconds>(until - steady::now())))
            out += *line + "\n";
        const auto status = child->wait(std::chrono::milliseconds(5'000));
        if (status != 0) return fail(errc::io_error, fmt::format("darl {} failed; see {}", o.argv[1], o.stderr_file));
        return out;
    }

    result<void> tokenise(const std::vector<std::string>& documents, const std::string& name) {
        std::vector<std::string> arguments = {
            "tokenize", "--tokenizer", "bytes", "--seq-len", std::to_string(config_.seq_len), "--out", path(name)};
        for (std::size_t i = 0; i < documents.size(); ++i) {
            const std::string file = path(fmt::format("{}-{}.txt", name, i));
            std::ofstream(file, std::ios::binary) << documents[i];
            arguments.insert(arguments.end(), {"--input", file});
        }
        const auto done = command(std::move(arguments), 120s);
        if (!done) return done.error();
        return {};
    }

    result<void> make_corpus() {
        config_.flavour = "debug-1m";
        config_.manifest = path("train/manifest.json");
        config_.held_out = path("held-out/manifest.json");
        config_.block_size = 32;
        config_.inner_steps = 20;
        config_.batch = batch;
        config_.peak_lr = 2e-3;
        config_.warmup_steps = 10;
        config_.total_steps = 0;
        // short runs: outer momentum costs more than distance between merges does (docs/performance.md)
        config_.eta = 0.7;
        config_.beta = 0.6;
        config_.live_window_s = 8;
        config_.keepalive_s = 1;
        config_.round_limit_s = 120;
        config_.min_ttl_s = 4;
        config_.default_ttl_s = 15;
        config_.keep_generations = 990;
        config_.eval_every = 0;
        config_.log_every = 4;
        config_.eval_windows = 256;
        if (auto done = tokenise(corpus_.train, "train"); !done) return done;
        if (auto done = tokenise({corpus_.held_out}, "held-out"); !done) return done;
        const auto manifest = json::parse(read_text(config_.manifest), {.bytes_max = std::size_t{64} << 20U});
        if (!manifest) return manifest.error();
        windows_ = count_of(*manifest, "num_windows");
        blocks_ = (windows_ + 31) / 32;
        return {};
    }

    static std::string read_text(const std::string& file) {
        std::ifstream in(file, std::ios::binary);
        return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    }

    result<void> start_site(demo_site& site) {
        run_config own = config_;
        own.work_dir = path(site.name);
        own.throttle = site.throttle > 1 ? site.throttle : 0;
        own.accumulate = site.accumulate;
        std::filesystem::create_directories(own.work_dir);
        std::ofstream(path(site.name + ".toml")) << run_config_text(own);
        child_process::options o;
        o.argv = {own_program(), "train",   "--config",  path(site.name + ".toml"), "--server", server_.url(),
                  "--site",      site.name, "--workers", std::to_string(num_sites)};
        if (site.starts++ > 0) o.argv.push_back("--take-over");
        if (&site == &sites_[0] && !settings_.fault.empty()) o.argv.insert(o.argv.end(), {"--fault", settings_.fault});
        o.stderr_file = path(site.name + ".log");
        auto child = child_process::start(o);
        if (!child) return child.error();
        site.process.emplace(*std::move(child));
        site.started = true;
        return {};
    }

    result<void> federate() {
        std::ofstream(path("server.toml")) << run_config_text(config_);
        if (auto started = server_.start(path("state"), path("server.log"), {"--config", path("server.toml")});
            !started)
            return started;
        for (std::size_t i = 0; i + 1 < sites_.size(); ++i)
            if (auto started = start_site(sites_[i]); !started) return started;
        const auto give_up = steady::now() + (settings_.quick ? 240s : 900s);
        while (steady::now() < give_up) {
            if (const auto status = server_.get("/status")) {
                const std::uint64_t done = count_of(*status, "committed");
                say_progress(done);
                progress_ = static_cast<double>(done + count_of(*status, "pledged")) / static_cast<double>(blocks_);
            }
            if (auto harmed = harm(); !harmed) return harmed;
            if (std::all_of(sites_.begin(), sites_.end(),
                            [](demo_site& s) { return s.started && !s.process->running(); }))
                return {};
            ::poll(nullptr, 0, 100);
        }
        return fail(errc::timeout, fmt::format("the sites did not finish in time; see the logs in {}", settings_.dir));
    }

    // The scripted misfortunes, at shares of the progress.
    result<void> harm() {
        demo_site& middle = sites_[1];
        demo_site& slow = sites_[2];
        if (!slow.started && progress_ >= 0.25) {
            say("the slowest site joins late");
            if (auto started = start_site(slow); !started) return started;
        }
        if (!killed_ && progress_ >= 0.4) {
            say("kill -9: the middle site, in mid-phase");
            middle.process->kill();
            killed_ = steady::now();
        }
        if (killed_ && middle.starts == 1 && steady::now() - *killed_ > 1s) {
            say("the middle site comes back and takes over");
            if (auto started = start_site(middle); !started) return started;
        }
        if (!settings_.quick && !server_killed_ && progress_ >= 0.6) {
            say("kill -9: the server; it comes back on the same state");
            server_killed_ = true;
            server_.kill();
            return server_.restart();
        }
        return {};
    }

    result<void> audit(demo_outcome& out) {
        audit_input in;
        in.space.num_samples = windows_;
        in.space.block_size = static_cast<std::uint64_t>(config_.block_size);
        in.space.seed = config_.seed;
        for (const auto& site : sites_)
            if (auto lines = lines_of(path(site.name + "/record.jsonl")); !lines.empty())
                in.records[site.name] = std::move(lines);
        const auto status = server_.get("/status");
        if (!status)
            return fail(errc::unreachable,
                        fmt::format("the server did not answer at the end; see {}", path("server.log")));
        in.ledger_committed = count_of(*status, "committed");
        server_.stop();
        auto merged = merged_in(path("state"));
        if (!merged) return merged.error();
        in.merged = *std::move(merged);
        auto report = audit_simulation(in);
        if (!report) return report.error();
        out.audit = *std::move(report);
        draw_blocks(in, out);
        return {};
    }

    // As many ranks as the cores and the batch allow: one thread each costs less than threads that wait for each other.
    static std::int64_t baseline_ranks() {
        std::int64_t ranks = 1;
        while (2 * ranks <= batch && 2 * ranks <= std::int64_t{std::thread::hardware_concurrency()}) ranks *= 2;
        return ranks;
    }

    result<void> baseline(demo_outcome& out) {
        std::ofstream(path("centralised.toml")) << run_config_text(config_);
        const auto done =
            command({"train", "--json", "--config", path("centralised.toml"), "--centralised", "--global-batch",
                     std::to_string(batch * 2), "--ranks", std::to_string(baseline_ranks()), "--train.peak_lr", "0.003",
                     "--train.log_every", "5"},
                    900s);
        if (!done) return done.error();
        const auto result = json::parse(*done);
        if (!result) return result.error();
        if (const auto* curve = result->find("curve"); curve != nullptr && curve->as_array() != nullptr)
            for (const auto& point : *curve->as_array())
                if (point.size() == 3)
                    add_point(centralised_, point.at(std::size_t{0}), point.at(std::size_t{1}),
                              point.at(std::size_t{2}));
        const auto number = [&](std::string_view key) {
            const auto* v = result->find(key);
            return v != nullptr ? v->as_double().value_or(std::nan("")) : std::nan("");
        };
        out.centralised = number("perplexity");
        out.untrained = number("untrained_perplexity");
        if (count_of(*result, "windows") != windows_)
            out.findings.push_back(fmt::format("the baseline trained {} windows, the sites {}: no match",
                                               count_of(*result, "windows"), windows_));
        return {};
    }

    /// The two curves of one run.
    struct loss_curves {
        chart_line by_tokens;
        chart_line by_time;
    };
    static void add_point(loss_curves& c, const json::value& tokens, const json::value& seconds,
                          const json::value& loss) {
        if (!tokens.as_double() || !seconds.as_double() || !loss.as_double()) return;
        c.by_tokens.points.emplace_back(*tokens.as_double(), *loss.as_double());
        c.by_time.points.emplace_back(*seconds.as_double(), *loss.as_double());
    }

    result<void> score(demo_outcome& out) {
        auto exported = command({"export", "--state-dir", path("state"), "--flavour", config_.flavour, "--vocab-size",
                                 "512", "--out", path("model")},
                                120s);
        if (!exported) return exported.error();
        const auto scored = command({"eval", "--json", "--model", path("model"), "--data", path("held-out"),
                                     "--windows", std::to_string(config_.eval_windows)},
                                    300s);
        if (!scored) return scored.error();
        const auto result = json::parse(*scored);
        const auto* perplexity = result ? result->find("perplexity") : nullptr;
        if (perplexity == nullptr || !perplexity->as_double())
            return fail(errc::parse_error, "darl eval gave no perplexity");
        out.federated = *perplexity->as_double();
        const auto said = command({"sample", "--json", "--model", path("model"), "--prompt",
                                   corpus_.floor ? "a" : "She was ", "--tokens", "160", "--temperature", "0.6"},
                                  120s);
        const auto text = said ? json::parse(*said) : darlcore::result<json::value>(said.error());
        if (text && text->find("text") != nullptr && text->find("text")->as_string() != nullptr)
            out.sample = *text->find("text")->as_string();
        return {};
    }

    void judge(demo_outcome& out) const {
        const double ratio_max = settings_.quick ? 1.4 : 1.25;
        for (const auto& f : out.audit.findings) out.findings.push_back(f);
        if (!(out.federated < 0.5 * out.untrained))
            out.findings.push_back("the federated perplexity is not below half of the untrained one");
        if (!(out.federated <= ratio_max * out.centralised))
            out.findings.push_back(
                fmt::format("the federated perplexity is above {} x the centralised one", ratio_max));
        for (const auto& site : sites_)
            if (site.process && const_cast<child_process&>(*site.process).wait(0ms) != 0)
                out.findings.push_back(
                    fmt::format("site {} did not end with 0; see {}", site.name, path(site.name + ".log")));
        out.pass = out.audit.pass && out.findings.empty();
    }

    // --- the report ---

    void draw_blocks(const audit_input& in, demo_outcome& out) const {
        std::map<std::string, std::string> owner;  // of contributions
        for (const auto& [id, share] : in.merged)
            for (const auto& site : sites_)
                if (id.starts_with(site.name + "-")) owner[id] = site.name;
        out.figures.num_blocks = blocks_;
        for (const auto& [position, id] : out.audit.holders)
            if (const auto found = owner.find(id); found != owner.end())
                out.figures.blocks.push_back({position, found->second});
    }

    void draw(demo_outcome& out) {
        auto& f = out.figures;
        f.verdict = out.pass ? "PASS" : "FAIL";
        f.headline = fmt::format(
            "Three unequal sites trained one model on this machine; one joined late, one was killed in mid-phase{}. "
            "{} of {} blocks are in the model exactly once.",
            settings_.quick ? "" : ", the server was killed once", out.audit.covered, out.audit.blocks);
        f.findings = out.findings;
        const auto fact = [&](std::string name, std::string value) {
            f.facts.push_back({{std::move(name), std::move(value)}});
        };
        fact("held-out perplexity, federated", fmt::format("{:.3f}", out.federated));
        fact("held-out perplexity, centralised", fmt::format("{:.3f}", out.centralised));
        fact("ratio (paper: 1.23 and 1.33 for two and three sites)",
             fmt::format("{:.3f}", out.federated / out.centralised));
        fact("untrained", fmt::format("{:.1f}", out.untrained));
        if (out.floor) fact("floor of this text", fmt::format("{:.3f}", *out.floor));
        fact("blocks read in vain (kills, refusals)", std::to_string(out.audit.retrained));
        fact("outer step",
             fmt::format("eta {}, beta {} (paper: 0.7, 0.9; chosen for a short run)", config_.eta, config_.beta));
        fact("inner steps between merges", std::to_string(config_.inner_steps));
        for (const auto& site : sites_) draw_losses(site.name, f);
        f.loss_by_tokens.push_back(centralised_.by_tokens);
        f.loss_by_time.push_back(centralised_.by_time);
        draw_times(f);
        draw_rounds(f);
    }

    // A restarted process counts its tokens anew; time is that of the demo.
    void draw_losses(const std::string& site, demo_figures& f) {
        loss_curves curves{{site, {}}, {site, {}}};
        double before = 0;
        double last = 0;
        for (const auto& line : lines_of(path(site + "/metrics.jsonl"))) {
            const auto m = json::parse(line);
            const auto* kind = m ? m->find("kind") : nullptr;
            if (kind == nullptr || kind->as_string() == nullptr || *kind->as_string() != "step") continue;
            const auto* loss = m->find("loss");
            const auto* time = m->find("time");
            if (loss == nullptr || time == nullptr || !time->as_double()) continue;
            const auto tokens = static_cast<double>(count_of(*m, "tokens_total"));
            if (tokens < last) before += last;
            last = tokens;
            if (!epoch_s_) epoch_s_ = *time->as_double();  // the fast site, which begins first, is drawn first
            add_point(curves, json::value(before + tokens), json::value(*time->as_double() - *epoch_s_), *loss);
        }
        f.loss_by_tokens.push_back(std::move(curves.by_tokens));
        f.loss_by_time.push_back(std::move(curves.by_time));
    }

    // Where each site's time went, over all of its phases.
    void draw_times(demo_figures& f) const {
        f.times_head = {"site", "phases", "train", "download", "checkpoint", "upload", "in vain", "wait", "waiting"};
        for (const auto& site : sites_) {
            std::map<std::string, double> sums;
            std::uint64_t phases = 0;
            for (const auto& line : lines_of(path(site.name + "/metrics.jsonl"))) {
                const auto m = json::parse(line);
                const auto* kind = m ? m->find("kind") : nullptr;
                if (kind == nullptr || kind->as_string() == nullptr || *kind->as_string() != "phase") continue;
                ++phases;
                for (const char* key :
                     {"compute_s", "download_s", "checkpoint_s", "upload_s", "lost_s", "wait_s", "wall_s"})
                    if (const auto* v = m->find(key); v != nullptr) sums[key] += v->as_double().value_or(0);
            }
            table_row row{{site.name, std::to_string(phases)}};
            for (const char* key : {"compute_s", "download_s", "checkpoint_s", "upload_s", "lost_s", "wait_s"})
                row.cells.push_back(fmt::format("{:.1f} s", sums[key]));
            row.cells.push_back(sums["wall_s"] > 0 ? fmt::format("{:.0f} %", 100 * sums["wait_s"] / sums["wall_s"])
                                                   : "");
            f.times.push_back(std::move(row));
        }
    }

    void draw_rounds(demo_figures& f) const {
        f.head = {"generation", "contributions", "shares"};
        std::error_code ignored;
        std::vector<std::filesystem::path> metas;
        for (const auto& entry : std::filesystem::directory_iterator(path("state/model"), ignored))
            if (std::filesystem::exists(entry.path() / "meta.json")) metas.push_back(entry.path() / "meta.json");
        std::sort(metas.begin(), metas.end());
        for (const auto& file : metas) {
            const auto meta = json::parse(read_text(file.string()));
            const auto* list = meta ? meta->find("contributions") : nullptr;
            if (list == nullptr || list->as_array() == nullptr || list->size() == 0) continue;
            std::string who;
            std::string shares;
            for (const auto& one : *list->as_array()) {
                const auto* site = one.find("site");
                const auto* share = one.find("share");
                who += (who.empty() ? "" : ", ") +
                       (site != nullptr && site->as_string() != nullptr ? *site->as_string() : std::string("?"));
                shares += fmt::format("{}{:.3f}", shares.empty() ? "" : ", ",
                                      share != nullptr ? share->as_double().value_or(0) : 0.0);
            }
            f.rounds.push_back({{std::to_string(count_of(*meta, "generation")), who, shares}});
        }
    }

    const steady::time_point begun_ = steady::now();
    const demo_settings& settings_;
    const demo_corpus& corpus_;
    run_config config_;
    local_server server_;
    std::vector<demo_site> sites_;
    std::uint64_t windows_ = 0;
    std::uint64_t blocks_ = 0;
    std::uint64_t shown_ = 0;
    progress_line progress_line_;
    double progress_ = 0;
    std::optional<steady::time_point> killed_;
    bool server_killed_ = false;
    loss_curves centralised_{{"centralised", {}}, {"centralised", {}}};
    std::optional<double> epoch_s_;  // wall clock of the first step
};

}  // namespace

result<demo_corpus> split_documents(std::vector<std::string> documents, std::uint64_t train_bytes,
                                    std::uint64_t held_out_bytes) {
    demo_corpus out;
    if (documents.empty()) return fail(errc::invalid_argument, "no text was given");
    if (documents.size() == 1) {
        std::string whole = std::move(documents[0]);
        const std::size_t cut = whole.size() - whole.size() / 10;
        documents = {whole.substr(0, cut), whole.substr(cut)};
    }
    out.held_out = documents.back().substr(0, held_out_bytes);
    documents.pop_back();
    const std::uint64_t each = train_bytes / documents.size();
    std::uint64_t total = 0;
    for (auto& document : documents) {
        // titles and contents stand at the head of a book
        const std::size_t skip = document.size() > each + 4'000 ? 2'000 : 0;
        out.train.push_back(document.substr(skip, each));
        total += out.train.back().size();
    }
    if (total < 20'000 || out.held_out.size() < 2'000)
        return fail(
            errc::invalid_argument,
            fmt::format("too little text: {} bytes to train on and {} held out; at least 20000 and 2000 are needed",
                        total, out.held_out.size()));
    return out;
}

demo_corpus synthetic_corpus(std::uint64_t train_bytes, std::uint64_t held_out_bytes) {
    xoshiro256 chance(1'234);
    std::array<std::array<char, 4>, 26> successors{};
    for (std::size_t i = 0; i < successors.size(); ++i)
        for (std::size_t k = 0; k < 4; ++k) {
            bool fresh = false;
            while (!fresh) {
                successors[i][k] = static_cast<char>('a' + static_cast<char>(chance() % 26));
                fresh = std::find(successors[i].begin(), successors[i].begin() + static_cast<std::ptrdiff_t>(k),
                                  successors[i][k]) == successors[i].begin() + static_cast<std::ptrdiff_t>(k);
            }
        }
    const auto draw = [&](std::uint64_t bytes) {
        std::string text;
        std::size_t at = chance() % 26;
        for (std::uint64_t i = 0; i < bytes; ++i) {
            const std::uint64_t u = chance() % 8;
            const char next = successors[at][u < 4 ? 0 : u < 6 ? 1 : u < 7 ? 2 : 3];
            text += next;
            at = static_cast<std::size_t>(next - 'a');
        }
        return text;
    };
    demo_corpus out;
    out.train = {draw(train_bytes)};
    out.held_out = draw(held_out_bytes);
    out.floor = std::exp2(1.75);
    return out;
}

result<demo_outcome> run_demo_in(const demo_settings& settings, const demo_corpus& corpus) {
    return demo_run(settings, corpus).run();
}

}  // namespace darl
