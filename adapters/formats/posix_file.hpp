// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "darlcore/error.hpp"

namespace darlcore::formats {

/// An open file that closes itself. Reads at offsets may come from several threads at once.
class posix_file {
public:
    posix_file() = default;
    posix_file(posix_file&& other) noexcept : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}
    posix_file& operator=(posix_file&& other) noexcept {
        std::swap(path_, other.path_);
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~posix_file();

    /// Errors: errc::not_found, errc::io_error (also: not a regular file).
    static result<posix_file> open_for_reading(std::string path);
    /// A new file. Errors: errc::already_exists, errc::no_space, errc::io_error.
    static result<posix_file> create(std::string path);

    [[nodiscard]] bool is_open() const { return fd_ >= 0; }
    [[nodiscard]] const std::string& path() const { return path_; }

    [[nodiscard]] result<std::uint64_t> size_bytes() const;
    /// Fills `out` from `offset_bytes` on. Errors: errc::short_read, errc::io_error.
    [[nodiscard]] result<void> read_at(std::uint64_t offset_bytes, std::span<std::byte> out) const;
    /// Appends. Errors: errc::no_space, errc::io_error.
    [[nodiscard]] result<void> write(std::span<const std::byte> bytes);
    /// Makes what was written durable and closes. Errors: errc::no_space, errc::io_error.
    [[nodiscard]] result<void> sync_and_close();

private:
    std::string path_;
    int fd_ = -1;
};

/// Makes the entries of a folder durable. Errors: errc::io_error.
result<void> sync_folder(const std::string& path);

/// The whole of a small file. Errors: errc::too_large (over bytes_max), and those of posix_file.
result<std::string> read_text_file(const std::string& path, std::uint64_t bytes_max);

}  // namespace darlcore::formats
