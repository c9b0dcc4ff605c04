// SPDX-License-Identifier: Apache-2.0
#include "adapters/formats/tokenizer.hpp"

#include "adapters/formats/posix_file.hpp"

namespace darlcore::formats {

namespace {

class bytes_tokenizer final : public tokenizer {
public:
    static constexpr std::uint32_t bos = 256;
    static constexpr std::uint32_t eos = 257;

    [[nodiscard]] std::string name() const override { return "bytes"; }
    [[nodiscard]] std::string sha256() const override { return {}; }
    [[nodiscard]] std::uint64_t vocab_size() const override { return padded_vocab_size(eos + 1); }
    [[nodiscard]] std::optional<std::uint32_t> bos_id() const override { return bos; }
    [[nodiscard]] std::optional<std::uint32_t> eos_id() const override { return eos; }
    [[nodiscard]] bool needs_utf8() const override { return false; }

    [[nodiscard]] result<void> encode(std::string_view text, std::vector<std::uint32_t>& ids) const override {
        ids.reserve(ids.size() + text.size());
        for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
        return {};
    }

    [[nodiscard]] result<std::string> decode(std::span<const std::uint32_t> ids) const override {
        std::string text;
        for (const std::uint32_t id : ids) {
            if (id >= vocab_size())
                return fail(errc::invalid_argument, "id " + std::to_string(id) + " is beyond the " +
                                                        std::to_string(vocab_size()) + " of bytes");
            if (id < bos) text.push_back(static_cast<char>(id));
        }
        return text;
    }
};

}  // namespace

std::unique_ptr<tokenizer> make_bytes_tokenizer() { return std::make_unique<bytes_tokenizer>(); }

result<std::unique_ptr<tokenizer>> open_tokenizer(const std::string& name_or_path) {
    if (name_or_path == "bytes") return make_bytes_tokenizer();
    const auto file = posix_file::open_for_reading(name_or_path);
    if (!file) return fail(file.error().code, file.error().context + " (a tokenizer is `bytes` or a file)");
    return fail(errc::unsupported, name_or_path + ": this kind of tokenizer file is not read");
}

}  // namespace darlcore::formats
