// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "adapters/formats/documents.hpp"
#include "adapters/formats/manifest.hpp"
#include "adapters/formats/tokenizer.hpp"
#include "darlcore/error.hpp"

namespace darlcore::formats {

/// What to tokenise, and into what.
struct tokenize_settings {
    std::vector<std::string> inputs;
    std::optional<document_format> format;  ///< without one, each file's name decides
    std::string out;                        ///< new folder, or an empty one
    std::uint64_t seq_len = 0;
    std::uint64_t shard_bytes_max = std::uint64_t{1} << 30U;
    unsigned threads = 1;               ///< >= 1; the result does not depend on it
    bool replace_invalid_utf8 = false;  ///< else ill-formed text is an error
    std::string source;                 ///< note for the manifest
};

struct tokenize_progress {
    std::uint64_t documents = 0;
    std::uint64_t bytes = 0;
    std::uint64_t ids = 0;
};

struct tokenize_summary {
    token_manifest manifest;
    std::uint64_t documents = 0;
    std::uint64_t bytes = 0;
    std::uint64_t ids = 0;          ///< with BOS and EOS
    std::uint64_t dropped_ids = 0;  ///< of the last, partial window
    std::uint64_t replaced_utf8_parts = 0;
};

/// Tokenises documents into shards: BOS + ids + EOS per document, all documents one stream, cut into windows.
/// `proceed` is called after every batch; false ends the pass. Whatever ends it, no partial output is left.
/// Determinism: output order = input order, for any number of threads.
/// Errors: errc::invalid_argument, errc::cancelled, errc::parse_error (naming file and byte), and those of reading and
/// writing.
result<tokenize_summary> tokenize_files(const tokenizer& t, const tokenize_settings& settings,
                                        const std::function<bool(const tokenize_progress&)>& proceed);

/// Cuts Megatron data sets (`settings.inputs`: prefixes or .idx files) into shards: the ids of each document as they
/// are, without BOS and EOS. `t` is the tokenizer that made them; `format` and `threads` mean nothing here. Errors:
/// errc::invalid_argument (an id beyond the vocabulary), errc::cancelled, and those of reading and writing.
result<tokenize_summary> convert_megatron(const tokenizer& t, const tokenize_settings& settings,
                                          const std::function<bool(const tokenize_progress&)>& proceed);

}  // namespace darlcore::formats
