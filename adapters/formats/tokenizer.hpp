// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "darlcore/error.hpp"

namespace darlcore::formats {

/// Text to ids and back. New kinds implement this and are added to `open_tokenizer`; nothing else changes.
/// Thread-safety: const members may be called from several threads at once.
class tokenizer {
public:
    tokenizer() = default;
    tokenizer(const tokenizer&) = delete;
    tokenizer& operator=(const tokenizer&) = delete;
    virtual ~tokenizer() = default;

    /// The word or file name that goes into the manifest.
    [[nodiscard]] virtual std::string name() const = 0;
    /// SHA-256 of the tokenizer's file, 64 hex digits; empty for `bytes`. Part of the corpus identity.
    [[nodiscard]] virtual std::string sha256() const = 0;
    /// Rows of an embedding for it: ids in use, padded to a multiple of 256 (odd sizes break sharding and alignment).
    [[nodiscard]] virtual std::uint64_t vocab_size() const = 0;
    /// Ids put around every document; nothing when the tokenizer has none.
    [[nodiscard]] virtual std::optional<std::uint32_t> bos_id() const = 0;
    [[nodiscard]] virtual std::optional<std::uint32_t> eos_id() const = 0;
    /// False when any bytes are text (`bytes`); true when `encode` needs valid UTF-8.
    [[nodiscard]] virtual bool needs_utf8() const = 0;

    /// Appends the ids of a text, without BOS and EOS around it. Whether a special token that a text spells becomes
    /// that token is up to the kind: tokenizer.json says yes, as its library does; `bytes` and SentencePiece say no.
    /// Errors: errc::parse_error (invalid UTF-8 where it is needed; the context names the byte offset).
    [[nodiscard]] virtual result<void> encode(std::string_view text, std::vector<std::uint32_t>& ids) const = 0;

    /// The bytes that ids stand for; padding ids stand for nothing, BOS and EOS for nothing unless a file gives them
    /// text (tokenizer.json).
    /// Errors: errc::invalid_argument (an id beyond vocab_size()).
    [[nodiscard]] virtual result<std::string> decode(std::span<const std::uint32_t> ids) const = 0;
};

/// What a tokenizer's file leaves open.
struct tokenizer_settings {
    std::string bos;  ///< special token before every document; empty: as the file says; `none`: none
    std::string eos;  ///< and after it
};

/// The tokenizer of a name (`bytes`) or file: Hugging Face tokenizer.json (byte-level BPE) or SentencePiece .model.
/// Errors: errc::not_found, errc::unsupported (a kind of file or a setting that is not implemented), errc::parse_error,
/// errc::invalid_argument (settings); the context names the file.
result<std::unique_ptr<tokenizer>> open_tokenizer(const std::string& name_or_path,
                                                  const tokenizer_settings& settings = {});

/// The built-in tokenizer: ids 0 ... 255 are bytes, 256 is BOS, 257 is EOS; vocabulary padded to 512. Needs no files.
std::unique_ptr<tokenizer> make_bytes_tokenizer();

/// Smallest multiple of 256 that is at least n.
constexpr std::uint64_t padded_vocab_size(std::uint64_t n) { return (n + 255) / 256 * 256; }

}  // namespace darlcore::formats
