// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "darlcore/error.hpp"

namespace darl {

/// One run, as run.toml says it. Every field has its default, unit and reason in run_config.cpp, from which `darl init`
/// writes the commented file and the reader checks keys and ranges.
struct run_config {
    // [run]
    std::int64_t seed = 42;
    std::string work_dir = "darl-run";
    // [model]
    std::string flavour = "debug-1m";
    // [data]
    std::string manifest;
    std::string held_out;
    std::string tokenizer = "bytes";
    std::int64_t seq_len = 128;
    std::int64_t block_size = 32;
    // [train]
    std::int64_t inner_steps = 20;
    std::int64_t batch = 8;
    std::int64_t accumulate = 1;
    std::int64_t groups = 0;
    double peak_lr = 3e-4;
    std::int64_t warmup_steps = 200;
    std::int64_t total_steps = 0;
    double decay_fraction = 0.1;
    double min_lr_factor = 0.1;
    double beta1 = 0.9;
    double beta2 = 0.95;
    double eps = 1e-8;
    double weight_decay = 0.1;
    double clip = 1.0;
    std::int64_t threads = 0;
    std::int64_t log_every = 10;
    double throttle = 0.0;
    double rank_patience_s = 60.0;
    // [outer]
    double eta = 0.7;
    double beta = 0.9;
    std::string solo = "full";
    std::string first_step = "nesterov";
    // [round]
    std::int64_t quorum = 1;
    double live_window_s = 120;
    double keepalive_s = 20;
    double round_limit_s = 7200;
    double failed_retry_s = 60;
    double unknown_phase_s = 5400;
    double unknown_transfer_s = 600;
    double overdue_gap_s = 60;
    std::int64_t lagging_rounds = 2;
    bool budget = true;
    std::int64_t max_epochs = 1;
    std::int64_t keep_generations = 2;
    // [lease]
    std::string commit_policy = "on_merge";
    double min_ttl_s = 30;
    double default_ttl_s = 900;
    // [eval]
    std::int64_t eval_windows = 512;
    std::int64_t eval_every = 5;
    // [network]
    std::string proxy = "none";
    double give_up_s = 21600;
};

/// The commented file of all keys with their defaults, as `darl init` writes it.
std::string run_config_text(const run_config& values = {});

/// Reads TOML text; `name` is used in messages. Overrides are ("section.key", "value") in order and win over the file.
/// Errors: errc::parse_error (syntax), errc::unknown_key (with a suggestion), errc::invalid_argument (type or range):
/// each names file, line and key.
darlcore::result<run_config> parse_run_config(std::string_view text, const std::string& name,
                                              const std::vector<std::pair<std::string, std::string>>& overrides = {});

/// As parse_run_config for a file.
darlcore::result<run_config> read_run_config(const std::string& path,
                                             const std::vector<std::pair<std::string, std::string>>& overrides = {});

/// Takes "--section.key value" and "--section.key=value" out of left-over arguments.
/// Errors: errc::bad_request naming the argument that is not of this form.
darlcore::result<std::vector<std::pair<std::string, std::string>>> config_overrides(
    const std::vector<std::string>& rest);

}  // namespace darl
