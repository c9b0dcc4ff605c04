// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "darlcore/error.hpp"
#include "darlcore/ledger/fields.hpp"
#include "darlcore/units.hpp"

// The canonical bytes of plain values: LEB128 integers (signed ones zigzag), length-prefixed strings and lists, maps in
// ascending order. One value has one text: decode(encode(x)) = x and encode(decode(b)) = b.
namespace darlcore::ledger {

/// Largest value of an enum that may be read from a file; specialised for every enum that is stored.
template <class Enum>
struct enum_limit;

namespace detail {

template <class T>
struct is_strong : std::false_type {};
template <class Tag, class Rep>
struct is_strong<strong<Tag, Rep>> : std::true_type {};
template <class T>
struct is_optional : std::false_type {};
template <class T>
struct is_optional<std::optional<T>> : std::true_type {};
template <class T>
struct is_vector : std::false_type {};
template <class T>
struct is_vector<std::vector<T>> : std::true_type {};
template <class T>
struct is_map : std::false_type {};
template <class K, class V>
struct is_map<std::map<K, V>> : std::true_type {};
template <class T>
struct is_array : std::false_type {};
template <class T, std::size_t N>
struct is_array<std::array<T, N>> : std::true_type {};
template <class T>
struct is_variant : std::false_type {};
template <class... T>
struct is_variant<std::variant<T...>> : std::true_type {};

}  // namespace detail

/// Appends values to a text.
class writer {
public:
    [[nodiscard]] const std::string& bytes() const { return out_; }
    [[nodiscard]] std::string take() { return std::move(out_); }

    void byte(std::uint8_t b) { out_.push_back(static_cast<char>(b)); }
    void raw(std::string_view text) { out_.append(text); }
    void number(std::uint64_t n) {
        while (n >= 0x80U) {
            byte(static_cast<std::uint8_t>(n | 0x80U));
            n >>= 7U;
        }
        byte(static_cast<std::uint8_t>(n));
    }

    template <class T>
    void value(const T& x) {
        if constexpr (std::is_same_v<T, bool>)
            byte(x ? 1 : 0);
        else if constexpr (std::is_enum_v<T>)
            number(static_cast<std::uint64_t>(x));
        else if constexpr (std::is_integral_v<T> && std::is_unsigned_v<T>)
            number(x);
        else if constexpr (std::is_integral_v<T>)
            signed_number(x);
        else if constexpr (std::is_floating_point_v<T>)
            floating(static_cast<double>(x));
        else if constexpr (std::is_same_v<T, std::string>)
            text(x);
        else if constexpr (detail::is_strong<T>::value)
            value(x.count);
        else if constexpr (detail::is_optional<T>::value)
            optional_value(x);
        else if constexpr (detail::is_vector<T>::value || detail::is_map<T>::value)
            list(x);
        else if constexpr (detail::is_array<T>::value)
            items(x);
        else if constexpr (detail::is_variant<T>::value)
            variant_value(x);
        else
            aggregate(x);
    }

private:
    void signed_number(std::int64_t n) {
        const auto bits = static_cast<std::uint64_t>(n);
        number((bits << 1U) ^ (n < 0 ? ~std::uint64_t{0} : 0));
    }
    void floating(double x) {
        const auto bits = std::bit_cast<std::uint64_t>(x);
        for (unsigned i = 0; i < 8; ++i) byte(static_cast<std::uint8_t>(bits >> (8U * i)));
    }
    void text(const std::string& x) {
        number(x.size());
        raw(x);
    }
    template <class T>
    void optional_value(const T& x) {
        byte(x ? 1 : 0);
        if (x) value(*x);
    }
    template <class T>
    void list(const T& x) {
        number(x.size());
        items(x);
    }
    template <class T>
    void items(const T& x) {
        for (const auto& item : x) {
            if constexpr (detail::is_map<T>::value) {
                value(item.first);
                value(item.second);
            } else {
                value(item);
            }
        }
    }
    template <class T>
    void variant_value(const T& x) {
        number(x.index());
        std::visit([&](const auto& held) { value(held); }, x);
    }
    template <class T>
    void aggregate(const T& x) {
        std::apply([&](const auto&... field) { (value(field), ...); }, detail::fields(x));
    }

    std::string out_;
};

/// Reads values from a text; after the first fault everything reads as zero and `ok` is false.
/// Errors: anything that `writer` would not have written is a fault: long forms of numbers, values out of range, maps
/// out of order, lengths beyond the text.
class reader {
public:
    explicit reader(std::string_view text) : text_(text) {}

    [[nodiscard]] bool ok() const { return ok_; }
    /// All read, without a fault.
    [[nodiscard]] bool finished() const { return ok_ && at_ == text_.size(); }
    [[nodiscard]] std::size_t offset() const { return at_; }

