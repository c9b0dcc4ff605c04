// SPDX-License-Identifier: Apache-2.0
#include "backends/storage/inspect.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace darlcore::storage {
namespace {

/// One reading of all files.
class inspector {
public:
    inspector(file_system& fs, const std::string& path, const std::function<void(const record_place&)>& on_record)
        : fs_(fs), path_(path), journal_(join(path, "journal")), on_record_(on_record) {}

    result<inspection> run() {
        const auto entries = fs_.list(journal_);
        if (!entries) {
            if (entries.error().code == errc::not_found) return fail(errc::not_found, path_ + " holds no journal");
            return entries.error();
        }
        if (const auto read = read_small_files(); !read) return read.error();
        std::vector<std::uint64_t> firsts;
        for (const auto& entry : *entries) {
            if (const auto first = parse_segment_name(entry.name)) firsts.push_back(*first);
            if (const auto sequence = parse_snapshot_name(entry.name))
                if (const auto read = read_snapshot(*sequence); !read) return read.error();
        }
        // behind a good snapshot older segments may be gone
        next_ = firsts.empty() ? oldest_snapshot_ + 1 : std::min(firsts.front(), oldest_snapshot_ + 1);
        for (std::size_t i = 0; i < firsts.size(); ++i)
            if (const auto read = read_segment(firsts[i], i + 1 < firsts.size() ? firsts[i + 1] : 0); !read)
                return read.error();
        out_.last_sequence = unbroken_from(0);
        for (const auto& snapshot : out_.snapshots)
            if (snapshot.good) out_.last_sequence = std::max(out_.last_sequence, unbroken_from(snapshot.sequence));
        check_acked();
        return std::move(out_);
    }

private:
    void find(std::string file, std::uint64_t offset, std::uint64_t sequence, std::string what, bool is_damage = true) {
        out_.findings.push_back({std::move(file), offset, sequence, std::move(what), is_damage});
    }

    result<void> read_small_files() {
        const std::string term_path = join(path_, "term");
        const auto term_bytes = read_file(fs_, term_path, 4096);
        if (term_bytes) {
            const auto term = decode_term(*term_bytes);
            if (term)
                out_.term = *term;
            else
                find(term_path, 0, 0, term.error().context);
        } else if (term_bytes.error().code == errc::not_found) {
            find(term_path, 0, 0, "is missing");
        } else {
            return term_bytes.error();
        }
        const std::string acked_path = join(journal_, "acked");
        const auto acked = read_file(fs_, acked_path, 4096);
        const auto mark = acked ? decode_acked(*acked) : result<acked_mark>(acked.error());
        if (mark)
            out_.acked_sequence = mark->sequence;
        else
            find(acked_path, 0, 0, "is missing or damaged; a start warns and goes on", false);
        return {};
    }

    result<void> read_snapshot(std::uint64_t sequence) {
        snapshot_summary summary;
        summary.file = join(journal_, snapshot_name(sequence));
        summary.sequence = sequence;
        const auto bytes = read_file(fs_, summary.file);
        if (!bytes) return bytes.error();
        summary.bytes = bytes->size();
        const auto decoded = decode_snapshot(*bytes);
        summary.good = decoded.has_value() && decoded->info.sequence == sequence;
        if (summary.good) {
            summary.term = decoded->info.term;
            if (oldest_snapshot_ == 0) oldest_snapshot_ = sequence;
            check_identity(decoded->info.identity, summary.file);
        } else {
            find(summary.file, 0, sequence, decoded ? "its name does not fit its sequence" : decoded.error().context);
        }
        out_.snapshots.push_back(std::move(summary));
        return {};
    }

    void check_identity(const run_identity& found, const std::string& file) {
        if (out_.identity && !(*out_.identity == found))
            find(file, 12, 0, "belongs to another run or block space");
        else
            out_.identity = found;
    }

    result<void> read_segment(std::uint64_t first, std::uint64_t next_first) {
        segment_summary summary;
        summary.file = join(journal_, segment_name(first));
        summary.first_sequence = first;
        const auto bytes = read_file(fs_, summary.file);
        if (!bytes) return bytes.error();
        summary.bytes = bytes->size();
        const auto header = decode_segment_header(*bytes);
        if (header) {
            summary.has_header = true;
            summary.term = header->term;
            check_identity(header->identity, summary.file);
            if (header->first_sequence != first)
                find(summary.file, 44, first, "the name of the file does not fit its first sequence");
            if (first > next_)
                find(summary.file, 0, next_,
                     "records " + std::to_string(next_) + " to " + std::to_string(first - 1) + " are missing");
            walk(*bytes, *header, next_first, summary);
        } else {
            const bool is_leftover = next_first == 0 && (!out_.acked_sequence || *out_.acked_sequence < first);
            find(summary.file, 0, first, header.error().context, !is_leftover);
        }
        out_.segments.push_back(std::move(summary));
        return {};
    }

