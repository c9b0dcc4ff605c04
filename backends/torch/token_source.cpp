// SPDX-License-Identifier: Apache-2.0
#include "backends/torch/token_source.hpp"

#include <cstring>

namespace darlcore::training {
namespace {

class corpus_windows final : public window_source {
public:
    corpus_windows(std::shared_ptr<const formats::token_corpus> corpus, std::uint32_t vocab_size)
        : corpus_(std::move(corpus)), vocab_size_(vocab_size) {}
    [[nodiscard]] std::uint64_t num_windows() const override { return corpus_->num_windows(); }
    [[nodiscard]] std::size_t window_bytes() const override { return 4 * static_cast<std::size_t>(corpus_->window()); }
    [[nodiscard]] result<void> read(std::uint64_t window, std::span<std::byte> out) const override {
        DARLCORE_ASSERT(window < num_windows() && out.size() == window_bytes());
        std::vector<std::uint32_t> ids(static_cast<std::size_t>(corpus_->window()));
        if (auto ok = corpus_->read_window(window, ids); !ok) return ok;
        for (const std::uint32_t id : ids) {
            if (id < vocab_size_) continue;
            return fail(errc::corrupt, corpus_->folder() + ": window " + std::to_string(window) + " holds id " +
                                           std::to_string(id) + ", the model's vocabulary is " +
                                           std::to_string(vocab_size_));
        }
        std::memcpy(out.data(), ids.data(), out.size());
        return {};
    }

private:
    std::shared_ptr<const formats::token_corpus> corpus_;
    std::uint32_t vocab_size_;
};

}  // namespace

result<std::unique_ptr<window_source>> token_source(std::shared_ptr<const formats::token_corpus> corpus,
                                                    std::int64_t model_vocab_size) {
    const std::uint64_t vocab = corpus->manifest().vocab_size;
    if (vocab > static_cast<std::uint64_t>(model_vocab_size)) {
        return fail(errc::invalid_argument, corpus->folder() + ": its vocabulary of " + std::to_string(vocab) +
                                                " ids does not fit the model's " + std::to_string(model_vocab_size));
    }
    return std::unique_ptr<window_source>(
        std::make_unique<corpus_windows>(std::move(corpus), static_cast<std::uint32_t>(model_vocab_size)));
}

}  // namespace darlcore::training
