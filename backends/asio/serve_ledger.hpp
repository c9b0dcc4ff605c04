// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <asio/thread_pool.hpp>

#include "backends/asio/access_control.hpp"
#include "backends/asio/ledger_core.hpp"
#include "backends/asio/ledger_service.hpp"
#include "backends/asio/model_work.hpp"
#include "backends/asio/server.hpp"
#include "darlcore/error.hpp"
#include "darlcore/ledger/settings.hpp"

namespace darlcore::http {

enum class start_mode : std::uint8_t {
    any,     ///< go on with what is there, or make a new run
    resume,  ///< a directory without a run is an error
    fresh,   ///< what is there is moved aside (never deleted) and a new run made
};

/// A mechanism that is taken away, so that a test sees its absence found. `none` in every real run.
enum class planted_fault : std::uint8_t {
    none,
    pledge,       ///< contributions are merged without pledging their blocks
    steal_replay  ///< a start forgets which leases were cut short by a steal
};

struct serve_options {
    std::string state_dir;
    std::string address = "127.0.0.1";
    std::uint16_t port = 8760;
    start_mode mode = start_mode::any;
    /// Settings of a new run; `space.num_samples` 0 = not given. An existing run keeps its own; where both are given
    /// and differ the start is refused.
    ledger::run_settings settings;
    bool geometry_given = false;
    bool policy_given = false;  ///< commit policy named on the command line
    bool change_outer_policy = false;
    bool outer_given = false;
    std::string token_file;
    std::string bare_token;  ///< from the environment
    std::vector<std::string> host_names;
    std::optional<tls_options> tls;
    server_limits limits;
    service_options service;
    core_options core;
    std::string init_file;
    planted_fault plant = planted_fault::none;
    bool sync = true;  ///< false: benchmarks only
    std::size_t bulk_threads = 2;
    /// Null: no model work in this build; only on_checkpoint runs without rounds.
    std::unique_ptr<model_work> work;
    /// Null: no probe routes. `folder` is below the state directory; work runs on the pool.
    std::function<std::unique_ptr<extra_routes>(asio::thread_pool& pool, ledger_service& service, std::string folder)>
        make_probes;
};

/// What a running server tells its operator.
struct serve_reports {
    std::function<void(const std::string& url, std::uint32_t term)> listening;
    std::function<void(std::string_view text)> log;
};

/// Runs a ledger server until it is told to stop (SIGINT, SIGTERM) or cannot go on.
/// Errors: errc::locked, corrupt, refused (exit 3); not_found, invalid_argument (exit 2); fenced (another server took
/// over, exit 3); io_error.
result<void> serve_ledger(serve_options options, const serve_reports& reports);

}  // namespace darlcore::http
