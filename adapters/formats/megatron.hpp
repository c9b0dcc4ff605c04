// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "adapters/formats/posix_file.hpp"
#include "darlcore/error.hpp"

namespace darlcore::formats {

/// How the ids of a Megatron `.bin` file are stored. Only whole numbers make sense as ids.
enum class megatron_dtype : std::uint8_t { uint8, int16, int32, int64, uint16 };

/// What a Megatron `.idx` file says: where each sequence of ids lies in the `.bin` file.
struct megatron_index {
    megatron_dtype dtype = megatron_dtype::int32;
    std::vector<std::uint32_t> lengths;        ///< ids per sequence
    std::vector<std::uint64_t> offsets_bytes;  ///< in the `.bin` file
    std::vector<std::uint64_t> documents;  ///< first sequence of each document, and the number of sequences at the end

    [[nodiscard]] std::uint64_t id_bytes() const;
};

/// Reads the bytes of a `.idx` file (version 1) for a `.bin` file of `bin_bytes` bytes; every sequence is checked to
/// lie in it. Errors: errc::parse_error (not such a file), errc::unsupported (version, dtype), errc::truncated,
/// errc::corrupt.
result<megatron_index> parse_megatron_index(std::span<const std::byte> bytes, std::uint64_t bin_bytes);

/// A Megatron data set, `prefix.idx` and `prefix.bin`, read sequence by sequence at offsets.
/// Thread-safety: reading may be done from several threads at once.
class megatron_dataset {
public:
    /// `path` is the prefix or either of the two files.
    /// Errors: those of parse_megatron_index and of reading; the context names the file.
    static result<megatron_dataset> open(const std::string& path);

    [[nodiscard]] std::size_t num_documents() const { return index_.documents.size() - 1; }
    [[nodiscard]] std::size_t num_sequences() const { return index_.lengths.size(); }

    /// The ids of all sequences of a document, one after the other.
    /// Errors: errc::corrupt (a negative id or one above 2^32 - 1), errc::short_read, errc::io_error.
    /// Preconditions (asserted): document < num_documents().
    [[nodiscard]] result<std::vector<std::uint32_t>> read_document(std::size_t document) const;

private:
    megatron_dataset() = default;
    [[nodiscard]] result<void> append_sequence(std::size_t sequence, std::vector<std::uint32_t>& ids) const;

    posix_file bin_;
    megatron_index index_;
};

}  // namespace darlcore::formats
