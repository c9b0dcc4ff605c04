// SPDX-License-Identifier: Apache-2.0
// `darl simulate`: a real server and real site processes over loopback HTTP, with kills, then an audit of what was
// trained.
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <poll.h>

#include "adapters/cli/child_process.hpp"
#include "adapters/cli/cli_support.hpp"
#include "adapters/cli/simulation_audit.hpp"
#include "adapters/cli/toy_trainer.hpp"
#include "adapters/formats/json.hpp"
#include "adapters/formats/safetensors.hpp"
#include "backends/curl/http_client.hpp"
#include "backends/curl/json_call.hpp"
#include "darlcore/random.hpp"

namespace darl {
namespace {

using namespace darlcore;
using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

struct simulate_options {
    std::uint64_t sites = 3;
    std::uint64_t blocks = 200;
    std::uint64_t block_size = 4;
    std::uint64_t kill = 0;
    std::uint64_t late = 0;
    std::uint64_t pause = 0;
    std::uint64_t kill_ledger = 0;
    std::int64_t seed = 1;
    double min_ttl_s = 1;
    double ttl_s = 3;
    double seconds_max = 300;
    std::string commit_policy = "on_merge";
    std::string keep_dir;
};

struct site_slot {
    std::string name;
    std::optional<child_process> process;
    std::uint64_t starts = 0;
    double seconds_per_window = 0;
    bool present = false;
};

/// One run: starts everything, does the harm, waits for the end, reads the evidence.
class simulation {
public:
    simulation(const simulate_options& o, std::string dir)
        : options_(o), dir_(std::move(dir)), chance_(static_cast<std::uint64_t>(o.seed)) {}

    result<audit_report> run() {
        if (auto started = start_server(true); !started) return started.error();
        for (std::uint64_t i = 0; i < options_.sites; ++i) {
            site_slot slot;
            slot.name = fmt::format("site{}", i);
            // unequal speeds: 1, 1/2, 1/4, 1/8, then again
            slot.seconds_per_window = 0.0008 * static_cast<double>(1U << (i % 4));
            sites_.push_back(std::move(slot));
        }
        for (std::uint64_t i = 0; i < options_.sites; ++i)
            if (i + options_.late < options_.sites || i == 0)
                if (auto started = start_site(sites_[i]); !started) return started.error();
        if (auto ended = until_the_end(); !ended) return ended.error();
        return audit();
    }

private:
    result<void> start_server(bool first) {
        child_process::options o;
        o.argv = {own_program(),   "serve",    "--state-dir",
                  dir_ + "/state", "--listen", fmt::format("127.0.0.1:{}", port_)};
        if (first)
            for (const std::string& a :
                 {std::string("--num-samples"), std::to_string(options_.blocks * options_.block_size),
                  std::string("--block-size"), std::to_string(options_.block_size), std::string("--seed"),
                  std::to_string(options_.seed), std::string("--commit-policy"), options_.commit_policy,
                  std::string("--merge"), std::string("sum"), fmt::format("--lease.min_ttl_s={}", options_.min_ttl_s),
                  fmt::format("--lease.default_ttl_s={}", options_.ttl_s), std::string("--round.live_window_s=4"),
                  std::string("--round.keepalive_s=0.5"), std::string("--round.round_limit_s=60"),
                  std::string("--train.inner_steps=1")})
                o.argv.push_back(a);
        o.read_stdout = true;
        o.stderr_file = dir_ + "/server.log";
        auto child = child_process::start(o);
        if (!child) return child.error();
        server_.emplace(*std::move(child));
        const auto line = server_->read_line(30s);
        const auto first_line = line ? json::parse(*line) : result<json::value>(fail(errc::timeout, ""));
        if (!first_line || first_line->find("url") == nullptr)
            return fail(errc::io_error, fmt::format("the server did not start; see {}", o.stderr_file));
        url_ = *first_line->at("url").as_string();
        const auto colon = url_.rfind(':');
        port_ = static_cast<std::uint16_t>(std::stoul(url_.substr(colon + 1)));
        return {};
    }

