// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <asio/thread_pool.hpp>

#include "backends/asio/durable_gate.hpp"
#include "backends/asio/event_log.hpp"
#include "backends/storage/commit_thread.hpp"
#include "darlcore/epoch_map.hpp"
#include "darlcore/ledger/clock.hpp"
#include "darlcore/ledger/requests.hpp"

namespace darlcore::ledger {
class machine;
}

namespace darlcore::http {

struct core_options {
    std::uint64_t snapshot_records = 100'000;
    std::uint64_t snapshot_bytes = std::uint64_t{64} << 20U;
    std::int64_t turn_ms = 100;
    std::uint64_t room_bytes = std::uint64_t{4} << 20U;  ///< less set aside than this: mutating calls are refused
};

struct snapshot_status {
    bool running = false;
    std::uint64_t sequence = 0;
    double wall_s = 0;
    std::string failure;  ///< of the last try; empty = fine
};

/// The single writer: applies requests to the ledger in order, appends their records to the open batch, holds replies
/// until that batch is durable, carries out effects after it, turns ledger time, takes snapshots.
/// Thread-safety: everything on the thread of the loop.
class ledger_core {
public:
    using effect_handler = std::function<void(const ledger::effect&)>;
    using fatal_handler = std::function<void(const error&)>;

    /// `store` is recovered and committed, `machine` replayed and started; both effects of the start are in `wanted`.
    ledger_core(asio::io_context& loop, asio::thread_pool& background, storage::ledger_store& store,
                std::unique_ptr<ledger::machine> machine, ledger_time now, const core_options& options);
    ~ledger_core();
    ledger_core(const ledger_core&) = delete;
    ledger_core& operator=(const ledger_core&) = delete;

    void start(std::vector<ledger::effect> wanted, effect_handler on_effect, fatal_handler on_fatal);
    /// Ends the timer; what is open is committed by the destructor.
    void stop();

    /// Each applies one request. The reply may leave after `settled()`.
    ledger::outcome<ledger::register_reply> apply(const ledger::register_request& in);
    ledger::outcome<ledger::acquire_reply> apply(const ledger::acquire_request& in);
    ledger::outcome<ledger::reserve_reply> apply(const ledger::reserve_request& in);
    ledger::outcome<ledger::heartbeat_reply> apply(const ledger::heartbeat_request& in);
    ledger::outcome<ledger::commit_reply> apply(const ledger::commit_request& in);
    ledger::outcome<ledger::release_reply> apply(const ledger::release_request& in);
    ledger::outcome<ledger::advance_reply> apply(const ledger::advance_request& in);
    ledger::outcome<ledger::join_reply> apply(const ledger::join_request& in);
    ledger::outcome<ledger::poll_reply> apply(const ledger::poll_request& in);
    ledger::outcome<ledger::contribute_reply> apply(const ledger::contribute_request& in);
    ledger::outcome<ledger::ok_reply> apply(const ledger::decline_request& in);
    ledger::outcome<ledger::evaluation_reply> apply(const ledger::evaluation_request& in);
    ledger::outcome<ledger::ok_reply> apply(const ledger::leave_request& in);
    ledger::outcome<ledger::state_reply> apply(const ledger::pause_request& in);
    ledger::outcome<ledger::state_reply> apply(const ledger::resume_request& in);
    ledger::outcome<ledger::state_reply> apply(const ledger::stop_request& in);
    ledger::outcome<ledger::ok_reply> apply(const ledger::announce_upload& in);
    ledger::outcome<ledger::ok_reply> apply(const ledger::upload_progress& in);
    ledger::outcome<ledger::ok_reply> apply(const ledger::blob_verified& in);
    ledger::outcome<ledger::ok_reply> apply(const ledger::blob_gone& in);
    ledger::outcome<ledger::ok_reply> apply(const ledger::model_initialised& in);
    ledger::outcome<ledger::ok_reply> apply(const ledger::init_failed& in);
    ledger::outcome<ledger::ok_reply> apply(const ledger::merge_done& in);
    ledger::outcome<ledger::ok_reply> apply(const ledger::merge_failed& in);
    ledger::outcome<ledger::ok_reply> apply(const ledger::tick_input& in);
    /// True when everything applied so far is durable, false when the journal failed.
    asio::awaitable<bool> settled() { return gate_.wait(applied_sequence_); }

    [[nodiscard]] const ledger::machine& machine() const { return *machine_; }
    [[nodiscard]] epoch_index epoch() const;
    [[nodiscard]] darlcore::term term() const;
    /// Takes an epoch's order that was built elsewhere.
    void adopt(std::shared_ptr<const epoch_map> prepared);
    [[nodiscard]] ledger_time now() const { return clock_.now(); }
    [[nodiscard]] std::int64_t lag_ms() const { return clock_.lag_ms(); }
    [[nodiscard]] bool disk_full() const { return disk_full_; }
    /// Not empty: the books contradict themselves; nothing that touches data may be answered.
    [[nodiscard]] const std::string& degraded() const { return degraded_; }
    [[nodiscard]] const event_log& events() const { return events_; }
    void add_event(std::string event, std::string site, std::string text);
    [[nodiscard]] std::uint64_t applied_sequence() const { return applied_sequence_; }
    [[nodiscard]] std::uint64_t durable_sequence() const { return gate_.durable(); }
    [[nodiscard]] std::uint64_t records_since_snapshot() const { return applied_sequence_ - snapshot_.sequence; }
    [[nodiscard]] const snapshot_status& snapshots() const { return snapshot_; }
    [[nodiscard]] storage::commit_figures figures() { return commit_->figures(); }
    [[nodiscard]] double wall_s() const;

    /// Copies the state and writes a snapshot of it in the background; false while one is under way or without room.
    bool begin_snapshot();

private:
    template <class Request>
    auto handle(const Request& in);
    void take(std::vector<ledger::record> records, std::vector<ledger::effect> effects);
    void note_event(const ledger::record& r, std::uint64_t sequence);
    void on_durable(std::uint64_t sequence);
    asio::awaitable<void> turn_loop();
    void turn();
    void finish_snapshot(std::shared_ptr<const ledger::machine> copy, result<storage::snapshot_info> head);
    void snapshot_ended(std::uint64_t sequence, result<void> outcome, bool contradiction);

    asio::io_context& loop_;
    asio::thread_pool& background_;
    storage::ledger_store& store_;
    std::unique_ptr<ledger::machine> machine_;
    ledger::clock clock_;
    core_options options_;
    durable_gate gate_;
    event_log events_;
    asio::steady_timer timer_;
    effect_handler on_effect_;
    fatal_handler on_fatal_;
    std::deque<std::pair<std::uint64_t, ledger::effect>> effects_;
    std::uint64_t applied_sequence_ = 0;
    std::uint64_t bytes_since_snapshot_ = 0;
    ledger_time last_tick_;
    snapshot_status snapshot_;
    std::string degraded_;
    bool kick_posted_ = false;
    bool disk_full_ = false;
    bool stopping_ = false;
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
    std::unique_ptr<storage::commit_thread> commit_;
};

}  // namespace darlcore::http
