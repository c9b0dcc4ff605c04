// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace darlcore::formats {

/// SHA-256 of long inputs by OpenSSL, which uses the processor's instructions; the core's own is for short texts.
class sha256_stream {
public:
    sha256_stream();
    sha256_stream& update(std::span<const std::byte> bytes);
    /// 64 lower-case hex digits; the object starts anew.
    std::string finish_hex();

private:
    struct free_context {
        void operator()(void* context) const;
    };
    std::unique_ptr<void, free_context> context_;
};

}  // namespace darlcore::formats
