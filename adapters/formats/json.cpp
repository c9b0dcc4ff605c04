// SPDX-License-Identifier: Apache-2.0
#include "adapters/formats/json.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_set>

#include <simdjson.h>

namespace darlcore::json {

std::optional<bool> value::as_bool() const {
    const auto* b = std::get_if<bool>(&v_);
    return b != nullptr ? std::optional<bool>(*b) : std::nullopt;
}

std::optional<std::int64_t> value::as_i64() const {
    if (const auto* i = std::get_if<std::int64_t>(&v_)) return *i;
    return std::nullopt;
}

std::optional<std::uint64_t> value::as_u64() const {
    if (const auto* i = std::get_if<std::int64_t>(&v_); i != nullptr && *i >= 0) return static_cast<std::uint64_t>(*i);
    if (const auto* u = std::get_if<std::uint64_t>(&v_)) return *u;
    return std::nullopt;
}

std::optional<double> value::as_double() const {
    if (const auto* d = std::get_if<double>(&v_)) return *d;
    if (const auto* i = std::get_if<std::int64_t>(&v_)) return static_cast<double>(*i);
    if (const auto* u = std::get_if<std::uint64_t>(&v_)) return static_cast<double>(*u);
    return std::nullopt;
}

const value* value::find(std::string_view key) const {
    const auto* members = as_object();
    if (members == nullptr) return nullptr;
    const auto it = std::find_if(members->begin(), members->end(), [&](const auto& m) { return m.first == key; });
    return it == members->end() ? nullptr : &it->second;
}

const value& value::at(std::string_view key) const {
    const value* member = find(key);
    DARLCORE_ASSERT(member != nullptr);
    return *member;
}

const value& value::at(std::size_t index) const {
    const auto* elements = as_array();
    DARLCORE_ASSERT(elements != nullptr && index < elements->size());
    return (*elements)[index];
}

std::size_t value::size() const {
    if (const auto* a = as_array()) return a->size();
    if (const auto* o = as_object()) return o->size();
    return 0;
}

value& value::set(std::string_view key, value member) {
    if (is_null()) v_ = json::object{};
    auto* members = as_object();
    DARLCORE_ASSERT(members != nullptr);
    for (auto& m : *members) {
        if (m.first == key) {
            m.second = std::move(member);
            return *this;
        }
    }
    members->emplace_back(std::string(key), std::move(member));
    return *this;
}

value& value::push_back(value element) {
    if (is_null()) v_ = json::array{};
    auto* elements = as_array();
    DARLCORE_ASSERT(elements != nullptr);
    elements->push_back(std::move(element));
    return *this;
}

namespace {

result<value> convert(const simdjson::dom::element& e);

result<value> convert_object(const simdjson::dom::object& members) {
    object out;
    std::unordered_set<std::string_view> seen;
    for (const auto& field : members) {
        if (!seen.insert(field.key).second) return fail(errc::parse_error, "a key occurs twice in one JSON object");
        auto member = convert(field.value);
        if (!member) return member;
        out.emplace_back(std::string(field.key), *std::move(member));
    }
    return value(std::move(out));
}

result<value> convert_array(const simdjson::dom::array& elements) {
    array out;
    for (const auto& e : elements) {
        auto element = convert(e);
        if (!element) return element;
        out.push_back(*std::move(element));
    }
    return value(std::move(out));
}

// Depth is bounded by the parser before this recursion starts.
result<value> convert(const simdjson::dom::element& e) {
    using type = simdjson::dom::element_type;
    switch (e.type()) {
        case type::OBJECT:
            return convert_object(e.get_object().value_unsafe());
        case type::ARRAY:
            return convert_array(e.get_array().value_unsafe());
        case type::STRING:
            return value(std::string_view(e.get_string().value_unsafe()));
        case type::INT64:
            return value(static_cast<std::int64_t>(e.get_int64().value_unsafe()));
        case type::UINT64:
            return value(static_cast<std::uint64_t>(e.get_uint64().value_unsafe()));
        case type::DOUBLE:
            return value(e.get_double().value_unsafe());
        case type::BOOL:
            return value(e.get_bool().value_unsafe());
        case type::NULL_VALUE:
            return value(nullptr);
    }
    return fail(errc::internal, "a JSON element of unknown kind");
}

void append(std::string& out, const value& v);

void append_double(std::string& out, double d) {
    if (!std::isfinite(d)) {
        out += "null";
        return;
    }
    char buffer[32];
    const auto end = std::to_chars(buffer, buffer + sizeof buffer, d).ptr;
    const std::string_view text(buffer, static_cast<std::size_t>(end - buffer));
    out += text;
    if (text.find_first_of(".en") == std::string_view::npos) out += ".0";
}

void append(std::string& out, const value& v) {
    if (v.is_null()) {
        out += "null";
    } else if (const auto b = v.as_bool()) {
        out += *b ? "true" : "false";
    } else if (const auto i = v.as_i64()) {
        out += std::to_string(*i);
    } else if (const auto u = v.as_u64()) {
        out += std::to_string(*u);
    } else if (const auto d = v.as_double()) {
        append_double(out, *d);
    } else if (const auto* s = v.as_string()) {
        out += quote(*s);
    } else if (const auto* a = v.as_array()) {
        out += '[';
        for (std::size_t k = 0; k < a->size(); ++k) {
            if (k != 0) out += ',';
            append(out, (*a)[k]);
        }
        out += ']';
    } else if (const auto* o = v.as_object()) {
        out += '{';
        for (std::size_t k = 0; k < o->size(); ++k) {
            if (k != 0) out += ',';
            out += quote((*o)[k].first);
            out += ':';
            append(out, (*o)[k].second);
        }
        out += '}';
    }
}

}  // namespace

result<value> parse(std::string_view text, const limits& bounds) {
    if (text.size() > bounds.bytes_max)
        return fail(errc::too_large, "the JSON document is larger than " + std::to_string(bounds.bytes_max) + " bytes");
    simdjson::dom::parser parser(bounds.bytes_max + simdjson::SIMDJSON_PADDING);
    if (parser.allocate(std::max<std::size_t>(text.size(), 1), bounds.depth_max) != simdjson::SUCCESS)
        return fail(errc::out_of_memory, "no memory for the JSON parser");
    simdjson::dom::element root;
    const auto code = parser.parse(text.data(), text.size(), true).get(root);
    if (code == simdjson::MEMALLOC) return fail(errc::out_of_memory, "no memory for the JSON parser");
    if (code != simdjson::SUCCESS)
        return fail(errc::parse_error, std::string("not valid JSON: ") + simdjson::error_message(code));
    return convert(root);
}

std::string dump(const value& document) {
    std::string out;
    append(out, document);
    return out;
}

std::string quote(std::string_view text) {
    static constexpr char digits[] = "0123456789abcdef";
    std::string out = "\"";
    for (const char c : text) {
        const auto u = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (c == '\n') {
            out += "\\n";
        } else if (c == '\t') {
            out += "\\t";
        } else if (u < 0x20 || u == 0x7f) {
            out += "\\u00";
            out += digits[u >> 4U];
            out += digits[u & 15U];
        } else {
            out += c;
        }
    }
    return out + '"';
}

value make_object(std::initializer_list<std::pair<std::string_view, value>> members) {
    value out{object{}};
    for (const auto& [key, member] : members) out.set(key, member);
    return out;
}

}  // namespace darlcore::json
