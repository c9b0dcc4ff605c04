// SPDX-License-Identifier: Apache-2.0
#include "adapters/formats/tokenizer.hpp"

int main() {
    const auto bytes = darlcore::formats::open_tokenizer("bytes");
    std::vector<std::uint32_t> ids;
    return bytes.has_value() && (*bytes)->encode("darl", ids).has_value() && ids.size() == 4 ? 0 : 1;
}
