// SPDX-License-Identifier: Apache-2.0
// `darl simulate`: a real server and real site processes over loopback HTTP, with kills, then an audit of what was
// trained.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <poll.h>

#include "adapters/cli/child_process.hpp"
#include "adapters/cli/cli_support.hpp"
#include "adapters/cli/local_server.hpp"
#include "adapters/cli/simulate_virtual.hpp"
#include "adapters/cli/simulation_audit.hpp"
#include "adapters/formats/json.hpp"
#include "adapters/formats/safetensors.hpp"
#include "darlcore/random.hpp"

namespace darl {
namespace {

using namespace darlcore;
using steady = std::chrono::steady_clock;

struct simulate_options {
    std::uint64_t sites = 3;
    std::uint64_t blocks = 200;
    std::uint64_t block_size = 4;
    std::uint64_t kill = 0;
    std::uint64_t late = 0;
    std::uint64_t pause = 0;
    std::uint64_t kill_ledger = 0;
    bool kill_at_steal = false;
    std::int64_t seed = 1;
    double min_ttl_s = 1;
    double ttl_s = 3;
    double seconds_max = 300;
    std::string commit_policy = "on_merge";
    std::string keep_dir;
    std::string plant = "none";  // a mechanism that is taken away, for tests: pledge, reserve, steal_replay
    bool is_virtual = false;
    bool liveness = false;
    std::uint64_t seeds = 100;
};

struct site_slot {
    std::string name;
    std::optional<child_process> process;
    std::uint64_t starts = 0;
    double seconds_per_window = 0;
    bool present = false;
};

/// Positions of the spans that /status lists.
std::vector<std::uint64_t> quarantined_positions(const json::value& status) {
    std::vector<std::uint64_t> out;
    const auto* spans = status.find("quarantined_positions");
    if (spans == nullptr || spans->as_array() == nullptr) return out;
    for (const auto& s : *spans->as_array())
        if (s.size() == 2)
            for (auto p = s.at(std::size_t{0}).as_u64(), end = s.at(std::size_t{1}).as_u64(); p && end && *p < *end;
                 ++*p)
                out.push_back(*p);
    return out;
}

/// Blocks that sites took from others.
std::uint64_t stolen_blocks(const json::value& status) {
    std::uint64_t sum = 0;
    if (const auto* sites = status.find("clusters"); sites != nullptr && sites->as_object() != nullptr)
        for (const auto& [name, site] : *sites->as_object()) sum += count_of(site, "blocks_stolen_by");
    return sum;
}

/// One run: starts everything, does the harm, waits for the end, reads the evidence.
class simulation {
public:
    simulation(const simulate_options& o, std::string dir)
        : options_(o), dir_(std::move(dir)), chance_(static_cast<std::uint64_t>(o.seed)) {}

    result<audit_report> run() {
        if (auto started = start_server(); !started) return started.error();
        for (std::uint64_t i = 0; i < options_.sites; ++i) {
            site_slot slot;
            slot.name = fmt::format("site{}", i);
            // unequal speeds: 1, 1/2, 1/4, 1/8, then again; slow and in small groups where there is to be a theft, so
            // that much of a lease is unread for long
            const double fastest_s = options_.kill_at_steal ? 0.04 : 0.0008;
            slot.seconds_per_window = fastest_s * static_cast<double>(1U << (i % 4));
            sites_.push_back(std::move(slot));
        }
        for (std::uint64_t i = 0; i < options_.sites; ++i)
            if (i + options_.late < options_.sites || i == 0)
                if (auto started = start_site(sites_[i]); !started) return started.error();
        const auto ended = until_the_end();
        for (auto& slot : sites_)
            if (slot.process && slot.process->running()) slot.process->kill();
        if (ended) return audit(true);
        // what there is of a run that cannot go on is audited too: it may say why
        auto partial = audit(false);
        if (!partial) return ended.error();
        partial->pass = false;
        partial->findings.insert(partial->findings.begin(), to_text(ended.error()));
        return partial;
    }

private:
    result<void> start_server() {
        return server_.start(dir_ + "/state", dir_ + "/server.log",
                             {"--num-samples",
                              std::to_string(options_.blocks * options_.block_size),
                              "--block-size",
                              std::to_string(options_.block_size),
                              "--seed",
                              std::to_string(options_.seed),
                              "--commit-policy",
                              options_.commit_policy,
                              "--outer.eta=1",
                              "--outer.beta=0",
                              "--round.keep_generations=990",
                              fmt::format("--lease.min_ttl_s={}", options_.min_ttl_s),
                              fmt::format("--lease.default_ttl_s={}", options_.ttl_s),
                              "--round.live_window_s=4",
                              "--round.keepalive_s=0.5",
                              "--round.round_limit_s=60",
                              "--train.inner_steps=1",
                              "--eval.every=0",
                              "--plant",
                              server_plant()});
    }
    [[nodiscard]] std::string server_plant() const { return options_.plant == "reserve" ? "none" : options_.plant; }

