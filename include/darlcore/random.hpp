// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "darlcore/assert.hpp"
#include "darlcore/sha2.hpp"

namespace darlcore {

/// MT19937 seeded by the standard `init_by_array`. std::mt19937 has the same stream but cannot be seeded this way.
/// Determinism: the stream is a contract between machines; it depends on the key only.
/// Complexity: O(1) amortised per output; 5 KiB.
/// Thread-safety: a value.
/// Source: Matsumoto and Nishimura 1998, 2002 (init_by_array).
class mt19937 {
public:
    static constexpr std::size_t state_words = 624;

    /// Preconditions (asserted): the key has at least one word.
    constexpr explicit mt19937(std::span<const std::uint32_t> key) {
        DARLCORE_ASSERT(!key.empty());
        seed_by_number(19650218U);
        std::size_t i = 1;
        std::size_t j = 0;
        for (std::size_t left = std::max(state_words, key.size()); left > 0; --left) {
            state_[i] = (state_[i] ^ (scrambled(i) * 1664525U)) + key[j] + static_cast<std::uint32_t>(j);
            if (++i == state_words) i = wrap();
            if (++j == key.size()) j = 0;
        }
        for (std::size_t left = state_words - 1; left > 0; --left) {
            state_[i] = (state_[i] ^ (scrambled(i) * 1566083941U)) - static_cast<std::uint32_t>(i);
            if (++i == state_words) i = wrap();
        }
        state_[0] = 0x80000000U;
    }

    /// The next tempered output.
    constexpr std::uint32_t operator()() {
        if (next_ == state_words) refill();
        return tempered_[next_++];
    }

    /// Uniform in [0, n): the top bit_width(n) bits of one output, tried again while they are >= n. A power of two
    /// rejects half of its tries; the stream is the contract. Preconditions (asserted): n >= 1.
    constexpr std::uint32_t draw(std::uint32_t n) {
        DARLCORE_ASSERT(n >= 1);
        const auto shift = static_cast<unsigned>(32 - std::bit_width(n));
        std::uint32_t value = (*this)() >> shift;
        while (value >= n) value = (*this)() >> shift;
        return value;
    }

    /// Outputs that are computed already and come next, at least one; for callers that work in batches.
    constexpr std::span<const std::uint32_t> ready() {
        if (next_ == state_words) refill();
        return std::span<const std::uint32_t>(tempered_).subspan(next_);
    }

    /// Takes the first `count` of `ready()`.
    constexpr void skip(std::size_t count) {
        DARLCORE_ASSERT(count <= state_words - next_);
        next_ += count;
    }

private:
    static constexpr std::size_t lag = 397;

    constexpr void seed_by_number(std::uint32_t number) {
        state_[0] = number;
        for (std::size_t i = 1; i < state_words; ++i)
            state_[i] = 1812433253U * (state_[i - 1] ^ (state_[i - 1] >> 30U)) + static_cast<std::uint32_t>(i);
    }
    [[nodiscard]] constexpr std::uint32_t scrambled(std::size_t i) const {
        return state_[i - 1] ^ (state_[i - 1] >> 30U);
    }
    constexpr std::size_t wrap() {
        state_[0] = state_[state_words - 1];
        return 1;
    }

    static constexpr std::uint32_t twist(std::uint32_t upper, std::uint32_t lower, std::uint32_t far) {
        const std::uint32_t y = (upper & 0x80000000U) | (lower & 0x7fffffffU);
        return far ^ (y >> 1U) ^ ((0U - (y & 1U)) & 0x9908b0dfU);
    }
    static constexpr std::uint32_t temper(std::uint32_t y) {
        y ^= y >> 11U;
        y ^= (y << 7U) & 0x9d2c5680U;
        y ^= (y << 15U) & 0xefc60000U;
        return y ^ (y >> 18U);
    }

