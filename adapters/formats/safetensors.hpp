// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "darlcore/error.hpp"
#include "darlcore/merge/tensor_spec.hpp"

namespace darlcore::formats {

/// Text pairs of `__metadata__`.
using safetensors_metadata = std::map<std::string, std::string, std::less<>>;

/// A tensor and where its bytes are, counted from the first byte after the header.
struct safetensors_entry {
    tensor_spec spec;
    std::uint64_t begin_bytes = 0;
    std::uint64_t end_bytes = 0;

    [[nodiscard]] std::uint64_t size_bytes() const { return end_bytes - begin_bytes; }
    friend bool operator==(const safetensors_entry&, const safetensors_entry&) = default;
};

/// What a header says. Entries are in the order of their data (equal offsets: ascending name).
struct safetensors_header {
    std::vector<safetensors_entry> entries;
    safetensors_metadata metadata;

    [[nodiscard]] const safetensors_entry* find(std::string_view name) const;
    /// The metadata text of that key; null pointer when absent.
    [[nodiscard]] const std::string* meta(std::string_view key) const;
};

/// Largest header that is read at all.
inline constexpr std::uint64_t safetensors_header_bytes_max = 100'000'000;

/// Reads the JSON part of a header for a file whose data part has `data_bytes` bytes. Every offset is checked here, so
/// that a reader of the entries needs no further checks: tensors cover the data exactly, without holes, overlap or
/// trailing bytes. Errors: errc::parse_error (not the JSON a header must be), errc::corrupt (offsets, shapes, data
/// size), errc::unsupported (dtype), errc::overflow (shape). The context names the tensor and the reason.
result<safetensors_header> parse_safetensors_header(std::string_view json_text, std::uint64_t data_bytes);

/// An open safetensors file. Reads at offsets, never by a memory map: a file cut short under a map is a crash, under a
/// read an error. Thread-safety: all reading members may be called from several threads at once.
class safetensors_reader {
public:
    /// Opens and checks the whole header.
    /// Errors: errc::not_found, errc::io_error, errc::truncated (shorter than its header says), errc::too_large (header
    /// above header_bytes_max), and those of parse_safetensors_header. The context names the file.
    static result<safetensors_reader> open(std::string path,
                                           std::uint64_t header_bytes_max = safetensors_header_bytes_max);

    safetensors_reader(safetensors_reader&& other) noexcept;
    safetensors_reader& operator=(safetensors_reader&& other) noexcept;
    ~safetensors_reader();

    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] const safetensors_header& header() const { return header_; }
    [[nodiscard]] std::uint64_t file_bytes() const { return file_bytes_; }
    /// Offset of the first data byte in the file.
    [[nodiscard]] std::uint64_t data_begin() const { return data_begin_; }

    /// Fills `out` with the data bytes from `offset_bytes` on (counted as in safetensors_entry).
    /// Errors: errc::short_read, errc::io_error; the context names the file and the offset.
    [[nodiscard]] result<void> read(std::uint64_t offset_bytes, std::span<std::byte> out) const;

    /// As `read`, inside one tensor.
    /// Preconditions (asserted): offset_bytes + out.size() <= entry.size_bytes().
    [[nodiscard]] result<void> read(const safetensors_entry& entry, std::uint64_t offset_bytes,
                                    std::span<std::byte> out) const;

    /// The whole tensor into memory of exactly its size.
    [[nodiscard]] result<void> read_all(const safetensors_entry& entry, std::span<std::byte> out) const {
        return read(entry, 0, out);
    }

private:
    safetensors_reader() = default;
    std::string path_;
    int fd_ = -1;
    std::uint64_t file_bytes_ = 0;
    std::uint64_t data_begin_ = 0;
    safetensors_header header_;
};

/// The first bytes of a file: 8 bytes of length and the JSON, padded with spaces to a multiple of 8. Tensors keep the
/// given order,
/// `"format":"pt"` is added so that usual loaders accept the file.
/// Errors: errc::overflow; errc::invalid_argument (a name twice, empty, or `__metadata__`); errc::too_large (header
/// above 100 MB).
result<std::string> build_safetensors_header(std::span<const tensor_spec> tensors,
                                             const safetensors_metadata& metadata);

/// Writes a safetensors file front to back. The file appears under the path that was given, which should be a staging
/// name: without `finish` it is removed again. Thread-safety: none.
class safetensors_writer {
public:
    /// Errors: errc::already_exists, errc::io_error, errc::no_space, and those of build_safetensors_header.
    static result<safetensors_writer> create(std::string path, std::span<const tensor_spec> tensors,
                                             const safetensors_metadata& metadata);

    safetensors_writer(safetensors_writer&& other) noexcept;
    safetensors_writer& operator=(safetensors_writer&& other) noexcept;
    ~safetensors_writer();

    [[nodiscard]] const std::string& path() const { return path_; }
    /// The bytes before the data: what a digest of the whole file starts with.
    [[nodiscard]] const std::string& header_text() const { return header_; }
    [[nodiscard]] std::uint64_t data_bytes() const { return data_bytes_; }

    /// Appends data: the tensors' bytes one after the other in the order given to `create`.
    /// Errors: errc::io_error, errc::no_space. Preconditions (asserted): not more than data_bytes() in all.
    [[nodiscard]] result<void> write(std::span<const std::byte> bytes);

    /// Puts data at an offset (counted as in safetensors_entry) instead of behind what was written so far.
    /// Errors: as `write`. Preconditions (asserted): inside the data; no byte is written twice.
    /// Thread-safety: may be called from several threads at once, but not beside `write`.
    [[nodiscard]] result<void> write_at(std::uint64_t offset_bytes, std::span<const std::byte> bytes);

    /// Makes the file durable and closes it.
    /// Errors: errc::truncated when data is missing; errc::io_error.
    [[nodiscard]] result<void> finish();

private:
    safetensors_writer() = default;
    void drop() noexcept;
    std::string path_;
    std::string header_;
    int fd_ = -1;
    std::uint64_t data_bytes_ = 0;
    std::atomic<std::uint64_t> written_bytes_{0};
};

/// A staging name beside `path`, so that the later rename stays inside one file system. Differs per process and call.
std::string staging_name(const std::string& path);

/// Renames a finished staging file to its name (replacing what was there) and makes the rename durable.
/// Errors: errc::io_error.
result<void> publish_file(const std::string& staging, const std::string& path);

}  // namespace darlcore::formats
