// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "backends/asio/token_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const auto table = darlcore::http::parse_token_file(text);
    if (!table) {
        if (table.error().code != darlcore::errc::parse_error) std::abort();
        return 0;
    }
    if (table->empty() || table->find("", 0)) std::abort();  // nobody gets in with an empty token
    return 0;
}
