// SPDX-License-Identifier: Apache-2.0
#include "adapters/cli/plan/document.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <toml++/toml.h>

#include "adapters/cli/did_you_mean.hpp"

namespace darl::plan_io {

using darlcore::errc;
using darlcore::fail;
using darlcore::result;

namespace {

constexpr std::size_t document_bytes_max = std::size_t{16} << 20U;

json::value converted(const toml::node& node) {
    if (const auto* table = node.as_table()) {
        json::value made{json::object{}};
        for (const auto& [key, member] : *table) made.set(key.str(), converted(member));
        return made;
    }
    if (const auto* array = node.as_array()) {
        json::array made;
        for (const auto& member : *array) made.push_back(converted(member));
        return made;
    }
    if (const auto* v = node.as_string()) return json::value(v->get());
    if (const auto* v = node.as_integer()) return json::value(v->get());
    if (const auto* v = node.as_floating_point()) return json::value(v->get());
    if (const auto* v = node.as_boolean()) return json::value(v->get());
    std::ostringstream text;
    if (const auto* v = node.as_date()) text << v->get();
    if (const auto* v = node.as_time()) text << v->get();
    if (const auto* v = node.as_date_time()) text << v->get();
    return json::value(text.str());
}

result<std::string> read_all(const std::string& path) {
    std::string text;
    char buffer[65536];
    std::FILE* in = path == "-" ? stdin : std::fopen(path.c_str(), "rb");
    if (in == nullptr)
        return fail(errc::not_found, fmt::format("{}: cannot be read; give a JSON or TOML file, or - for stdin", path));
    while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, in)) {
        text.append(buffer, n);
        if (text.size() > document_bytes_max) break;
    }
    if (in != stdin) std::fclose(in);
    if (text.size() > document_bytes_max) return fail(errc::bad_request, fmt::format("{}: larger than 16 MiB", path));
    return text;
}

}  // namespace

result<json::value> toml_to_json(std::string_view text, const std::string& name) {
    try {
        return converted(toml::parse(text, name));
    } catch (const toml::parse_error& e) {
        return fail(errc::parse_error, fmt::format("{}, line {}: {}", name, e.source().begin.line, e.description()));
    }
}

result<json::value> read_document(const std::string& path) {
    auto text = read_all(path);
    if (!text) return text.error();
    const std::size_t first = text->find_first_not_of(" \t\r\n");
    if (first == std::string::npos) return fail(errc::parse_error, fmt::format("{}: is empty", path));
    if ((*text)[first] != '{') return toml_to_json(*text, path);
    auto made = json::parse(*text, {document_bytes_max, 32});
    if (!made) return fail(errc::parse_error, fmt::format("{}: {}", path, made.error().context));
    return made;
}

fields::fields(const json::value& object, std::string where, std::initializer_list<std::string_view> known)
    : object_(object), where_(std::move(where)) {
    const json::object* members = object.as_object();
    if (members == nullptr) {
        refuse("must be an object with named values");
        return;
    }
    for (const auto& [key, member] : *members) {
        if (std::find(known.begin(), known.end(), key) != known.end()) continue;
        const std::string near = did_you_mean(key, known);
        refuse(fmt::format("unknown key '{}'{}", key,
                           near.empty() ? "; remove it" : fmt::format("; did you mean '{}'?", near)),
               errc::unknown_key);
        return;
    }
}

void fields::refuse(const std::string& what, errc code) {
    if (!failure_) failure_ = fail(code, fmt::format("{}: {}", where_, what));
}

const json::value* fields::get(std::string_view key, bool required) {
    const json::value* v = object_.find(key);
    if (v == nullptr && required) refuse(fmt::format("{} is missing; add it", key));
    if (v != nullptr && v->is_null() && required) {
        refuse(fmt::format("{} is null; give a value, or leave the row out", key));
        return nullptr;
    }
    return v != nullptr && v->is_null() ? nullptr : v;
}

double fields::number(std::string_view key, std::optional<double> fallback) {
    const json::value* v = get(key, !fallback);
    if (v == nullptr) return fallback.value_or(0);
    const auto n = v->as_double();
    if (!n)
        refuse(fmt::format("{} must be a number", key));
    else if (!std::isfinite(*n))
        refuse(fmt::format("{} must be finite", key));
    return n.value_or(0);
}

std::optional<double> fields::optional_number(std::string_view key) {
    if (get(key, false) == nullptr) return std::nullopt;
    return number(key);
}

std::uint64_t fields::count(std::string_view key, std::optional<std::uint64_t> fallback) {
    const json::value* v = get(key, !fallback);
    if (v == nullptr) return fallback.value_or(0);
    auto n = v->as_u64();
    if (!n && v->as_double() && *v->as_double() >= 0 && *v->as_double() < 9e15 &&
        *v->as_double() == std::floor(*v->as_double()))
        n = static_cast<std::uint64_t>(*v->as_double());
    if (!n) refuse(fmt::format("{} must be a whole number, 0 or more", key));
    return n.value_or(0);
}

std::uint32_t fields::count32(std::string_view key, std::optional<std::uint32_t> fallback) {
    const std::uint64_t n = count(key, fallback);
    if (n > UINT32_MAX) refuse(fmt::format("{} must be at most {}", key, UINT32_MAX));
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(n, UINT32_MAX));
}

std::string fields::text(std::string_view key, std::optional<std::string> fallback) {
    const json::value* v = get(key, !fallback);
    if (v == nullptr) return fallback.value_or("");
    if (v->as_string() == nullptr) {
        refuse(fmt::format("{} must be text", key));
        return {};
    }
    return *v->as_string();
}

bool fields::flag(std::string_view key, bool fallback) {
    const json::value* v = get(key, false);
    if (v == nullptr) return fallback;
    if (!v->as_bool()) refuse(fmt::format("{} must be true or false", key));
    return v->as_bool().value_or(fallback);
}

const json::array* fields::list(std::string_view key, bool required) {
    const json::value* v = get(key, required);
    if (v == nullptr) return nullptr;
    if (v->as_array() == nullptr) refuse(fmt::format("{} must be a list", key));
    return v->as_array();
}

}  // namespace darl::plan_io