    void walk(std::string_view bytes, const segment_header& header, std::uint64_t next_first,
              segment_summary& summary) {
        std::uint64_t sequence = header.first_sequence;
        std::size_t offset = segment_header_bytes;
        for (;;) {
            if (next_first != 0 && sequence == next_first) break;
            const auto parsed = parse_record(bytes, offset, header.salt);
            if (parsed.fault == record_fault::none) {
                take(summary, offset, parsed.record);
                sequence = parsed.record.sequence + 1;
                offset += parsed.size_bytes;
                continue;
            }
            // go on behind the damage with whatever is readable
            const auto later = find_record(bytes, offset, header.salt, 0);
            report_end(summary, offset, sequence, next_first, parsed.fault, later, bytes);
            if (!later) break;
            offset = *later;
        }
    }

    void take(segment_summary& summary, std::size_t offset, const record& r) {
        ++summary.records;
        summary.last_sequence = r.sequence;
        summary.used_bytes = offset + record_bytes(r.payload.size());
        last_batch_ = r.batch;
        last_ends_batch_ = r.ends_batch;
        next_ = std::max(next_, r.sequence + 1);
        readable_.insert(r.sequence);
        if (on_record_) on_record_({summary.file, offset, r});
    }

    void report_end(const segment_summary& summary, std::size_t offset, std::uint64_t sequence,
                    std::uint64_t next_first, record_fault fault, std::optional<std::size_t> later,
                    std::string_view bytes) {
        const auto rest = bytes.substr(std::min(offset, bytes.size()));
        const bool is_zero = std::all_of(rest.begin(), rest.end(), [](char c) { return c == 0; });
        const bool was_acked = out_.acked_sequence && *out_.acked_sequence >= sequence;
        std::string what(word(fault));
        if (later) what += "; the next readable record is at offset " + std::to_string(*later);
        if (was_acked) what += "; sequence " + std::to_string(*out_.acked_sequence) + " was acknowledged";
        if (next_first != 0) what += "; a later segment begins at sequence " + std::to_string(next_first);
        const bool may_be_torn = next_first == 0 && !was_acked && !has_later_batch(bytes, later);
        if (is_zero && may_be_torn) return;
        find(summary.file, offset, sequence, may_be_torn ? "torn end of the last batch: " + what : what, !may_be_torn);
    }

    [[nodiscard]] bool has_later_batch(std::string_view bytes, std::optional<std::size_t> from) const {
        if (!from) return false;
        const auto header = decode_segment_header(bytes);
        return header && find_record(bytes, *from, header->salt, last_batch_ + (last_ends_batch_ ? 1 : 0)).has_value();
    }

    [[nodiscard]] std::uint64_t unbroken_from(std::uint64_t sequence) const {
        while (readable_.contains(sequence + 1)) ++sequence;
        return sequence;
    }

    void check_acked() {
        if (!out_.acked_sequence || *out_.acked_sequence <= out_.last_sequence) return;
        find(journal_, 0, out_.last_sequence + 1,
             "records up to sequence " + std::to_string(*out_.acked_sequence) +
                 " were acknowledged, an unbroken run ends at " + std::to_string(out_.last_sequence));
    }

    file_system& fs_;
    const std::string& path_;
    std::string journal_;
    const std::function<void(const record_place&)>& on_record_;
    inspection out_;
    std::uint64_t oldest_snapshot_ = 0;
    std::uint64_t next_ = 1;
    std::uint64_t last_batch_ = 0;
    bool last_ends_batch_ = true;
    std::set<std::uint64_t> readable_;
};

}  // namespace

bool inspection::is_damaged() const {
    return std::any_of(findings.begin(), findings.end(), [](const auto& f) { return f.is_damage; });
}

result<inspection> inspect(file_system& fs, const std::string& path,
                           const std::function<void(const record_place&)>& on_record) {
    return inspector(fs, path, on_record).run();
}

}  // namespace darlcore::storage
