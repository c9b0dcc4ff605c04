// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/formats/json.hpp"
#include "darlcore/error.hpp"

namespace darl::plan_io {

namespace json = darlcore::json;

/// A TOML document as the JSON value with the same keys. Dates become text; nan and inf stay numbers, so that they can
/// be refused by name. Errors: errc::parse_error naming file and line.
darlcore::result<json::value> toml_to_json(std::string_view text, const std::string& name);

/// A file as a document: JSON when its first character is '{', else TOML. "-" is stdin.
/// Errors: errc::not_found, errc::parse_error, errc::too_large (over 16 MiB).
darlcore::result<json::value> read_document(const std::string& path);

/// Reads one object of a document; the first thing that is wrong is kept, with its place and the fix.
class fields {
public:
    /// `known`: every key that may stand here; others are an error with a suggestion.
    fields(const json::value& object, std::string where, std::initializer_list<std::string_view> known);

    /// A finite number; `required` when there is no fallback.
    double number(std::string_view key, std::optional<double> fallback = std::nullopt);
    std::optional<double> optional_number(std::string_view key);
    std::uint64_t count(std::string_view key, std::optional<std::uint64_t> fallback = std::nullopt);
    /// A count that fits 32 bits.
    std::uint32_t count32(std::string_view key, std::optional<std::uint32_t> fallback = std::nullopt);
    std::string text(std::string_view key, std::optional<std::string> fallback = std::nullopt);
    bool flag(std::string_view key, bool fallback);
    /// The array under a key; nullptr when it is missing (an error when required) or no array.
    const json::array* list(std::string_view key, bool required);
    [[nodiscard]] const json::value* find(std::string_view key) const { return object_.find(key); }

    void refuse(const std::string& what, darlcore::errc code = darlcore::errc::invalid_argument);
    [[nodiscard]] const std::string& where() const { return where_; }
    [[nodiscard]] const std::optional<darlcore::error>& failure() const { return failure_; }

private:
    const json::value* get(std::string_view key, bool required);

    const json::value& object_;
    std::string where_;
    std::optional<darlcore::error> failure_;
};

}  // namespace darl::plan_io
