// SPDX-License-Identifier: Apache-2.0
// Bytes through the readers of the small files: snapshot, acked, term, segment header, record, lock, catalogue entry,
// file names. What is accepted is written back to the same bytes.
#include <cstdint>
#include <string>
#include <string_view>

#include "backends/storage/blob_store.hpp"
#include "backends/storage/bytes.hpp"
#include "backends/storage/crc32c.hpp"
#include "backends/storage/journal_format.hpp"
#include "backends/storage/model_directory.hpp"
#include "backends/storage/state_directory.hpp"
#include "darlcore/assert.hpp"

using namespace darlcore;
using namespace darlcore::storage;

namespace {

// Also with the checksum put right, so that the fields behind it are reached.
std::string with_crc(std::string_view bytes, std::size_t crc_at) {
    std::string fixed(bytes);
    if (fixed.size() >= crc_at + 4) put_at(fixed, crc_at, crc32c(std::string_view(fixed).substr(0, crc_at)));
    return fixed;
}

void read_all(std::string_view bytes) {
    if (const auto header = decode_segment_header(bytes))
        DARLCORE_ASSERT(encode(*header) == bytes.substr(0, segment_header_bytes));
    if (const auto mark = decode_acked(bytes)) DARLCORE_ASSERT(encode(*mark) == bytes);
    if (const auto term = decode_term(bytes)) DARLCORE_ASSERT(encode_term(*term) == bytes);
    if (const auto snapshot = decode_snapshot(bytes))
        DARLCORE_ASSERT(encode_snapshot(snapshot->info, snapshot->payload) == bytes);
    const auto parsed = parse_record(bytes, 0, 7);
    if (parsed.fault == record_fault::none) {
        std::string again;
        append_record(again, parsed.record, 7);
        DARLCORE_ASSERT(again == bytes.substr(0, parsed.size_bytes));
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view input(reinterpret_cast<const char*>(data), size);
    read_all(input);
    for (const std::size_t crc_at : {std::size_t{4}, std::size_t{20}, std::size_t{60}, std::size_t{112}})
        read_all(with_crc(input, crc_at));
    if (const auto facts = decode_blob_facts(input))
        DARLCORE_ASSERT(decode_blob_facts(encode(*facts)).value() == *facts);
    static_cast<void>(decode_lock_owner(input));
    if (const auto first = parse_segment_name(input)) DARLCORE_ASSERT(segment_name(*first) == input);
    if (const auto sequence = parse_snapshot_name(input)) DARLCORE_ASSERT(snapshot_name(*sequence) == input);
    if (const auto g = parse_generation_name(input)) DARLCORE_ASSERT(generation_name(*g) == input);
    return 0;
}
