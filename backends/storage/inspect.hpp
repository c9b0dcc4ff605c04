// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backends/storage/recovery.hpp"

namespace darlcore::storage {

// Looking into a state directory without starting on it: nothing here takes the lock or changes a file of the directory
// it reads.

/// One thing that is wrong, and where.
struct finding {
    std::string file;
    std::uint64_t offset = 0;
    /// Sequence that stands, or should stand, there; 0 when unknown.
    std::uint64_t sequence = 0;
    std::string what;
    /// False: a leftover that every crash may leave; a start repairs it.
    bool is_damage = true;
};

struct segment_summary {
    std::string file;
    std::uint64_t bytes = 0;
    bool has_header = false;
    std::uint32_t term = 0;
    std::uint64_t first_sequence = 0;
    std::uint64_t records = 0;
    /// Of the records that can be read, also behind damage.
    std::uint64_t last_sequence = 0;
    std::uint64_t used_bytes = 0;
};

struct snapshot_summary {
    std::string file;
    std::uint64_t bytes = 0;
    bool good = false;
    std::uint64_t sequence = 0;
    std::uint32_t term = 0;
};

/// Where a record is; the payload is valid during the call only.
struct record_place {
    const std::string& file;
    std::uint64_t offset = 0;
    const darlcore::storage::record& record;
};

struct inspection {
    std::vector<segment_summary> segments;
    std::vector<snapshot_summary> snapshots;
    std::vector<finding> findings;
    std::optional<std::uint64_t> acked_sequence;
    std::optional<std::uint32_t> term;
    std::optional<run_identity> identity;
    /// Highest sequence of an unbroken run of records and snapshots from the start.
    std::uint64_t last_sequence = 0;
    [[nodiscard]] bool is_damaged() const;
};

/// Reads every file of the journal in the state directory `path`, goes on behind damage, names each place.
/// `on_record`, if any, sees every readable record in the order of the files.
/// Errors: errc::not_found (no journal there), errc::io_error.
result<inspection> inspect(file_system& fs, const std::string& path,
                           const std::function<void(const record_place&)>& on_record = {});

/// What salvage kept and what it could not keep.
struct salvage_report {
    std::uint64_t kept_through = 0;
    std::uint64_t snapshot_sequence = 0;
    std::uint64_t records_kept = 0;
    /// Readable records behind the first gap: their file, offset, sequence. They cannot follow, so they are listed, not
    /// kept.
    struct lost_record {
        std::string file;
        std::uint64_t offset = 0;
        std::uint64_t sequence = 0;
        std::uint16_t type = 0;
    };
    std::vector<lost_record> lost;
    /// Sequences that nothing readable holds, as [first, last].
    struct gap {
        std::uint64_t first = 0;
        std::uint64_t last = 0;
    };
    std::vector<gap> unreadable;
    std::vector<finding> findings;
};

/// How far back a salvage goes on purpose: behind the record that makes the check target say `reached`, everything is
/// left out, and a record that `finish` gives takes its place. See `roll_back` in backends/storage/rollback.hpp.
struct way_back {
    struct last_record {
        std::uint16_t type = 0;
        std::string payload;
    };
    /// Is the state that the check target holds before, at or behind what is wanted?
    std::function<std::strong_ordering()> reached;
    /// The sentence when what is left of the journal does not hold it.
    std::function<std::string()> why_not;
    /// Each readable record that is left out, in order.
    std::function<void(const record&)> left_out;
    /// Called with the directory that is being written and the number of records that nothing readable holds.
    std::function<result<last_record>(const std::string& directory, std::uint64_t unreadable)> finish;
};

/// Writes what can be kept of `from` into the NEW directory `to`: the newest good snapshot that the longest unbroken
/// run of records continues, these records in one segment, a term above every one seen. `from` is not changed. Model
/// and blobs are not copied: a start compares them, see docs/storage.md.
/// Promises: `to` appears whole or not at all; it is made as `to`.unfinished and renamed.
/// Errors: errc::already_exists (`to` is there, or what an earlier try left), errc::not_found (no journal),
/// errc::corrupt (nothing can be kept), errc::invalid_argument (the journal does not reach back or forward to what is
/// wanted), those of the file system and of `back`.
result<salvage_report> salvage(file_system& fs, const std::string& from, const std::string& to,
                               const replay_target& check, const way_back* back = nullptr);

}  // namespace darlcore::storage
