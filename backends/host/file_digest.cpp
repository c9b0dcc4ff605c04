// SPDX-License-Identifier: Apache-2.0
#include "backends/host/file_digest.hpp"

#include <openssl/evp.h>

#include <algorithm>

#include "darlcore/assert.hpp"

namespace darlcore::host {

struct file_digest::state {
    EVP_MD_CTX* context = EVP_MD_CTX_new();
    state() { begin(); }
    ~state() { EVP_MD_CTX_free(context); }
    state(const state&) = delete;
    state& operator=(const state&) = delete;
    void begin() {
        // Both fail only without memory or without a provider of SHA-256: nothing a caller could mend.
        DARLCORE_ASSERT(context != nullptr && EVP_DigestInit_ex(context, EVP_sha256(), nullptr) == 1);
    }
};

file_digest::file_digest() : state_(std::make_unique<state>()) {}
file_digest::file_digest(file_digest&&) noexcept = default;
file_digest& file_digest::operator=(file_digest&&) noexcept = default;
file_digest::~file_digest() = default;

void file_digest::update(std::span<const std::byte> bytes) {
    DARLCORE_ASSERT(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1);
}

digest32 file_digest::finish() {
    digest32 digest{};
    DARLCORE_ASSERT(EVP_DigestFinal_ex(state_->context, digest.data(), nullptr) == 1);
    state_->begin();
    return digest;
}

void parts_digest::update(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const auto take = std::min<std::uint64_t>(bytes.size(), digest_part_bytes - in_part_);
        part_.update(bytes.first(take));
        in_part_ += take;
        bytes = bytes.subspan(take);
        if (in_part_ == digest_part_bytes) end_part();
    }
}

void parts_digest::end_part() {
    const digest32 part = part_.finish();
    all_.update(std::as_bytes(std::span(part)));
    in_part_ = 0;
}

digest32 parts_digest::finish() {
    if (in_part_ > 0) end_part();
    return all_.finish();
}

}  // namespace darlcore::host
