// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "adapters/formats/manifest.hpp"
#include "adapters/formats/posix_file.hpp"
#include "darlcore/error.hpp"

namespace darlcore::formats {

/// Tokenised text on disk: window i is `window()` consecutive ids, whatever files they lie in. Reads at offsets, never
/// by a memory map: a file cut short under a map is a crash, under a read an error. Memory: the manifest and at most
/// 128 open files. Thread-safety: reading members may be called from several threads at once.
class token_corpus {
public:
    /// Opens a manifest, given as its path or as its folder, and checks that every shard is there with exactly its
    /// size. A few windows are read and their ids compared with the vocabulary. Errors: errc::not_found,
    /// errc::truncated (a shard too short), errc::corrupt (a shard too long, an id beyond the vocabulary),
    /// errc::io_error, and those of parse_manifest. The context names the file and the fix.
    static result<token_corpus> open(const std::string& path);

    [[nodiscard]] const token_manifest& manifest() const { return manifest_; }
    [[nodiscard]] const std::string& folder() const { return folder_; }
    [[nodiscard]] std::uint64_t num_windows() const { return manifest_.num_windows; }
    [[nodiscard]] std::uint64_t window() const { return manifest_.window(); }

    /// Ids of windows [first, first + count), one after the other.
    /// Shapes: out [count x window()].
    /// Errors: errc::short_read, errc::io_error, errc::not_found. Preconditions (asserted): the windows exist, out has
    /// that size.
    [[nodiscard]] result<void> read_windows(std::uint64_t first, std::uint64_t count,
                                            std::span<std::uint32_t> out) const;
    [[nodiscard]] result<void> read_window(std::uint64_t index, std::span<std::uint32_t> out) const {
        return read_windows(index, 1, out);
    }

    /// The same windows as the files hold them: little-endian ids of manifest().dtype, nothing converted or copied.
    /// Shapes: out [count x manifest().window_bytes()], in bytes. Errors, preconditions: as read_windows.
    [[nodiscard]] result<void> read_stored(std::uint64_t first, std::uint64_t count, std::span<std::byte> out) const;

    /// Identity and content, as sent at register. The content digest of a manifest that has none (pww-tokens-v1) is
    /// computed by reading the whole corpus; keep it. Errors: those of reading.
    [[nodiscard]] digest16 identity() const { return manifest_.corpus(); }
    [[nodiscard]] result<digest32> content() const;

    /// Digest of leaf i from the bytes on disk (65 536 windows, the last leaf clipped).
    /// Preconditions (asserted): leaf < corpus_leaf_count(num_windows()). Errors: those of reading.
    [[nodiscard]] result<digest32> leaf_digest(std::uint64_t leaf) const;

    /// Compares `samples` leaves, spread by `seed` (all of them when there are no more), with the manifest's list.
    /// Errors: errc::corrupt naming the leaf; those of reading. Nothing to compare in a manifest without a leaf list.
    [[nodiscard]] result<void> verify_leaves(std::uint64_t samples, std::uint64_t seed) const;

    /// Everything: all leaves, the sha256 of every shard, every id below the vocabulary size. For `darl doctor --deep`.
    /// Errors: errc::corrupt naming the file; those of reading.
    [[nodiscard]] result<void> verify_all() const;

private:
    // Open files, the least recently used one closed first. Shared handles: a reader keeps its file although it was
    // evicted.
    struct file_cache {
        std::mutex mutex;
        std::vector<std::shared_ptr<const posix_file>> files;
        std::vector<std::size_t> recent;
    };

    token_corpus() = default;
    [[nodiscard]] result<void> check_shard_sizes() const;
    [[nodiscard]] result<void> check_some_ids() const;
    [[nodiscard]] result<void> check_ids(std::uint64_t first, std::uint64_t count) const;
    [[nodiscard]] result<void> check_shard_sums() const;
    [[nodiscard]] std::size_t shard_of(std::uint64_t window) const;
    [[nodiscard]] std::string shard_path(std::size_t shard) const;
    [[nodiscard]] result<std::shared_ptr<const posix_file>> shard_file(std::size_t shard) const;
    // Some windows that lie one after the other in one file.
    struct piece {
        std::uint64_t first = 0;
        std::uint64_t windows = 0;
        std::uint64_t offset_bytes = 0;
    };
    // Calls use(file, piece) -> result<void> for the windows in order, in pieces of moderate size.
    template <class Use>
    [[nodiscard]] result<void> for_pieces(std::uint64_t first, std::uint64_t count, Use&& use) const;
    // Calls use(bytes) for the windows' raw bytes in order.
    template <class Use>
    [[nodiscard]] result<void> for_raw_bytes(std::uint64_t first, std::uint64_t count, Use&& use) const;

    std::string folder_;
    token_manifest manifest_;
    std::vector<std::uint64_t> shard_ends_;  // windows, ascending
    std::shared_ptr<file_cache> cache_ = std::make_shared<file_cache>();
};

}  // namespace darlcore::formats
