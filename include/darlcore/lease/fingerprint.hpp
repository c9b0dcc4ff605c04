// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "darlcore/units.hpp"

namespace darlcore::lease {

/// A 64-bit digest of a sequence of numbers and texts. Not a cryptographic one: it finds accidents, not enemies.
/// Determinism: the same on every machine and compiler.
class mixer {
public:
    constexpr mixer& add(std::uint64_t value) noexcept {
        state_ = (state_ ^ value) * 0x9FB21C651E98DF25ULL;
        state_ ^= state_ >> 32U;
        return *this;
    }
    constexpr mixer& add(std::string_view text) noexcept {
        add(static_cast<std::uint64_t>(text.size()));
        std::uint64_t word = 0;
        std::size_t in_word = 0;
        for (const char c : text) {
            word = (word << 8U) | static_cast<unsigned char>(c);
            if (++in_word == 8) {
                add(word);
                word = 0;
                in_word = 0;
            }
        }
        return in_word == 0 ? *this : add(word);
    }
    [[nodiscard]] constexpr std::uint64_t value() const noexcept {
        std::uint64_t v = state_;
        v = (v ^ (v >> 30U)) * 0xBF58476D1CE4E5B9ULL;
        v = (v ^ (v >> 27U)) * 0x94D049BB133111EBULL;
        return v ^ (v >> 31U);
    }

private:
    std::uint64_t state_ = 0x243F6A8885A308D3ULL;
};

namespace detail {

__extension__ using uint128 = unsigned __int128;

inline constexpr std::uint64_t field_prime = (std::uint64_t{1} << 61U) - 1;
inline constexpr std::uint64_t field_base = 0x0D1B54A32D192ED3ULL;

constexpr std::uint64_t field_mul(std::uint64_t a, std::uint64_t b) noexcept {
    const uint128 product = static_cast<uint128>(a) * b;
    const std::uint64_t folded =
        static_cast<std::uint64_t>(product & field_prime) + static_cast<std::uint64_t>(product >> 61U);
    return folded >= field_prime ? folded - field_prime : folded;
}
constexpr std::uint64_t field_add(std::uint64_t a, std::uint64_t b) noexcept {
    const std::uint64_t sum = a + b;
    return sum >= field_prime ? sum - field_prime : sum;
}
constexpr std::uint64_t field_sub(std::uint64_t a, std::uint64_t b) noexcept {
    return a >= b ? a - b : a + field_prime - b;
}

using power_tables = std::array<std::array<std::uint64_t, 1024>, 4>;

constexpr power_tables make_power_tables() noexcept {
    power_tables tables{};
    std::uint64_t step = field_base % field_prime;
    for (auto& table : tables) {
        std::uint64_t power = 1;
        for (auto& entry : table) {
            entry = power;
            power = field_mul(power, step);
        }
        step = power;
    }
    return tables;
}

inline constexpr power_tables powers = make_power_tables();

/// base^e for e < 2^40.
constexpr std::uint64_t field_power(std::uint64_t e) noexcept {
    std::uint64_t p = powers[0][e & 1023U];
    for (std::size_t i = 1; i < 4; ++i) {
        e >>= 10U;
        if (e == 0) break;
        p = field_mul(p, powers[i][e & 1023U]);
    }
    return p;
}

}  // namespace detail

/// Fingerprint of a set of positions, kept up to date by whole runs: the sum of base^p over its members, times
/// (base - 1), in the field of 2^61 - 1 elements. Two different sets collide with probability about 2^-40 or less.
/// Complexity: O(1) per run, whatever its length.
class set_fingerprint {
public:
    constexpr void add(span s) noexcept { value_ = detail::field_add(value_, run(s)); }
    constexpr void remove(span s) noexcept { value_ = detail::field_sub(value_, run(s)); }
    [[nodiscard]] constexpr std::uint64_t value() const noexcept { return value_; }
    friend constexpr bool operator==(const set_fingerprint&, const set_fingerprint&) = default;

private:
    static constexpr std::uint64_t run(span s) noexcept {
        return detail::field_sub(detail::field_power(s.end.count), detail::field_power(s.start.count));
    }
    std::uint64_t value_ = 0;
};

}  // namespace darlcore::lease
