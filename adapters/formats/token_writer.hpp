// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "adapters/formats/manifest.hpp"
#include "darlcore/error.hpp"

namespace darlcore::formats {

/// What a corpus to be written is made of.
struct token_writer_settings {
    std::uint64_t seq_len = 0;     ///< >= 1
    std::uint64_t vocab_size = 0;  ///< >= 1; decides the dtype
    std::string tokenizer_name;
    std::string tokenizer_sha256;
    std::string source;
    std::optional<std::uint64_t> bos_id;
    std::optional<std::uint64_t> eos_id;
    std::uint64_t shard_bytes_max = std::uint64_t{1} << 30U;  ///< a shard has at least one window
};

/// What `finish` reports.
struct token_writer_summary {
    token_manifest manifest;
    std::uint64_t dropped_ids = 0;  ///< of the last, partial window
};

/// Cuts ids into windows and writes shards and manifest. Everything is written to a staging folder beside the target;
/// `finish` writes the manifest last and renames the folder. Without `finish` nothing is left behind. Thread-safety:
/// none.
class token_writer {
public:
    /// Errors: errc::invalid_argument (settings), errc::already_exists (the target is there and not an empty folder),
    /// errc::io_error.
    static result<token_writer> create(const std::string& folder, const token_writer_settings& settings);

    token_writer(token_writer&&) noexcept;
    token_writer& operator=(token_writer&&) noexcept;
    ~token_writer();

    /// Appends ids to the stream; whole windows go to disk.
    /// Errors: errc::invalid_argument (an id beyond the vocabulary), errc::no_space, errc::io_error.
    [[nodiscard]] result<void> append(std::span<const std::uint32_t> ids);

    /// Drops the partial window, makes everything durable and gives the folder its name.
    /// Errors: errc::invalid_argument (not one whole window), errc::no_space, errc::io_error.
    [[nodiscard]] result<token_writer_summary> finish();

private:
    struct state;
    explicit token_writer(std::unique_ptr<state> s);
    std::unique_ptr<state> state_;
};

}  // namespace darlcore::formats
