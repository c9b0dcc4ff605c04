// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "darlcore/digest.hpp"

namespace darlcore::host {

/// SHA-256 over bytes that arrive in order.
class file_digest {
public:
    file_digest();
    file_digest(file_digest&&) noexcept;
    file_digest& operator=(file_digest&&) noexcept;
    ~file_digest();

    void update(std::span<const std::byte> bytes);
    /// Ends this digest and begins a new one.
    digest32 finish();

private:
    struct state;
    std::unique_ptr<state> state_;
};

/// Bytes of one part of a parts digest.
inline constexpr std::uint64_t digest_part_bytes = std::uint64_t{16} << 20U;

/// SHA-256 over the concatenated SHA-256s of the file's parts of 16 MiB (the last may be shorter; an empty file has no
/// part). Parts can be taken in parallel by whoever checks the file; one stream of SHA-256 would be slower than a disk.
class parts_digest {
public:
    void update(std::span<const std::byte> bytes);
    digest32 finish();

private:
    void end_part();
    file_digest part_;
    file_digest all_;
    std::uint64_t in_part_ = 0;
};

}  // namespace darlcore::host