    result<void> start_site(site_slot& slot) {
        child_process::options o;
        o.argv = {own_program(),
                  "simulate-site",
                  "--server",
                  server_.url(),
                  "--site",
                  slot.name,
                  "--dir",
                  fmt::format("{}/{}", dir_, slot.name),
                  "--num-samples",
                  std::to_string(options_.blocks * options_.block_size),
                  "--block-size",
                  std::to_string(options_.block_size),
                  "--seed",
                  std::to_string(options_.seed),
                  "--seconds-per-window",
                  fmt::format("{}", slot.seconds_per_window)};
        if (options_.kill_at_steal) o.argv.insert(o.argv.end(), {"--groups", "8"});
        if (slot.starts > 0) o.argv.push_back("--take-over");
        if (options_.plant == "reserve") o.argv.push_back("--read-beyond");
        o.stderr_file = fmt::format("{}/{}.log", dir_, slot.name);
        auto child = child_process::start(o);
        if (!child) return child.error();
        slot.process.emplace(*std::move(child));
        slot.present = true;
        ++slot.starts;
        return {};
    }

    // Harm is done at shares of the progress, so that it falls into the middle of things at any speed.
    result<void> until_the_end() {
        const auto give_up = steady::now() + std::chrono::duration<double>(options_.seconds_max);
        while (steady::now() < give_up) {
            const auto now = server_.get("/status");
            if (now) {
                const std::uint64_t done = count_of(*now, "committed") + count_of(*now, "pledged");
                progress_ = static_cast<double>(done) / static_cast<double>(options_.blocks);
                blocks_were_stolen_ = blocks_were_stolen_ || stolen_blocks(*now) > 0;
            }
            if (auto harmed = harm(); !harmed) return harmed.error();
            if (all_ended()) return {};
            ::poll(nullptr, 0, 50);
        }
        return fail(errc::timeout,
                    fmt::format("the run did not end within {} s; see the logs in {}", options_.seconds_max, dir_));
    }

    bool due(std::uint64_t done, std::uint64_t planned) const {
        return done < planned && progress_ >= static_cast<double>(done + 1) / static_cast<double>(planned + 1);
    }

    result<void> harm() {
        if (due(late_joined_, options_.late)) {
            ++late_joined_;
            for (auto& slot : sites_)
                if (!slot.present) return start_site(slot);
        }
        if (due(killed_, options_.kill)) {
            ++killed_;
            site_slot& slot = sites_[chance_() % sites_.size()];
            if (slot.process && slot.process->running()) {
                slot.process->kill();
                if (sites_.size() > 1)
                    restart_.push_back(&slot);
                else
                    return start_site(slot);
            }
        }
        if (due(paused_, options_.pause)) {
            ++paused_;
            site_slot& slot = sites_[chance_() % sites_.size()];
            if (slot.process && slot.process->running()) {
                slot.process->signal(SIGSTOP);
                sleepers_.emplace_back(
                    &slot, steady::now() + std::chrono::milliseconds(static_cast<std::int64_t>(2000 * options_.ttl_s)));
            }
        }
        for (auto& [slot, until] : sleepers_)
            if (steady::now() >= until && slot->process) slot->process->signal(SIGCONT);
        if (due(ledger_killed_, options_.kill_ledger)) {
            ++ledger_killed_;
            return crash_server();
        }
        if (options_.kill_at_steal && blocks_were_stolen_ && !killed_at_steal_) {
            killed_at_steal_ = true;
            return crash_server();
        }
        // a killed site comes back when its leases have run out, as a requeued job does
        if (!restart_.empty() && progress_ >= 0.9) {
            site_slot* slot = restart_.back();
            restart_.pop_back();
            return start_site(*slot);
        }
        return {};
    }

