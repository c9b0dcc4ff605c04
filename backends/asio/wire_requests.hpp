// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "adapters/formats/json.hpp"
#include "darlcore/error.hpp"
#include "darlcore/ledger/requests.hpp"

/// The JSON of every request and reply as the server reads and writes it (backends/curl has the site's direction).
namespace darlcore::wire {

inline constexpr std::size_t map_entries_max = 256;
inline constexpr std::uint64_t spans_max = 64;
inline constexpr std::size_t metrics_max = 64;

/// A heartbeat as it came: lease ids that are none are answered as unknown leases, not refused (reference clients).
struct heartbeat_message {
    ledger::heartbeat_request request;
    std::vector<std::string> unreadable;
};

/// Each reads one request; errc::bad_request names the field and what it must be.
result<ledger::register_request> read_register(const json::value& body);
result<ledger::acquire_request> read_acquire(const json::value& body);
result<ledger::reserve_request> read_reserve(const json::value& body);
result<heartbeat_message> read_heartbeat(const json::value& body);
result<ledger::commit_request> read_commit(const json::value& body);
result<ledger::release_request> read_release(const json::value& body);
result<ledger::advance_request> read_advance(const json::value& body);
result<ledger::join_request> read_join(const json::value& body);
result<ledger::poll_request> read_poll(const json::value& body);
result<ledger::contribute_request> read_contribute(const json::value& body);
result<ledger::decline_request> read_decline(const json::value& body);
result<ledger::evaluation_request> read_evaluation(const json::value& body);
result<ledger::leave_request> read_leave(const json::value& body);
result<ledger::pause_request> read_pause(const json::value& body);

/// POST /blobs: what will be uploaded.
struct announce_message {
    ledger::announce_upload request;
    std::string sha256;
    std::uint64_t bytes = 0;
    std::string codec;
};
result<announce_message> read_announce(const json::value& body);

}  // namespace darlcore::wire