    std::uint8_t byte() {
        if (!ok_ || at_ >= text_.size()) return fault<std::uint8_t>();
        return static_cast<std::uint8_t>(text_[at_++]);
    }
    std::string_view raw(std::size_t size) {
        if (!ok_ || size > text_.size() - at_) return fault<std::string_view>();
        at_ += size;
        return text_.substr(at_ - size, size);
    }
    std::uint64_t number() {
        std::uint64_t n = 0;
        for (unsigned shift = 0; shift < 64; shift += 7) {
            const std::uint64_t b = byte();
            if (!ok_ || (shift == 63 && b > 1)) return fault<std::uint64_t>();
            n |= (b & 0x7fU) << shift;
            if (b < 0x80U) return b == 0 && shift > 0 ? fault<std::uint64_t>() : n;
        }
        return fault<std::uint64_t>();
    }

    template <class T>
    void value(T& x) {
        if constexpr (std::is_same_v<T, bool>)
            flag(x);
        else if constexpr (std::is_enum_v<T>)
            enumerator(x);
        else if constexpr (std::is_integral_v<T> && std::is_unsigned_v<T>)
            ranged(x, number());
        else if constexpr (std::is_integral_v<T>)
            signed_number(x);
        else if constexpr (std::is_floating_point_v<T>)
            floating(x);
        else if constexpr (std::is_same_v<T, std::string>)
            x = raw(number());
        else if constexpr (detail::is_strong<T>::value)
            value(x.count);
        else if constexpr (detail::is_optional<T>::value)
            optional_value(x);
        else if constexpr (detail::is_vector<T>::value)
            list(x);
        else if constexpr (detail::is_map<T>::value)
            map(x);
        else if constexpr (detail::is_array<T>::value)
            items(x);
        else if constexpr (detail::is_variant<T>::value)
            variant_value(x, number());
        else
            aggregate(x);
    }

private:
    template <class T>
    T fault() {
        ok_ = false;
        return T{};
    }
    void flag(bool& x) {
        const auto b = byte();
        if (b > 1) ok_ = false;
        x = b == 1;
    }
    template <class T>
    void ranged(T& x, std::uint64_t n) {
        if (n > std::numeric_limits<T>::max()) n = fault<std::uint64_t>();
        x = static_cast<T>(n);
    }
    template <class T>
    void signed_number(T& x) {
        const std::uint64_t n = number();
        const auto signed_n = static_cast<std::int64_t>((n >> 1U) ^ (~(n & 1U) + 1U));
        if (signed_n < std::numeric_limits<T>::min() || signed_n > std::numeric_limits<T>::max()) ok_ = false;
        x = ok_ ? static_cast<T>(signed_n) : T{};
    }
    template <class T>
    void enumerator(T& x) {
        std::uint64_t n = number();
        if (n > static_cast<std::uint64_t>(enum_limit<T>::last)) n = fault<std::uint64_t>();
        x = static_cast<T>(n);
    }
    template <class T>
    void floating(T& x) {
        std::uint64_t bits = 0;
        for (unsigned i = 0; i < 8; ++i) bits |= std::uint64_t{byte()} << (8U * i);
        const auto wide = std::bit_cast<double>(bits);
        x = static_cast<T>(wide);
        // a NaN is no figure; a double that no float equals cannot come from a float
        if (wide != wide || static_cast<double>(x) != wide) x = fault<T>();
    }
    template <class T>
    void optional_value(T& x) {
        bool present = false;
        flag(present);
        x.reset();
        if (present && ok_) value(x.emplace());
    }
    template <class T>
    void list(T& x) {
        const std::uint64_t size = number();
        x.clear();
        if (size > text_.size() - at_) return void(fault<int>());
        for (std::uint64_t i = 0; i < size && ok_; ++i) value(x.emplace_back());
    }
    template <class T>
    void map(T& x) {
        const std::uint64_t size = number();
        x.clear();
        for (std::uint64_t i = 0; i < size && ok_; ++i) {
            typename T::key_type key{};
            value(key);
            if (!x.empty() && !(std::prev(x.end())->first < key)) return void(fault<int>());
            value(x.emplace_hint(x.end(), std::move(key), typename T::mapped_type{})->second);
        }
    }
    template <class T>
    void items(T& x) {
        for (auto& item : x) value(item);
    }
    template <class T, std::size_t I = 0>
    void variant_value(T& x, std::uint64_t index) {
        if constexpr (I == std::variant_size_v<T>)
            ok_ = false;
        else if (index == I)
            value(x.template emplace<I>());
        else
            variant_value<T, I + 1>(x, index);
    }
    template <class T>
    void aggregate(T& x) {
        std::apply([&](auto&... field) { (value(field), ...); }, detail::fields(x));
    }

    std::string_view text_;
    std::size_t at_ = 0;
    bool ok_ = true;
};

template <>
struct enum_limit<errc> {
    static constexpr errc last = errc::internal;
};

/// The canonical text of a value.
template <class T>
std::string encode_value(const T& x) {
    writer w;
    w.value(x);
    return w.take();
}

/// Reads a value that takes up the whole text.
/// Errors: errc::corrupt with the offset of the fault.
template <class T>
result<T> decode_value(std::string_view text) {
    reader r(text);
    T x{};
    r.value(x);
    if (!r.finished()) return fail(errc::corrupt, "not a canonical value, at byte " + std::to_string(r.offset()));
    return x;
}

}  // namespace darlcore::ledger
