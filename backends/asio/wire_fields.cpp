// SPDX-License-Identifier: Apache-2.0
#include "backends/asio/wire_fields.hpp"

#include <algorithm>

namespace darlcore::wire {

namespace {
constexpr std::uint64_t exact_max = std::uint64_t{1} << 53U;
constexpr double ten_years_s = 315'360'000.0;
}  // namespace

std::optional<std::uint64_t> whole_number(const json::value& v, bool clamp_negative) {
    if (const auto u = v.as_u64()) return u;
    if (const auto i = v.as_i64()) return clamp_negative && *i < 0 ? std::optional<std::uint64_t>(0) : std::nullopt;
    const std::string* text = v.as_string();
    if (text != nullptr) {  // numbers beyond 2^53 come as text
        std::string_view digits = *text;
        std::uint64_t n = 0;
        if (!lease::detail::take_number(digits, n) || !digits.empty()) return std::nullopt;
        return n;
    }
    const auto d = v.as_double();
    if (!d || !std::isfinite(*d) || *d != std::floor(*d)) return std::nullopt;
    if (*d < 0) return clamp_negative ? std::optional<std::uint64_t>(0) : std::nullopt;
    if (*d > 9.0e18) return std::uint64_t{INT64_MAX};
    return static_cast<std::uint64_t>(*d);
}

json::value count(std::uint64_t n) {
    if (n <= exact_max) return n;
    return std::to_string(n);
}

field_reader::field_reader(const json::value& object) : object_(object) {
    if (!object_.is_object()) fault_ = darlcore::fail(errc::bad_request, "the body must be a JSON object");
}

void field_reader::fail(std::string_view name, std::string_view must) {
    if (fault_) return;
    std::string text("field '");
    text.append(name).append("' must be ").append(must);
    fault_ = darlcore::fail(errc::bad_request, std::move(text));
}

const json::value* field_reader::member(std::string_view name) const {
    const json::value* v = object_.find(name);
    return v == nullptr || v->is_null() ? nullptr : v;
}

std::string field_reader::text(std::string_view name, std::size_t bytes_max, bool required) {
    const json::value* v = member(name);
    if (v == nullptr) {
        if (required) fail(name, "given");
        return {};
    }
    const std::string* s = v->as_string();
    if (s == nullptr || s->size() > bytes_max) {
        fail(name, "a text of at most " + std::to_string(bytes_max) + " bytes");
        return {};
    }
    return *s;
}

site_id field_reader::site(std::string_view name) {
    const json::value* v = member(name);
    const std::string* s = v == nullptr ? nullptr : v->as_string();
    if (s == nullptr || !is_valid_name(*s)) {
        fail(name, "a name of 1 to 64 letters, digits, '.', '_' and '-' that begins with a letter or digit");
        return {};
    }
    return {*s};
}

incarnation field_reader::incarnation(std::string_view name) {
    const std::string s = text(name, 64);
    if (s.empty()) return {};
    const auto value = parse_incarnation(s);
    if (!value) fail(name, "32 hex digits");
    return value.value_or(darlcore::incarnation{});
}

bool field_reader::flag(std::string_view name, bool fallback) {
    const json::value* v = member(name);
    if (v == nullptr) return fallback;
    const auto b = v->as_bool();
    if (!b) fail(name, "true or false");
    return b.value_or(fallback);
}

std::uint64_t field_reader::whole(std::string_view name, std::uint64_t fallback, std::uint64_t clamp_to,
                                  bool required) {
    const json::value* v = member(name);
    if (v == nullptr) {
        if (required) fail(name, "given");
        return fallback;
    }
    const auto n = whole_number(*v, true);
    if (!n) fail(name, "a whole number");
    return std::min(n.value_or(fallback), clamp_to);
}

double field_reader::number(std::string_view name, double fallback) {
    const json::value* v = member(name);
    if (v == nullptr) return fallback;
    const auto d = v->as_double();
    if (!v->is_number() || !d || !std::isfinite(*d)) {
        fail(name, "a finite number");
        return fallback;
    }
    return *d;
}

std::int64_t field_reader::seconds_as_ms(std::string_view name) {
    return static_cast<std::int64_t>(std::clamp(number(name), 0.0, ten_years_s) * 1000.0);
}

std::string field_reader::sha256(std::string_view name) {
    std::string s = text(name, 64, true);
    const auto hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
    if (ok() && (s.size() != 64 || !std::all_of(s.begin(), s.end(), hex)))
        fail(name, "the 64 lower-case hex digits of a SHA-256");
    return s;
}

std::optional<lease::lease_ref> field_reader::lease(std::string_view name, std::string_view token_name) {
    const std::string id = text(name, 80);
    if (id.empty()) return std::nullopt;
    auto ref = lease::parse_lease_id(id);
    if (!ref) {
        fail(name, "a lease id as it was granted");
        return std::nullopt;
    }
    const std::string token = text(token_name, 40);
    if (!token.empty()) {
        ref->token = lease::parse_token(token);
        if (!ref->token) fail(token_name, "a lease token as it was granted");
    }
    return ref;
}

const json::array* field_reader::list(std::string_view name, std::size_t size_max, bool required) {
    const json::value* v = member(name);
    if (v == nullptr) {
        if (required) fail(name, "given");
        return nullptr;
    }
    const json::array* a = v->as_array();
    if (a == nullptr || a->size() > size_max) {
        fail(name, "a list of at most " + std::to_string(size_max) + " entries");
        return nullptr;
    }
    return a;
}

const json::object* field_reader::map(std::string_view name, std::size_t size_max) {
    const json::value* v = member(name);
    if (v == nullptr) return nullptr;
    const json::object* o = v->as_object();
    if (o == nullptr || o->size() > size_max) {
        fail(name, "an object of at most " + std::to_string(size_max) + " entries");
        return nullptr;
    }
    return o;
}

}  // namespace darlcore::wire
