// SPDX-License-Identifier: Apache-2.0
#include "adapters/formats/tokenizer.hpp"

#include "adapters/formats/posix_file.hpp"
#include "adapters/formats/sentencepiece.hpp"
#include "adapters/formats/tokenizer_json.hpp"
#include "adapters/formats/tokenizer_spec.hpp"

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

result<std::unique_ptr<tokenizer>> open_tokenizer(const std::string& name_or_path, const tokenizer_settings& settings) {
    if (name_or_path == "bytes") {
        if (!settings.bos.empty() || !settings.eos.empty())
            return fail(errc::invalid_argument, "--bos and --eos: the tokenizer `bytes` has its own; leave them out");
        return make_bytes_tokenizer();
    }
    auto text = read_text_file(name_or_path, tokenizer_json_bytes_max);
    if (!text) return fail(text.error().code, text.error().context + " (a tokenizer is `bytes` or a file)");
    const std::size_t first = text->find_first_not_of(" \t\r\n");
    if (first != std::string::npos && (*text)[first] == '{') return parse_tokenizer_json(*text, name_or_path, settings);
    // A SentencePiece model begins with its first piece: field 1 of the message, whose tag is a line feed.
    if (!text->empty() && text->front() == '\n') return open_sentencepiece(*std::move(text), name_or_path, settings);
    return fail(errc::unsupported,
                name_or_path + ": is neither a tokenizer.json nor a SentencePiece .model; convert it to one of these");
}

}  // namespace darlcore::formats
