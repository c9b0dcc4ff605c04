// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "darlcore/error.hpp"

namespace darlcore::http {

/// What a token may do. lease includes read and probe, admin includes all.
enum class scope : std::uint8_t { lease = 1, blob = 2, read = 4, probe = 8, admin = 16 };

/// A set of scopes as bits, already widened by what they include.
struct scope_set {
    std::uint8_t bits = 0;
    [[nodiscard]] bool has(scope s) const { return (bits & static_cast<std::uint8_t>(s)) != 0; }
    friend bool operator==(const scope_set&, const scope_set&) = default;
};

/// Reads "lease,blob,...".
/// Errors: errc::invalid_argument naming the unknown word.
result<scope_set> parse_scopes(const std::vector<std::string>& words);

using token_digest = std::array<unsigned char, 32>;
token_digest digest_of_token(std::string_view token);

/// One entry of the token file. An empty site is the bare token: it speaks for every site.
struct token_entry {
    std::string site;
    token_digest digest{};
    scope_set scopes;
    std::int64_t not_before_s = 0;
    std::int64_t expires_s = INT64_MAX;
};

/// Who a request comes from.
struct identity {
    std::string site;
    scope_set scopes;
    std::uint64_t key = 0;  ///< equal for requests with the same token; for counting, never shown
};

/// The tokens a server accepts. A value: reloading replaces it as a whole.
/// Promises: the time of a lookup does not depend on how much of a token is right (comparison over SHA-256, all entries
/// visited).
class token_table {
public:
    token_table() = default;
    explicit token_table(std::vector<token_entry> entries);
    /// One token for all sites with lease, blob and read (probe by inclusion).
    static token_table bare(std::string_view token);

    [[nodiscard]] bool empty() const { return entries_.empty(); }
    [[nodiscard]] std::size_t size() const { return entries_.size(); }
    /// Seconds are Unix time: the validity dates of a token are the only use of wall time here.
    [[nodiscard]] std::optional<identity> find(std::string_view token, std::int64_t now_s) const;
    /// May this token speak for `cluster`? Its site is equal, or a prefix up to '-' and no entry of the cluster's own
    /// exists.
    [[nodiscard]] bool speaks_for(const identity& who, std::string_view cluster) const;

private:
    std::vector<token_entry> entries_;
};

/// Reads the text of a token file: one JSON object a line ({"site","sha256","scopes","not_before","expires"}); blank
/// lines and lines that begin with '#' are skipped. Errors: errc::parse_error with the line number and the fix; never
/// the line's text.
result<token_table> parse_token_file(std::string_view text);

/// Reads a token file that only its owner can read. A file whose only line is no JSON object is a single bare token.
/// Errors: errc::io_error, errc::refused (mode wider than 0600 or another owner), errc::parse_error.
result<token_table> load_token_file(const std::string& path);

/// A new token (32 random bytes as hex).
result<std::string> new_token();
/// The line of the token file for it.
std::string token_line(std::string_view site, std::string_view token, const std::vector<std::string>& scopes,
                       std::optional<std::int64_t> not_before_s, std::optional<std::int64_t> expires_s);
/// Creates `path` with mode 0600 and the text; an existing file is left alone.
/// Errors: errc::already_exists, errc::io_error.
result<void> write_secret_file(const std::string& path, std::string_view text);
/// Reads a 0600 file, without the line ends at its end.
/// Errors: errc::io_error, errc::refused, errc::invalid_argument (empty).
result<std::string> read_secret_file(const std::string& path);

}  // namespace darlcore::http
