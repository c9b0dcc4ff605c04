// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "adapters/formats/tokenizer.hpp"

namespace darlcore::formats {

/// The tokenizer of a SentencePiece model (the bytes of a .model file), through its library in helper processes
/// `darl-spm`: one per call that runs at the same time. The helper is $DARL_SPM, else the file of that name beside the
/// running program.
/// BOS and EOS: what `settings` names (a piece, or `none`), else the model's own.
/// Errors: errc::unsupported (no helper in this build), errc::parse_error (not a model), errc::invalid_argument
/// (settings), errc::corrupt (the helper ended); the context names the file.
result<std::unique_ptr<tokenizer>> open_sentencepiece(std::string model, const std::string& name,
                                                      const tokenizer_settings& settings);

}  // namespace darlcore::formats
