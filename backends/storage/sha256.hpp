// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "backends/storage/file_system.hpp"
#include "darlcore/error.hpp"

namespace darlcore::storage {

/// SHA-256 over bytes that arrive in pieces. Copies continue independently.
class sha256 {
public:
    sha256();
    sha256(const sha256& other);
    sha256& operator=(const sha256& other);
    sha256(sha256&&) noexcept;
    sha256& operator=(sha256&&) noexcept;
    ~sha256();

    void update(std::string_view bytes);
    /// Digest of everything so far, 32 bytes; more may follow.
    [[nodiscard]] std::string digest() const;
    /// The same as 64 lower-case hex digits.
    [[nodiscard]] std::string hex() const;

private:
    struct state;
    std::unique_ptr<state> state_;
};

std::string sha256_hex(std::string_view bytes);
std::string to_hex(std::string_view bytes);
/// True for exactly 64 lower-case hex digits: the only names a blob may have.
bool is_sha256_hex(std::string_view text);
/// Digest of a whole file, read in pieces.
result<std::string> sha256_of_file(file_system& fs, const std::string& path);

}  // namespace darlcore::storage
