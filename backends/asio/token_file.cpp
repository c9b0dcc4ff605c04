// SPDX-License-Identifier: Apache-2.0
#include "backends/asio/token_file.hpp"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <sys/stat.h>
#include <unistd.h>

#include "adapters/formats/json.hpp"
#include "darlcore/units.hpp"

namespace darlcore::http {

namespace {

constexpr std::size_t token_file_bytes_max = std::size_t{4} << 20U;

// what each word of a token file allows, inclusions applied
constexpr std::uint8_t read_bits = static_cast<std::uint8_t>(scope::read);
constexpr std::uint8_t probe_bits = static_cast<std::uint8_t>(scope::probe);
constexpr std::uint8_t blob_bits = static_cast<std::uint8_t>(scope::blob);
constexpr std::uint8_t lease_bits = static_cast<std::uint8_t>(scope::lease) | read_bits | probe_bits;
constexpr std::uint8_t all_bits = lease_bits | blob_bits | static_cast<std::uint8_t>(scope::admin);

std::string to_hex(const unsigned char* bytes, std::size_t n) {
    std::string out;
    for (std::size_t i = 0; i < n; ++i) out += fmt::format("{:02x}", bytes[i]);
    return out;
}

std::optional<token_digest> digest_from_hex(std::string_view text) {
    token_digest out{};
    if (text.size() != 64) return std::nullopt;
    for (std::size_t i = 0; i < 64; ++i) {
        const char c = text[i];
        unsigned digit = 0;
        if (c >= '0' && c <= '9')
            digit = static_cast<unsigned>(c - '0');
        else if (c >= 'a' && c <= 'f')
            digit = static_cast<unsigned>(c - 'a') + 10;
        else if (c >= 'A' && c <= 'F')
            digit = static_cast<unsigned>(c - 'A') + 10;
        else
            return std::nullopt;
        out[i / 2] = static_cast<unsigned char>(out[i / 2] * 16 + digit);
    }
    return out;
}

/// Closes a file descriptor at the end of its scope.
struct descriptor {
    int fd;
    ~descriptor() {
        if (fd >= 0) ::close(fd);
    }
};

result<std::int64_t> date_field(const json::value& entry, std::string_view key, std::int64_t fallback) {
    const json::value* v = entry.find(key);
    if (v == nullptr || v->is_null()) return fallback;
    const auto seconds = v->as_i64();
    if (!seconds) return fail(errc::parse_error, fmt::format("'{}' must be whole Unix seconds", key));
    return *seconds;
}

result<token_entry> parse_entry(std::string_view line) {
    auto parsed = json::parse(line);
    if (!parsed || !parsed->is_object())
        return fail(errc::parse_error, "not a JSON object; `darl token new` prints a line to paste");
    token_entry entry;
    const json::value* site = parsed->find("site");
    if (site == nullptr || site->as_string() == nullptr || !is_valid_name(*site->as_string()))
        return fail(errc::parse_error, "'site' must be a name of letters, digits, '.', '_' and '-'");
    entry.site = *site->as_string();
    const json::value* sha = parsed->find("sha256");
    const auto digest =
        sha != nullptr && sha->as_string() != nullptr ? digest_from_hex(*sha->as_string()) : std::nullopt;
    if (!digest) return fail(errc::parse_error, "'sha256' must be the 64 hex digits of the token's SHA-256");
    entry.digest = *digest;
    const json::value* scopes = parsed->find("scopes");
    if (scopes == nullptr || scopes->as_array() == nullptr)
        return fail(errc::parse_error, "'scopes' must be a list of words");
    std::vector<std::string> words;
    for (const json::value& w : *scopes->as_array()) {
        if (w.as_string() == nullptr) return fail(errc::parse_error, "'scopes' must be a list of words");
        words.push_back(*w.as_string());
    }
    auto set = parse_scopes(words);
    if (!set) return std::move(set).error();
    entry.scopes = *set;
    auto not_before = date_field(*parsed, "not_before", 0);
    if (!not_before) return std::move(not_before).error();
    auto expires = date_field(*parsed, "expires", INT64_MAX);
    if (!expires) return std::move(expires).error();
    entry.not_before_s = *not_before;
    entry.expires_s = *expires;
    return entry;
}

std::string_view trimmed(std::string_view line) {
    while (!line.empty() && (line.front() == ' ' || line.front() == '\t')) line.remove_prefix(1);
    while (!line.empty() && (line.back() == ' ' || line.back() == '\t' || line.back() == '\r')) line.remove_suffix(1);
    return line;
}

}  // namespace

result<scope_set> parse_scopes(const std::vector<std::string>& words) {
    scope_set set;
    for (const std::string& w : words) {
        if (w == "lease")
            set.bits |= lease_bits;
        else if (w == "blob")
            set.bits |= blob_bits;
        else if (w == "read")
            set.bits |= read_bits;
        else if (w == "probe")
            set.bits |= probe_bits;
        else if (w == "admin")
            set.bits = all_bits;
        else
            return fail(errc::invalid_argument, "unknown scope; use lease, blob, read, probe, admin");
    }
    if (set.bits == 0) return fail(errc::invalid_argument, "no scope given; use lease, blob, read, probe, admin");
    return set;
}

token_digest digest_of_token(std::string_view token) {
    token_digest out{};
    SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), out.data());
    return out;
}

token_table::token_table(std::vector<token_entry> entries) : entries_(std::move(entries)) {}

token_table token_table::bare(std::string_view token) {
    token_entry entry;
    entry.digest = digest_of_token(token);
    entry.scopes.bits = lease_bits | blob_bits;
    return token_table({entry});
}

