// SPDX-License-Identifier: Apache-2.0
#include "backends/torch/token_source.hpp"

#include <bit>
#include <cstring>

#include "backends/torch/instruction_clones.hpp"

namespace darlcore::training {
namespace {

static_assert(std::endian::native == std::endian::little, "ids in files are little-endian and read as they are");

template <class Id>
inline __attribute__((always_inline)) bool all_below(const std::byte* raw, std::size_t count,
                                                     std::uint32_t vocab_size) {
    std::uint32_t beyond = 0;
    for (std::size_t i = 0; i < count; ++i) {
        Id id = 0;
        std::memcpy(&id, raw + i * sizeof id, sizeof id);
        beyond |= static_cast<std::uint32_t>(id >= vocab_size);
    }
    return beyond == 0;
}
DARLCORE_CLONES bool all_below_u16(const std::byte* raw, std::size_t count, std::uint32_t vocab_size) {
    return all_below<std::uint16_t>(raw, count, vocab_size);
}
DARLCORE_CLONES bool all_below_u32(const std::byte* raw, std::size_t count, std::uint32_t vocab_size) {
    return all_below<std::uint32_t>(raw, count, vocab_size);
}

class corpus_windows final : public window_source {
public:
    corpus_windows(std::shared_ptr<const formats::token_corpus> corpus, std::uint32_t vocab_size)
        : corpus_(std::move(corpus)),
          id_bytes_(static_cast<std::size_t>(width_bytes(corpus_->manifest().dtype))),
          vocab_size_(vocab_size) {}
    [[nodiscard]] std::uint64_t num_windows() const override { return corpus_->num_windows(); }
    [[nodiscard]] std::size_t window_bytes() const override {
        return id_bytes_ * static_cast<std::size_t>(corpus_->window());
    }
    [[nodiscard]] std::size_t id_bytes() const override { return id_bytes_; }
    [[nodiscard]] result<void> read(std::uint64_t window, std::span<std::byte> out) const override {
        DARLCORE_ASSERT(window < num_windows() && out.size() == window_bytes());
        if (auto ok = corpus_->read_stored(window, 1, out); !ok) return ok;
        const std::size_t count = out.size() / id_bytes_;
        const bool good = id_bytes_ == 2 ? all_below_u16(out.data(), count, vocab_size_)
                                         : all_below_u32(out.data(), count, vocab_size_);
        if (good) return {};
        return fail(errc::corrupt, corpus_->folder() + ": window " + std::to_string(window) +
                                       " holds an id beyond the model's vocabulary of " + std::to_string(vocab_size_) +
                                       "; tokenize the text again");
    }

private:
    std::shared_ptr<const formats::token_corpus> corpus_;
    std::size_t id_bytes_;
    std::uint32_t vocab_size_;
};

}  // namespace

result<std::unique_ptr<window_source>> token_source(std::shared_ptr<const formats::token_corpus> corpus,
                                                    std::int64_t model_vocab_size) {
    const std::uint64_t vocab = corpus->manifest().vocab_size;
    if (vocab > static_cast<std::uint64_t>(model_vocab_size)) {
        return fail(errc::invalid_argument, corpus->folder() + ": its vocabulary of " + std::to_string(vocab) +
                                                " ids does not fit the model's " + std::to_string(model_vocab_size) +
                                                "; tokenize with the model's tokenizer");
    }
    return std::unique_ptr<window_source>(
        std::make_unique<corpus_windows>(std::move(corpus), static_cast<std::uint32_t>(model_vocab_size)));
}

}  // namespace darlcore::training
