// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace darlcore::storage {

/// CRC-32C (Castagnoli) of `bytes`, continuing from `before` (0 at the start): crc(a + b) = crc32c(b, crc32c(a)).
/// Uses the processor's instruction where there is one; the table gives equal results.
std::uint32_t crc32c(std::string_view bytes, std::uint32_t before = 0);

/// The same from the table, whatever the processor has; for tests.
std::uint32_t crc32c_by_table(std::string_view bytes, std::uint32_t before = 0);

}  // namespace darlcore::storage