    result<void> start_site(site_slot& slot) {
        child_process::options o;
        o.argv = {own_program(),
                  "simulate-site",
                  "--server",
                  url_,
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
        if (slot.starts > 0) o.argv.push_back("--take-over");
        o.stderr_file = fmt::format("{}/{}.log", dir_, slot.name);
        auto child = child_process::start(o);
        if (!child) return child.error();
        slot.process.emplace(*std::move(child));
        slot.present = true;
        ++slot.starts;
        return {};
    }

    [[nodiscard]] std::optional<json::value> status() {
        client::client_options o;
        o.base_url = url_;
        o.call_ms = 5'000;
        auto client = client::http_client::make(o);
        if (!client) return std::nullopt;
        const auto reply = client::json_call(*client, "/status", json::value());
        if (!reply || !reply->ok()) return std::nullopt;
        return reply->body;
    }

    static std::uint64_t number(const json::value& v, std::string_view key) {
        const auto* member = v.find(key);
        return member != nullptr ? member->as_u64().value_or(0) : 0;
    }

    // Harm is done at shares of the progress, so that it falls into the middle of things at any speed.
    result<void> until_the_end() {
        const auto give_up = steady::now() + std::chrono::duration<double>(options_.seconds_max);
        while (steady::now() < give_up) {
            const auto now = status();
            if (now) {
                const std::uint64_t done = number(*now, "committed") + number(*now, "pledged");
                progress_ = static_cast<double>(done) / static_cast<double>(options_.blocks);
                last_status_ = *now;
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
                sleepers_.emplace_back(&slot, steady::now() + std::chrono::duration<double>(2 * options_.ttl_s));
            }
        }
        for (auto& [slot, until] : sleepers_)
            if (steady::now() >= until && slot->process) slot->process->signal(SIGCONT);
        if (due(ledger_killed_, options_.kill_ledger)) {
            ++ledger_killed_;
            server_->kill();
            return start_server(false);
        }
        // a killed site comes back when its leases have run out, as a requeued job does
        if (!restart_.empty() && progress_ >= 0.9) {
            site_slot* slot = restart_.back();
            restart_.pop_back();
            return start_site(*slot);
        }
        return {};
    }

    bool all_ended() {
        bool any = false;
        for (auto& slot : sites_) {
            if (slot.process && slot.process->running()) return false;
            any = any || slot.present;
        }
        return any;
    }

    result<audit_report> audit() {
        audit_input in;
        in.space.num_samples = options_.blocks * options_.block_size;
        in.space.block_size = options_.block_size;
        in.space.seed = options_.seed;
        for (const auto& slot : sites_) {
            std::ifstream file(fmt::format("{}/{}/record.jsonl", dir_, slot.name));
            std::vector<std::string> lines;
            for (std::string line; std::getline(file, line);) lines.push_back(line);
            if (!lines.empty()) in.records[slot.name] = std::move(lines);
        }
        const auto now = status();
        if (!now) return fail(errc::unreachable, "the server did not answer at the end");
        last_status_ = *now;
        in.ledger_committed = number(*now, "committed");
        if (const auto* q = now->find("quarantined_positions"); q != nullptr && q->as_array() != nullptr)
            for (const auto& p : *q->as_array())
                if (p.as_u64()) in.quarantined.push_back(*p.as_u64());
        server_->signal(SIGTERM);
        (void)server_->wait(20s);
        if (auto read = read_generations(in); !read) return read.error();
        return audit_simulation(in);
    }

    // The model and the list of what was merged are read from the generations on disk, not asked of the server.
    result<void> read_generations(audit_input& in) const {
        const std::filesystem::path folder = dir_ + "/state/model";
        std::ifstream current(folder / "CURRENT");
        std::string newest;
        std::getline(current, newest);
        if (newest.empty()) return fail(errc::not_found, fmt::format("{}: no current generation", folder.string()));
        std::ifstream merged(dir_ + "/state/merged.jsonl");
        const auto file = formats::safetensors_reader::open((folder / newest / "global.safetensors").string());
        if (!file) return file.error();
        const auto* entry = file->header().find("windows");
        if (entry == nullptr) return fail(errc::layout_mismatch, "the model has no table of windows");
        in.table.resize(entry->size_bytes() / sizeof(float));
        if (auto read = file->read_all(*entry, std::as_writable_bytes(std::span(in.table))); !read) return read.error();
        return read_merged_ids(in);
    }

    // Every merge leaves its contributions in the history that GET /round/history tells; asked before the server ends.
    result<void> read_merged_ids(audit_input& in) const {
        for (const auto& id : merged_ids_) in.merged.push_back(id);
        return {};
    }

    const simulate_options& options_;
    std::string dir_;
    xoshiro256 chance_;
    std::optional<child_process> server_;
    std::string url_;
    std::uint16_t port_ = 0;
    std::vector<site_slot> sites_;
    std::vector<site_slot*> restart_;
    std::vector<std::pair<site_slot*, steady::time_point>> sleepers_;
    std::vector<std::string> merged_ids_;
    json::value last_status_;
    double progress_ = 0;
    std::uint64_t killed_ = 0;
    std::uint64_t late_joined_ = 0;
    std::uint64_t paused_ = 0;
    std::uint64_t ledger_killed_ = 0;
};

}  // namespace
}  // namespace darl
