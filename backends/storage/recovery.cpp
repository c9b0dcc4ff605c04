// SPDX-License-Identifier: Apache-2.0
#include "backends/storage/recovery.hpp"

#include <algorithm>
#include <utility>

#include "backends/storage/bytes.hpp"

namespace darlcore::storage {
namespace {

struct segment_file {
    std::uint64_t first_sequence = 0;
    std::string path;
};

bool all_zero(std::string_view bytes) {
    return std::all_of(bytes.begin(), bytes.end(), [](char c) { return c == 0; });
}

/// One reading of a journal directory.
class reader {
public:
    reader(file_system& fs, const std::string& directory, const replay_target& target, const storage_mutants& mutants)
        : fs_(fs), directory_(directory), target_(target), mutants_(mutants) {}

    result<recovered_journal> run() {
        if (const auto listed = list(); !listed) return listed.error();
        if (const auto marked = read_acked(); !marked) return marked.error();
        if (const auto loaded = load_snapshot(); !loaded) return loaded.error();
        if (const auto read = read_segments(); !read) return read.error();
        if (acked_ && acked_->sequence > out_.position.sequence)
            return fail(errc::corrupt, refusal_place(directory_, 0) + ": records up to sequence " +
                                           std::to_string(acked_->sequence) + " were acknowledged, only " +
                                           std::to_string(out_.position.sequence) + " are left" + advice());
        if (acked_) out_.term = std::max(out_.term, acked_->term);
        out_.empty = out_.position.sequence == 0;
        if (!out_.empty && !acked_) out_.warnings.push_back("journal/acked is missing or damaged; the journal is good");
        return std::move(out_);
    }

private:
    // Files of the directory, in ascending order.
    result<void> list() {
        const auto entries = fs_.list(directory_);
        if (!entries) {
            if (entries.error().code == errc::not_found) return {};
            return entries.error();
        }
        for (const auto& entry : *entries) {
            if (const auto first = parse_segment_name(entry.name))
                segments_.push_back({*first, join(directory_, entry.name)});
            if (const auto sequence = parse_snapshot_name(entry.name))
                snapshots_.push_back({*sequence, join(directory_, entry.name)});
        }
        return {};
    }

    result<void> read_acked() {
        const auto bytes = read_file(fs_, join(directory_, "acked"), 4096);
        if (!bytes) {
            if (bytes.error().code == errc::not_found || bytes.error().code == errc::too_large) return {};
            return bytes.error();
        }
        if (const auto mark = decode_acked(*bytes)) acked_ = *mark;
        return {};
    }

    result<void> load_snapshot() {
        for (auto candidate = snapshots_.rbegin(); candidate != snapshots_.rend(); ++candidate) {
            const auto bytes = read_file(fs_, candidate->path);
            if (!bytes) return bytes.error();
            auto loaded = try_snapshot(*candidate, *bytes);
            if (loaded) return {};
            if (loaded.error().code == errc::refused) return loaded;
            out_.warnings.push_back(candidate->path + ": " + loaded.error().context + "; using the one before");
        }
        return {};
    }

    result<void> try_snapshot(const segment_file& from, std::string_view bytes) {
        const auto decoded = decode_snapshot(bytes);
        if (!decoded) return decoded.error();
        const auto& info = decoded->info;
        if (info.sequence != from.first_sequence)
            return fail(errc::corrupt,
                        "its name does not fit the sequence " + std::to_string(info.sequence) + " in it");
        if (const auto same = check_identity(info.identity, from.path); !same) return same;
        if (const auto loaded = target_.load_snapshot(info, decoded->payload); !loaded)
            return fail(errc::corrupt, "sequence " + std::to_string(info.sequence) + ": " + to_text(loaded.error()));
        out_.position = {info.sequence, info.batch, info.ledger_ms};
        out_.snapshot_sequence = info.sequence;
        out_.term = info.term;
        last_ends_batch_ = true;
        return {};
    }

