// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>

#include "backends/storage/journal_format.hpp"
#include "darlcore/assert.hpp"

namespace darlcore::storage {

/// The batch that one write and one sync make durable.
struct sealed_batch {
    std::uint64_t batch = 0;
    std::uint64_t first_sequence = 0;
    std::uint64_t last_sequence = 0;
    std::int64_t last_ledger_ms = 0;
    std::string bytes;
};

/// Where the journal stands: the last record of a batch that is durable.
struct journal_position {
    std::uint64_t sequence = 0;
    std::uint64_t batch = 0;
    std::int64_t ledger_ms = 0;
    friend bool operator==(const journal_position&, const journal_position&) = default;
};

/// Which records are written next, and up to which sequence replies may leave. At most one batch is on its way to the
/// disk; the next one fills meanwhile. Pure: a thread drives it in the server, the event loop in simulation.
/// Complexity: O(bytes) per record, one copy.
class group_commit {
public:
    explicit group_commit(journal_position start = {}) : durable_(start), last_(start) {}

    /// Adds a record to the open batch and gives its sequence.
    /// Preconditions (asserted): ledger_ms does not decrease; 1 <= payload size <= payload_bytes_max.
    std::uint64_t append(std::uint16_t type, std::int64_t ledger_ms, std::string_view payload) {
        DARLCORE_ASSERT_CMP(ledger_ms, >=, last_.ledger_ms);
        if (open_.bytes.empty()) {
            open_.batch = last_.batch + 1;
            open_.first_sequence = last_.sequence + 1;
        }
        last_ = {last_.sequence + 1, open_.batch, ledger_ms};
        open_.last_sequence = last_.sequence;
        open_.last_ledger_ms = ledger_ms;
        append_record(open_.bytes, {type, false, last_.sequence, last_.batch, ledger_ms, payload}, 0);
        return last_.sequence;
    }

    /// Ends the open batch here although nothing is written yet; later records go to the next one.
    void close_batch() {
        if (!open_.bytes.empty()) closed_.push_back(std::exchange(open_, {}));
    }

    /// True when a batch can be sealed: records wait and nothing is under way.
    [[nodiscard]] bool can_seal() const { return in_flight_bytes_ == 0 && !(open_.bytes.empty() && closed_.empty()); }
    [[nodiscard]] bool in_flight() const { return in_flight_bytes_ != 0; }
    /// A batch was closed and waits.
    [[nodiscard]] bool has_closed() const { return !closed_.empty(); }
    /// Bytes of all records that are not durable yet.
    [[nodiscard]] std::size_t pending_bytes() const {
        std::size_t bytes = open_.bytes.size() + in_flight_bytes_;
        for (const auto& batch : closed_) bytes += batch.bytes.size();
        return bytes;
    }

    /// Takes the next batch, with the checksums that a segment with this salt needs.
    /// Preconditions (asserted): can_seal().
    sealed_batch seal(std::uint32_t salt) {
        DARLCORE_ASSERT(can_seal());
        if (closed_.empty()) close_batch();
        sealed_batch sealed = std::move(closed_.front());
        closed_.pop_front();
        in_flight_bytes_ = sealed.bytes.size();
        std::uint64_t sequence = sealed.first_sequence;
        for (std::size_t offset = 0; offset < sealed.bytes.size(); ++sequence)
            offset = reseal_record(sealed.bytes, offset, sequence == sealed.last_sequence, salt);
        return sealed;
    }

    /// The sealed batch is on the disk for good.
    void durable(const sealed_batch& batch) {
        DARLCORE_ASSERT(in_flight());
        in_flight_bytes_ = 0;
        durable_ = {batch.last_sequence, batch.batch, batch.last_ledger_ms};
    }

    /// Sequence of the last record appended.
    [[nodiscard]] std::uint64_t last_sequence() const { return last_.sequence; }
    [[nodiscard]] const journal_position& durable_position() const { return durable_; }
    /// A reply whose content depends on records up to `sequence` may leave.
    [[nodiscard]] bool may_leave(std::uint64_t sequence) const { return sequence <= durable_.sequence; }

private:
    sealed_batch open_;
    std::deque<sealed_batch> closed_;
    journal_position durable_;
    journal_position last_;
    std::size_t in_flight_bytes_ = 0;
};

}  // namespace darlcore::storage
