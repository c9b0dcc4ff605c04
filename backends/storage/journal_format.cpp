// SPDX-License-Identifier: Apache-2.0
#include "backends/storage/journal_format.hpp"

#include <algorithm>

#include "backends/storage/bytes.hpp"
#include "backends/storage/crc32c.hpp"
#include "backends/storage/sha256.hpp"
#include "darlcore/assert.hpp"

namespace darlcore::storage {
namespace {

constexpr std::string_view segment_magic = "DARLJNL1";
constexpr std::string_view snapshot_magic = "DARLSNP1";
constexpr std::string_view acked_magic = "DARLACK1";
constexpr std::uint16_t format_version = 1;
constexpr std::size_t crc_offset = 32;

void put_bytes(std::string& to, const bytes16& from) {
    for (const std::uint8_t b : from) to.push_back(static_cast<char>(b));
}

bytes16 get_bytes(std::string_view from, std::size_t offset) {
    bytes16 value{};
    for (std::size_t i = 0; i < value.size(); ++i) value[i] = static_cast<std::uint8_t>(from[offset + i]);
    return value;
}

// Magic, format and flags, which segment and snapshot share.
result<void> check_start(std::string_view bytes, std::string_view magic) {
    if (bytes.substr(0, 8) != magic) return fail(errc::corrupt, "offset 0: no " + std::string(magic) + " magic");
    const auto format = get<std::uint16_t>(bytes, 8);
    if (format != format_version)
        return fail(errc::unsupported, "offset 8: format " + std::to_string(format) + ", this program knows " +
                                           std::to_string(format_version));
    if (get<std::uint16_t>(bytes, 10) != 0) return fail(errc::unsupported, "offset 10: unknown flags");
    return {};
}

std::uint32_t record_crc(std::string_view bytes, std::size_t offset, std::size_t payload_bytes, std::uint32_t salt) {
    std::string salt_text;
    put(salt_text, salt);
    std::uint32_t crc = crc32c(salt_text);
    crc = crc32c(bytes.substr(offset, crc_offset), crc);
    return crc32c(bytes.substr(offset + record_header_bytes, payload_bytes), crc);
}

}  // namespace

std::string encode(const segment_header& header) {
    std::string bytes(segment_magic);
    put(bytes, format_version);
    put(bytes, std::uint16_t{0});
    put_bytes(bytes, header.identity.run_id);
    put_bytes(bytes, header.identity.block_space_digest);
    put(bytes, header.first_sequence);
    put(bytes, header.term);
    put(bytes, header.salt);
    put(bytes, crc32c(bytes));
    return bytes;
}

result<segment_header> decode_segment_header(std::string_view bytes) {
    if (bytes.size() < segment_header_bytes) return fail(errc::truncated, "offset 0: shorter than a segment header");
    if (get<std::uint32_t>(bytes, 60) != crc32c(bytes.substr(0, 60)))
        return fail(errc::corrupt, "offset 0: checksum of the segment header is wrong");
    if (const auto started = check_start(bytes, segment_magic); !started) return started.error();
    segment_header header;
    header.identity = {get_bytes(bytes, 12), get_bytes(bytes, 28)};
    header.first_sequence = get<std::uint64_t>(bytes, 44);
    header.term = get<std::uint32_t>(bytes, 52);
    header.salt = get<std::uint32_t>(bytes, 56);
    return header;
}

void append_record(std::string& to, const record& r, std::uint32_t salt) {
    DARLCORE_ASSERT_CMP(r.payload.size(), >=, 1U);
    DARLCORE_ASSERT_CMP(r.payload.size(), <=, payload_bytes_max);
    const std::size_t offset = to.size();
    put(to, static_cast<std::uint32_t>(r.payload.size()));
    put(to, r.type);
    put(to, std::uint16_t{r.ends_batch ? flag_ends_batch : std::uint16_t{0}});
    put(to, r.sequence);
    put(to, r.batch);
    put(to, r.ledger_ms);
    put(to, std::uint32_t{0});
    to.append(r.payload);
    to.resize(offset + record_bytes(r.payload.size()), '\0');
    put_at(to, offset + crc_offset, record_crc(to, offset, r.payload.size(), salt));
}

std::size_t reseal_record(std::string& in, std::size_t offset, bool ends_batch, std::uint32_t salt) {
    const auto payload_bytes = get<std::uint32_t>(in, offset);
    put_at(in, offset + 6, std::uint16_t{ends_batch ? flag_ends_batch : std::uint16_t{0}});
    put_at(in, offset + crc_offset, record_crc(in, offset, payload_bytes, salt));
    return offset + record_bytes(payload_bytes);
}

std::string_view word(record_fault fault) {
    switch (fault) {
        case record_fault::none:
            return "valid";
        case record_fault::unwritten:
            return "no record (length 0)";
        case record_fault::cut_short:
            return "cut short by the end of the file";
        case record_fault::bad_length:
            return "impossible length";
        case record_fault::bad_flags:
            return "unknown flags";
        case record_fault::bad_checksum:
            return "checksum wrong";
        case record_fault::bad_padding:
            return "padding is not zero";
    }
    return "unknown";
}

parsed_record parse_record(std::string_view segment, std::size_t offset, std::uint32_t salt, bool skip_checksum) {
    parsed_record parsed;
    const auto faulty = [&](record_fault fault) {
        parsed.fault = fault;
        return parsed;
    };
    if (offset >= segment.size()) return faulty(record_fault::unwritten);
    if (segment.size() - offset < record_header_bytes) {
        const auto rest = segment.substr(offset);
        const bool zero = std::all_of(rest.begin(), rest.end(), [](char c) { return c == 0; });
        return faulty(zero ? record_fault::unwritten : record_fault::cut_short);
    }
    const auto payload_bytes = get<std::uint32_t>(segment, offset);
    if (payload_bytes == 0) return faulty(record_fault::unwritten);
    if (payload_bytes > payload_bytes_max) return faulty(record_fault::bad_length);
    const std::size_t total = record_bytes(payload_bytes);
    if (segment.size() - offset < total) return faulty(record_fault::cut_short);
    const auto flags = get<std::uint16_t>(segment, offset + 6);
    if (!skip_checksum &&
        get<std::uint32_t>(segment, offset + crc_offset) != record_crc(segment, offset, payload_bytes, salt))
        return faulty(record_fault::bad_checksum);
    if ((flags & ~flag_ends_batch) != 0) return faulty(record_fault::bad_flags);
    const auto padding =
        segment.substr(offset + record_header_bytes + payload_bytes, total - record_header_bytes - payload_bytes);
    if (!std::all_of(padding.begin(), padding.end(), [](char c) { return c == 0; }))
        return faulty(record_fault::bad_padding);
    parsed.record.type = get<std::uint16_t>(segment, offset + 4);
    parsed.record.ends_batch = (flags & flag_ends_batch) != 0;
    parsed.record.sequence = get<std::uint64_t>(segment, offset + 8);
    parsed.record.batch = get<std::uint64_t>(segment, offset + 16);
    parsed.record.ledger_ms = get<std::int64_t>(segment, offset + 24);
    parsed.record.payload = segment.substr(offset + record_header_bytes, payload_bytes);
    parsed.size_bytes = total;
    return parsed;
}

std::optional<std::size_t> find_record(std::string_view segment, std::size_t offset, std::uint32_t salt,
                                       std::uint64_t batch_above) {
    for (; offset + record_header_bytes <= segment.size(); offset += 8) {
        // cheap tests first: most places are zeros or the inside of a payload
        const auto payload_bytes = get<std::uint32_t>(segment, offset);
        if (payload_bytes == 0 || payload_bytes > payload_bytes_max) continue;
        if ((get<std::uint16_t>(segment, offset + 6) & ~flag_ends_batch) != 0) continue;
        const auto batch = get<std::uint64_t>(segment, offset + 16);
        if (batch <= batch_above || batch > get<std::uint64_t>(segment, offset + 8)) continue;
        if (parse_record(segment, offset, salt).fault == record_fault::none) return offset;
    }
    return std::nullopt;
}

std::string encode(const acked_mark& mark) {
    std::string bytes(acked_magic);
    put(bytes, mark.sequence);
    put(bytes, mark.term);
    put(bytes, crc32c(bytes));
    return bytes;
}

result<acked_mark> decode_acked(std::string_view bytes) {
    if (bytes.size() != acked_bytes) return fail(errc::truncated, "acked has not its 24 bytes");
    if (bytes.substr(0, 8) != acked_magic || get<std::uint32_t>(bytes, 20) != crc32c(bytes.substr(0, 20)))
        return fail(errc::corrupt, "checksum of acked is wrong");
    return acked_mark{get<std::uint64_t>(bytes, 8), get<std::uint32_t>(bytes, 16)};
}

std::string encode_term(std::uint32_t term) {
    std::string bytes;
    put(bytes, term);
    put(bytes, crc32c(bytes));
    return bytes;
}

result<std::uint32_t> decode_term(std::string_view bytes) {
    if (bytes.size() != 8) return fail(errc::corrupt, "offset 0: term has not its 8 bytes");
    if (get<std::uint32_t>(bytes, 4) != crc32c(bytes.substr(0, 4)))
        return fail(errc::corrupt, "offset 4: checksum of term is wrong");
    return get<std::uint32_t>(bytes, 0);
}

std::string encode_snapshot(const snapshot_info& info, std::string_view payload) {
    std::string bytes(snapshot_magic);
    put(bytes, format_version);
    put(bytes, std::uint16_t{0});
    put_bytes(bytes, info.identity.run_id);
    put_bytes(bytes, info.identity.block_space_digest);
    put(bytes, info.sequence);
    put(bytes, info.batch);
    put(bytes, info.ledger_ms);
    put(bytes, info.term);
    put(bytes, static_cast<std::uint64_t>(payload.size()));
    sha256 hash;
    hash.update(payload);
    bytes.append(hash.digest());
    put(bytes, crc32c(bytes));
    DARLCORE_ASSERT_CMP(bytes.size(), ==, snapshot_header_bytes);
    return bytes.append(payload);
}

result<decoded_snapshot> decode_snapshot(std::string_view bytes) {
    if (bytes.size() < snapshot_header_bytes) return fail(errc::truncated, "offset 0: shorter than a snapshot header");
    if (get<std::uint32_t>(bytes, 112) != crc32c(bytes.substr(0, 112)))
        return fail(errc::corrupt, "offset 0: checksum of the snapshot header is wrong");
    if (const auto started = check_start(bytes, snapshot_magic); !started) return started.error();
    decoded_snapshot decoded;
    decoded.info.identity = {get_bytes(bytes, 12), get_bytes(bytes, 28)};
    decoded.info.sequence = get<std::uint64_t>(bytes, 44);
    decoded.info.batch = get<std::uint64_t>(bytes, 52);
    decoded.info.ledger_ms = get<std::int64_t>(bytes, 60);
    decoded.info.term = get<std::uint32_t>(bytes, 68);
    decoded.payload = bytes.substr(snapshot_header_bytes);
    if (get<std::uint64_t>(bytes, 72) != decoded.payload.size())
        return fail(errc::truncated, "offset 116: the payload has " + std::to_string(decoded.payload.size()) +
                                         " bytes, the header says " + std::to_string(get<std::uint64_t>(bytes, 72)));
    sha256 hash;
    hash.update(decoded.payload);
    if (hash.digest() != bytes.substr(80, 32)) return fail(errc::corrupt, "offset 116: digest of the payload is wrong");
    return decoded;
}

namespace {

std::string padded(std::uint64_t number) {
    std::string digits = std::to_string(number);
    return std::string(20 - digits.size(), '0').append(digits);
}

std::optional<std::uint64_t> parse_padded(std::string_view text) {
    if (text.size() != 20) return std::nullopt;
    std::uint64_t number = 0;
    for (const char c : text) {
        if (c < '0' || c > '9') return std::nullopt;
        const auto digit = static_cast<std::uint64_t>(c - '0');
        if (number > (UINT64_MAX - digit) / 10) return std::nullopt;
        number = number * 10 + digit;
    }
    return number;
}

constexpr std::string_view snapshot_prefix = "snapshot-";

}  // namespace

std::string segment_name(std::uint64_t first_sequence) { return padded(first_sequence) + ".log"; }

std::string snapshot_name(std::uint64_t sequence) { return std::string(snapshot_prefix) + padded(sequence) + ".bin"; }

std::optional<std::uint64_t> parse_segment_name(std::string_view name) {
    if (name.size() != 24 || name.substr(20) != ".log") return std::nullopt;
    return parse_padded(name.substr(0, 20));
}

std::optional<std::uint64_t> parse_snapshot_name(std::string_view name) {
    if (name.size() != snapshot_prefix.size() + 24 || name.substr(0, snapshot_prefix.size()) != snapshot_prefix)
        return std::nullopt;
    name.remove_prefix(snapshot_prefix.size());
    if (name.substr(20) != ".bin") return std::nullopt;
    return parse_padded(name.substr(0, 20));
}

}  // namespace darlcore::storage
