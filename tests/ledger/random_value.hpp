// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "darlcore/ledger/record_codec.hpp"
#include "darlcore/random.hpp"

namespace darlcore::ledger::testing {

/// Fills any value that the codec knows with random content: small numbers, borders and huge ones alike.
class random_filler {
public:
    explicit random_filler(std::uint64_t seed) : random_(seed) {}

    template <class T>
    void fill(T& x) {
        if constexpr (std::is_same_v<T, bool>)
            x = random_.below(2) == 1;
        else if constexpr (std::is_enum_v<T>)
            x = static_cast<T>(random_.below(static_cast<std::uint64_t>(enum_limit<T>::last) + 1));
        else if constexpr (std::is_integral_v<T>)
            x = static_cast<T>(number());
        else if constexpr (std::is_floating_point_v<T>)
            x = static_cast<T>(number()) / 8;
        else if constexpr (std::is_same_v<T, std::string>)
            text(x);
        else if constexpr (ledger::detail::is_strong<T>::value)
            fill(x.count);
        else if constexpr (ledger::detail::is_optional<T>::value) {
            x.reset();
            if (random_.below(2) == 1) fill(x.emplace());
        } else if constexpr (ledger::detail::is_vector<T>::value) {
            x.resize(random_.below(4));
            for (auto& item : x) fill(item);
        } else if constexpr (ledger::detail::is_map<T>::value) {
            x.clear();
            for (std::uint64_t n = random_.below(4); n > 0; --n) {
                typename T::key_type key{};
                fill(key);
                fill(x[key]);
            }
        } else if constexpr (ledger::detail::is_array<T>::value) {
            for (auto& item : x) fill(item);
        } else {
            std::apply([&](auto&... field) { (fill(field), ...); }, ledger::detail::fields(x));
        }
    }
    /// A record of the type with this index.
    template <std::size_t I = 0>
    record make(std::size_t index) {
        if constexpr (I == std::variant_size_v<record>) {
            return record{};
        } else {
            if (index != I) return make<I + 1>(index);
            record r;
            fill(r.emplace<I>());
            return r;
        }
    }

private:
    std::uint64_t number() {
        switch (random_.below(4)) {
            case 0:
                return random_.below(3);
            case 1:
                return random_.below(300);
            case 2:
                return ~std::uint64_t{0} - random_.below(3);
            default:
                return random_.below(~std::uint64_t{0});
        }
    }
    void text(std::string& x) {
        x.resize(random_.below(6));
        for (auto& c : x) c = static_cast<char>(random_.below(256));
    }

    xoshiro256 random_;
};

}  // namespace darlcore::ledger::testing
