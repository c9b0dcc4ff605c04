// SPDX-License-Identifier: Apache-2.0
#include "adapters/formats/megatron.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace darlcore::formats {

namespace {

constexpr std::string_view magic("MMIDIDX\0\0", 9);
constexpr std::uint64_t header_bytes = 9 + 8 + 1 + 8 + 8;
constexpr std::uint64_t index_bytes_max = std::uint64_t{4} << 30U;

std::uint64_t little_endian(std::span<const std::byte> bytes) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) value |= static_cast<std::uint64_t>(bytes[i]) << (8U * i);
    return value;
}

std::optional<megatron_dtype> dtype_of(std::uint64_t code) {
    switch (code) {
        case 1:
            return megatron_dtype::uint8;
        case 3:
            return megatron_dtype::int16;
        case 4:
            return megatron_dtype::int32;
        case 5:
            return megatron_dtype::int64;
        case 8:
            return megatron_dtype::uint16;
        default:
            return std::nullopt;
    }
}

bool is_signed(megatron_dtype d) { return d != megatron_dtype::uint8 && d != megatron_dtype::uint16; }

result<void> check_sequences(const megatron_index& index, std::uint64_t bin_bytes) {
    for (std::size_t i = 0; i < index.lengths.size(); ++i) {
        const std::uint64_t bytes = index.lengths[i] * index.id_bytes();
        if (index.offsets_bytes[i] > bin_bytes || bytes > bin_bytes - index.offsets_bytes[i])
            return fail(errc::corrupt, "sequence " + std::to_string(i) + " ends beyond the .bin file of " +
                                           std::to_string(bin_bytes) + " bytes");
    }
    return {};
}

result<void> check_documents(const megatron_index& index) {
    const auto& d = index.documents;
    if (d.empty() || d.front() != 0 || d.back() != index.lengths.size() || !std::is_sorted(d.begin(), d.end()))
        return fail(errc::corrupt, "the document list is no partition of the sequences");
    return {};
}

}  // namespace

std::uint64_t megatron_index::id_bytes() const {
    switch (dtype) {
        case megatron_dtype::uint8:
            return 1;
        case megatron_dtype::int16:
        case megatron_dtype::uint16:
            return 2;
        case megatron_dtype::int32:
            return 4;
        case megatron_dtype::int64:
            break;
    }
    return 8;
}

result<megatron_index> parse_megatron_index(std::span<const std::byte> bytes, std::uint64_t bin_bytes) {
    if (bytes.size() < magic.size() || std::memcmp(bytes.data(), magic.data(), magic.size()) != 0)
        return fail(errc::parse_error, "does not begin as a Megatron index (MMIDIDX)");
    if (bytes.size() < header_bytes) return fail(errc::truncated, "ends within the header");
    const std::uint64_t version = little_endian(bytes.subspan(9, 8));
    if (version != 1) return fail(errc::unsupported, "version " + std::to_string(version) + "; only 1 is read");
    const auto dtype = dtype_of(little_endian(bytes.subspan(17, 1)));
    if (!dtype)
        return fail(errc::unsupported, "dtype code " + std::to_string(little_endian(bytes.subspan(17, 1))) +
                                           "; only whole numbers of 1 to 8 bytes are read (1, 3, 4, 5, 8)");
    const std::uint64_t sequences = little_endian(bytes.subspan(18, 8));
    const std::uint64_t documents = little_endian(bytes.subspan(26, 8));
    // Bounds first: the products below cannot overflow then.
    if (sequences > bytes.size() / 12 || documents > bytes.size() / 8)
        return fail(errc::truncated, "announces more sequences or documents than it has room for");
    const std::uint64_t needed = header_bytes + 12 * sequences + 8 * documents;
    if (bytes.size() != needed)
        return fail(bytes.size() < needed ? errc::truncated : errc::corrupt,
                    "has " + std::to_string(bytes.size()) + " bytes, its header asks for " + std::to_string(needed));
    megatron_index index;
    index.dtype = *dtype;
    std::size_t at = header_bytes;
    const auto take = [&](std::size_t size) {
        return little_endian(bytes.subspan(std::exchange(at, at + size), size));
    };
    for (std::uint64_t i = 0; i < sequences; ++i) {
        const std::uint64_t length = take(4);
        if (length > INT32_MAX) return fail(errc::corrupt, "sequence " + std::to_string(i) + " has a negative length");
        index.lengths.push_back(static_cast<std::uint32_t>(length));
    }
    for (std::uint64_t i = 0; i < sequences; ++i) index.offsets_bytes.push_back(take(8));
    for (std::uint64_t i = 0; i < documents; ++i) index.documents.push_back(take(8));
    if (const auto ok = check_sequences(index, bin_bytes); !ok) return ok.error();
    if (const auto ok = check_documents(index); !ok) return ok.error();
    return index;
}

result<megatron_dataset> megatron_dataset::open(const std::string& path) {
    std::string prefix = path;
    if (prefix.size() > 4 && (prefix.ends_with(".idx") || prefix.ends_with(".bin"))) prefix.resize(prefix.size() - 4);
    const auto text = read_text_file(prefix + ".idx", index_bytes_max);
    if (!text) return text.error();
    auto bin = posix_file::open_for_reading(prefix + ".bin");
    if (!bin) return bin.error();
    const auto bin_bytes = bin->size_bytes();
    if (!bin_bytes) return bin_bytes.error();
    auto index = parse_megatron_index(std::as_bytes(std::span(*text)), *bin_bytes);
    if (!index) return fail(index.error().code, prefix + ".idx: " + index.error().context + "; copy both files again");
    megatron_dataset set;
    set.bin_ = *std::move(bin);
    set.index_ = *std::move(index);
    return set;
}

result<std::vector<std::uint32_t>> megatron_dataset::read_document(std::size_t document) const {
    DARLCORE_ASSERT_CMP(document, <, num_documents());
    std::vector<std::uint32_t> ids;
    for (auto s = index_.documents[document]; s < index_.documents[document + 1]; ++s)
        if (const auto ok = append_sequence(static_cast<std::size_t>(s), ids); !ok) return ok.error();
    return ids;
}

result<void> megatron_dataset::append_sequence(std::size_t sequence, std::vector<std::uint32_t>& ids) const {
    const auto width = static_cast<std::size_t>(index_.id_bytes());
    std::vector<std::byte> raw(index_.lengths[sequence] * width);
    if (const auto ok = bin_.read_at(index_.offsets_bytes[sequence], raw); !ok) return ok;
    for (std::size_t at = 0; at < raw.size(); at += width) {
        const std::uint64_t id = little_endian(std::span(raw).subspan(at, width));
        const bool negative = is_signed(index_.dtype) && (id >> (8U * width - 1)) != 0;
        if (negative || id > UINT32_MAX)
            return fail(errc::corrupt, bin_.path() + ": sequence " + std::to_string(sequence) + " has an id that is " +
                                           (negative ? "negative" : "above 2^32 - 1"));
        ids.push_back(static_cast<std::uint32_t>(id));
    }
    return {};
}

}  // namespace darlcore::formats