    // Trip counts are multiples of four wherever possible, so that compilers use vectors without a remainder loop.
    constexpr void refill() {
        constexpr std::size_t head = state_words - lag;  // 227
        for (std::size_t i = 0; i < 224; ++i) state_[i] = twist(state_[i], state_[i + 1], state_[i + lag]);
        for (std::size_t i = 224; i < head; ++i) state_[i] = twist(state_[i], state_[i + 1], state_[i + lag]);
        for (std::size_t i = head; i < state_words - 1; ++i)
            state_[i] = twist(state_[i], state_[i + 1], state_[i - head]);
        state_[state_words - 1] = twist(state_[state_words - 1], state_[0], state_[lag - 1]);
        for (std::size_t i = 0; i < state_words; ++i) tempered_[i] = temper(state_[i]);
        next_ = 0;
    }

    std::array<std::uint32_t, state_words> state_{};
    std::array<std::uint32_t, state_words> tempered_{};
    std::size_t next_ = state_words;
};

/// Key words of a text: its bytes followed by their SHA-512, read as one big-endian integer; 32-bit words, least
/// significant first, no zero word at the top (but at least one word).
inline std::vector<std::uint32_t> seed_key(std::string_view text) {
    std::vector<std::uint8_t> bytes(text.begin(), text.end());
    const auto hash = sha512().update(text).finish();
    bytes.insert(bytes.end(), hash.begin(), hash.end());
    std::vector<std::uint32_t> key((bytes.size() + 3) / 4, 0U);
    for (std::size_t i = 0; i < bytes.size(); ++i)
        key[i / 4] |= std::uint32_t{bytes[bytes.size() - 1 - i]} << (8U * (i % 4U));
    while (key.size() > 1 && key.back() == 0) key.pop_back();
    return key;
}

/// The engine that a text names; the text alone decides, so that resuming never depends on what ran before.
inline mt19937 seeded_engine(std::string_view text) { return mt19937(seed_key(text)); }

/// SplitMix64: seeds other engines from one number, and mixes (tests, hashing). Not for anything the wire depends on.
class splitmix64 {
public:
    constexpr explicit splitmix64(std::uint64_t seed) : state_(seed) {}
    constexpr std::uint64_t operator()() {
        state_ += 0x9e3779b97f4a7c15U;
        return mixed(state_);
    }
    /// The finaliser: a bijection of 64-bit words.
    static constexpr std::uint64_t mixed(std::uint64_t z) {
        z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
        z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
        return z ^ (z >> 31U);
    }

private:
    std::uint64_t state_;
};

/// xoshiro256**: the engine of tests and simulations; every run is a function of one printed seed.
/// Source: Blackman and Vigna 2018.
class xoshiro256 {
public:
    constexpr explicit xoshiro256(std::uint64_t seed) {
        splitmix64 words(seed);
        for (auto& word : state_) word = words();
    }
    constexpr std::uint64_t operator()() {
        const std::uint64_t value = std::rotl(state_[1] * 5, 7) * 9;
        const std::uint64_t t = state_[1] << 17U;
        state_[2] ^= state_[0];
        state_[3] ^= state_[1];
        state_[1] ^= state_[2];
        state_[0] ^= state_[3];
        state_[2] ^= t;
        state_[3] = std::rotl(state_[3], 45);
        return value;
    }
    /// Uniform in [0, n), by rejection.
    /// Preconditions (asserted): n >= 1.
    constexpr std::uint64_t below(std::uint64_t n) {
        DARLCORE_ASSERT(n >= 1);
        const std::uint64_t threshold = (0 - n) % n;
        std::uint64_t value = (*this)();
        while (value < threshold) value = (*this)();
        return value % n;
    }
    /// Uniform in [0, 1) with 53 bits.
    constexpr double unit() { return static_cast<double>((*this)() >> 11U) * 0x1.0p-53; }
    /// True with probability p.
    constexpr bool chance(double p) { return unit() < p; }

private:
    std::array<std::uint64_t, 4> state_{};
};

}  // namespace darlcore
