// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>

namespace darlcore {

/// What a failed precondition looked like: the expression, its place and, for comparisons, both values.
struct assertion {
    const char* expression;
    const char* file;
    int line;
    std::string values;
};

/// Called once when a precondition is broken. It must not return; a test may install one that throws.
using assertion_handler = void (*)(const assertion&);

namespace detail {

[[noreturn]] inline void abort_on_assertion(const assertion& failed) {
    std::fprintf(stderr, "%s:%d: precondition broken: %s%s%s\n", failed.file, failed.line, failed.expression,
                 failed.values.empty() ? "" : ", with ", failed.values.c_str());
    std::abort();
}

inline assertion_handler& current_assertion_handler() {
    static assertion_handler handler = &abort_on_assertion;
    return handler;
}

template <class T>
concept streamable = requires(std::ostream& out, const T& value) {
    out << value;
};

template <class T>
void append_value(std::ostream& out, const char* name, const T& value) {
    if constexpr (streamable<T>) {
        out << name << " = " << value;
    } else if constexpr (std::is_enum_v<T>) {
        out << name << " = " << static_cast<long long>(value);
    } else {
        out << name << " = (not printable)";
    }
}

template <class A, class B>
std::string describe_values(const char* a_name, const A& a, const char* b_name, const B& b) {
    std::ostringstream out;
    append_value(out, a_name, a);
    out << ", ";
    append_value(out, b_name, b);
    return std::move(out).str();
}

[[noreturn]] inline void assertion_failed(const char* expression, const char* file, int line, std::string values) {
    current_assertion_handler()(assertion{expression, file, line, std::move(values)});
    std::abort();
}

}  // namespace detail

/// Installs `handler` for the whole program and returns the one that was there.
/// Preconditions: handler is not null; it does not return (if it does, the program aborts).
/// Thread-safety: none; install it before other threads start.
inline assertion_handler set_assertion_handler(assertion_handler handler) {
    return std::exchange(detail::current_assertion_handler(), handler);
}

}  // namespace darlcore

// A broken precondition is a bug of the caller, never of the data: bad input gets a `result` instead. On in every
// build.
#define DARLCORE_ASSERT(condition)      \
    ((condition) ? static_cast<void>(0) \
                 : ::darlcore::detail::assertion_failed(#condition, __FILE__, __LINE__, std::string()))

// As DARLCORE_ASSERT, for a comparison: prints both sides.
#define DARLCORE_ASSERT_CMP(a, op, b)                                                         \
    (((a)op(b)) ? static_cast<void>(0)                                                        \
                : ::darlcore::detail::assertion_failed(#a " " #op " " #b, __FILE__, __LINE__, \
                                                       ::darlcore::detail::describe_values(#a, (a), #b, (b))))
