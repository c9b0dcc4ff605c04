// SPDX-License-Identifier: Apache-2.0
#include "adapters/formats/tokenizer_json.hpp"

#include <algorithm>
#include <unordered_map>

#include <simdjson.h>

#include "adapters/formats/bpe.hpp"
#include "adapters/formats/byte_level.hpp"
#include "adapters/formats/nfc.hpp"
#include "adapters/formats/object_pool.hpp"
#include "adapters/formats/sha256_stream.hpp"
#include "adapters/formats/token_trie.hpp"
#include "adapters/formats/tokenizer_spec.hpp"
#include "adapters/formats/utf8.hpp"

namespace darlcore::formats {

namespace {

// A longer piece that no pattern cuts would need a hundred times its size in memory.
constexpr std::size_t piece_bytes_max = std::size_t{16} << 20U;

// What a call needs beside the tokenizer.
struct encode_scratch {
    split_scratch split;
    word_cache cache;
    std::string normalised;
};

struct text_hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
};

std::array<std::uint32_t, 256> byte_ids_of(
    const std::unordered_map<std::string, std::uint32_t, text_hash, std::equal_to<>>& words) {
    std::array<std::uint32_t, 256> out{};
    for (std::size_t b = 0; b < 256; ++b) {
        const auto found = words.find(std::string(1, static_cast<char>(b)));
        out[b] = found == words.end() ? bpe::no_id : found->second;
    }
    return out;
}

class json_tokenizer final : public tokenizer {
public:
    json_tokenizer(tokenizer_spec spec, std::string name, std::string sha256)
        : name_(std::move(name)), sha256_(std::move(sha256)), nfc_(spec.nfc), stages_(std::move(spec.stages)) {
        for (auto& [token, id] : spec.vocab) {
            auto bytes = byte_level_bytes(token);
            if (bytes && !bytes->empty()) words_.emplace(*bytes, id);
            text_of_id(id) = bytes ? *std::move(bytes) : std::move(token);
        }
        for (auto& t : spec.added) {
            text_of_id(t.id) = t.content;
            add_to_tries(t);
            added_.emplace(std::move(t.content), t.id);
        }
        bpe_ = std::make_unique<bpe>(byte_ids_of(words_), spec.merges);
        if (!spec.ignore_merges) words_.clear();
    }

    [[nodiscard]] std::string name() const override { return name_; }
    [[nodiscard]] std::string sha256() const override { return sha256_; }
    [[nodiscard]] std::uint64_t vocab_size() const override { return padded_vocab_size(texts_.size()); }
    [[nodiscard]] std::optional<std::uint32_t> bos_id() const override { return bos_; }
    [[nodiscard]] std::optional<std::uint32_t> eos_id() const override { return eos_; }
    [[nodiscard]] bool needs_utf8() const override { return true; }

    [[nodiscard]] result<void> encode(std::string_view text, std::vector<std::uint32_t>& ids) const override {
        if (!simdjson::validate_utf8(text.data(), text.size()))
            return fail(errc::parse_error,
                        "invalid UTF-8 at byte " + std::to_string(first_invalid_utf8(text).value_or(text.size())));
        auto scratch = pool_.take();
        if (!scratch) scratch = std::make_unique<encode_scratch>();
        auto ok =
            cut_tokens(raw_, text, ids, [&](std::string_view piece) { return encode_piece(piece, ids, *scratch); });
        pool_.give_back(std::move(scratch));
        return ok;
    }

    [[nodiscard]] result<std::string> decode(std::span<const std::uint32_t> ids) const override {
        std::string text;
        for (const std::uint32_t id : ids) {
            if (id >= vocab_size())
                return fail(errc::invalid_argument, "id " + std::to_string(id) + " is beyond the " +
                                                        std::to_string(vocab_size()) + " of " + name_);
            if (id < texts_.size()) text += texts_[id];
        }
        return text;
    }

    [[nodiscard]] std::optional<std::uint32_t> added_id(const std::string& content) const {
        const auto found = added_.find(content);
        if (found == added_.end()) return std::nullopt;
        return found->second;
    }
    void set_ends(std::optional<std::uint32_t> bos, std::optional<std::uint32_t> eos) {
        bos_ = bos;
        eos_ = eos;
    }

private:
    std::string& text_of_id(std::uint32_t id) {
        if (texts_.size() <= id) texts_.resize(std::size_t{id} + 1);
        return texts_[id];
    }

    void add_to_tries(const added_token& t) {
        if (!t.normalized) return raw_.add(t.content, t.id);
        std::string buffer;
        const auto content = nfc_ ? to_nfc(t.content, buffer) : result<std::string_view>(std::string_view(t.content));
        if (content) normalised_.add(*content, t.id);
    }

    // Tokens of a trie become their ids, what lies between goes to `rest`.
    template <class Rest>
    static result<void> cut_tokens(const token_trie& trie, std::string_view text, std::vector<std::uint32_t>& ids,
                                   Rest&& rest) {
        std::size_t done = 0;
        if (!trie.empty()) {
            for (auto token = trie.find(text, 0); token; token = trie.find(text, done)) {
                if (token->begin > done)
                    if (auto ok = rest(text.substr(done, token->begin - done)); !ok) return ok;
                ids.push_back(token->id);
                done = token->begin + token->bytes;
            }
        }
        if (done == text.size()) return {};
        return rest(text.substr(done));
    }

