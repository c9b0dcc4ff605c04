// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "adapters/formats/token_corpus.hpp"
#include "backends/torch/trainer.hpp"

namespace darlcore::training {

/// The windows of a token corpus in the form that language models read. Its vocabulary must fit the model:
/// Errors: errc::invalid_argument naming both sizes.
result<std::unique_ptr<window_source>> token_source(std::shared_ptr<const formats::token_corpus> corpus,
                                                    std::int64_t model_vocab_size);

}  // namespace darlcore::training
