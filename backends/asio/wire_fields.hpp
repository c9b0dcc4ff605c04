// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "adapters/formats/json.hpp"
#include "darlcore/error.hpp"
#include "darlcore/lease/types.hpp"
#include "darlcore/units.hpp"

namespace darlcore::wire {

/// Reads the fields of one JSON object. The first fault stays; everything after it reads as its default.
/// Errors (fault): errc::bad_request, a sentence that names the field and what it must be, never the value.
/// Unknown fields are ignored; null counts as absent.
class field_reader {
public:
    explicit field_reader(const json::value& object);

    [[nodiscard]] bool ok() const { return !fault_; }
    [[nodiscard]] const error& fault() const { return *fault_; }
    /// The read value, or the fault.
    template <class T>
    result<T> finish(T value) const {
        if (fault_) return *fault_;
        return value;
    }
    void fail(std::string_view name, std::string_view must);

    /// A member that is there and not null.
    [[nodiscard]] const json::value* member(std::string_view name) const;

    std::string text(std::string_view name, std::size_t bytes_max, bool required = false);
    /// A name of `is_valid_name`.
    site_id site(std::string_view name);
    darlcore::incarnation incarnation(std::string_view name);
    bool flag(std::string_view name, bool fallback = false);
    /// Whole and not negative; 8.0 counts as 8. Above `clamp_to` it is taken as that.
    std::uint64_t whole(std::string_view name, std::uint64_t fallback, std::uint64_t clamp_to = INT64_MAX,
                        bool required = false);
    /// Finite.
    double number(std::string_view name, double fallback = 0);
    /// Seconds as milliseconds, not negative, at most ten years.
    std::int64_t seconds_as_ms(std::string_view name);
    /// 64 lower-case hex digits.
    std::string sha256(std::string_view name);
    /// "e0-b12-3" with its token beside it, if that was sent.
    std::optional<lease::lease_ref> lease(std::string_view name, std::string_view token_name);
    const json::array* list(std::string_view name, std::size_t size_max, bool required = false);
    const json::object* map(std::string_view name, std::size_t size_max);

private:
    const json::value& object_;
    std::optional<error> fault_;
};

/// A JSON number as a whole number; nothing for anything else. Negative ones count as 0 when `clamp_negative`.
std::optional<std::uint64_t> whole_number(const json::value& v, bool clamp_negative = false);

/// Milliseconds as seconds.
inline double seconds(std::int64_t ms) { return static_cast<double>(ms) / 1000.0; }

/// A count as a number, or as text beyond 2^53.
json::value count(std::uint64_t n);

}  // namespace darlcore::wire
