// SPDX-License-Identifier: Apache-2.0
#include "adapters/formats/json.hpp"
#include "backends/storage/blob_store.hpp"

namespace darlcore::storage {
namespace {

std::string text_of(const json::value& document, std::string_view key) {
    const auto* member = document.find(key);
    const auto* text = member != nullptr ? member->as_string() : nullptr;
    return text != nullptr ? *text : std::string();
}

std::optional<std::uint64_t> number_of(const json::value& document, std::string_view key) {
    const auto* member = document.find(key);
    return member != nullptr ? member->as_u64() : std::nullopt;
}

}  // namespace

std::string_view word(blob_purpose purpose) {
    switch (purpose) {
        case blob_purpose::delta:
            return "delta";
        case blob_purpose::init:
            return "init";
        case blob_purpose::wire:
            return "wire";
    }
    return "delta";
}

std::optional<blob_purpose> blob_purpose_from_word(std::string_view text) {
    for (const auto purpose : {blob_purpose::delta, blob_purpose::init, blob_purpose::wire})
        if (text == word(purpose)) return purpose;
    return std::nullopt;
}

std::string encode(const blob_facts& facts) {
    return json::dump(json::make_object({{"sha256", facts.sha256},
                                         {"bytes", facts.bytes},
                                         {"purpose", word(facts.purpose)},
                                         {"codec", facts.codec},
                                         {"generation", facts.generation},
                                         {"site", facts.site},
                                         {"incarnation", facts.incarnation},
                                         {"scan", facts.scan}})) +
           "\n";
}

result<blob_facts> decode_blob_facts(std::string_view text) {
    const auto document = json::parse(text);
    if (!document) return document.error();
    blob_facts facts;
    facts.sha256 = text_of(*document, "sha256");
    const auto bytes = number_of(*document, "bytes");
    const auto generation = number_of(*document, "generation");
    const auto purpose = blob_purpose_from_word(text_of(*document, "purpose"));
    if (!is_sha256_hex(facts.sha256) || !bytes || !generation || !purpose)
        return fail(errc::corrupt, "no catalogue entry of a blob");
    facts.bytes = *bytes;
    facts.generation = *generation;
    facts.purpose = *purpose;
    facts.codec = text_of(*document, "codec");
    facts.site = text_of(*document, "site");
    facts.incarnation = text_of(*document, "incarnation");
    facts.scan = text_of(*document, "scan");
    return facts;
}

bool is_kept(const blob_facts& blob, const blob_retention& keep) {
    if (keep.blobs.contains(blob.sha256)) return true;
    switch (blob.purpose) {
        case blob_purpose::wire:
            return blob.generation >= keep.oldest_kept || keep.pinned.contains(blob.generation);
        case blob_purpose::delta:
            return keep.current_generation && blob.generation >= *keep.current_generation;
        case blob_purpose::init:
            return !keep.current_generation.has_value();
    }
    return true;
}

}  // namespace darlcore::storage
