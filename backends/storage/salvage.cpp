// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <utility>

#include "backends/storage/inspect.hpp"
#include "backends/storage/journal_writer.hpp"
#include "backends/storage/snapshot_store.hpp"

namespace darlcore::storage {
namespace {

struct kept_record {
    salvage_report::lost_record place;
    record fields;
    std::string payload;
};

class salvager {
public:
    salvager(file_system& fs, const std::string& from, const std::string& to, const replay_target& check,
             const way_back* back)
        : fs_(fs), from_(from), to_(to), making_(to + ".unfinished"), check_(check), back_(back) {}

    result<salvage_report> run() {
        if (fs_.list(to_)) return fail(errc::already_exists, to_ + " exists; salvage writes a new directory");
        if (fs_.list(making_))
            return fail(errc::already_exists, making_ + " was left by a salvage that did not end: remove it");
        auto seen = inspect(fs_, from_, [this](const record_place& place) { collect(place); });
        if (!seen) return seen.error();
        if (!seen->identity) return fail(errc::corrupt, from_ + ": neither a segment nor a snapshot can be read");
        if (const auto chosen = choose_base(*seen); !chosen) return chosen.error();
        replay();
        if (const auto reached = check_reached(); !reached) return reached.error();
        if (report_.kept_through == 0) return fail(errc::corrupt, from_ + ": not even the first record can be kept");
        list_lost(*seen);
        report_.findings = std::move(seen->findings);
        auto written = write(*seen);
        if (written) written = fs_.rename(making_, to_);
        if (!written) {
            (void)remove_tree(fs_, making_);
            return written.error();
        }
        if (const auto synced = fs_.sync_dir(parent_directory(to_)); !synced) return synced.error();
        return std::move(report_);
    }

private:
    void collect(const record_place& place) {
        kept_record kept{{place.file, place.offset, place.record.sequence, place.record.type},
                         place.record,
                         std::string(place.record.payload)};
        records_.emplace(place.record.sequence, std::move(kept));
    }

    [[nodiscard]] std::uint64_t run_end(std::uint64_t sequence) const {
        while (records_.contains(sequence + 1)) ++sequence;
        return sequence;
    }

    // The newest snapshot that the longest run continues; none when the records from the first one reach as far.
    result<void> choose_base(const inspection& seen) {
        std::uint64_t best_end = run_end(0);
        const snapshot_summary* best = nullptr;
        for (const auto& snapshot : seen.snapshots) {
            // a way back begins as early as it can
            if (back_ != nullptr && best_end > 0) break;
            if (!snapshot.good || run_end(snapshot.sequence) < best_end) continue;
            best = &snapshot;
            best_end = run_end(snapshot.sequence);
        }
        if (best == nullptr) return {};
        auto bytes = read_file(fs_, best->file);
        if (!bytes) return bytes.error();
        const auto decoded = decode_snapshot(*bytes);
        if (!decoded) return decoded.error();
        if (const auto loaded = check_.load_snapshot(decoded->info, decoded->payload); !loaded)
            return fail(errc::corrupt, best->file + ": " + to_text(loaded.error()));
        report_.snapshot_sequence = best->sequence;
        position_ = {decoded->info.sequence, decoded->info.batch, decoded->info.ledger_ms};
        snapshot_bytes_ = std::move(*bytes);
        return {};
    }

    // Records are kept as long as a start, and the ledger, can follow them.
    void replay() {
        bool last_ends_batch = true;
        while (!has_reached()) {
            const auto next = records_.find(position_.sequence + 1);
            if (next == records_.end()) break;
            record r = next->second.fields;
            r.payload = next->second.payload;
            const bool batch_follows =
                r.batch == position_.batch + 1 || (r.batch == position_.batch && !last_ends_batch);
            if (!batch_follows || r.ledger_ms < position_.ledger_ms || !check_.replay(r)) break;
            last_ends_batch = r.ends_batch;
            position_ = {r.sequence, r.batch, r.ledger_ms};
            ++report_.records_kept;
        }
        report_.kept_through = position_.sequence;
    }

    [[nodiscard]] bool has_reached() const {
        return back_ != nullptr && position_.sequence > 0 && back_->reached() >= 0;
    }

    result<void> check_reached() const {
        if (back_ == nullptr || (has_reached() && back_->reached() == 0)) return {};
        return fail(errc::invalid_argument, from_ + ": " + back_->why_not());
    }

