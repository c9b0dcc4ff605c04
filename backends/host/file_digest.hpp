// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "darlcore/digest.hpp"
#include "darlcore/error.hpp"

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

/// A file to digest. `in_parts`: SHA-256 over the concatenated SHA-256s of its parts of 16 MiB (the last may be
/// shorter; an empty file has no part) instead of over its bytes: parts are taken side by side, one stream of SHA-256
/// is slower than a disk.
struct digest_job {
    std::uint64_t bytes = 0;
    /// Fills the whole span from an offset on; called from several threads at once.
    std::function<result<void>(std::uint64_t, std::span<std::byte>)> read;
    bool in_parts = false;
};

/// Digests of files, in the order given, on so many threads; parts of different files share the work. Memory: half a
/// MiB per thread. Errors: those of `read`; errc::out_of_memory.
result<std::vector<digest32>> digest_files(std::span<const digest_job> jobs, int threads);

}  // namespace darlcore::host
