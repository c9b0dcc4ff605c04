// SPDX-License-Identifier: Apache-2.0
#include "backends/storage/commit_thread.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace darlcore::storage {

commit_thread::commit_thread(ledger_store& store, durable_callback on_durable, failed_callback on_failed)
    : store_(store), on_durable_(std::move(on_durable)), on_failed_(std::move(on_failed)) {
    figures_.room_bytes = store_.writer().room_bytes();
    thread_ = std::thread([this] { run(); });
}

commit_thread::~commit_thread() {
    {
        const std::lock_guard held(mutex_);
        stopping_ = true;
    }
    wake_.notify_one();
    thread_.join();
}

std::uint64_t commit_thread::append(std::uint16_t type, std::int64_t ledger_ms, std::string_view payload) {
    const std::lock_guard held(mutex_);
    ++figures_.records;
    return store_.append(type, ledger_ms, payload);
}

void commit_thread::kick() {
    {
        const std::lock_guard held(mutex_);
        if (!store_.batches().pending_bytes()) return;
        kicked_ = true;
    }
    wake_.notify_one();
}

bool commit_thread::has_room(std::uint64_t bytes) {
    const std::lock_guard held(mutex_);
    if (figures_.room_bytes >= store_.batches().pending_bytes() + bytes) return true;
    want_room_ = true;
    wake_.notify_one();
    return false;
}

std::uint64_t commit_thread::last_sequence() {
    const std::lock_guard held(mutex_);
    return store_.batches().last_sequence();
}

std::uint64_t commit_thread::durable_sequence() {
    const std::lock_guard held(mutex_);
    return store_.batches().durable_position().sequence;
}

commit_figures commit_thread::figures() {
    const std::lock_guard held(mutex_);
    return figures_;
}

void commit_thread::snapshot_after_this(std::function<void(result<snapshot_info>)> then) {
    std::optional<error> failed;
    {
        const std::lock_guard held(mutex_);
        failed = failure_;
    }
    if (failed) return then(*failed);
    {
        const std::lock_guard held(mutex_);
        store_.batches().close_batch();
        rotate_at_ = store_.batches().last_sequence();
        rotate_then_ = std::move(then);
        kicked_ = true;
    }
    wake_.notify_one();
}

result<void> commit_thread::flush() {
    std::unique_lock held(mutex_);
    const std::uint64_t wanted = store_.batches().last_sequence();
    kicked_ = true;
    wake_.notify_one();
    progress_.wait(held, [&] { return failure_ || store_.batches().may_leave(wanted); });
    if (failure_) return *failure_;
    return {};
}

void commit_thread::run() {
    std::unique_lock held(mutex_);
    for (;;) {
        wake_.wait(held, [&] { return kicked_ || stopping_ || want_room_; });
        if (failure_) {
            kicked_ = want_room_ = false;
            if (stopping_) return;
            continue;
        }
        if (want_room_) keep_room(held);
        const bool rotation_due = rotate_then_ && store_.batches().may_leave(rotate_at_);
        if (rotation_due)
            rotate(held);
        else if (store_.batches().can_seal() && (kicked_ || stopping_))
            write_one(held);
        else if (stopping_)
            return;
        else
            kicked_ = false;
    }
}

void commit_thread::write_one(std::unique_lock<std::mutex>& held) {
    const auto sealed = store_.batches().seal(store_.writer().salt());
    // what is appended from here on waits for the next kick, unless a closed batch stands in line
    kicked_ = store_.batches().has_closed() || rotate_then_;
    held.unlock();
    const auto before = std::chrono::steady_clock::now();
    const auto written = store_.writer().write(sealed);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - before;
    held.lock();
    std::function<void(result<snapshot_info>)> abandoned;
    if (!written) {
        failure_ = written.error();
        abandoned = std::exchange(rotate_then_, nullptr);
    } else {
        store_.batches().durable(sealed);
        ++figures_.batches;
        figures_.bytes += sealed.bytes.size();
        figures_.last_sync_s = took.count();
        figures_.sync_s_total += took.count();
        figures_.sync_s_max = std::max(figures_.sync_s_max, took.count());
        figures_.room_bytes = store_.writer().room_bytes();
    }
    held.unlock();
    if (written)
        on_durable_(sealed.last_sequence);
    else
        on_failed_(written.error());
    if (abandoned) abandoned(written.error());
    held.lock();
    progress_.notify_all();
    want_room_ = want_room_ || figures_.room_bytes < store_.writer().step_bytes() / 2;
}

void commit_thread::rotate(std::unique_lock<std::mutex>& held) {
    auto then = std::exchange(rotate_then_, nullptr);
    const auto head = store_.snapshot_head();
    held.unlock();
    const auto rotated = store_.writer().rotate();
    held.lock();
    figures_.room_bytes = store_.writer().room_bytes();
    const bool is_final = !rotated && store_.writer().failed();
    if (is_final) failure_ = rotated.error();
    held.unlock();
    if (is_final) on_failed_(rotated.error());
    then(rotated ? result<snapshot_info>(head) : result<snapshot_info>(rotated.error()));
    held.lock();
    progress_.notify_all();
}

void commit_thread::keep_room(std::unique_lock<std::mutex>& held) {
    want_room_ = false;
    const std::uint64_t wanted = store_.batches().pending_bytes() + store_.writer().step_bytes() / 2;
    held.unlock();
    const auto room = store_.writer().ensure_room(wanted);
    held.lock();
    figures_.disk_full = !room.has_value();
    figures_.room_bytes = store_.writer().room_bytes();
}

}  // namespace darlcore::storage
