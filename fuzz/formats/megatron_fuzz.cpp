// SPDX-License-Identifier: Apache-2.0
// Whatever the bytes are, reading an index ends with sequences that lie inside the data, or with an error.
#include <cstddef>
#include <cstdint>
#include <span>

#include "adapters/formats/megatron.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    constexpr std::uint64_t bin_bytes = 4096;
    const auto index = darlcore::formats::parse_megatron_index(std::as_bytes(std::span(data, size)), bin_bytes);
    if (!index) {
        DARLCORE_ASSERT(!index.error().context.empty());
        return 0;
    }
    for (std::size_t i = 0; i < index->lengths.size(); ++i)
        DARLCORE_ASSERT_CMP(index->offsets_bytes[i] + index->lengths[i] * index->id_bytes(), <=, bin_bytes);
    DARLCORE_ASSERT_CMP(index->documents.back(), ==, index->lengths.size());
    return 0;
}
