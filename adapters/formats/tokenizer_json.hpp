// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "adapters/formats/tokenizer.hpp"

namespace darlcore::formats {

/// The tokenizer that the text of a Hugging Face tokenizer.json describes: byte-level BPE. `name` goes into errors and
/// the manifest. Texts are encoded as that library encodes them without special tokens around; tokens of `added_tokens`
/// that a text spells become their ids.
/// BOS and EOS: what `settings` names, else what the file's template puts around a text, else the special tokens of
/// usual names (BOS `<|begin_of_text|>`, `<s>`, `<bos>`; EOS `<|end_of_text|>`, `<|endoftext|>`, `</s>`, `<eos>`), else
/// none.
/// Errors: errc::parse_error, errc::unsupported, errc::invalid_argument (no such special token); the context names
/// file, key and what to do.
result<std::unique_ptr<tokenizer>> parse_tokenizer_json(std::string_view text, const std::string& name,
                                                        const tokenizer_settings& settings);

}  // namespace darlcore::formats
