// SPDX-License-Identifier: Apache-2.0
#include "backends/storage/sha256.hpp"

#include <openssl/evp.h>

#include <algorithm>
#include <utility>

#include "darlcore/assert.hpp"

namespace darlcore::storage {

struct sha256::state {
    EVP_MD_CTX* context = EVP_MD_CTX_new();
    state() = default;
    state(const state&) = delete;
    state& operator=(const state&) = delete;
    ~state() { EVP_MD_CTX_free(context); }
};

sha256::sha256() : state_(std::make_unique<state>()) {
    const int started = EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr);
    DARLCORE_ASSERT(started == 1);
}

sha256::sha256(const sha256& other) : state_(std::make_unique<state>()) {
    const int copied = EVP_MD_CTX_copy_ex(state_->context, other.state_->context);
    DARLCORE_ASSERT(copied == 1);
}

sha256& sha256::operator=(const sha256& other) {
    sha256 copy(other);
    std::swap(state_, copy.state_);
    return *this;
}

sha256::sha256(sha256&&) noexcept = default;
sha256& sha256::operator=(sha256&&) noexcept = default;
sha256::~sha256() = default;

void sha256::update(std::string_view bytes) {
    const int updated = EVP_DigestUpdate(state_->context, bytes.data(), bytes.size());
    DARLCORE_ASSERT(updated == 1);
}

std::string sha256::digest() const {
    const sha256 copy(*this);
    std::array<unsigned char, EVP_MAX_MD_SIZE> buffer{};
    unsigned int size = 0;
    const int finished = EVP_DigestFinal_ex(copy.state_->context, buffer.data(), &size);
    DARLCORE_ASSERT(finished == 1 && size == 32);
    return {buffer.begin(), buffer.begin() + 32};
}

std::string sha256::hex() const { return to_hex(digest()); }

std::string sha256_hex(std::string_view bytes) {
    sha256 hash;
    hash.update(bytes);
    return hash.hex();
}

std::string to_hex(std::string_view bytes) {
    static constexpr char digits[] = "0123456789abcdef";
    std::string text;
    text.reserve(bytes.size() * 2);
    for (const char c : bytes) {
        text.push_back(digits[static_cast<unsigned char>(c) >> 4U]);
        text.push_back(digits[static_cast<unsigned char>(c) & 15U]);
    }
    return text;
}

bool is_sha256_hex(std::string_view text) {
    return text.size() == 64 && std::all_of(text.begin(), text.end(),
                                            [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

result<std::string> sha256_of_file(file_system& fs, const std::string& path) {
    auto opened = fs.open(path, open_mode::read);
    if (!opened) return opened.error();
    sha256 hash;
    std::string buffer(std::size_t{1} << 20U, '\0');
    for (std::uint64_t offset = 0;;) {
        const auto got = pread_all(**opened, buffer, offset);
        if (!got) return got.error();
        if (*got == 0) return hash.hex();
        hash.update(std::string_view(buffer).substr(0, *got));
        offset += *got;
    }
}

}  // namespace darlcore::storage