    result<void> crash_server() {
        server_.kill();
        return server_.restart({"--plant", server_plant()});
    }

    bool all_ended() {
        bool any = false;
        for (auto& slot : sites_) {
            if (slot.process && slot.process->running()) return false;
            any = any || slot.present;
        }
        return any;
    }

    /// The books are compared only when the run ended: before that they change while one looks.
    result<audit_report> audit(bool has_ended) {
        audit_input in;
        in.space.num_samples = options_.blocks * options_.block_size;
        in.space.block_size = options_.block_size;
        in.space.seed = options_.seed;
        for (const auto& slot : sites_) {
            auto lines = lines_of(fmt::format("{}/{}/record.jsonl", dir_, slot.name));
            if (!lines.empty()) in.records[slot.name] = std::move(lines);
        }
        if (has_ended) {
            const auto now = server_.get("/status");
            if (!now) return fail(errc::unreachable, "the server did not answer at the end");
            in.ledger_committed = count_of(*now, "committed");
            in.quarantined = quarantined_positions(*now);
        }
        server_.stop();
        if (auto read = read_generations(in); !read) return read.error();
        return audit_simulation(in);
    }

    // The model and what was merged are read from the generations on disk, all of which a simulation keeps.
    result<void> read_generations(audit_input& in) const {
        auto merged = merged_in(dir_ + "/state");
        if (!merged) return merged.error();
        in.merged = *std::move(merged);
        const auto newest = current_generation(dir_ + "/state");
        if (!newest) return newest.error();
        const auto file = formats::safetensors_reader::open(*newest + "/global.safetensors");
        if (!file) return file.error();
        const auto* entry = file->header().find("windows");
        if (entry == nullptr) return fail(errc::layout_mismatch, "the model has no table of windows");
        in.table.resize(entry->size_bytes() / sizeof(float));
        return file->read_all(*entry, std::as_writable_bytes(std::span(in.table)));
    }