    result<void> encode_piece(std::string_view piece, std::vector<std::uint32_t>& ids, encode_scratch& scratch) const {
        if (nfc_) {
            const auto normalised = to_nfc(piece, scratch.normalised);
            if (!normalised) return normalised.error();
            piece = *normalised;
        }
        return cut_tokens(normalised_, piece, ids,
                          [&](std::string_view part) { return cut_stage(0, part, ids, scratch); });
    }

    // Sends a piece through the stages from `stage` on.
    result<void> cut_stage(std::size_t stage, std::string_view piece, std::vector<std::uint32_t>& ids,
                           encode_scratch& scratch) const {
        if (stage == stages_.size()) return encode_word(piece, ids, scratch);
        const split_stage& s = stages_[stage];
        if (!s.prefix_space || piece.front() == ' ') return cut_pattern(stage, piece, ids, scratch);
        std::string longer(1, ' ');
        longer += piece;
        return cut_pattern(stage, longer, ids, scratch);
    }

    result<void> cut_pattern(std::size_t stage, std::string_view piece, std::vector<std::uint32_t>& ids,
                             encode_scratch& scratch) const {
        const split_stage& s = stages_[stage];
        if (!s.pattern) return cut_stage(stage + 1, piece, ids, scratch);
        for (std::size_t done = 0; done < piece.size();) {
            const auto match = s.pattern->find(piece, done, scratch.split);
            if (!match) return match.error();
            const auto [begin, end] = match->value_or(std::pair(piece.size(), piece.size()));
            if (begin > done && s.keep_gaps)
                if (auto ok = cut_stage(stage + 1, piece.substr(done, begin - done), ids, scratch); !ok) return ok;
            if (end > begin && s.keep_matches)
                if (auto ok = cut_stage(stage + 1, piece.substr(begin, end - begin), ids, scratch); !ok) return ok;
            done = end;
        }
        return {};
    }

    result<void> encode_word(std::string_view word, std::vector<std::uint32_t>& ids, encode_scratch& scratch) const {
        if (word.size() > word_cache::word_bytes_max) return encode_new_word(word, ids);
        auto& place = scratch.cache.place(word);
        if (word_cache::holds(place, word)) {
            ids.insert(ids.end(), place.ids.begin(), place.ids.begin() + place.count);
            return {};
        }
        const std::size_t before = ids.size();
        if (auto ok = encode_new_word(word, ids); !ok) return ok;
        word_cache::keep(place, word, std::span(ids).subspan(before));
        return {};
    }

    result<void> encode_new_word(std::string_view word, std::vector<std::uint32_t>& ids) const {
        if (word.size() > piece_bytes_max)
            return fail(errc::too_large, "a piece of " + std::to_string(word.size()) +
                                             " bytes that the tokenizer's pattern does not cut; split the document");
        if (const auto whole = words_.find(word); whole != words_.end())
            ids.push_back(whole->second);
        else
            bpe_->encode(word, ids);
        return {};
    }

    std::string name_;
    std::string sha256_;
    bool nfc_;
    std::vector<split_stage> stages_;
    std::vector<std::string> texts_;  // bytes of each id
    // Pieces that are one id whatever the merges say (ignore_merges).
    std::unordered_map<std::string, std::uint32_t, text_hash, std::equal_to<>> words_;
    std::unordered_map<std::string, std::uint32_t> added_;
    token_trie raw_;
    token_trie normalised_;
    std::unique_ptr<bpe> bpe_;
    std::optional<std::uint32_t> bos_;
    std::optional<std::uint32_t> eos_;
    mutable object_pool<encode_scratch> pool_;
};

// A token by what was asked for, by the file's template, by its usual name.
result<std::optional<std::uint32_t>> end_id(const json_tokenizer& t, const std::string& option,
                                            const std::string& asked, const std::optional<std::string>& by_template,
                                            std::initializer_list<const char*> usual) {
    using id = std::optional<std::uint32_t>;
    if (asked == "none") return id();
    if (!asked.empty()) {
        const id found = t.added_id(asked);
        if (!found)
            return fail(errc::invalid_argument, option + ": `" + asked + "` is not in added_tokens of " + t.name() +
                                                    "; name one that is, or `none`");
        return found;
    }
    if (by_template) {
        const id found = t.added_id(*by_template);
        if (!found) return fail(errc::parse_error, "post_processor: `" + *by_template + "` is not in added_tokens");
        return found;
    }
    for (const char* name : usual)
        if (const id found = t.added_id(name)) return found;
    return id();
}

std::string file_name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

result<std::unique_ptr<tokenizer>> parse_tokenizer_json(std::string_view text, const std::string& name,
                                                        const tokenizer_settings& settings) {
    auto spec = parse_tokenizer_spec(text);
    if (!spec) {
        const char* fix = spec.error().code == errc::parse_error ? "; write or copy the file again" : "";
        return fail(spec.error().code, name + ": " + spec.error().context + fix);
    }
    const auto begin = spec->template_begin;
    const auto end = spec->template_end;
    sha256_stream hash;
    hash.update(std::as_bytes(std::span(text)));
    auto t = std::make_unique<json_tokenizer>(*std::move(spec), file_name_of(name), hash.finish_hex());
    const auto bos = end_id(*t, "--bos", settings.bos, begin, {"<|begin_of_text|>", "<s>", "<bos>"});
    if (!bos) return fail(bos.error().code, name + ": " + bos.error().context);
    const auto eos = end_id(*t, "--eos", settings.eos, end, {"<|end_of_text|>", "<|endoftext|>", "</s>", "<eos>"});
    if (!eos) return fail(eos.error().code, name + ": " + eos.error().context);
    t->set_ends(*bos, *eos);
    return std::unique_ptr<tokenizer>(std::move(t));
}

}  // namespace darlcore::formats
