// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "adapters/formats/json.hpp"
#include "backends/asio/wire_requests.hpp"
#include "darlcore/error.hpp"
#include "darlcore/ledger/requests.hpp"

namespace darlcore::wire {

/// What every reply says besides its own fields, and what texts of leases need.
struct reply_context {
    epoch_index epoch;
    darlcore::term term;
    ledger_time now;
    double wall_s = 0;  ///< Unix seconds, for display only
    std::uint64_t part_bytes_max = std::uint64_t{16} << 20U;
    std::int64_t poll_ms = 20'000;
};

/// A lease as clients see it; `cluster` is its holder.
json::value to_json(const lease::lease_record& l, const site_id& cluster, const reply_context& c);

json::value to_json(const ledger::register_reply& r, const reply_context& c);
json::value to_json(const ledger::acquire_reply& r, const site_id& asker, const reply_context& c);
json::value to_json(const ledger::reserve_reply& r, const reply_context& c);
json::value to_json(const ledger::heartbeat_reply& r, const std::vector<std::string>& unreadable,
                    const reply_context& c);
json::value to_json(const ledger::commit_reply& r, const reply_context& c);
json::value to_json(const ledger::release_reply& r, const reply_context& c);
json::value to_json(const ledger::advance_reply& r, const reply_context& c);
json::value to_json(const ledger::join_reply& r, const reply_context& c);
json::value to_json(const ledger::poll_reply& r, const reply_context& c);
json::value to_json(const ledger::contribute_reply& r, const reply_context& c);
json::value to_json(const ledger::evaluation_reply& r, const reply_context& c);
json::value to_json(const ledger::state_reply& r, const reply_context& c);
json::value to_json(const ledger::ok_reply& r, const reply_context& c);

/// `{"error","code","retry_after"?,"detail"?}`.
json::value to_json(const lease::refusal& r);
/// Where a code stands in HTTP. Contributions and blobs answer digest_mismatch with 422, registers with 400.
int http_status(errc code, bool about_content = false);

}  // namespace darlcore::wire
