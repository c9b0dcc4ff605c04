// SPDX-License-Identifier: Apache-2.0
// Whatever the bytes are, reading a tokenizer.json ends with an error that says where, or with a tokenizer whose ids
// are in its vocabulary and that encodes what it decoded.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "adapters/formats/tokenizer_json.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace darlcore::formats;
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const auto t = parse_tokenizer_json(text, "fuzz.json", {});
    if (!t) {
        DARLCORE_ASSERT(t.error().context.starts_with("fuzz.json: "));
        return 0;
    }
    for (const std::string_view sample :
         {"", " the 123 don't\r\n\n", "e\xcc\x81 \xe6\xbc\xa2 \xf0\x9f\x98\x80 <|x|>"}) {
        std::vector<std::uint32_t> ids;
        const auto ok = (*t)->encode(sample, ids);
        for (const std::uint32_t id : ids) DARLCORE_ASSERT_CMP(id, <, (*t)->vocab_size());
        if (!ok) continue;
        const auto decoded = (*t)->decode(ids);
        DARLCORE_ASSERT(decoded.has_value());
    }
    return 0;
}
