// SPDX-License-Identifier: Apache-2.0
#include "backends/storage/crc32c.hpp"
#include "backends/storage/sha256.hpp"

int main() {
    const bool right = darlcore::storage::crc32c("123456789") == 0xe3069283U &&
                       darlcore::storage::sha256_hex("abc").substr(0, 8) == "ba7816bf";
    return right ? 0 : 1;
}
