// SPDX-License-Identifier: Apache-2.0
// Bytes of a connection through the server's reader. The first byte chooses the cut; whatever the cut, the same
// requests come out.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tests/asio/read_all.hpp"

using darlcore::http::testing::read_all;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
    const auto whole = read_all(bytes);
    const auto cut = read_all(bytes, {std::size_t{1} + data[0] % 17U});
    if (whole.requests != cut.requests || whole.status != cut.status) std::abort();
    if (whole.status != 0 && (whole.status < 400 || whole.status > 431)) std::abort();
    for (const std::string& r : whole.requests)
        if (r.find("host=") == std::string::npos) std::abort();  // a request without a Host must never pass
    return 0;
}
