// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "darlcore/digest.hpp"
#include "darlcore/epoch_map.hpp"
#include "darlcore/units.hpp"

// A second, plain version of the block space, written from the rules and as slow as it likes. It shares nothing with
// the first but the hash functions. Each planted mistake (a mutant) must be caught by a named property.
namespace darlcore::testing {

/// Mistakes that the properties of the block space must catch.
enum class space_mutant {
    none,
    bit_length_of_n_minus_1,
    words_most_significant_first,
    shuffle_low_to_high,
    phase_text_without_epoch,
    short_block_assumed_last,
    ragged_step_dropped,
    divided_by_global_batch,
    carry_kept_over_phase_end,
    digest_without_permutation,
    product_of_32_bits,
};

/// MT19937 one output at a time, with the documented seeding from a text.
class engine_twin {
public:
    explicit engine_twin(const std::string& text, space_mutant mutant = space_mutant::none) : mutant_(mutant) {
        const auto key = key_of(text);
        seed(19650218U);
        std::size_t i = 1;
        std::size_t j = 0;
        for (std::size_t k = 0; k < std::max<std::size_t>(624, key.size()); ++k) {
            x_[i] = (x_[i] ^ ((x_[i - 1] ^ (x_[i - 1] >> 30U)) * 1664525U)) + key[j] + static_cast<std::uint32_t>(j);
            i = next_place(i);
            j = (j + 1) % key.size();
        }
        for (std::size_t k = 0; k < 623; ++k) {
            x_[i] = (x_[i] ^ ((x_[i - 1] ^ (x_[i - 1] >> 30U)) * 1566083941U)) - static_cast<std::uint32_t>(i);
            i = next_place(i);
        }
        x_[0] = 0x80000000U;
    }

    std::uint32_t output() {
        const std::size_t i = at_ % 624;
        const std::uint32_t y = (x_[i] & 0x80000000U) | (x_[(i + 1) % 624] & 0x7fffffffU);
        x_[i] = x_[(i + 397) % 624] ^ (y >> 1U) ^ (y % 2 == 1 ? 0x9908b0dfU : 0U);
        std::uint32_t z = x_[i];
        ++at_;
        z ^= z >> 11U;
        z ^= (z << 7U) & 0x9d2c5680U;
        z ^= (z << 15U) & 0xefc60000U;
        z ^= z >> 18U;
        return z;
    }

    std::uint32_t draw(std::uint32_t n) {
        std::uint32_t counted = mutant_ == space_mutant::bit_length_of_n_minus_1 ? n - 1 : n;
        unsigned bits = 0;
        for (; counted != 0; counted >>= 1U) ++bits;
        if (bits == 0) return 0;
        std::uint32_t value = n;
        while (value >= n) value = output() >> (32 - bits);
        return value;
    }

private:
    void seed(std::uint32_t s) {
        x_.assign(624, s);
        for (std::size_t i = 1; i < 624; ++i)
            x_[i] = 1812433253U * (x_[i - 1] ^ (x_[i - 1] >> 30U)) + static_cast<std::uint32_t>(i);
    }
    std::size_t next_place(std::size_t i) {
        if (i + 1 < 624) return i + 1;
        x_[0] = x_[623];
        return 1;
    }
    [[nodiscard]] std::vector<std::uint32_t> key_of(const std::string& text) const {
        std::string s = text;
        for (const std::uint8_t byte : sha512_of(text)) s.push_back(static_cast<char>(byte));
        while (s.size() % 4 != 0) s.insert(s.begin(), '\0');  // zeros in front change no integer
        std::vector<std::uint32_t> words;
        for (std::size_t i = 0; i < s.size(); i += 4) {
            std::uint32_t word = 0;
            for (std::size_t k = 0; k < 4; ++k) word = word * 256 + static_cast<unsigned char>(s[i + k]);
            words.push_back(word);
        }
        if (mutant_ == space_mutant::words_most_significant_first) return words;
        std::reverse(words.begin(), words.end());
        while (words.size() > 1 && words.back() == 0) words.pop_back();
        return words;
    }

    space_mutant mutant_;
    std::vector<std::uint32_t> x_;
    std::size_t at_ = 0;
};

/// 0 ... n - 1 shuffled by the engine of a text.
inline std::vector<std::uint64_t> shuffled_twin(const std::string& text, std::uint64_t n,
                                                space_mutant mutant = space_mutant::none) {
    std::vector<std::uint64_t> a;
    for (std::uint64_t i = 0; i < n; ++i) a.push_back(i);
    engine_twin engine(text, mutant);
    if (mutant == space_mutant::shuffle_low_to_high) {
        for (std::uint64_t i = 1; i < n; ++i) std::swap(a[i], a[engine.draw(static_cast<std::uint32_t>(i + 1))]);
        return a;
    }
    for (std::uint64_t i = n; i-- > 1;) std::swap(a[i], a[engine.draw(static_cast<std::uint32_t>(i + 1))]);
    return a;
}

/// One epoch with every list written out; the members of `epoch_map` (mt-shuffle-1 only).
template <space_mutant Mutant = space_mutant::none>
class epoch_map_twin {
public:
    epoch_map_twin(const space_parameters& parameters, epoch_index epoch) : p_(parameters), epoch_(epoch) {
        std::uint64_t blocks = 0;
        for (std::uint64_t w = 0; w < p_.num_samples; ++w)
            if (w % p_.block_size == 0) ++blocks;
        const std::string text = "pww-darl:" + std::to_string(p_.seed) + ":" + std::to_string(epoch.count);
        for (std::uint64_t b = 0; b < blocks; ++b) order_.push_back(b);
        if (p_.shuffle) order_ = shuffled_twin(text, blocks, Mutant);
    }

    [[nodiscard]] const space_parameters& parameters() const { return p_; }
    [[nodiscard]] epoch_index epoch() const { return epoch_; }
    [[nodiscard]] std::uint64_t num_blocks() const { return order_.size(); }
    [[nodiscard]] std::uint64_t block_at(position p) const { return order_.at(p.count); }
    [[nodiscard]] position position_of(std::uint64_t block) const {
        return position{static_cast<std::uint64_t>(std::find(order_.begin(), order_.end(), block) - order_.begin())};
    }
    [[nodiscard]] window_range windows_of(position p) const {
        const std::uint64_t begin = order_.at(p.count) * p_.block_size;
        return {begin, std::min(begin + p_.block_size, p_.num_samples)};
    }
    [[nodiscard]] std::uint64_t window_count(const span& s) const {
        std::uint64_t windows = 0;
        for (std::uint64_t p = s.start.count; p < s.end.count; ++p) {
            const bool assumed = Mutant == space_mutant::short_block_assumed_last;
            const std::uint64_t block = assumed ? p : order_.at(p);
            windows += std::min((block + 1) * p_.block_size, p_.num_samples) - block * p_.block_size;
        }
        return windows;
    }
    [[nodiscard]] digest16 digest() const {
        std::string text = std::to_string(p_.num_samples) + ":" + std::to_string(p_.block_size) + ":" +
                           std::to_string(p_.seed) + ":" + (p_.shuffle ? "True" : "False") + ":" +
                           std::to_string(epoch_.count);
        if (p_.shuffle && Mutant != space_mutant::digest_without_permutation) {
            for (const std::uint64_t block : order_)
                for (std::uint64_t rest = block, i = 0; i < 4; ++i, rest /= 256)
                    text.push_back(static_cast<char>(rest % 256));
        }
        return blake2b_of<16>(text);
    }

private:
    space_parameters p_;
    epoch_index epoch_;
    std::vector<std::uint64_t> order_;
};

}  // namespace darlcore::testing
