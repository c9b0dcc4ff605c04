// SPDX-License-Identifier: Apache-2.0
// Whatever the bytes are, reading a manifest ends with a manifest that its own text reads back to, or with an error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "adapters/formats/manifest.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace darlcore::formats;
    const auto m = parse_manifest(std::string_view(reinterpret_cast<const char*>(data), size));
    if (!m) {
        DARLCORE_ASSERT(!m.error().context.empty());
        return 0;
    }
    std::uint64_t windows = 0;
    for (const auto& shard : m->shards) windows += shard.windows;
    DARLCORE_ASSERT_CMP(windows, ==, m->num_windows);
    if (m->format == darl_tokens_format) DARLCORE_ASSERT(parse_manifest(manifest_text(*m)).value() == *m);
    return 0;
}
