// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace darlcore::lease {

/// What the structures of a table tell of each cell, node or word they look at: nothing in production. A test's policy
/// (`using meter = ...` in the table's Mutation) counts them, so that a bound on the work of one request is a statement
/// about numbers, not about a clock.
struct no_meter {
    static constexpr void touch(std::uint64_t = 1) noexcept {}
};

namespace detail {

template <class Policy>
struct meter_of {
    using type = no_meter;
};
template <class Policy>
requires requires { typename Policy::meter; }
struct meter_of<Policy> {
    using type = typename Policy::meter;
};

}  // namespace detail

/// The meter of a table's policy; `no_meter` where it names none.
template <class Policy>
using meter_of = typename detail::meter_of<Policy>::type;

}  // namespace darlcore::lease
