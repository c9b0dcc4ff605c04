// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "adapters/cli/cli_support.hpp"
#include "adapters/formats/tokenizer.hpp"
#include "darlcore/error.hpp"

namespace darl {

/// Sequences of ids from a file that holds a JSON list of lists (or one list).
/// Errors: errc::parse_error, errc::invalid_argument, naming the file.
darlcore::result<std::vector<std::vector<std::int64_t>>> read_id_lists(const std::string& path);

/// The tokenizer of a model folder: `named` if given, else the folder's tokenizer.json, else `bytes` when the
/// vocabulary is its own. Errors: those of open_tokenizer; errc::not_found, naming --tokenizer.
darlcore::result<std::unique_ptr<darlcore::formats::tokenizer>> tokenizer_of(const std::string& folder,
                                                                             const std::string& named,
                                                                             std::int64_t vocab_size);

}  // namespace darl
