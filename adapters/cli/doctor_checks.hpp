// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "adapters/cli/run_config.hpp"
#include "backends/curl/http_client.hpp"

namespace darl {

enum class verdict : std::uint8_t { pass, warn, fail };

/// One line of `darl doctor`.
struct health_check {
    std::string group;
    std::string name;
    std::string value;
    verdict outcome = verdict::pass;
    std::string fix;  // empty when it passes
};

using health_report = std::vector<health_check>;
using variable_lookup = std::function<std::string(const char*)>;  // empty = unset

/// A file is written, synced, renamed and removed in the folder, which is made if it is not there.
health_report check_run_folder(const std::string& folder);
/// `needed` bytes beside what is there: fails below, warns below twice as much.
health_report check_disk_space(const std::string& folder, std::uint64_t needed);
/// Seconds by which this clock is ahead of the server's; two minutes are too many.
health_check check_clock(double offset_s);
health_report check_token_file(const std::string& path, const variable_lookup& environment);
/// Variables of proxies and thread pools that change what a run does.
health_report check_environment(const run_config& c, const variable_lookup& environment);
/// libtorch, its BLAS, cores and open files of this process.
health_report check_machine();
/// Steps that a phase of these settings has, and a block size that makes them exactly inner_steps.
health_report check_phase(const run_config& c, std::uint64_t ranks);
/// Model, training shards and held-out set; `deep` reads every byte. Gives the bytes that a run folder needs.
health_report check_inputs(const run_config& c, bool deep, std::uint64_t& folder_bytes);
/// Whether ADDRESS:PORT can be listened on.
health_check check_listen(const std::string& address_and_port);
/// Address family of the host, round trip, clock, token.
health_report check_server(const darlcore::client::client_options& options);

}  // namespace darl
