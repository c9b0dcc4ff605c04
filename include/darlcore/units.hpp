// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>

#include "darlcore/assert.hpp"

namespace darlcore {

/// A number that means one thing: values of different tags neither mix nor convert silently.
/// Units: those of the tag. Arithmetic on `count` is the caller's, on purpose.
template <class Tag, class Rep>
struct strong {
    using rep = Rep;
    Rep count{};

    constexpr strong() = default;
    constexpr explicit strong(Rep c) noexcept : count(c) {}

    friend constexpr auto operator<=>(const strong&, const strong&) = default;
    friend std::ostream& operator<<(std::ostream& out, const strong& s) { return out << +s.count; }
};

/// Place of a block in the permuted order of an epoch; what leases talk about.
using position = strong<struct position_tag, std::uint64_t>;
/// 0-based pass over the corpus.
using epoch_index = strong<struct epoch_tag, std::uint32_t>;
/// Index of the global model = number of successful merges.
using generation = strong<struct generation_tag, std::uint64_t>;
/// Running number of a lease; never reused, also not after a restart.
using lease_seq = strong<struct lease_seq_tag, std::uint64_t>;
/// Number of server starts; the upper half of every fencing token.
using term = strong<struct term_tag, std::uint32_t>;

/// Ledger time: milliseconds, monotone, stands still while the server is down or stalled. Never wall time.
struct ledger_time {
    std::int64_t ms = 0;
    friend constexpr auto operator<=>(const ledger_time&, const ledger_time&) = default;
    friend constexpr ledger_time operator+(ledger_time t, std::int64_t duration_ms) { return {t.ms + duration_ms}; }
    friend constexpr std::int64_t operator-(ledger_time a, ledger_time b) { return a.ms - b.ms; }
    friend std::ostream& operator<<(std::ostream& out, ledger_time t) { return out << t.ms << " ms"; }
};

/// Half-open range of positions [start, end).
struct span {
    position start;
    position end;

    [[nodiscard]] constexpr std::uint64_t size() const { return end.count - start.count; }
    [[nodiscard]] constexpr bool empty() const { return start == end; }
    [[nodiscard]] constexpr bool contains(position p) const { return start <= p && p < end; }
    friend constexpr auto operator<=>(const span&, const span&) = default;
    friend std::ostream& operator<<(std::ostream& out, const span& s) {
        return out << '[' << s.start.count << ", " << s.end.count << ')';
    }
};

/// Span from two plain numbers.
/// Preconditions (asserted): start <= end.
constexpr span make_span(std::uint64_t start, std::uint64_t end) {
    DARLCORE_ASSERT(start <= end);
    return {position{start}, position{end}};
}

/// Name of a site (one stream of training). Compared by ascending unsigned bytes.
struct site_id {
    std::string name;
    friend auto operator<=>(const site_id&, const site_id&) = default;
    friend std::ostream& operator<<(std::ostream& out, const site_id& s) { return out << s.name; }
};

/// True for `[A-Za-z0-9][A-Za-z0-9._-]{0,63}`: the only names that may appear on the wire, in paths and in metrics.
constexpr bool is_valid_name(std::string_view name) {
    const auto alnum = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    };
    if (name.empty() || name.size() > 64 || !alnum(name.front())) return false;
    for (const char c : name)
        if (!alnum(c) && c != '.' && c != '_' && c != '-') return false;
    return true;
}

/// Chosen by the site for one finished phase; the key of idempotent contributions.
struct contribution_id {
    std::string text;
    friend auto operator<=>(const contribution_id&, const contribution_id&) = default;
    friend std::ostream& operator<<(std::ostream& out, const contribution_id& c) { return out << c.text; }
};

/// 128 random bits, one per site process. All zero = none given (a legacy client).
struct incarnation {
    std::uint64_t high = 0;
    std::uint64_t low = 0;
    friend constexpr auto operator<=>(const incarnation&, const incarnation&) = default;
    [[nodiscard]] constexpr bool is_none() const { return high == 0 && low == 0; }
};

/// Wire text of an incarnation: 32 lower-case hex digits.
inline std::string to_text(const incarnation& value) {
    static constexpr char digits[] = "0123456789abcdef";
    std::string text(32, '0');
    for (std::size_t i = 0; i < 16; ++i) {
        text[15 - i] = digits[(value.high >> (4 * i)) & 15U];
        text[31 - i] = digits[(value.low >> (4 * i)) & 15U];
    }
    return text;
}

/// Reads exactly 32 hex digits; anything else is nothing.
inline std::optional<incarnation> parse_incarnation(std::string_view text) {
    if (text.size() != 32) return std::nullopt;
    incarnation value;
    for (std::size_t i = 0; i < 32; ++i) {
        const char c = text[i];
        std::uint64_t digit = 0;
        if (c >= '0' && c <= '9')
            digit = static_cast<std::uint64_t>(c - '0');
        else if (c >= 'a' && c <= 'f')
            digit = static_cast<std::uint64_t>(c - 'a') + 10;
        else if (c >= 'A' && c <= 'F')
            digit = static_cast<std::uint64_t>(c - 'A') + 10;
        else
            return std::nullopt;
        std::uint64_t& half = i < 16 ? value.high : value.low;
        half = (half << 4U) | digit;
    }
    return value;
}

inline std::ostream& operator<<(std::ostream& out, const incarnation& value) { return out << to_text(value); }

/// Fencing token of a lease: (term, sequence), compared in that order. Wire text "3:1234".
struct fencing_token {
    darlcore::term term;
    std::uint64_t sequence = 0;
    friend constexpr auto operator<=>(const fencing_token&, const fencing_token&) = default;
    friend std::ostream& operator<<(std::ostream& out, const fencing_token& t) {
        return out << t.term.count << ':' << t.sequence;
    }
};

}  // namespace darlcore

template <class Tag, class Rep>
struct std::hash<darlcore::strong<Tag, Rep>> {
    std::size_t operator()(const darlcore::strong<Tag, Rep>& s) const noexcept { return std::hash<Rep>{}(s.count); }
};
template <>
struct std::hash<darlcore::site_id> {
    std::size_t operator()(const darlcore::site_id& s) const noexcept { return std::hash<std::string>{}(s.name); }
};
