// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

namespace darlcore::ledger::detail {

// The fields of an aggregate, without naming them: so a field added to a record can never be forgotten by the codec.
struct any_value {
    template <class T>
    operator T() const;  // never called
};

template <class T, std::size_t... I>
constexpr bool takes_values(std::index_sequence<I...>) {
    return requires { T{(static_cast<void>(I), any_value{})...}; };
}

inline constexpr std::size_t fields_max = 32;

template <class T, std::size_t N = 0>
constexpr std::size_t field_count() {
    if constexpr (N < fields_max && takes_values<T>(std::make_index_sequence<N + 1>{}))
        return field_count<T, N + 1>();
    else
        return N;
}

/// References to all fields, in order.
/// Preconditions (checked at compile time): an aggregate of at most `fields_max` fields without base classes.
template <class T>
constexpr auto fields(T& x) {
    using plain = std::remove_const_t<T>;
    static_assert(std::is_aggregate_v<plain>);
    constexpr std::size_t n = field_count<plain>();
    // clang-format off
    if constexpr (n == 0) { return std::tuple<>(); }
    else if constexpr (n == 1) { auto& [f0] = x; return std::tie(f0); }
    else if constexpr (n == 2) { auto& [f0, f1] = x; return std::tie(f0, f1); }
    else if constexpr (n == 3) { auto& [f0, f1, f2] = x; return std::tie(f0, f1, f2); }
    else if constexpr (n == 4) { auto& [f0, f1, f2, f3] = x; return std::tie(f0, f1, f2, f3); }
    else if constexpr (n == 5) { auto& [f0, f1, f2, f3, f4] = x; return std::tie(f0, f1, f2, f3, f4); }
    else if constexpr (n == 6) { auto& [f0, f1, f2, f3, f4, f5] = x; return std::tie(f0, f1, f2, f3, f4, f5); }
    else if constexpr (n == 7) { auto& [f0, f1, f2, f3, f4, f5, f6] = x; return std::tie(f0, f1, f2, f3, f4, f5, f6); }
    else if constexpr (n == 8) { auto& [f0, f1, f2, f3, f4, f5, f6, f7] = x; return std::tie(f0, f1, f2, f3, f4, f5, f6, f7); }
    else if constexpr (n == 9) { auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8] = x; return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8); }
    else if constexpr (n == 10) { auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9] = x; return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9); }
    else if constexpr (n == 11) { auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10] = x; return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10); }
    else if constexpr (n == 12) { auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11] = x; return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11); }
    else if constexpr (n == 13) { auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12] = x; return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12); }
    else if constexpr (n == 14) { auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13] = x; return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13); }
    else if constexpr (n == 15) { auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14] = x; return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14); }
    else if constexpr (n == 16) { auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15] = x; return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15); }
    else if constexpr (n == 17) { auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16] = x; return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16); }
    else if constexpr (n == 18) { auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17] = x; return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17); }
    else if constexpr (n == 19) { auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18] = x; return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18); }
    else if constexpr (n == 20) { auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19] = x; return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19); }
    else if constexpr (n == 21) { auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20] = x; return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20); }
    else if constexpr (n == 22) { auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20, f21] = x; return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20, f21); }
    else if constexpr (n == 23) { auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20, f21, f22] = x; return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20, f21, f22); }
    else if constexpr (n == 24) { auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20, f21, f22, f23] = x; return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20, f21, f22, f23); }
    else if constexpr (n == 25) { auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20, f21, f22, f23, f24] = x; return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20, f21, f22, f23, f24); }
    else if constexpr (n == 26) { auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20, f21, f22, f23, f24, f25] = x; return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20, f21, f22, f23, f24, f25); }
    else if constexpr (n == 27) { auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20, f21, f22, f23, f24, f25, f26] = x; return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20, f21, f22, f23, f24, f25, f26); }
    else if constexpr (n == 28) { auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20, f21, f22, f23, f24, f25, f26, f27] = x; return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20, f21, f22, f23, f24, f25, f26, f27); }
    else if constexpr (n == 29) { auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20, f21, f22, f23, f24, f25, f26, f27, f28] = x; return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20, f21, f22, f23, f24, f25, f26, f27, f28); }
    else if constexpr (n == 30) { auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20, f21, f22, f23, f24, f25, f26, f27, f28, f29] = x; return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20, f21, f22, f23, f24, f25, f26, f27, f28, f29); }
    else if constexpr (n == 31) { auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20, f21, f22, f23, f24, f25, f26, f27, f28, f29, f30] = x; return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20, f21, f22, f23, f24, f25, f26, f27, f28, f29, f30); }
    else if constexpr (n == 32) { auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20, f21, f22, f23, f24, f25, f26, f27, f28, f29, f30, f31] = x; return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20, f21, f22, f23, f24, f25, f26, f27, f28, f29, f30, f31); }
    // clang-format on
}

}  // namespace darlcore::ledger::detail