    result<void> check_identity(const run_identity& found, const std::string& path) {
        if (out_.identity && !(*out_.identity == found))
            return fail(errc::refused, path + " belongs to another run or block space than the other files of " +
                                           directory_ + ": two directories were mixed");
        out_.identity = found;
        return {};
    }

    result<void> read_segments() {
        std::size_t first = 0;
        // skip what the snapshot covers entirely
        while (first + 1 < segments_.size() && segments_[first + 1].first_sequence <= out_.position.sequence + 1)
            ++first;
        for (std::size_t i = first; i < segments_.size(); ++i) {
            const bool newest = i + 1 == segments_.size();
            const auto bytes = read_file(fs_, segments_[i].path);
            if (!bytes) return bytes.error();
            const auto read = read_segment(segments_[i], *bytes, newest ? 0 : segments_[i + 1].first_sequence);
            if (!read) return read;
        }
        return {};
    }

    // next_first: first sequence of the next segment, 0 for the newest.
    result<void> read_segment(const segment_file& from, std::string_view bytes, std::uint64_t next_first) {
        const auto header = decode_segment_header(bytes);
        if (!header) return without_header(from, bytes, next_first, header.error());
        if (header->first_sequence != from.first_sequence)
            return refuse(from.path, 44, "the name of the file does not fit its first sequence");
        if (const auto same = check_identity(header->identity, from.path); !same) return same;
        if (header->first_sequence > out_.position.sequence + 1)
            return refuse(from.path, 0, "the records before it are missing (gap)");
        out_.term = std::max(out_.term, header->term);
        std::uint64_t sequence = header->first_sequence;
        std::size_t offset = segment_header_bytes;
        out_.repair.rewrite_from = 0;
        for (;; ++sequence) {
            if (next_first != 0 && sequence == next_first)
                return {};  // anything behind is a fenced server's last write
            const auto parsed = parse_record(bytes, offset, header->salt, mutants_.skip_checksum);
            if (parsed.fault != record_fault::none)
                return at_end(from, bytes, *header, offset, sequence, next_first, parsed.fault);
            if (const auto applied = apply(from, offset, sequence, parsed.record); !applied) return applied;
            offset += parsed.size_bytes;
        }
    }

    result<void> apply(const segment_file& from, std::size_t offset, std::uint64_t sequence, const record& r) {
        if (r.sequence != sequence)
            return refuse(from.path, offset, "sequence " + std::to_string(r.sequence) + " found");
        if (r.sequence <= out_.position.sequence) return {};  // in the snapshot
        const auto& before = out_.position;
        const bool batch_follows = r.batch == before.batch + 1 || (r.batch == before.batch && !last_ends_batch_);
        if (!batch_follows) return refuse(from.path, offset, "batch " + std::to_string(r.batch) + " cannot follow");
        if (r.ledger_ms < before.ledger_ms) return refuse(from.path, offset, "ledger time goes backwards");
        if (const auto replayed = target_.replay(r); !replayed)
            return refuse(from.path, offset, to_text(replayed.error()));
        if (r.batch != before.batch || out_.repair.rewrite_from == 0) out_.repair.rewrite_from = offset;
        out_.position = {r.sequence, r.batch, r.ledger_ms};
        last_ends_batch_ = r.ends_batch;
        ++out_.records_replayed;
        return {};
    }

