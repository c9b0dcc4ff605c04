// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "backends/storage/ledger_store.hpp"

namespace darlcore::storage {

/// Figures for /metrics.
struct commit_figures {
    std::uint64_t batches = 0;
    std::uint64_t records = 0;
    std::uint64_t bytes = 0;
    double last_sync_s = 0;
    double sync_s_total = 0;
    double sync_s_max = 0;
    std::uint64_t room_bytes = 0;
    bool disk_full = false;
};

/// Group commit on a thread of its own: while one batch is written and synced, the next one fills.
/// Both callbacks run on the commit thread and should only post to the event loop. `on_durable` gives the sequence up
/// to which replies may leave; `on_failed` comes at most once, after it nothing becomes durable any more (answer 503,
/// exit 1). Thread-safety: append, kick, has_room and figures from any thread.
class commit_thread {
public:
    using durable_callback = std::function<void(std::uint64_t sequence)>;
    using failed_callback = std::function<void(const error&)>;

    /// Preconditions: `store` outlives the thread and nobody else uses its batches or writer meanwhile.
    commit_thread(ledger_store& store, durable_callback on_durable, failed_callback on_failed);
    commit_thread(const commit_thread&) = delete;
    commit_thread& operator=(const commit_thread&) = delete;
    /// Commits what is open and joins.
    ~commit_thread();

    /// Adds to the open batch; it is written at the next `kick`.
    std::uint64_t append(std::uint16_t type, std::int64_t ledger_ms, std::string_view payload);
    /// The open batch may go as soon as the disk is free; call once per turn of the loop.
    void kick();
    /// False: the disk is full (see ledger_store::has_room). Never blocks; space is asked for by the commit thread.
    [[nodiscard]] bool has_room(std::uint64_t bytes);
    /// Sequence of the last record appended, and of the last durable one.
    [[nodiscard]] std::uint64_t last_sequence();
    [[nodiscard]] std::uint64_t durable_sequence();
    [[nodiscard]] commit_figures figures();

    /// Closes the open batch as one that a snapshot follows: once it is durable the segment ends and `then` is called
    /// on the commit thread with the head of the snapshot (write it elsewhere with write_snapshot), or with the reason
    /// why not. Copy the state before the next append.
    void snapshot_after_this(std::function<void(result<snapshot_info>)> then);

    /// Waits until everything appended so far is durable.
    /// Errors: what `on_failed` was told.
    result<void> flush();

private:
    void run();
    void write_one(std::unique_lock<std::mutex>& held);
    void rotate(std::unique_lock<std::mutex>& held);
    void keep_room(std::unique_lock<std::mutex>& held);

    ledger_store& store_;
    durable_callback on_durable_;
    failed_callback on_failed_;
    std::mutex mutex_;
    std::condition_variable wake_;
    std::condition_variable progress_;
    bool kicked_ = false;
    bool stopping_ = false;
    bool want_room_ = false;
    std::optional<error> failure_;
    std::function<void(result<snapshot_info>)> rotate_then_;
    std::uint64_t rotate_at_ = 0;
    commit_figures figures_;
    std::thread thread_;
};

}  // namespace darlcore::storage
