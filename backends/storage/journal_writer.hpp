// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "backends/storage/group_commit.hpp"
#include "backends/storage/recovery.hpp"
#include "backends/storage/state_directory.hpp"

namespace darlcore::storage {

struct journal_options {
    /// Space is set aside in steps of this size, so that a full disk shows before anything is applied.
    std::uint64_t preallocate_bytes = std::uint64_t{64} << 20U;
    /// Salt of the next segment; default: from the operating system.
    std::function<std::uint32_t()> salt;
};

/// Appends batches to the newest segment.
/// Promises: after `write` succeeded the batch is durable, no other server had taken over, and `acked` names it. After
/// any failure of `write` or `rotate` other than errc::no_space from `rotate` the journal takes nothing any more: a
/// failed sync is never repeated, because the page cache may lie afterwards. Thread-safety: none; `room_bytes` may be
/// read from any thread only through commit_thread.
class journal_writer {
public:
    /// Starts a new segment behind `start`.
    /// Preconditions: the directory was repaired. `state` outlives the writer.
    static result<journal_writer> open(const state_directory& state, const run_identity& identity,
                                       journal_position start, journal_options options);

    /// Errors: errc::fenced (another server took over), errc::no_space, errc::io_error. All of them are final.
    result<void> write(const sealed_batch& batch);

    /// Salt to seal the next batch with.
    [[nodiscard]] std::uint32_t salt() const { return salt_; }
    /// Bytes that can be written without asking the disk for space.
    [[nodiscard]] std::uint64_t room_bytes() const { return allocated_bytes_ - offset_; }
    /// Size of the steps in which space is set aside.
    [[nodiscard]] std::uint64_t step_bytes() const { return options_.preallocate_bytes; }
    /// Sets space aside until at least `bytes` can be written. errc::no_space leaves everything as it was.
    result<void> ensure_room(std::uint64_t bytes);

    /// Ends the segment behind the last durable batch; the next one goes to a new segment. Used before a snapshot.
    /// errc::no_space leaves the old segment in use; every other failure is final.
    result<void> rotate();

    /// Clean stop: cuts the segment, syncs it and `acked`.
    result<void> close();

    [[nodiscard]] bool failed() const { return failed_; }
    [[nodiscard]] const journal_position& position() const { return position_; }
    /// First sequence of the segment in use.
    [[nodiscard]] std::uint64_t segment_first() const { return segment_first_; }
    [[nodiscard]] std::uint64_t segment_bytes() const { return offset_; }

private:
    result<void> open_segment();
    result<void> create_segment(const std::string& path, std::unique_ptr<file>& into);
    result<void> write_batch(const sealed_batch& batch);
    result<void> final_failure(result<void> outcome);
    result<void> sync_journal_dir();

    const state_directory* state_ = nullptr;
    run_identity identity_;
    journal_options options_;
    journal_position position_;
    std::unique_ptr<file> segment_;
    std::unique_ptr<file> acked_;
    std::uint64_t segment_first_ = 0;
    std::uint32_t salt_ = 0;
    std::uint64_t offset_ = 0;
    std::uint64_t allocated_bytes_ = 0;
    bool failed_ = false;
};

}  // namespace darlcore::storage