std::optional<identity> token_table::find(std::string_view token, std::int64_t now_s) const {
    const token_digest given = digest_of_token(token);
    std::optional<identity> found;
    for (const token_entry& e : entries_) {
        const bool equal = CRYPTO_memcmp(given.data(), e.digest.data(), given.size()) == 0;
        if (equal && !found && e.not_before_s <= now_s && now_s < e.expires_s) {
            identity who{e.site, e.scopes, 0};
            std::memcpy(&who.key, e.digest.data(), sizeof who.key);
            found = std::move(who);
        }
    }
    return found;
}

bool token_table::speaks_for(const identity& who, std::string_view cluster) const {
    if (who.site.empty() || who.site == cluster) return true;
    if (!cluster.starts_with(who.site) || cluster.size() <= who.site.size() || cluster[who.site.size()] != '-')
        return false;
    for (const token_entry& e : entries_)
        if (e.site == cluster) return false;  // a site with an entry of its own answers to that entry only
    return true;
}

result<token_table> parse_token_file(std::string_view text) {
    std::vector<token_entry> entries;
    std::size_t number = 0;
    while (!text.empty()) {
        const std::size_t stop = std::min(text.find('\n'), text.size());
        const std::string_view line = trimmed(text.substr(0, stop));
        text.remove_prefix(std::min(stop + 1, text.size()));
        ++number;
        if (line.empty() || line.front() == '#') continue;
        auto entry = parse_entry(line);
        if (!entry) return fail(errc::parse_error, fmt::format("line {}: {}", number, entry.error().context));
        std::size_t same = 0;
        for (const token_entry& e : entries) same += e.site == entry->site ? 1 : 0;
        if (same >= 2) {
            return fail(errc::parse_error,
                        fmt::format("line {}: a third entry of one site; two allow a rotation, remove the "
                                    "oldest",
                                    number));
        }
        entries.push_back(std::move(*entry));
    }
    if (entries.empty()) return fail(errc::parse_error, "no entry; add the line that `darl token new` prints");
    return token_table(std::move(entries));
}

namespace {

result<std::string> read_private(const std::string& path) {
    const descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY)};
    if (file.fd < 0) return fail(errc::io_error, fmt::format("token file '{}': {}", path, std::strerror(errno)));
    struct stat info {};
    if (::fstat(file.fd, &info) != 0 || !S_ISREG(info.st_mode))
        return fail(errc::io_error, fmt::format("token file '{}' is not a regular file", path));
    if ((info.st_mode & 077U) != 0 || info.st_uid != ::geteuid()) {
        return fail(errc::refused,
                    fmt::format("token file '{}' can be read by others; own it and run: chmod 600 '{}'", path, path));
    }
    if (info.st_size > static_cast<off_t>(token_file_bytes_max))
        return fail(errc::too_large, fmt::format("token file '{}' is larger than 4 MiB", path));
    std::string text;
    char piece[4096];
    for (;;) {
        const ssize_t n = ::read(file.fd, piece, sizeof piece);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail(errc::io_error, fmt::format("token file '{}': {}", path, std::strerror(errno)));
        if (n == 0) break;
        text.append(piece, static_cast<std::size_t>(n));
        if (text.size() > token_file_bytes_max)
            return fail(errc::too_large, fmt::format("token file '{}' is larger than 4 MiB", path));
    }
    return text;
}

}  // namespace

result<std::string> read_secret_file(const std::string& path) {
    auto text = read_private(path);
    if (!text) return text;
    while (!text->empty() && (text->back() == '\n' || text->back() == '\r')) text->pop_back();
    if (text->empty()) return fail(errc::invalid_argument, fmt::format("token file '{}' is empty", path));
    return text;
}

result<token_table> load_token_file(const std::string& path) {
    auto text = read_secret_file(path);
    if (!text) return std::move(text).error();
    if (text->find('\n') == std::string::npos && text->find_first_of("{# \t") == std::string::npos)
        return token_table::bare(*text);
    auto table = parse_token_file(*text);
    if (!table) return fail(table.error().code, fmt::format("token file '{}': {}", path, table.error().context));
    return table;
}

result<std::string> new_token() {
    unsigned char bytes[32];
    if (RAND_bytes(bytes, sizeof bytes) != 1) return fail(errc::io_error, "the system gave no random bytes");
    return to_hex(bytes, sizeof bytes);
}

std::string token_line(std::string_view site, std::string_view token, const std::vector<std::string>& scopes,
                       std::optional<std::int64_t> not_before_s, std::optional<std::int64_t> expires_s) {
    const token_digest digest = digest_of_token(token);
    json::array words;
    for (const std::string& w : scopes) words.emplace_back(w);
    json::value line =
        json::make_object({{"site", site}, {"sha256", to_hex(digest.data(), digest.size())}, {"scopes", words}});
    if (not_before_s) line.set("not_before", *not_before_s);
    if (expires_s) line.set("expires", *expires_s);
    return json::dump(line);
}

result<void> write_secret_file(const std::string& path, std::string_view text) {
    const descriptor file{::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)};
    if (file.fd < 0) {
        const errc code = errno == EEXIST ? errc::already_exists : errc::io_error;
        return fail(code, fmt::format("cannot create '{}': {}", path, std::strerror(errno)));
    }
    while (!text.empty()) {
        const ssize_t n = ::write(file.fd, text.data(), text.size());
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail(errc::io_error, fmt::format("cannot write '{}': {}", path, std::strerror(errno)));
        text.remove_prefix(static_cast<std::size_t>(n));
    }
    if (::fsync(file.fd) != 0)
        return fail(errc::io_error, fmt::format("cannot write '{}': {}", path, std::strerror(errno)));
    return {};
}

}  // namespace darlcore::http
