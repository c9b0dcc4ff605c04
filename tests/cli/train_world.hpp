// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdlib.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "adapters/cli/child_process.hpp"
#include "adapters/cli/local_server.hpp"
#include "adapters/cli/run_config.hpp"
#include "adapters/cli/simulation_audit.hpp"
#include "adapters/formats/json.hpp"
#include "tests/cli/run_darl.hpp"

namespace darl::testing {

/// A small run on this machine: token shards, a server, and sites that train debug-1m for some hundred milliseconds.
class train_world {
public:
    explicit train_world(std::uint64_t windows = 96) {
        std::string pattern = (std::filesystem::temp_directory_path() / "darl-train-XXXXXX").string();
        dir_ = ::mkdtemp(pattern.data());
        config.seq_len = 32;
        config.block_size = 4;
        config.inner_steps = 4;
        config.batch = 4;
        config.peak_lr = 1e-3;
        config.warmup_steps = 2;
        config.log_every = 1;
        config.live_window_s = 8;
        config.keepalive_s = 1;
        config.min_ttl_s = 4;
        config.default_ttl_s = 15;
        config.failed_retry_s = 0.2;
        config.keep_generations = 990;
        config.eval_every = 0;
        make_corpus("train", windows, 1);
        config.manifest = path("train/manifest.json");
    }
    train_world(const train_world&) = delete;
    train_world& operator=(const train_world&) = delete;
    ~train_world() {
        server.stop();
        std::error_code ignored;
        std::filesystem::remove_all(dir_, ignored);
    }

    [[nodiscard]] std::string path(const std::string& name) const { return dir_ + "/" + name; }

    /// Token shards of drawn letters below `name`.
    void make_corpus(const std::string& name, std::uint64_t windows, unsigned seed) const {
        std::string text;
        unsigned state = seed;
        while (text.size() < windows * 33) {
            state = state * 1'664'525U + 1'013'904'223U;
            text += static_cast<char>('a' + (state >> 24U) % 26);
        }
        text.resize(windows * 33 - 2);  // and the two ids around a document
        std::ofstream(path(name + ".txt")) << text;
        (void)run_darl({"tokenize", "--tokenizer", "bytes", "--seq-len", "32", "--input", path(name + ".txt"), "--out",
                        path(name)});
    }

    void serve(std::vector<std::string> more = {}) {
        std::ofstream(path("server.toml")) << run_config_text(config);
        more.insert(more.end(), {"--config", path("server.toml")});
        const auto started = server.start(path("state"), path("server.log"), more);
        ok = ok && started.has_value();
    }

    [[nodiscard]] std::vector<std::string> site_arguments(const std::string& site,
                                                          const std::vector<std::string>& more) const {
        run_config own = config;
        own.work_dir = path(site);
        const std::string url = server.url().empty() ? "http://127.0.0.1:9" : server.url();
        std::ofstream(path(site + ".toml")) << run_config_text(own);
        std::vector<std::string> arguments = {"train", "--json", "--config", path(site + ".toml"), "--server",
                                              url,     "--site", site,       "--workers",          "2"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        return arguments;
    }
    /// Runs a site to its end.
    [[nodiscard]] darl_outcome train(const std::string& site, const std::vector<std::string>& more = {}) {
        const auto outcome = run_darl(site_arguments(site, more));
        sites_.push_back(site);
        return outcome;
    }
    /// Starts a site; its log is in `site`.log.
    [[nodiscard]] child_process start(const std::string& site, const std::vector<std::string>& more = {}) {
        child_process::options o;
        o.argv = site_arguments(site, more);
        o.argv.insert(o.argv.begin(), DARL_PROGRAM);
        o.stderr_file = path(site + ".log");
        o.read_stdout = true;
        sites_.push_back(site);
        return child_process::start(o).value();
    }

    [[nodiscard]] std::vector<darlcore::json::value> lines(const std::string& file) const {
        std::vector<darlcore::json::value> out;
        for (const auto& line : lines_of(path(file)))
            if (auto value = darlcore::json::parse(line)) out.push_back(*std::move(value));
        return out;
    }
    /// The lines of a site's metrics of one kind.
    [[nodiscard]] std::vector<darlcore::json::value> metrics(const std::string& site, std::string_view kind) const {
        std::vector<darlcore::json::value> out;
        for (auto& line : lines(site + "/metrics.jsonl"))
            if (*line.at("kind").as_string() == kind) out.push_back(std::move(line));
        return out;
    }

    [[nodiscard]] std::uint64_t committed() const {
        const auto status = server.get("/status");
        return status ? count_of(*status, "committed") : 0;
    }
    /// The audit of `darl demo` and `darl simulate`, over the records of all sites of this world.
    [[nodiscard]] audit_report audit() {
        return audit_of(count_of(*darlcore::json::parse(text_of(config.manifest)), "num_windows"));
    }
    [[nodiscard]] audit_report audit_of(std::uint64_t windows) {
        audit_input in;
        in.space.num_samples = windows;
        in.space.block_size = static_cast<std::uint64_t>(config.block_size);
        in.space.seed = config.seed;
        for (const auto& site : sites_) in.records[site] = lines_of(path(site + "/record.jsonl"));
        in.ledger_committed = committed();
        server.stop();
        in.merged = merged_in(path("state")).value();
        return audit_simulation(in).value();
    }
    [[nodiscard]] static std::string text_of(const std::string& file) {
        std::ifstream in(file, std::ios::binary);
        return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    }

    run_config config;
    local_server server{DARL_PROGRAM};
    bool ok = true;

private:
    std::string dir_;
    std::vector<std::string> sites_;
};

inline std::string first_finding(const audit_report& r) { return r.findings.empty() ? std::string() : r.findings[0]; }

}  // namespace darl::testing
