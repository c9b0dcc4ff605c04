// SPDX-License-Identifier: Apache-2.0
#include "adapters/formats/manifest.hpp"

#include <algorithm>
#include <utility>

#include "adapters/formats/json.hpp"

namespace darlcore::formats {

namespace {

// Keeps every product of counts and sizes below 2^63.
constexpr std::uint64_t seq_len_max = std::uint64_t{1} << 30U;
constexpr std::uint64_t vocab_size_max = std::uint64_t{1} << 32U;

error missing(std::string_view key, std::string_view kind) {
    return fail(errc::parse_error, "manifest: key `" + std::string(key) + "` is missing or is no " + std::string(kind));
}

result<std::uint64_t> number_at(const json::value& object, std::string_view key) {
    const auto* member = object.find(key);
    const auto number = member != nullptr ? member->as_u64() : std::nullopt;
    if (!number) return missing(key, "whole number >= 0");
    return *number;
}

result<std::string> text_at(const json::value& object, std::string_view key) {
    const auto* member = object.find(key);
    const auto* text = member != nullptr ? member->as_string() : nullptr;
    if (text == nullptr) return missing(key, "text");
    return *text;
}

std::string optional_text(const json::value& object, std::string_view key) {
    const auto* member = object.find(key);
    const auto* text = member != nullptr ? member->as_string() : nullptr;
    return text != nullptr ? *text : std::string();
}

template <std::size_t N>
result<std::array<std::uint8_t, N>> digest_of(const std::string* text, std::string_view key) {
    const auto digest = text != nullptr ? from_hex<N>(*text) : std::nullopt;
    if (!digest) return missing(key, "digest of " + std::to_string(2 * N) + " hex digits");
    return *digest;
}

bool stays_inside(std::string_view path) {
    if (path.empty() || path.front() == '/' || path.find('\0') != std::string_view::npos) return false;
    for (std::size_t begin = 0; begin <= path.size();) {
        const std::size_t end = std::min(path.find('/', begin), path.size());
        if (path.substr(begin, end - begin) == "..") return false;
        begin = end + 1;
    }
    return true;
}

bool is_sha256_text(std::string_view text) { return from_hex<32>(text).has_value(); }

result<void> read_geometry(const json::value& doc, token_manifest& m) {
    auto format = text_at(doc, "format");
    if (!format) return format.error();
    m.format = *std::move(format);
    if (m.format != darl_tokens_format && m.format != pww_tokens_format)
        return fail(errc::unsupported, "manifest: format `" + m.format + "` is unknown; this program reads " +
                                           std::string(darl_tokens_format) + " and " + std::string(pww_tokens_format));
    const auto seq_len = number_at(doc, "seq_len");
    const auto window = number_at(doc, "window");
    const auto vocab_size = number_at(doc, "vocab_size");
    const auto num_windows = number_at(doc, "num_windows");
    const auto dtype = text_at(doc, "dtype");
    for (const auto* number : {&seq_len, &window, &vocab_size, &num_windows})
        if (!*number) return number->error();
    if (!dtype) return dtype.error();
    if (*seq_len == 0 || *seq_len > seq_len_max)
        return fail(errc::corrupt, "manifest: seq_len " + std::to_string(*seq_len) + " is not in 1 ... 2^30");
    if (*window != *seq_len + 1)
        return fail(errc::corrupt, "manifest: window is " + std::to_string(*window) + ", but seq_len + 1 is " +
                                       std::to_string(*seq_len + 1));
    if (*vocab_size == 0 || *vocab_size > vocab_size_max)
        return fail(errc::corrupt, "manifest: vocab_size " + std::to_string(*vocab_size) + " is not in 1 ... 2^32");
    if (*dtype != "uint16" && *dtype != "uint32")
        return fail(errc::unsupported, "manifest: dtype `" + *dtype + "` is neither uint16 nor uint32");
    if (*dtype == "uint16" && *vocab_size > 65536)
        return fail(errc::corrupt, "manifest: a vocabulary of " + std::to_string(*vocab_size) + " does not fit uint16");
    m.seq_len = *seq_len;
    m.vocab_size = *vocab_size;
    m.num_windows = *num_windows;
    m.dtype = *dtype == "uint16" ? token_dtype::uint16 : token_dtype::uint32;
    if (m.num_windows > (std::uint64_t{1} << 62U) / m.window_bytes())
        return fail(errc::corrupt, "manifest: num_windows " + std::to_string(m.num_windows) + " is beyond any file");
    return {};
}

result<void> read_tokenizer(const json::value& doc, token_manifest& m) {
    const auto* tokenizer = doc.find("tokenizer");
    if (tokenizer == nullptr || tokenizer->as_object() == nullptr) return missing("tokenizer", "object");
    m.tokenizer_name = optional_text(*tokenizer, m.format == pww_tokens_format ? "repo_id" : "name");
    m.tokenizer_sha256 = optional_text(*tokenizer, "sha256");
    if (m.format == darl_tokens_format && !m.tokenizer_sha256.empty() && !is_sha256_text(m.tokenizer_sha256))
        return missing("tokenizer.sha256", "64 hex digits (or empty for the bytes tokenizer)");
    return {};
}

result<token_shard> read_shard(const json::value& entry, const token_manifest& m) {
    auto path = text_at(entry, "path");
    if (!path) return path.error();
    const auto windows = number_at(entry, "windows");
    if (!windows) return windows.error();
    token_shard shard{*std::move(path), *windows, 0, optional_text(entry, "sha256")};
    if (!stays_inside(shard.path))
        return fail(errc::invalid_argument,
                    "manifest: shard path " + json::quote(shard.path) + " must be relative, without `..`");
    if (shard.windows > m.num_windows)
        return fail(errc::corrupt, "manifest: shard " + json::quote(shard.path) + " has more windows than the corpus");
    shard.bytes = shard.windows * m.window_bytes();
    if (m.format == pww_tokens_format) return shard;
    const auto bytes = number_at(entry, "bytes");
    if (!bytes) return bytes.error();
    if (*bytes != shard.bytes)
        return fail(errc::corrupt, "manifest: shard " + json::quote(shard.path) + " says " + std::to_string(*bytes) +
                                       " bytes, its windows take " + std::to_string(shard.bytes));
    if (!is_sha256_text(shard.sha256)) return missing("shards[].sha256", "digest of 64 hex digits");
    return shard;
}

result<void> read_shards(const json::value& doc, token_manifest& m) {
    const auto* list = doc.find("shards");
    if (list == nullptr || list->as_array() == nullptr) return missing("shards", "list");
    std::uint64_t windows = 0;
    for (const auto& entry : *list->as_array()) {
        auto shard = read_shard(entry, m);
        if (!shard) return shard.error();
        windows += shard->windows;  // each at most num_windows < 2^62, checked again after every one
        if (windows > m.num_windows) break;
        m.shards.push_back(*std::move(shard));
    }
    if (windows != m.num_windows)
        return fail(errc::corrupt,
                    "manifest: the shards' windows do not add up to num_windows = " + std::to_string(m.num_windows));
    return {};
}

result<void> read_content(const json::value& doc, token_manifest& m) {
    const auto* member = doc.find("corpus_content");
    const auto content = digest_of<32>(member != nullptr ? member->as_string() : nullptr, "corpus_content");
    if (!content) return content.error();
    const auto* leaves = doc.find("corpus_leaves");
    if (leaves == nullptr || leaves->as_array() == nullptr) return missing("corpus_leaves", "list");
    for (const auto& leaf : *leaves->as_array()) {
        const auto digest = digest_of<32>(leaf.as_string(), "corpus_leaves[]");
        if (!digest) return digest.error();
        m.leaves.push_back(*digest);
    }
    if (m.leaves.size() != corpus_leaf_count(m.num_windows))
        return fail(errc::corrupt, "manifest: " + std::to_string(m.leaves.size()) + " leaves, the corpus has " +
                                       std::to_string(corpus_leaf_count(m.num_windows)));
    if (corpus_content(m.leaves) != *content)
        return fail(errc::corrupt, "manifest: corpus_content is not the digest of corpus_leaves; the file was edited");
    m.corpus_content = *content;
    return {};
}

// What only our own format has.
result<void> read_extras(const json::value& doc, token_manifest& m) {
    const auto total_ids = number_at(doc, "total_ids");
    if (!total_ids) return total_ids.error();
    if (*total_ids != m.total_ids())
        return fail(errc::corrupt, "manifest: total_ids is " + std::to_string(*total_ids) + ", the windows hold " +
                                       std::to_string(m.total_ids()));
    const auto* member = doc.find("corpus");
    const auto identity = digest_of<16>(member != nullptr ? member->as_string() : nullptr, "corpus");
    if (!identity) return identity.error();
    if (*identity != m.corpus())
        return fail(errc::corrupt, "manifest: corpus is not the digest of the other keys; the file was edited");
    m.source = optional_text(doc, "source");
    for (const auto& [key, id] : {std::pair{"bos_id", &m.bos_id}, std::pair{"eos_id", &m.eos_id}}) {
        const auto* value = doc.find(key);
        if (value == nullptr || value->is_null()) continue;
        *id = value->as_u64();
        if (!*id || **id >= m.vocab_size) return missing(key, "id below vocab_size (or null)");
    }
    return read_content(doc, m);
}

json::value optional_number(const std::optional<std::uint64_t>& number) {
    return number ? json::value(*number) : json::value(nullptr);
}

}  // namespace

corpus_description token_manifest::description() const {
    return {.format = format,
            .seq_len = seq_len,
            .window = window(),
            .dtype = std::string(word(dtype)),
            .vocab_size = vocab_size,
            .tokenizer_sha256 = tokenizer_sha256,
            .num_windows = num_windows};
}

result<token_manifest> parse_manifest(std::string_view text) {
    const auto doc = json::parse(text, {.bytes_max = manifest_bytes_max, .depth_max = 16});
    if (!doc) return fail(doc.error().code, "manifest: " + doc.error().context);
    if (doc->as_object() == nullptr) return fail(errc::parse_error, "manifest: is not a JSON object");
    token_manifest m;
    if (const auto ok = read_geometry(*doc, m); !ok) return ok.error();
    if (const auto ok = read_tokenizer(*doc, m); !ok) return ok.error();
    if (const auto ok = read_shards(*doc, m); !ok) return ok.error();
    if (m.format == darl_tokens_format)
        if (const auto ok = read_extras(*doc, m); !ok) return ok.error();
    return m;
}

std::string manifest_text(const token_manifest& m) {
    json::array shards;
    for (const auto& s : m.shards)
        shards.push_back(
            json::make_object({{"path", s.path}, {"windows", s.windows}, {"bytes", s.bytes}, {"sha256", s.sha256}}));
    json::array leaves;
    for (const auto& leaf : m.leaves) leaves.emplace_back(to_hex(leaf));
    const auto doc = json::make_object(
        {{"format", m.format},
         {"seq_len", m.seq_len},
         {"window", m.window()},
         {"dtype", word(m.dtype)},
         {"vocab_size", m.vocab_size},
         {"tokenizer", json::make_object({{"name", m.tokenizer_name}, {"sha256", m.tokenizer_sha256}})},
         {"num_windows", m.num_windows},
         {"total_ids", m.total_ids()},
         {"source", m.source},
         {"bos_id", optional_number(m.bos_id)},
         {"eos_id", optional_number(m.eos_id)},
         {"corpus", to_hex(m.corpus())},
         {"corpus_content", m.corpus_content ? json::value(to_hex(*m.corpus_content)) : json::value(nullptr)},
         {"corpus_leaves", std::move(leaves)},
         {"shards", std::move(shards)}});
    return json::dump(doc) + "\n";
}

}  // namespace darlcore::formats
