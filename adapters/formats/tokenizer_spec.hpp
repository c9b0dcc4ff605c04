// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "adapters/formats/bpe.hpp"
#include "adapters/formats/split_pattern.hpp"
#include "darlcore/error.hpp"

namespace darlcore::formats {

/// One step that cuts text into pieces: the matches of a pattern, and what lies between them.
struct split_stage {
    std::optional<split_pattern> pattern;  ///< without one, the text stays whole
    bool keep_matches = true;
    bool keep_gaps = true;
    bool prefix_space = false;  ///< before cutting, a space is put before text that does not start with one
};

struct added_token {
    std::uint32_t id = 0;
    std::string content;
    bool normalized = false;  ///< looked for in the normalised text instead of the raw one
    bool special = false;
};

/// What a tokenizer.json of byte-level BPE says.
struct tokenizer_spec {
    bool nfc = false;
    std::vector<split_stage> stages;
    std::vector<std::pair<std::string, std::uint32_t>> vocab;  ///< in the file's spelling, ids unique
    std::vector<bpe::merge> merges;
    bool ignore_merges = false;  ///< a piece that is in the vocabulary is one id
    std::vector<added_token> added;
    std::optional<std::string> template_begin;  ///< special token that the file puts before a text
    std::optional<std::string> template_end;    ///< and after it
};

/// Reads a tokenizer.json. Every setting is either implemented or known to change no id; all others are refused.
/// Errors: errc::parse_error, errc::unsupported, errc::too_large; the context names the key and what to do.
/// Source: the format of the Hugging Face `tokenizers` library, version "1.0".
result<tokenizer_spec> parse_tokenizer_spec(std::string_view text);

inline constexpr std::uint64_t tokenizer_json_bytes_max = std::uint64_t{1} << 28U;

}  // namespace darlcore::formats
