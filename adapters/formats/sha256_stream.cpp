// SPDX-License-Identifier: Apache-2.0
#include "adapters/formats/sha256_stream.hpp"

#include <openssl/evp.h>

#include "darlcore/assert.hpp"
#include "darlcore/hex.hpp"

namespace darlcore::formats {

namespace {

EVP_MD_CTX* of(void* context) { return static_cast<EVP_MD_CTX*>(context); }

void start(void* context) { DARLCORE_ASSERT(EVP_DigestInit_ex(of(context), EVP_sha256(), nullptr) == 1); }

}  // namespace

void sha256_stream::free_context::operator()(void* context) const { EVP_MD_CTX_free(of(context)); }

sha256_stream::sha256_stream() : context_(EVP_MD_CTX_new()) {
    DARLCORE_ASSERT(context_ != nullptr);
    start(context_.get());
}

sha256_stream& sha256_stream::update(std::span<const std::byte> bytes) {
    DARLCORE_ASSERT(EVP_DigestUpdate(of(context_.get()), bytes.data(), bytes.size()) == 1);
    return *this;
}

std::string sha256_stream::finish_hex() {
    std::array<std::uint8_t, 32> digest{};
    unsigned size = 0;
    DARLCORE_ASSERT(EVP_DigestFinal_ex(of(context_.get()), digest.data(), &size) == 1 && size == digest.size());
    start(context_.get());
    return to_hex(digest);
}

}  // namespace darlcore::formats