    const simulate_options& options_;
    std::string dir_;
    xoshiro256 chance_;
    local_server server_;
    std::vector<site_slot> sites_;
    std::vector<site_slot*> restart_;
    std::vector<std::pair<site_slot*, steady::time_point>> sleepers_;
    double progress_ = 0;
    std::uint64_t killed_ = 0;
    std::uint64_t late_joined_ = 0;
    std::uint64_t paused_ = 0;
    std::uint64_t ledger_killed_ = 0;
    bool blocks_were_stolen_ = false;
    bool killed_at_steal_ = false;
};

json::value report_json(const audit_report& r) {
    json::value sites{json::array{}};
    for (const auto& site : r.sites)
        sites.push_back(json::make_object(
            {{"site", site.site}, {"read", site.read}, {"committed", site.merged}, {"lost", site.retrained}}));
    json::value findings{json::array{}};
    for (const auto& f : r.findings) findings.push_back(f);
    return json::make_object({{"verdict", r.pass ? "PASS" : "FAIL"},
                              {"blocks", r.blocks},
                              {"covered", r.covered},
                              {"duplicates", r.duplicates},
                              {"missing", r.missing},
                              {"retrained", r.retrained},
                              {"sites", sites},
                              {"findings", findings}});
}

void run_simulation(session& s, const simulate_options& o) {
    const bool keep = !o.keep_dir.empty();
    std::string dir = o.keep_dir;
    if (!keep) {
        std::string pattern = (std::filesystem::temp_directory_path() / "darl-simulate-XXXXXX").string();
        if (::mkdtemp(pattern.data()) == nullptr)
            return report(s, fail(errc::io_error, "no temporary folder can be made"));
        dir = pattern;
    }
    std::error_code ignored;
    std::filesystem::create_directories(dir, ignored);
    result<audit_report> audit = fail(errc::internal);
    {
        simulation run(o, dir);
        audit = run.run();
    }
    if (!audit) {
        // a run that cannot go on is no proof of anything
        audit_report none;
        none.findings.push_back(to_text(audit.error()));
        audit = std::move(none);
    }
    if (s.json) {
        print_line(json::dump(report_json(*audit)));
    } else {
        print_line(fmt::format("{}: {} blocks, {} covered, {} duplicates, {} missing, {} read in vain",
                               audit->pass ? "PASS" : "FAIL", audit->blocks, audit->covered, audit->duplicates,
                               audit->missing, audit->retrained));
        for (const auto& site : audit->sites)
            print_line(fmt::format("  {:<12} {:>6} read {:>6} in the model", site.site, site.read, site.merged));
        for (const auto& f : audit->findings) print_line("  " + f);
    }
    if (!audit->pass) s.exit_code = exit_failed;
    if (!keep && audit->pass)
        std::filesystem::remove_all(dir, ignored);
    else
        fmt::print(stderr, "darl: logs and state are in {}\n", dir);
}

// --virtual takes the seeds and nothing of the real processes.
void run_virtual_seeds(session& s, const simulate_options& o) {
    virtual_options v;
    v.first_seed = static_cast<std::uint64_t>(o.seed);
    v.seeds = o.seeds;
    v.liveness = o.liveness;
    v.plant = o.plant;
    run_virtual(s, v);
}

}  // namespace

void add_simulate(CLI::App& app, session& s) {
    auto o = std::make_shared<simulate_options>();
    auto* command = app.add_subcommand(
        "simulate",
        "a real server and real site processes on this machine, with kills; then an audit. --virtual: many runs in "
        "simulated time, with faults of all kinds");
    command->add_option("--sites", o->sites, "site processes of unequal speed")
        ->check(CLI::Range(1, 64))
        ->capture_default_str();
    command->add_option("--blocks", o->blocks, "blocks of the corpus")
        ->check(CLI::Range(1, 1'000'000))
        ->capture_default_str();
    command->add_option("--block-size", o->block_size, "windows per block")
        ->check(CLI::Range(1, 4096))
        ->capture_default_str();
    command->add_option("--kill", o->kill, "site processes to kill -9")->capture_default_str();
    command->add_option("--late", o->late, "sites that join later")->capture_default_str();
    command->add_option("--pause", o->pause, "sites to stop for longer than their leases live")->capture_default_str();
    command->add_option("--kill-ledger", o->kill_ledger, "times to kill -9 the server")->capture_default_str();
    command->add_flag("--kill-at-steal", o->kill_at_steal, "kill -9 the server once, right after blocks were stolen");
    command->add_option("--seed", o->seed, "of the corpus order and of the harm")->capture_default_str();
    command->add_option("--ttl", o->ttl_s, "seconds that a lease lives")
        ->check(CLI::Range(1.0, 3600.0))
        ->capture_default_str();
    command->add_option("--timeout", o->seconds_max, "seconds for the whole run")->capture_default_str();
    command->add_option("--keep", o->keep_dir,
                        "folder for logs and state; default: a temporary one, removed after PASS");
    auto* is_virtual =
        command->add_flag("--virtual", o->is_virtual,
                          "simulated clock, disk and network instead of processes: one run per seed from --seed on");
    command->add_option("--seeds", o->seeds, "runs of --virtual")
        ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{100'000'000}))
        ->needs(is_virtual)
        ->capture_default_str();
    command
        ->add_flag("--liveness", o->liveness,
                   "with --virtual: from some time on all sites but one are broken for ever, and the epochs must end")
        ->needs(is_virtual);
    command->add_option("--plant", o->plant)->group("");  // for tests of the audit: takes a mechanism away
    command->footer(
        "Examples: darl simulate --sites 4 --blocks 1000 --kill 1 --late 1 --kill-ledger 2; darl simulate --virtual "
        "--seeds 2000");
    command->callback([&s, o] {
        if (o->is_virtual) return run_virtual_seeds(s, *o);
        run_simulation(s, *o);
    });
}

}  // namespace darl
