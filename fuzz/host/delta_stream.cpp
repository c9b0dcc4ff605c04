// SPDX-License-Identifier: Apache-2.0
// Any bytes as the delta that an upload brings: the verdict does not depend on how the bytes are cut, and what is
// accepted covers the file.
#include <algorithm>
#include <cstdint>
#include <span>

#include "backends/host/delta_stream.hpp"
#include "darlcore/assert.hpp"

using namespace darlcore;

namespace {

result<host::delta_facts> facts_of(std::span<const std::byte> bytes, std::size_t first, std::size_t piece) {
    host::delta_stream stream(bytes.size(), 4096);
    while (!bytes.empty()) {
        const auto take = std::min(bytes.size(), first > 0 ? first : piece);
        first = 0;
        if (auto ok = stream.feed(bytes.first(take)); !ok) return ok.error();
        bytes = bytes.subspan(take);
    }
    return stream.finish();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 2) return 0;
    const auto bytes = std::as_bytes(std::span(data, size)).subspan(2);
    const auto whole = facts_of(bytes, 0, bytes.size() + 1);
    const auto cut = facts_of(bytes, data[0], 1U + data[1]);
    DARLCORE_ASSERT(whole.has_value() == cut.has_value());
    if (!whole) {
        DARLCORE_ASSERT(whole.error().code == cut.error().code);
        return 0;
    }
    DARLCORE_ASSERT(whole->scan == cut->scan && whole->layout.digest() == cut->layout.digest());
    std::uint64_t covered = 0;
    for (const auto& entry : whole->header.entries) covered += entry.size_bytes();
    DARLCORE_ASSERT(covered <= bytes.size());
    return 0;
}
