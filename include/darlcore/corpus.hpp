// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "darlcore/digest.hpp"

namespace darlcore {

/// Windows per leaf of the content digest; the last leaf is clipped at the end of the corpus.
inline constexpr std::uint64_t corpus_leaf_windows = 65536;

/// What a corpus is, apart from its bytes and from how they are cut into files.
struct corpus_description {
    std::string format;            ///< "darl-tokens-1" or "pww-tokens-v1"
    std::uint64_t seq_len = 0;     ///< tokens predicted per window
    std::uint64_t window = 0;      ///< ids per window, seq_len + 1
    std::string dtype;             ///< "uint16" or "uint32"
    std::uint64_t vocab_size = 0;  ///< ids are below it
    std::string tokenizer_sha256;  ///< 64 hex digits; empty for the built-in bytes tokenizer
    std::uint64_t num_windows = 0;

    friend bool operator==(const corpus_description&, const corpus_description&) = default;
};

/// Identity of a corpus: equal for two sites that may read the same run, however their files are cut.
/// Source: as the reference implementation (BLAKE2b-16 of the joined fields).
inline digest16 corpus_identity(const corpus_description& c) {
    return blake2b_of<16>(c.format + ':' + std::to_string(c.seq_len) + ':' + std::to_string(c.window) + ':' + c.dtype +
                          ':' + std::to_string(c.vocab_size) + ':' + c.tokenizer_sha256 + ':' +
                          std::to_string(c.num_windows));
}

/// Number of leaves of a corpus.
constexpr std::uint64_t corpus_leaf_count(std::uint64_t num_windows) {
    return num_windows / corpus_leaf_windows + (num_windows % corpus_leaf_windows != 0 ? 1 : 0);
}

/// Content digest of a corpus from the digests of its leaves: BLAKE2b-32 of their concatenation. Leaf i is the
/// BLAKE2b-32 of the raw token bytes of windows [65536 i, 65536 (i + 1)) as stored: little-endian, manifest dtype.
/// Leaves may be computed in any order and checked one by one.
inline digest32 corpus_content(std::span<const digest32> leaves) {
    blake2b hash(32);
    for (const digest32& leaf : leaves) hash.update(std::span<const std::uint8_t>(leaf));
    return finish_digest<32>(hash);
}

}  // namespace darlcore
