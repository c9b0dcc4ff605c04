// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "darlcore/assert.hpp"

namespace darlcore {

// One list for every code of the project: (name). The name is the stable word on the wire.
// clang-format off
#define DARLCORE_ERROR_CODES(X)                                                                            \
    /* library and files */                                                                                \
    X(invalid_argument) X(overflow) X(too_many_blocks) X(not_finite) X(layout_mismatch) X(out_of_memory)   \
    X(io_error) X(no_space) X(short_read) X(corrupt) X(truncated) X(not_found) X(already_exists) X(locked) \
    X(unsupported) X(parse_error) X(unknown_key) X(timeout) X(unreachable) X(cancelled) X(refused)         \
    /* requests, 400 */                                                                                    \
    X(bad_request) X(digest_mismatch) X(corpus_mismatch) X(policy) X(schedule_mismatch)                    \
    X(codec_unsupported)                                                                                   \
    /* access, 401 403 404 405 410 */                                                                      \
    X(token) X(wrong_scope) X(not_owner) X(no_route) X(method) X(gone)                                     \
    /* standing, 409 */                                                                                    \
    X(lease_gone) X(fenced) X(unknown_site) X(beyond_reserved) X(epoch_incomplete) X(stale_generation)     \
    X(round_closed) X(already_contributed) X(blob_missing) X(blocks_lost) X(offset_mismatch)               \
    /* content, 413 422 429 460 507 */                                                                     \
    X(too_large) X(meta_mismatch) X(growth) X(norm_outlier) X(zero_tokens) X(duplicate_site) X(quota)      \
    X(checksum_mismatch) X(no_room)                                                                        \
    /* try again later, 503 */                                                                             \
    X(cluster_busy) X(restarting) X(disk_full_ack) X(overloaded) X(degraded)                               \
    /* our bug, 500 */                                                                                     \
    X(internal)
// clang-format on

/// Why an operation on the world failed. `word` gives the stable text of each.
enum class errc : std::uint8_t {
#define DARLCORE_X(name) name,
    DARLCORE_ERROR_CODES(DARLCORE_X)
#undef DARLCORE_X
};

/// The stable word of a code, as it stands on the wire and in logs.
constexpr std::string_view word(errc code) noexcept {
    switch (code) {
#define DARLCORE_X(name) \
    case errc::name:     \
        return #name;
        DARLCORE_ERROR_CODES(DARLCORE_X)
#undef DARLCORE_X
    }
    return "internal";
}

/// The code of a stable word, for readers of wire texts.
constexpr std::optional<errc> errc_from_word(std::string_view text) noexcept {
#define DARLCORE_X(name) \
    if (text == #name) return errc::name;
    DARLCORE_ERROR_CODES(DARLCORE_X)
#undef DARLCORE_X
    return std::nullopt;
}

/// A failure of the world: a code for programs, a context for people (names the input, the reason and the fix).
struct error {
    errc code = errc::internal;
    std::string context;

    friend bool operator==(const error&, const error&) = default;
};

/// The text of an error as it is shown: "word: context".
inline std::string to_text(const error& e) {
    std::string text(word(e.code));
    if (!e.context.empty()) text.append(": ").append(e.context);
    return text;
}

/// A value or an error: the part of std::expected<T, error> that we use, under the same names.
/// Preconditions (asserted): `value`, `*` and `->` need has_value(); `error` needs !has_value().
/// Source: differs from std::expected: no exceptions, one error type (docs/adr/0001).
template <class T>
class [[nodiscard]] result {
public:
    using value_type = T;

    result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
    result(darlcore::error failure) : state_(std::in_place_index<1>, std::move(failure)) {}

    [[nodiscard]] bool has_value() const noexcept { return state_.index() == 0; }
    explicit operator bool() const noexcept { return has_value(); }

    T& value() & { return checked(), *std::get_if<0>(&state_); }
    const T& value() const& { return checked(), *std::get_if<0>(&state_); }
    T&& value() && { return checked(), std::move(*std::get_if<0>(&state_)); }
    T& operator*() & { return value(); }
    const T& operator*() const& { return value(); }
    T&& operator*() && { return std::move(*this).value(); }
    T* operator->() { return &value(); }
    const T* operator->() const { return &value(); }

    [[nodiscard]] const darlcore::error& error() const& {
        DARLCORE_ASSERT(!has_value());
        return *std::get_if<1>(&state_);
    }
    [[nodiscard]] darlcore::error&& error() && {
        DARLCORE_ASSERT(!has_value());
        return std::move(*std::get_if<1>(&state_));
    }

    template <class U>
    [[nodiscard]] T value_or(U&& fallback) const& {
        return has_value() ? value() : static_cast<T>(std::forward<U>(fallback));
    }

    /// f : T -> result<U>
    template <class F>
    auto and_then(F&& f) && -> std::invoke_result_t<F, T&&> {
        if (!has_value()) return std::move(*this).error();
        return std::forward<F>(f)(std::move(*this).value());
    }
    /// f : T -> U
    template <class F>
    auto transform(F&& f) && -> result<std::remove_cvref_t<std::invoke_result_t<F, T&&>>> {
        if (!has_value()) return std::move(*this).error();
        return std::forward<F>(f)(std::move(*this).value());
    }

    friend bool operator==(const result&, const result&) = default;

private:
    void checked() const {
        if (has_value()) return;
        detail::assertion_failed("result has a value", __FILE__, __LINE__, to_text(*std::get_if<1>(&state_)));
    }

    std::variant<T, darlcore::error> state_;
};

/// Success without a value, or an error.
template <>
class [[nodiscard]] result<void> {
public:
    using value_type = void;

    result() = default;
    result(darlcore::error failure) : failure_(std::move(failure)) {}

    [[nodiscard]] bool has_value() const noexcept { return !failure_.has_value(); }
    explicit operator bool() const noexcept { return has_value(); }
    void value() const {
        if (failure_) detail::assertion_failed("result has a value", __FILE__, __LINE__, to_text(*failure_));
    }
    [[nodiscard]] const darlcore::error& error() const& {
        DARLCORE_ASSERT(!has_value());
        return *failure_;
    }

    friend bool operator==(const result&, const result&) = default;

private:
    std::optional<darlcore::error> failure_;
};

/// Short for returning an error from a function that gives a result.
inline error fail(errc code, std::string context = {}) { return error{code, std::move(context)}; }

}  // namespace darlcore
