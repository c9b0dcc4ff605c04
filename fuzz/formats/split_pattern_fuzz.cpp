// SPDX-License-Identifier: Apache-2.0
// Whatever the pattern is, it is refused, or its matches are not empty, go forward and end inside of the text.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "adapters/formats/split_pattern.hpp"
#include "adapters/formats/utf8.hpp"
#include "darlcore/assert.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace darlcore::formats;
    const std::string_view pattern(reinterpret_cast<const char*>(data), size);
    if (size > 200 || first_invalid_utf8(pattern)) return 0;  // the JSON reader lets nothing else through
    const auto p = split_pattern::compile(pattern);
    if (!p) return 0;
    static split_scratch scratch;
    constexpr std::string_view text = "don't 12\r\n\n  \xc3\xa9\xe6\xbc\xa2 A.b  ";
    for (std::size_t at = 0; at < text.size();) {
        const auto match = p->find(text, at, scratch);
        if (!match || !match->has_value()) break;
        const auto [begin, end] = **match;
        DARLCORE_ASSERT(at <= begin && begin < end && end <= text.size());
        at = end;
    }
    return 0;
}
