// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "darlcore/error.hpp"

namespace darlcore::json {

class value;
using array = std::vector<value>;
/// Members in the order in which they were read or added; keys are unique.
using object = std::vector<std::pair<std::string, value>>;

/// A JSON document as a tree. Integers keep 64 bits, so that ids survive; everything else with a fraction or exponent
/// is a double.
class value {
public:
    value() = default;
    value(std::nullptr_t) {}
    value(bool b) : v_(b) {}
    value(double d) : v_(d) {}
    template <class I>
    requires(std::is_integral_v<I> && !std::is_same_v<I, bool>) value(I i) {
        if constexpr (std::is_signed_v<I>) {
            v_ = static_cast<std::int64_t>(i);
        } else {
            set_unsigned(static_cast<std::uint64_t>(i));
        }
    }
    value(const char* s) : v_(std::string(s)) {}
    value(std::string_view s) : v_(std::string(s)) {}
    value(std::string s) : v_(std::move(s)) {}
    value(json::array a) : v_(std::move(a)) {}
    value(json::object o) : v_(std::move(o)) {}

    [[nodiscard]] bool is_null() const { return std::holds_alternative<std::monostate>(v_); }
    [[nodiscard]] bool is_bool() const { return std::holds_alternative<bool>(v_); }
    [[nodiscard]] bool is_string() const { return std::holds_alternative<std::string>(v_); }
    [[nodiscard]] bool is_array() const { return std::holds_alternative<json::array>(v_); }
    [[nodiscard]] bool is_object() const { return std::holds_alternative<json::object>(v_); }
    [[nodiscard]] bool is_integer() const {
        return std::holds_alternative<std::int64_t>(v_) || std::holds_alternative<std::uint64_t>(v_);
    }
    [[nodiscard]] bool is_number() const { return is_integer() || std::holds_alternative<double>(v_); }

    // Each gives the value if the kind fits and nothing is lost, else nothing (null pointer for views).
    [[nodiscard]] std::optional<bool> as_bool() const;
    [[nodiscard]] std::optional<std::int64_t> as_i64() const;
    [[nodiscard]] std::optional<std::uint64_t> as_u64() const;
    [[nodiscard]] std::optional<double> as_double() const;
    [[nodiscard]] const std::string* as_string() const { return std::get_if<std::string>(&v_); }
    [[nodiscard]] const json::array* as_array() const { return std::get_if<json::array>(&v_); }
    [[nodiscard]] const json::object* as_object() const { return std::get_if<json::object>(&v_); }
    [[nodiscard]] json::array* as_array() { return std::get_if<json::array>(&v_); }
    [[nodiscard]] json::object* as_object() { return std::get_if<json::object>(&v_); }

    /// The member of that name; null pointer when this is no object or has none.
    [[nodiscard]] const value* find(std::string_view key) const;
    /// For documents that are known to have it (tests, our own files): asserts that the member or element exists.
    [[nodiscard]] const value& at(std::string_view key) const;
    [[nodiscard]] const value& at(std::size_t index) const;
    [[nodiscard]] bool contains(std::string_view key) const { return find(key) != nullptr; }
    [[nodiscard]] std::size_t size() const;

    /// Adds or replaces a member (null becomes an object); appends an element (null becomes an array).
    value& set(std::string_view key, value member);
    value& push_back(value element);

    friend bool operator==(const value&, const value&) = default;

private:
    void set_unsigned(std::uint64_t u) {
        if (u <= static_cast<std::uint64_t>(INT64_MAX))
            v_ = static_cast<std::int64_t>(u);
        else
            v_ = u;
    }
    std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string, json::array, json::object> v_;
};

struct limits {
    std::size_t bytes_max = std::size_t{1} << 20U;
    std::size_t depth_max = 32;
};

/// Reads one JSON document (RFC 8259, UTF-8).
/// Errors: errc::too_large (over bytes_max), errc::parse_error (syntax, invalid UTF-8, duplicate key, depth, number out
/// of range); the context never repeats the input. Complexity: O(bytes).
result<value> parse(std::string_view text, const limits& bounds = {});

/// Compact text: members in their order, doubles in the shortest form that reads back equal, non-finite doubles as
/// null.
std::string dump(const value& document);

/// `text` as a JSON string with its quotes; control characters escaped.
std::string quote(std::string_view text);

/// An object from pairs, in order.
value make_object(std::initializer_list<std::pair<std::string_view, value>> members);

}  // namespace darlcore::json
