// SPDX-License-Identifier: Apache-2.0
#include "adapters/formats/tokenizer_spec.hpp"

#include <algorithm>
#include <initializer_list>
#include <unordered_map>
#include <unordered_set>

#include "adapters/formats/byte_level.hpp"
#include "adapters/formats/json.hpp"

namespace darlcore::formats {

namespace {

using json::value;

constexpr std::string_view gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::uint32_t id_max = 0x3fffff;
constexpr std::size_t stages_max = 16;

error wrong(const std::string& key, const std::string& why) { return fail(errc::parse_error, key + ": " + why); }
error unsupported(const std::string& key, const std::string& what) {
    return fail(
        errc::unsupported,
        key + ": " + what + " is not implemented, and ids would differ without it; use a tokenizer that does without");
}
error at_key(const std::string& key, const error& inner) { return fail(inner.code, key + ": " + inner.context); }

// Keys that are neither used nor known to be harmless.
result<void> only_keys(const value& v, const std::string& key, std::initializer_list<std::string_view> known) {
    const json::object* members = v.as_object();
    if (members == nullptr) return wrong(key, "must be an object");
    for (const auto& [name, member] : *members) {
        if (std::find(known.begin(), known.end(), name) == known.end())
            return fail(errc::unsupported, key + "." + name +
                                               ": is not a known setting; remove it if it changes no id, else this "
                                               "tokenizer cannot be used");
    }
    return {};
}

result<bool> flag(const value& v, const std::string& key, std::string_view name, bool otherwise) {
    const value* member = v.find(name);
    if (member == nullptr) return otherwise;
    if (const auto b = member->as_bool()) return *b;
    return wrong(key + "." + std::string(name), "must be true or false");
}

result<std::string> text(const value& v, const std::string& key, std::string_view name) {
    const value* member = v.find(name);
    const std::string* s = member != nullptr ? member->as_string() : nullptr;
    if (s == nullptr) return wrong(key + "." + std::string(name), "must be a text");
    return *s;
}

// A member that must be missing or null (or what `harmless` says).
template <class Harmless>
result<void> must_be_off(const value& v, const std::string& key, std::string_view name, Harmless harmless) {
    const value* member = v.find(name);
    if (member == nullptr || member->is_null() || harmless(*member)) return {};
    return unsupported(key.empty() ? std::string(name) : key + "." + std::string(name), "this setting");
}
bool never(const value&) { return false; }

// normalizer

result<void> read_normalizer(const value& v, const std::string& key, tokenizer_spec& spec, std::size_t depth) {
    if (v.is_null()) return {};
    const auto type = text(v, key, "type");
    if (!type) return type.error();
    if (*type == "NFC") {
        spec.nfc = true;
        return only_keys(v, key, {"type"});
    }
    if (*type != "Sequence" || depth > 3) return unsupported(key + ".type", "`" + *type + "`");
    if (const auto ok = only_keys(v, key, {"type", "normalizers"}); !ok) return ok;
    const value* list = v.find("normalizers");
    if (list == nullptr || list->as_array() == nullptr) return wrong(key + ".normalizers", "must be a list");
    for (std::size_t i = 0; i < list->size(); ++i) {
        const std::string inner = key + ".normalizers[" + std::to_string(i) + "]";
        if (const auto ok = read_normalizer(list->at(i), inner, spec, depth + 1); !ok) return ok;
    }
    return {};
}

// pre_tokenizer

result<split_pattern> read_pattern(const value& v, const std::string& key) {
    const value* pattern = v.find("pattern");
    if (pattern == nullptr || pattern->as_object() == nullptr || pattern->size() != 1)
        return wrong(key + ".pattern", "must be an object with `Regex` or `String`");
    const auto& [kind, content] = pattern->as_object()->front();
    const std::string* s = content.as_string();
    if (s == nullptr || s->empty()) return wrong(key + ".pattern." + kind, "must be a text that is not empty");
    if (kind != "Regex" && kind != "String") return unsupported(key + ".pattern." + kind, "this kind of pattern");
    auto compiled = kind == "Regex" ? split_pattern::compile(*s) : split_pattern::literal(*s);
    if (!compiled) return at_key(key + ".pattern." + kind, compiled.error());
    return compiled;
}

result<split_stage> read_split(const value& v, const std::string& key) {
    if (const auto ok = only_keys(v, key, {"type", "pattern", "behavior", "invert"}); !ok) return ok.error();
    const auto behavior = text(v, key, "behavior");
    if (!behavior) return behavior.error();
    const auto invert = flag(v, key, "invert", false);
    if (!invert) return invert.error();
    auto pattern = read_pattern(v, key);
    if (!pattern) return pattern.error();
    split_stage stage;
    stage.pattern = *std::move(pattern);
    if (*behavior == "Removed")
        (*invert ? stage.keep_gaps : stage.keep_matches) = false;
    else if (*behavior != "Isolated")
        return unsupported(key + ".behavior", "`" + *behavior + "`");
    return stage;
}

result<split_stage> read_digits(const value& v, const std::string& key) {
    if (const auto ok = only_keys(v, key, {"type", "individual_digits"}); !ok) return ok.error();
    const auto individual = flag(v, key, "individual_digits", false);
    if (!individual) return individual.error();
    split_stage stage;
    stage.pattern = split_pattern::compile(*individual ? "\\p{N}" : "\\p{N}+").value();
    return stage;
}

result<split_stage> read_byte_level(const value& v, const std::string& key) {
    if (const auto ok = only_keys(v, key, {"type", "add_prefix_space", "trim_offsets", "use_regex"}); !ok)
        return ok.error();
    const auto prefix = flag(v, key, "add_prefix_space", true);
    if (!prefix) return prefix.error();
    const auto regex = flag(v, key, "use_regex", true);
    if (!regex) return regex.error();
    split_stage stage;
    stage.prefix_space = *prefix;
    if (*regex) stage.pattern = split_pattern::compile(gpt2_pattern).value();
    return stage;
}

result<void> read_pre_tokenizer(const value& v, const std::string& key, tokenizer_spec& spec, bool& byte_level,
                                std::size_t depth) {
    const auto type = text(v, key, "type");
    if (!type) return type.error();
    if (byte_level) return unsupported(key, "a step after ByteLevel");
    if (*type == "Sequence" && depth < 3) {
        if (const auto ok = only_keys(v, key, {"type", "pretokenizers"}); !ok) return ok;
        const value* list = v.find("pretokenizers");
        if (list == nullptr || list->as_array() == nullptr) return wrong(key + ".pretokenizers", "must be a list");
        for (std::size_t i = 0; i < list->size(); ++i) {
            const std::string inner = key + ".pretokenizers[" + std::to_string(i) + "]";
            if (const auto ok = read_pre_tokenizer(list->at(i), inner, spec, byte_level, depth + 1); !ok) return ok;
        }
        return {};
    }
    auto stage = *type == "Split"       ? read_split(v, key)
                 : *type == "Digits"    ? read_digits(v, key)
                 : *type == "ByteLevel" ? read_byte_level(v, key)
                                        : result<split_stage>(unsupported(key + ".type", "`" + *type + "`"));
    if (!stage) return stage.error();
    byte_level = *type == "ByteLevel";
    if (spec.stages.size() == stages_max) return fail(errc::too_large, key + ": has more than 16 steps");
    if (stage->pattern || stage->prefix_space) spec.stages.push_back(*std::move(stage));
    return {};
}

// model

result<void> read_vocab(const value& model, tokenizer_spec& spec,
                        std::unordered_map<std::string_view, std::uint32_t>& ids) {
    const value* vocab = model.find("vocab");
    if (vocab == nullptr || vocab->as_object() == nullptr) return wrong("model.vocab", "must be an object");
    std::unordered_set<std::uint32_t> seen;
    ids.reserve(vocab->size());
    for (const auto& [token, number] : *vocab->as_object()) {
        const auto id = number.as_u64();
        if (!id || *id > id_max)
            return wrong("model.vocab", "the id of " + json::quote(token) + " is not a small whole number");
        if (!seen.insert(static_cast<std::uint32_t>(*id)).second)
            return wrong("model.vocab", "the id " + std::to_string(*id) + " occurs twice");
        ids.emplace(token, static_cast<std::uint32_t>(*id));
        spec.vocab.emplace_back(token, static_cast<std::uint32_t>(*id));
    }
    return {};
}

// A merge is "left right" or ["left", "right"].
result<std::pair<std::string, std::string>> read_pair(const value& v, const std::string& key) {
    if (const std::string* line = v.as_string()) {
        const std::size_t space = line->find(' ');
        if (space == std::string::npos || line->find(' ', space + 1) != std::string::npos)
            return wrong(key, "must be two tokens with one space between them");
        return std::pair(line->substr(0, space), line->substr(space + 1));
    }
    if (v.as_array() == nullptr || v.size() != 2 || !v.at(0).is_string() || !v.at(1).is_string())
        return wrong(key, "must be two tokens");
    return std::pair(*v.at(0).as_string(), *v.at(1).as_string());
}

result<void> read_merges(const value& model, tokenizer_spec& spec,
                         const std::unordered_map<std::string_view, std::uint32_t>& ids) {
    const value* merges = model.find("merges");
    if (merges == nullptr || merges->as_array() == nullptr) return wrong("model.merges", "must be a list");
    const auto id_of = [&](const std::string& token) {
        const auto found = ids.find(token);
        return found == ids.end() ? bpe::no_id : found->second;
    };
    std::unordered_set<std::uint64_t> seen;
    for (std::size_t i = 0; i < merges->size(); ++i) {
        const std::string key = "model.merges[" + std::to_string(i) + "]";
        const auto pair = read_pair(merges->at(i), key);
        if (!pair) return pair.error();
        const auto& [left, right] = *pair;
        const bpe::merge m{id_of(left), id_of(right), id_of(left + right)};
        if (m.left == bpe::no_id || m.right == bpe::no_id || m.joined == bpe::no_id)
            return wrong(key,
                         "a token of " + json::quote(left + " " + right) + " or its joined form is not in model.vocab");
        if (!seen.insert(std::uint64_t{m.left} << 32U | m.right).second) return wrong(key, "occurs twice");
        spec.merges.push_back(m);
    }
    return {};
}

// Bytes that well-formed UTF-8 can contain.
bool occurs_in_utf8(std::size_t b) { return b != 0xc0 && b != 0xc1 && b < 0xf5; }

result<void> check_alphabet(const tokenizer_spec& spec) {
    std::unordered_set<std::string> single;
    for (const auto& [token, id] : spec.vocab)
        if (token.size() <= 2) single.insert(token);
    const auto characters = byte_level_characters();
    for (std::size_t b = 0; b < 256; ++b) {
        std::string token;
        const char32_t c = characters[b];
        if (c >= 0x80) {
            token += static_cast<char>(0xc0U | c >> 6U);
            token += static_cast<char>(0x80U | (c & 0x3fU));
        } else {
            token += static_cast<char>(c);
        }
        if (occurs_in_utf8(b) && !single.contains(token))
            return wrong("model.vocab", "has no token for byte " + std::to_string(b) +
                                            "; only byte-level BPE with its whole alphabet is read");
    }
    return {};
}

result<void> read_model(const value& document, tokenizer_spec& spec) {
    const value* model = document.find("model");
    if (model == nullptr) return wrong("model", "is missing; this is not a tokenizer.json");
    if (model->contains("type") && !(model->at("type") == value("BPE")))
        return unsupported("model.type", "any other model than BPE");
    const auto known = only_keys(*model, "model",
                                 {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                                  "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
    if (!known) return known;
    const auto zero = [](const value& v) { return v.as_double() == 0.0 || v.as_i64() == 0; };
    const auto empty = [](const value& v) { return v.as_string() != nullptr && v.as_string()->empty(); };
    const auto no = [](const value& v) { return v.as_bool() == false; };
    // unk_token and fuse_unk say what becomes of characters that have no token: with every byte in the vocabulary,
    // none.
    for (const auto& ok :
         {must_be_off(*model, "model", "dropout", zero),
          must_be_off(*model, "model", "continuing_subword_prefix", empty),
          must_be_off(*model, "model", "end_of_word_suffix", empty), must_be_off(*model, "model", "byte_fallback", no)})
        if (!ok) return ok;
    const auto ignore = flag(*model, "model", "ignore_merges", false);
    if (!ignore) return ignore.error();
    spec.ignore_merges = *ignore;
    std::unordered_map<std::string_view, std::uint32_t> ids;
    if (const auto ok = read_vocab(*model, spec, ids); !ok) return ok;
    if (const auto ok = check_alphabet(spec); !ok) return ok;
    return read_merges(*model, spec, ids);
}

// added_tokens

result<added_token> read_added_token(const value& v, const std::string& key) {
    const auto known = only_keys(v, key, {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    if (!known) return known.error();
    added_token t;
    const value* id = v.find("id");
    if (id == nullptr || !id->as_u64() || *id->as_u64() > id_max)
        return wrong(key + ".id", "must be a small whole number");
    t.id = static_cast<std::uint32_t>(*id->as_u64());
    auto content = text(v, key, "content");
    if (!content) return content.error();
    if (content->empty()) return wrong(key + ".content", "is empty");
    t.content = *std::move(content);
    for (const std::string_view name : {"single_word", "lstrip", "rstrip"}) {
        const auto set = flag(v, key, name, false);
        if (!set) return set.error();
        if (*set) return unsupported(key + "." + std::string(name), "true");
    }
    const auto normalized = flag(v, key, "normalized", true);
    if (!normalized) return normalized.error();
    const auto special = flag(v, key, "special", false);
    if (!special) return special.error();
    t.normalized = *normalized;
    t.special = *special;
    return t;
}

result<void> read_added_tokens(const value& document, tokenizer_spec& spec) {
    const value* list = document.find("added_tokens");
    if (list == nullptr || list->is_null()) return {};
    if (list->as_array() == nullptr) return wrong("added_tokens", "must be a list");
    std::unordered_map<std::uint32_t, std::string_view> by_id;
    std::unordered_map<std::string_view, std::uint32_t> by_content;
    for (const auto& [token, id] : spec.vocab) {
        by_id.emplace(id, token);
        by_content.emplace(token, id);
    }
    for (std::size_t i = 0; i < list->size(); ++i) {
        const std::string key = "added_tokens[" + std::to_string(i) + "]";
        auto token = read_added_token(list->at(i), key);
        if (!token) return token.error();
        const auto same_content = by_content.find(token->content);
        if (same_content != by_content.end() && same_content->second != token->id)
            return wrong(key + ".id", "is " + std::to_string(token->id) + ", but " + json::quote(token->content) +
                                          " has the id " + std::to_string(same_content->second));
        const auto same_id = by_id.find(token->id);
        if (same_id != by_id.end() && same_id->second != token->content)
            return wrong(key + ".id", std::to_string(token->id) + " belongs to " + json::quote(same_id->second));
        spec.added.push_back(*std::move(token));
    }
    std::unordered_set<std::uint32_t> ids;
    for (const added_token& t : spec.added)
        if (!ids.insert(t.id).second) return wrong("added_tokens", "the id " + std::to_string(t.id) + " occurs twice");
    return {};
}

// post_processor: only what it puts around a text matters

result<void> read_template(const value& v, const std::string& key, tokenizer_spec& spec) {
    const auto known = only_keys(v, key, {"type", "single", "pair", "special_tokens"});
    if (!known) return known;
    const value* single = v.find("single");
    if (single == nullptr || single->as_array() == nullptr) return wrong(key + ".single", "must be a list");
    bool text_seen = false;
    for (std::size_t i = 0; i < single->size(); ++i) {
        const value& part = single->at(i);
        const std::string place = key + ".single[" + std::to_string(i) + "]";
        if (part.find("Sequence") != nullptr && !text_seen) {
            text_seen = true;
            continue;
        }
        const value* special = part.find("SpecialToken");
        if (special == nullptr) return wrong(place, "must be one `Sequence` or a `SpecialToken`");
        auto name = text(*special, place + ".SpecialToken", "id");
        if (!name) return name.error();
        auto& where = text_seen ? spec.template_end : spec.template_begin;
        if (where) return unsupported(place, "more than one token on one side of a text");
        where = *std::move(name);
    }
    return {};
}

result<void> read_post_processor(const value& v, const std::string& key, tokenizer_spec& spec, std::size_t depth) {
    if (v.is_null()) return {};
    const auto type = text(v, key, "type");
    if (!type) return type.error();
    if (*type == "ByteLevel") return only_keys(v, key, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
    if (*type == "TemplateProcessing") return read_template(v, key, spec);
    if (*type != "Sequence" || depth > 3) return unsupported(key + ".type", "`" + *type + "`");
    if (const auto ok = only_keys(v, key, {"type", "processors"}); !ok) return ok;
    const value* list = v.find("processors");
    if (list == nullptr || list->as_array() == nullptr) return wrong(key + ".processors", "must be a list");
    for (std::size_t i = 0; i < list->size(); ++i) {
        const std::string inner = key + ".processors[" + std::to_string(i) + "]";
        if (const auto ok = read_post_processor(list->at(i), inner, spec, depth + 1); !ok) return ok;
    }
    return {};
}

result<void> read_decoder(const value& document) {
    const value* decoder = document.find("decoder");
    if (decoder == nullptr || decoder->is_null()) return {};
    const auto type = text(*decoder, "decoder", "type");
    if (!type) return type.error();
    if (*type != "ByteLevel") return unsupported("decoder.type", "`" + *type + "`");
    return only_keys(*decoder, "decoder", {"type", "add_prefix_space", "trim_offsets", "use_regex"});
}

result<void> read_parts(const value& document, tokenizer_spec& spec) {
    const auto known = only_keys(document, "file",
                                 {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                                  "post_processor", "decoder", "model"});
    if (!known) return known;
    const value* version = document.find("version");
    if (version != nullptr && !(*version == value("1.0"))) return unsupported("version", "any version but \"1.0\"");
    if (const auto ok = must_be_off(document, "", "truncation", never); !ok) return ok;
    if (const auto ok = must_be_off(document, "", "padding", never); !ok) return ok;
    if (const auto ok = read_model(document, spec); !ok) return ok;
    if (const auto ok = read_added_tokens(document, spec); !ok) return ok;
    if (const value* n = document.find("normalizer"); n != nullptr)
        if (const auto ok = read_normalizer(*n, "normalizer", spec, 0); !ok) return ok;
    const value* pre = document.find("pre_tokenizer");
    if (pre == nullptr || pre->is_null())
        return unsupported("pre_tokenizer", "a tokenizer without a ByteLevel pre-tokenizer");
    bool byte_level = false;
    if (const auto ok = read_pre_tokenizer(*pre, "pre_tokenizer", spec, byte_level, 0); !ok) return ok;
    if (!byte_level) return unsupported("pre_tokenizer", "a tokenizer without a ByteLevel pre-tokenizer");
    if (const value* p = document.find("post_processor"); p != nullptr)
        if (const auto ok = read_post_processor(*p, "post_processor", spec, 0); !ok) return ok;
    return read_decoder(document);
}

}  // namespace

result<tokenizer_spec> parse_tokenizer_spec(std::string_view text_of_file) {
    const auto document = json::parse(text_of_file, json::limits{tokenizer_json_bytes_max, 16});
    if (!document) return document.error();
    if (!document->is_object()) return fail(errc::parse_error, "is not a JSON object, so no tokenizer.json");
    tokenizer_spec spec;
    if (const auto ok = read_parts(*document, spec); !ok) return ok.error();
    return spec;
}

}  // namespace darlcore::formats