    void list_lost(const inspection& seen) {
        std::uint64_t expected = position_.sequence + 1;
        const auto gap_until = [&](std::uint64_t sequence) {
            if (sequence > expected) report_.unreadable.push_back({expected, sequence - 1});
            expected = sequence + 1;
        };
        for (auto lost = records_.upper_bound(position_.sequence); lost != records_.end(); ++lost) {
            gap_until(lost->first);
            report_.lost.push_back(lost->second.place);
            if (back_ == nullptr) continue;
            record r = lost->second.fields;
            r.payload = lost->second.payload;
            back_->left_out(r);
        }
        if (seen.acked_sequence) gap_until(*seen.acked_sequence + 1);
    }

    result<void> write(const inspection& seen) {
        if (const auto made = ensure_directory(fs_, making_); !made) return made;
        std::uint64_t last = report_.kept_through;
        if (back_ != nullptr) {
            if (const auto finished = finish(); !finished) return finished;
            ++last;
        }
        const std::string journal = join(making_, "journal");
        if (const auto made = ensure_directory(fs_, journal); !made) return made;
        if (!snapshot_bytes_.empty()) {
            const auto path = join(journal, snapshot_name(report_.snapshot_sequence));
            if (const auto written = replace_file(fs_, path, snapshot_bytes_); !written) return written;
        }
        // the next start must stand above every term that was ever served
        std::uint32_t term = seen.term.value_or(0);
        for (const auto& segment : seen.segments) term = std::max(term, segment.term);
        for (const auto& snapshot : seen.snapshots) term = std::max(term, snapshot.term);
        const std::uint64_t first = report_.snapshot_sequence + 1;
        const std::string segment = segment_text({*seen.identity, first, term, salt_of(seen)}, first, last);
        if (const auto written = replace_file(fs_, join(journal, segment_name(first)), segment); !written)
            return written;
        const acked_mark mark{last, term};
        if (const auto written = replace_file(fs_, join(journal, "acked"), encode(mark)); !written) return written;
        return replace_file(fs_, join(making_, "term"), encode_term(term));
    }

    // The record that follows the cut, in the place of the first one left out.
    result<void> finish() {
        std::uint64_t unreadable = 0;
        for (const auto& gap : report_.unreadable) unreadable += gap.last - gap.first + 1;
        auto made = back_->finish(making_, unreadable);
        if (!made) return made.error();
        // ledger time goes on where it was: nothing of the new line is older than what it replaces
        const std::int64_t last_ms = records_.empty() ? 0 : records_.rbegin()->second.fields.ledger_ms;
        kept_record last{{}, {}, std::move(made->payload)};
        last.fields.type = made->type;
        last.fields.ends_batch = true;
        last.fields.sequence = report_.kept_through + 1;
        last.fields.batch = position_.batch + 1;
        last.fields.ledger_ms = std::max(position_.ledger_ms, last_ms);
        record r = last.fields;
        r.payload = last.payload;
        if (const auto fits = check_.replay(r); !fits) return fits;
        records_.insert_or_assign(r.sequence, std::move(last));
        return {};
    }

    [[nodiscard]] std::string segment_text(const segment_header& header, std::uint64_t first,
                                           std::uint64_t last) const {
        std::string bytes = encode(header);
        for (auto kept = records_.find(first); kept != records_.end() && kept->first <= last; ++kept) {
            record r = kept->second.fields;
            r.payload = kept->second.payload;
            append_record(bytes, r, header.salt);
        }
        return bytes;
    }

    // Any number that differs from those of the old segments' usual ones; the bytes are all ours.
    [[nodiscard]] static std::uint32_t salt_of(const inspection& seen) {
        return 0x5a17a6edU ^ static_cast<std::uint32_t>(seen.last_sequence);
    }

    file_system& fs_;
    const std::string& from_;
    const std::string& to_;
    const std::string making_;
    const replay_target& check_;
    const way_back* back_;
    std::map<std::uint64_t, kept_record> records_;
    journal_position position_;
    std::string snapshot_bytes_;
    salvage_report report_;
};

}  // namespace

result<salvage_report> salvage(file_system& fs, const std::string& from, const std::string& to,
                               const replay_target& check, const way_back* back) {
    return salvager(fs, from, to, check, back).run();
}

}  // namespace darlcore::storage
