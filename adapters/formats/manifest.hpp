// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "darlcore/corpus.hpp"
#include "darlcore/error.hpp"

namespace darlcore::formats {

/// Format word of our own manifests, and of the reference implementation's, which are read as well.
inline constexpr std::string_view darl_tokens_format = "darl-tokens-1";
inline constexpr std::string_view pww_tokens_format = "pww-tokens-v1";

/// How an id is stored; little-endian.
enum class token_dtype : std::uint8_t { uint16, uint32 };

constexpr std::string_view word(token_dtype d) { return d == token_dtype::uint16 ? "uint16" : "uint32"; }
constexpr std::uint64_t width_bytes(token_dtype d) { return d == token_dtype::uint16 ? 2 : 4; }
/// 2 bytes for vocabularies below 65 536 ids, else 4; part of the corpus identity.
constexpr token_dtype dtype_for(std::uint64_t vocab_size) {
    return vocab_size < 65536 ? token_dtype::uint16 : token_dtype::uint32;
}

/// One file of whole windows, raw ids one after the other.
struct token_shard {
    std::string path;  ///< relative to the manifest's folder, without `..`
    std::uint64_t windows = 0;
    std::uint64_t bytes = 0;  ///< windows x window x width, exactly the file's size
    std::string sha256;       ///< 64 hex digits; finds damaged files only; empty in pww-tokens-v1

    friend bool operator==(const token_shard&, const token_shard&) = default;
};

/// `manifest.json`: what a folder of token shards holds.
struct token_manifest {
    std::string format{darl_tokens_format};
    std::uint64_t seq_len = 0;
    token_dtype dtype = token_dtype::uint16;
    std::uint64_t vocab_size = 0;
    std::string tokenizer_name;
    std::string tokenizer_sha256;
    std::uint64_t num_windows = 0;
    std::vector<token_shard> shards;
    std::optional<digest32> corpus_content;  ///< absent in pww-tokens-v1: computed on demand
    std::vector<digest32> leaves;            ///< one per 65 536 windows, when corpus_content is there
    std::string source;                      ///< note on where the text came from
    std::optional<std::uint64_t> bos_id;
    std::optional<std::uint64_t> eos_id;

    [[nodiscard]] std::uint64_t window() const { return seq_len + 1; }
    [[nodiscard]] std::uint64_t window_bytes() const { return window() * width_bytes(dtype); }
    [[nodiscard]] std::uint64_t total_ids() const { return num_windows * window(); }
    [[nodiscard]] corpus_description description() const;
    /// Identity of the corpus, as sent at register.
    [[nodiscard]] digest16 corpus() const { return corpus_identity(description()); }

    friend bool operator==(const token_manifest&, const token_manifest&) = default;
};

/// Largest manifest that is read.
inline constexpr std::uint64_t manifest_bytes_max = 256U << 20U;

/// Reads and checks a manifest: counts agree with each other, sizes do not overflow, shard paths stay inside the
/// folder, the digests that it names are those of what it says. Errors: errc::parse_error (not JSON, missing key, wrong
/// kind), errc::unsupported (format, dtype), errc::corrupt (numbers or digests that contradict each other),
/// errc::invalid_argument (a path that leaves the folder). The context names key and fix.
result<token_manifest> parse_manifest(std::string_view text);

/// The text of `manifest.json`.
std::string manifest_text(const token_manifest& m);

}  // namespace darlcore::formats
