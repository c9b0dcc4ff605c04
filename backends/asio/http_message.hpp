// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace darlcore::http {

/// One header field; `name` in lower case.
struct field {
    std::string name;
    std::string value;
};

/// The head of a request that passed every check of `http_reader`.
/// `path` is percent-decoded and begins with '/'; `query` is still encoded.
struct request_head {
    std::string method;
    std::string path;
    std::string query;
    std::string host;
    int minor_version = 1;
    bool keep_alive = true;
    bool expect_continue = false;
    bool chunked = false;
    std::optional<std::uint64_t> content_length;
    std::vector<field> fields;

    /// The value of the first field of that name (lower case); null pointer when there is none.
    [[nodiscard]] const std::string* find(std::string_view name) const;
    [[nodiscard]] bool has_body() const { return chunked || content_length.value_or(0) > 0; }
};

/// A request that is refused before a handler sees it, or by a handler: status, stable word, sentence with the fix.
struct refusal {
    int status = 400;
    std::string code = "bad_request";
    std::string sentence;
};

/// Reason phrase of a status; "Status" for numbers we do not send.
std::string_view reason_phrase(int status);

/// Decodes %XX (and '+' as a space when `plus_is_space`); nothing for a broken escape or an encoded NUL.
std::optional<std::string> percent_decode(std::string_view text, bool plus_is_space = false);

/// The decoded parameters of a query in their order; nothing when one is malformed or more than 32 are given.
std::optional<std::vector<std::pair<std::string, std::string>>> parse_query(std::string_view query);

/// Digits only, no sign, no overflow, at most 19 characters.
std::optional<std::uint64_t> parse_decimal(std::string_view text);

/// A byte range that lies in a body: first inclusive, end exclusive.
struct byte_range {
    std::uint64_t first = 0;
    std::uint64_t end = 0;
};

/// What a Range header asks of a body of `size` bytes.
enum class range_answer : std::uint8_t { whole, part, unsatisfiable };

/// `Range: bytes=a-b | a- | -n`, exactly one. Another unit is ignored (whole); several ranges, syntax errors and ranges
/// outside the body are unsatisfiable.
range_answer parse_range(std::string_view value, std::uint64_t size, byte_range& out);

}  // namespace darlcore::http
