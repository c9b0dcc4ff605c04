// SPDX-License-Identifier: Apache-2.0
#include "backends/storage/journal_writer.hpp"

#include <random>
#include <utility>

namespace darlcore::storage {

result<journal_writer> journal_writer::open(const state_directory& state, const run_identity& identity,
                                            journal_position start, journal_options options) {
    journal_writer writer;
    writer.state_ = &state;
    writer.identity_ = identity;
    writer.options_ = std::move(options);
    writer.position_ = start;
    if (!writer.options_.salt)
        writer.options_.salt = [] {
            std::random_device device;
            return static_cast<std::uint32_t>(device());
        };
    auto acked = state.files().open(join(state.journal_path(), "acked"), open_mode::create);
    if (!acked) return acked.error();
    writer.acked_ = std::move(*acked);
    if (const auto opened = writer.open_segment(); !opened) return opened.error();
    return writer;
}

result<void> journal_writer::sync_journal_dir() {
    if (state_->mutants().skip_dir_fsync) return {};
    return state_->files().sync_dir(state_->journal_path());
}

result<void> journal_writer::create_segment(const std::string& path, std::unique_ptr<file>& into) {
    // made anew, never opened: two servers cannot share a segment even where locks do not work
    auto opened = state_->files().open(path, open_mode::create_new);
    if (!opened) return opened.error();
    into = std::move(*opened);
    if (const auto space = into->preallocate(options_.preallocate_bytes); !space) return space;
    const std::string header = encode(segment_header{identity_, position_.sequence + 1, state_->term(), salt_});
    if (const auto written = pwrite_all(*into, header, 0); !written) return written;
    if (!state_->mutants().skip_file_fsync)
        if (const auto synced = into->fsync(); !synced) return synced;
    return sync_journal_dir();
}

result<void> journal_writer::open_segment() {
    const std::string path = join(state_->journal_path(), segment_name(position_.sequence + 1));
    const std::uint32_t salt_before = std::exchange(salt_, options_.salt());
    std::unique_ptr<file> created;
    const auto made = create_segment(path, created);
    if (!made) {
        salt_ = salt_before;
        if (made.error().code != errc::no_space) return made;
        // a leftover with the number of the next record must not outlive this: it would hide what the old segment gets
        const auto removed = state_->files().unlink(path);
        if (!removed) return fail(errc::io_error, removed.error().context);
        const auto synced = state_->files().sync_dir(state_->journal_path());
        return synced ? made : fail(errc::io_error, synced.error().context);
    }
    segment_ = std::move(created);
    segment_first_ = position_.sequence + 1;
    offset_ = segment_header_bytes;
    allocated_bytes_ = std::max<std::uint64_t>(options_.preallocate_bytes, segment_header_bytes);
    return {};
}

result<void> journal_writer::ensure_room(std::uint64_t bytes) {
    if (room_bytes() >= bytes) return {};
    const std::uint64_t step = std::max<std::uint64_t>(options_.preallocate_bytes, 1);
    const std::uint64_t wanted = (offset_ + bytes + step - 1) / step * step;
    if (const auto space = segment_->preallocate(wanted); !space) return space;
    allocated_bytes_ = wanted;
    return {};
}

result<void> journal_writer::final_failure(result<void> outcome) {
    if (!outcome) failed_ = true;
    return outcome;
}

result<void> journal_writer::write(const sealed_batch& batch) {
    if (failed_) return fail(errc::io_error, "the journal failed before; restart to recover by replay");
    DARLCORE_ASSERT_CMP(batch.first_sequence, ==, position_.sequence + 1);
    return final_failure(write_batch(batch));
}

result<void> journal_writer::write_batch(const sealed_batch& batch) {
    const auto& mutants = state_->mutants();
    if (const auto room = ensure_room(batch.bytes.size()); !room) return room;
    if (const auto written = pwrite_all(*segment_, batch.bytes, offset_); !written) return written;
    if (!mutants.skip_fsync) {
        auto synced = segment_->fdatasync();
        if (!synced && mutants.retry_failed_sync) synced = segment_->fdatasync();
        if (!synced) return synced;
    }
    // between the sync and the replies: another server reads the journal only after it has raised the term
    if (const auto ours = state_->check_term(); !ours) return ours;
    offset_ += batch.bytes.size();
    position_ = {batch.last_sequence, batch.batch, batch.last_ledger_ms};
    if (mutants.skip_acked) return {};
    return pwrite_all(*acked_, encode(acked_mark{position_.sequence, state_->term()}), 0);
}

result<void> journal_writer::rotate() {
    if (failed_) return fail(errc::io_error, "the journal failed before; restart to recover by replay");
    if (position_.sequence + 1 == segment_first_) return {};  // nothing in it yet
    auto old_segment = std::move(segment_);
    const std::uint64_t old_bytes = offset_;
    const auto opened = open_segment();
    if (!opened) {
        segment_ = std::move(old_segment);
        return opened.error().code == errc::no_space ? opened : final_failure(opened);
    }
    if (const auto cut = old_segment->truncate(old_bytes); !cut) return final_failure(cut);
    return final_failure(old_segment->fsync());
}

result<void> journal_writer::close() {
    if (failed_) return {};
    if (const auto cut = segment_->truncate(offset_); !cut) return final_failure(cut);
    allocated_bytes_ = offset_;
    if (const auto synced = segment_->fsync(); !synced) return final_failure(synced);
    return final_failure(acked_->fsync());
}

}  // namespace darlcore::storage
