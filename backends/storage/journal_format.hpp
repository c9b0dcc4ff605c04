// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "darlcore/error.hpp"

namespace darlcore::storage {

// The bytes of the journal and its small companions. Pure: text in, text out. Integers are little-endian.

using bytes16 = std::array<std::uint8_t, 16>;

/// Whose journal this is. Every file of a state directory carries it; unequal values mean that somebody mixed two
/// directories.
struct run_identity {
    bytes16 run_id{};
    bytes16 block_space_digest{};
    friend bool operator==(const run_identity&, const run_identity&) = default;
};

/// First 64 bytes of a segment: magic 8, format 2, flags 2, run id 16, digest 16, first sequence 8, term 4, salt 4,
/// CRC-32C 4.
struct segment_header {
    run_identity identity;
    std::uint64_t first_sequence = 1;
    std::uint32_t term = 0;
    /// Random per segment: bytes of another segment never pass for records of this one.
    std::uint32_t salt = 0;
    friend bool operator==(const segment_header&, const segment_header&) = default;
};

inline constexpr std::size_t segment_header_bytes = 64;
inline constexpr std::size_t record_header_bytes = 36;
inline constexpr std::size_t payload_bytes_max = std::size_t{16} << 20U;
inline constexpr std::uint16_t flag_ends_batch = 1;

std::string encode(const segment_header& header);
/// Errors: errc::truncated, errc::corrupt, errc::unsupported (a later format).
result<segment_header> decode_segment_header(std::string_view bytes);

/// One record: length 4, type 2, flags 2, sequence 8, batch 8, ledger_ms 8, CRC-32C 4 (over the salt, these fields and
/// the payload), payload, zeros up to a multiple of 8. What the payload means is the ledger's.
struct record {
    std::uint16_t type = 0;
    bool ends_batch = false;
    std::uint64_t sequence = 0;
    std::uint64_t batch = 0;
    std::int64_t ledger_ms = 0;
    std::string_view payload;
};

/// Bytes that a record with this payload takes in the file.
constexpr std::size_t record_bytes(std::size_t payload_bytes) {
    return (record_header_bytes + payload_bytes + 7) / 8 * 8;
}

/// Appends the record's bytes.
/// Preconditions (asserted): 1 <= payload size <= payload_bytes_max.
void append_record(std::string& to, const record& r, std::uint32_t salt);
/// Sets the CRC (and the end-of-batch flag) of the encoded record at `offset`, which was appended with another salt.
/// Gives the offset behind it.
std::size_t reseal_record(std::string& in, std::size_t offset, bool ends_batch, std::uint32_t salt);

/// Why bytes are no record.
enum class record_fault : std::uint8_t { none, unwritten, cut_short, bad_length, bad_flags, bad_checksum, bad_padding };
std::string_view word(record_fault fault);

struct parsed_record {
    record_fault fault = record_fault::none;
    darlcore::storage::record record;
    std::size_t size_bytes = 0;
};

/// Reads the record at `offset`. The payload is a view into `segment`.
/// Mutant for tests: `skip_checksum` accepts any CRC.
parsed_record parse_record(std::string_view segment, std::size_t offset, std::uint32_t salt,
                           bool skip_checksum = false);

/// Offset of the first valid record at or behind `offset` (records lie at multiples of 8) whose batch is above
/// `batch_above`. Complexity: O(bytes) unless the bytes imitate record headers.
std::optional<std::size_t> find_record(std::string_view segment, std::size_t offset, std::uint32_t salt,
                                       std::uint64_t batch_above);

/// Content of `journal/acked`: magic 8, sequence 8, term 4, CRC 4.
struct acked_mark {
    std::uint64_t sequence = 0;
    std::uint32_t term = 0;
    friend bool operator==(const acked_mark&, const acked_mark&) = default;
};
inline constexpr std::size_t acked_bytes = 24;
std::string encode(const acked_mark& mark);
result<acked_mark> decode_acked(std::string_view bytes);

/// Content of `term`: the number, CRC.
std::string encode_term(std::uint32_t term);
result<std::uint32_t> decode_term(std::string_view bytes);

/// Head of a snapshot file: magic 8, format 2, flags 2, identity 32, sequence 8, batch 8, ledger_ms 8, term 4, payload
/// bytes 8, SHA-256 of the payload 32, CRC 4; the payload follows.
struct snapshot_info {
    run_identity identity;
    std::uint64_t sequence = 0;
    std::uint64_t batch = 0;
    std::int64_t ledger_ms = 0;
    std::uint32_t term = 0;
    friend bool operator==(const snapshot_info&, const snapshot_info&) = default;
};
inline constexpr std::size_t snapshot_header_bytes = 116;
std::string encode_snapshot(const snapshot_info& info, std::string_view payload);

struct decoded_snapshot {
    snapshot_info info;
    std::string_view payload;
};
/// Checks everything; the payload is a view into `bytes`.
/// Errors: errc::truncated, errc::corrupt, errc::unsupported; the context says what and at which offset.
result<decoded_snapshot> decode_snapshot(std::string_view bytes);

// Names of the files under journal/.
std::string segment_name(std::uint64_t first_sequence);
std::string snapshot_name(std::uint64_t sequence);
std::optional<std::uint64_t> parse_segment_name(std::string_view name);
std::optional<std::uint64_t> parse_snapshot_name(std::string_view name);

}  // namespace darlcore::storage
