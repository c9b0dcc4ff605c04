// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <unordered_set>

#include "adapters/formats/json.hpp"
#include "adapters/formats/safetensors.hpp"
#include "adapters/formats/safetensors_dtype.hpp"

namespace darlcore::formats {

namespace {

constexpr std::string_view metadata_key = "__metadata__";

error about_tensor(errc code, const std::string& name, std::string_view reason) {
    return fail(code, "tensor " + json::quote(name) + ": " + std::string(reason));
}

result<std::vector<std::uint64_t>> read_counts(const json::value& list, const std::string& name,
                                               std::string_view what) {
    const json::array* elements = list.as_array();
    if (elements == nullptr) return about_tensor(errc::parse_error, name, std::string(what) + " is not a list");
    std::vector<std::uint64_t> counts;
    counts.reserve(elements->size());
    for (const json::value& element : *elements) {
        const auto count = element.as_u64();
        if (!count)
            return about_tensor(errc::parse_error, name,
                                std::string(what) + " holds something else than whole numbers >= 0");
        counts.push_back(*count);
    }
    return counts;
}

result<void> check_members(const json::object& members, const std::string& name) {
    for (const auto& [key, unused] : members)
        if (key != "dtype" && key != "shape" && key != "data_offsets")
            return about_tensor(errc::parse_error, name, "unexpected key " + json::quote(key));
    if (members.size() != 3) return about_tensor(errc::parse_error, name, "dtype, shape or data_offsets is missing");
    return {};
}

result<void> check_span(const safetensors_entry& entry, std::uint64_t data_bytes) {
    const std::string& name = entry.spec.name;
    if (entry.begin_bytes > entry.end_bytes)
        return about_tensor(errc::corrupt, name, "data_offsets end before they begin");
    if (entry.end_bytes > data_bytes)
        return about_tensor(errc::corrupt, name, "data_offsets reach beyond the end of the file");
    const auto elements = element_count(entry.spec.shape);
    if (!elements) return about_tensor(errc::overflow, name, elements.error().context);
    const auto bytes = byte_count(*elements, entry.spec.dtype);
    if (!bytes) return about_tensor(errc::overflow, name, bytes.error().context);
    if (*bytes != entry.size_bytes())
        return about_tensor(errc::corrupt, name,
                            "shape and dtype need " + std::to_string(*bytes) + " bytes, data_offsets span " +
                                std::to_string(entry.size_bytes()));
    return {};
}

result<safetensors_entry> read_entry(const std::string& name, const json::value& info, std::uint64_t data_bytes) {
    if (name.empty()) return fail(errc::parse_error, "a tensor has an empty name");
    const json::object* members = info.as_object();
    if (members == nullptr) return about_tensor(errc::parse_error, name, "its description is not an object");
    if (const auto ok = check_members(*members, name); !ok) return ok.error();
    safetensors_entry entry;
    entry.spec.name = name;
    const std::string* type_text = info.at("dtype").as_string();
    if (type_text == nullptr) return about_tensor(errc::parse_error, name, "dtype is not a string");
    const auto type = dtype_from_safetensors(*type_text);
    if (!type) return about_tensor(errc::unsupported, name, "unknown dtype " + json::quote(*type_text));
    entry.spec.dtype = *type;
    auto shape = read_counts(info.at("shape"), name, "shape");
    if (!shape) return shape.error();
    entry.spec.shape = *std::move(shape);
    const auto offsets = read_counts(info.at("data_offsets"), name, "data_offsets");
    if (!offsets) return offsets.error();
    if (offsets->size() != 2) return about_tensor(errc::parse_error, name, "data_offsets is not a pair");
    entry.begin_bytes = (*offsets)[0];
    entry.end_bytes = (*offsets)[1];
    if (const auto ok = check_span(entry, data_bytes); !ok) return ok.error();
    return entry;
}

result<safetensors_metadata> read_metadata(const json::value& pairs) {
    const json::object* members = pairs.as_object();
    if (members == nullptr) return fail(errc::parse_error, "__metadata__ is not an object");
    safetensors_metadata metadata;
    for (const auto& [key, text] : *members) {
        if (!text.is_string()) return fail(errc::parse_error, "__metadata__ " + json::quote(key) + " is not a string");
        metadata.emplace(key, *text.as_string());
    }
    return metadata;
}

// Sorted entries must tile [0, data_bytes): then none overlaps, none is missing and nothing hides between or behind
// them.
result<void> check_cover(const std::vector<safetensors_entry>& entries, std::uint64_t data_bytes) {
    std::uint64_t expected = 0;
    for (const safetensors_entry& entry : entries) {
        if (entry.begin_bytes > expected)
            return about_tensor(errc::corrupt, entry.spec.name,
                                "hole of " + std::to_string(entry.begin_bytes - expected) + " bytes before its data");
        if (entry.begin_bytes < expected)
            return about_tensor(errc::corrupt, entry.spec.name, "overlaps the tensor before it");
        expected = entry.end_bytes;
    }
    if (expected != data_bytes)
        return fail(errc::corrupt,
                    std::to_string(data_bytes - expected) + " bytes behind the last tensor belong to none");
    return {};
}

result<json::value> parse_text(std::string_view text) {
    if (text.empty() || text.front() != '{') return fail(errc::parse_error, "the header does not start with {");
    const std::size_t last = text.find_last_not_of(' ');
    if (text[last] != '}') return fail(errc::parse_error, "the header is not padded with spaces behind its last }");
    auto document = json::parse(text, {.bytes_max = safetensors_header_bytes_max, .depth_max = 8});
    if (!document && document.error().code == errc::out_of_memory) return document.error();
    if (!document) return fail(errc::parse_error, "the header is not clean JSON: " + document.error().context);
    return document;
}

}  // namespace

const safetensors_entry* safetensors_header::find(std::string_view name) const {
    const auto it = std::find_if(entries.begin(), entries.end(), [&](const auto& e) { return e.spec.name == name; });
    return it == entries.end() ? nullptr : &*it;
}

const std::string* safetensors_header::meta(std::string_view key) const {
    const auto it = metadata.find(key);
    return it == metadata.end() ? nullptr : &it->second;
}

result<safetensors_header> parse_safetensors_header(std::string_view json_text, std::uint64_t data_bytes) {
    const auto document = parse_text(json_text);
    if (!document) return document.error();
    safetensors_header header;
    for (const auto& [name, info] : *document->as_object()) {
        if (name == metadata_key) {
            auto metadata = read_metadata(info);
            if (!metadata) return metadata.error();
            header.metadata = *std::move(metadata);
            continue;
        }
        auto entry = read_entry(name, info, data_bytes);
        if (!entry) return entry.error();
        header.entries.push_back(*std::move(entry));
    }
    std::sort(header.entries.begin(), header.entries.end(), [](const auto& a, const auto& b) {
        if (a.begin_bytes != b.begin_bytes) return a.begin_bytes < b.begin_bytes;
        if (a.end_bytes != b.end_bytes) return a.end_bytes < b.end_bytes;
        return a.spec.name < b.spec.name;
    });
    if (const auto ok = check_cover(header.entries, data_bytes); !ok) return ok.error();
    return header;
}

namespace {

std::string describe(const tensor_spec& spec, std::uint64_t begin, std::uint64_t end) {
    std::string text =
        json::quote(spec.name) + ":{\"dtype\":\"" + std::string(safetensors_word(spec.dtype)) + "\",\"shape\":[";
    for (std::size_t i = 0; i < spec.shape.size(); ++i) text += (i == 0 ? "" : ",") + std::to_string(spec.shape[i]);
    return text + "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
}

std::string describe(const safetensors_metadata& metadata) {
    std::string text = json::quote(metadata_key) + ":{\"format\":\"pt\"";
    for (const auto& [key, value] : metadata)
        if (key != "format") text += "," + json::quote(key) + ":" + json::quote(value);
    return text + "}";
}

std::string with_length(std::string text) {
    text.append((8 - text.size() % 8) % 8, ' ');
    std::string length(8, '\0');
    for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<char>((text.size() >> (8 * i)) & 0xffU);
    return length + text;
}

}  // namespace

result<std::string> build_safetensors_header(std::span<const tensor_spec> tensors,
                                             const safetensors_metadata& metadata) {
    std::string text = "{" + describe(metadata);
    std::unordered_set<std::string_view> seen;
    std::uint64_t offset = 0;
    for (const tensor_spec& spec : tensors) {
        if (spec.name.empty() || spec.name == metadata_key || !seen.insert(spec.name).second)
            return about_tensor(errc::invalid_argument, spec.name, "the name is empty, reserved or used twice");
        const auto bytes =
            element_count(spec.shape).and_then([&](std::uint64_t n) { return byte_count(n, spec.dtype); });
        if (!bytes) return about_tensor(errc::overflow, spec.name, bytes.error().context);
        if (*bytes > static_cast<std::uint64_t>(INT64_MAX) - offset)
            return about_tensor(errc::overflow, spec.name, "the file would have more than 2^63 bytes");
        text += "," + describe(spec, offset, offset + *bytes);
        offset += *bytes;
    }
    text += "}";
    // Refuses names and texts that are not UTF-8: nobody could read the file.
    if (const auto readable = parse_safetensors_header(text, offset); !readable)
        return fail(readable.error().code == errc::out_of_memory ? errc::out_of_memory : errc::invalid_argument,
                    readable.error().context);
    if (text.size() + 8 > safetensors_header_bytes_max) return fail(errc::too_large, "the header would exceed 100 MB");
    return with_length(std::move(text));
}

}  // namespace darlcore::formats
