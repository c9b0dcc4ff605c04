// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "darlcore/error.hpp"

namespace darlcore::host {

/// A file read as bytes at offsets.
class raw_file {
public:
    /// Errors: errc::not_found, errc::io_error.
    static result<raw_file> open(const std::string& path);
    raw_file(raw_file&& other) noexcept;
    raw_file& operator=(raw_file&&) = delete;
    ~raw_file();

    [[nodiscard]] std::uint64_t size_bytes() const { return size_bytes_; }
    /// Errors: errc::short_read, errc::io_error, naming file and offset.
    [[nodiscard]] result<void> read(std::uint64_t offset, std::span<std::byte> out) const;

private:
    raw_file() = default;
    std::string path_;
    int fd_ = -1;
    std::uint64_t size_bytes_ = 0;
};

}  // namespace darlcore::host