    // The first bytes that are no record: the end of the journal, or damage.
    result<void> at_end(const segment_file& from, std::string_view bytes, const segment_header& header,
                        std::size_t offset, std::uint64_t sequence, std::uint64_t next_first, record_fault fault) {
        const std::string what(word(fault));
        if (next_first != 0) return refuse(from.path, offset, what + ", and a later segment exists");
        // A batch is written when the one before it is durable: a valid record of a later batch proves that these bytes
        // once were.
        const std::uint64_t torn_batch = out_.position.batch + (last_ends_batch_ ? 1 : 0);
        if (!mutants_.ignore_batch_rule)
            if (const auto later = find_record(bytes, offset, header.salt, torn_batch))
                return refuse(from.path, offset,
                              what + ", and a record of a later batch is at offset " + std::to_string(*later));
        if (acked_ && acked_->sequence >= sequence)
            return refuse(from.path, offset,
                          what + ", and sequence " + std::to_string(acked_->sequence) + " was acknowledged");
        if (sequence == header.first_sequence) {
            out_.repair.remove.push_back(from.path);
        } else {
            out_.repair.cut_path = from.path;
            out_.repair.cut_bytes = offset;
        }
        const auto rest = bytes.substr(std::min(offset, bytes.size()));
        if (all_zero(rest)) return {};
        out_.dropped_bytes = rest.size();
        out_.warnings.push_back(from.path + " offset " + std::to_string(offset) + ", sequence " +
                                std::to_string(sequence) + ": torn end of the last batch dropped (" + what +
                                "); nobody was told about it");
        return {};
    }

    result<void> without_header(const segment_file& from, std::string_view bytes, std::uint64_t next_first,
                                const error& failure) {
        // the header is durable before the first record is written: bytes behind it mean that it was good once
        const bool untouched = all_zero(bytes.substr(std::min(bytes.size(), segment_header_bytes)));
        const bool needed = acked_ && acked_->sequence >= from.first_sequence;
        if (next_first != 0 || !untouched || needed || failure.code == errc::unsupported)
            return refuse(from.path, 0, failure.context);
        out_.repair.remove.push_back(from.path);
        return {};
    }

    [[nodiscard]] std::string refusal_place(const std::string& path, std::size_t offset) const {
        return path + " offset " + std::to_string(offset) + ", sequence " + std::to_string(out_.position.sequence + 1);
    }
    static std::string advice() { return "; see `darl journal inspect` and `darl journal salvage`"; }
    [[nodiscard]] error refuse(const std::string& path, std::size_t offset, const std::string& why) const {
        return fail(errc::corrupt, refusal_place(path, offset) + ": " + why + advice());
    }

    file_system& fs_;
    const std::string& directory_;
    const replay_target& target_;
    const storage_mutants& mutants_;
    std::vector<segment_file> segments_;
    std::vector<segment_file> snapshots_;
    std::optional<acked_mark> acked_;
    recovered_journal out_;
    bool last_ends_batch_ = true;
};

result<void> rewrite(file& segment, const repair_plan& plan) {
    if (plan.rewrite_from == 0 || plan.rewrite_from >= plan.cut_bytes) return {};
    std::string bytes(static_cast<std::size_t>(plan.cut_bytes - plan.rewrite_from), '\0');
    const auto got = pread_all(segment, bytes, plan.rewrite_from);
    if (!got) return got.error();
    return pwrite_all(segment, std::string_view(bytes).substr(0, *got), plan.rewrite_from);
}

}  // namespace

result<recovered_journal> read_journal(file_system& fs, const std::string& directory, const replay_target& target,
                                       const storage_mutants& mutants) {
    return reader(fs, directory, target, mutants).run();
}

result<void> repair(file_system& fs, const std::string& directory, const repair_plan& plan,
                    const storage_mutants& mutants) {
    if (!plan.cut_path.empty()) {
        auto opened = fs.open(plan.cut_path, open_mode::read_write);
        if (!opened) return opened.error();
        if (const auto cut = (*opened)->truncate(plan.cut_bytes); !cut) return cut;
        if (!mutants.skip_tail_rewrite)
            if (const auto written = rewrite(**opened, plan); !written) return written;
        if (!mutants.skip_repair_fsync)
            if (const auto synced = (*opened)->fsync(); !synced) return synced;
    }
    for (const auto& path : plan.remove)
        if (const auto removed = fs.unlink(path); !removed) return removed;
    return fs.sync_dir(directory);
}

}  // namespace darlcore::storage
