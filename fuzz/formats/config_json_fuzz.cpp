// SPDX-License-Identifier: Apache-2.0
// Whatever the bytes are, reading a config.json ends with a valid model that its own text reads back to, or with an
// error that names the file.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "backends/torch/model_spec.hpp"
#include "darlcore/assert.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace darlcore::models;
    const auto c = parse_config(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz.json");
    if (!c) {
        DARLCORE_ASSERT(c.error().context.find("fuzz.json") != std::string::npos);
        return 0;
    }
    DARLCORE_ASSERT(validate(*c).has_value());
    const auto again = parse_config(config_text(*c), "written");
    DARLCORE_ASSERT(again.has_value() && *again == *c);
    return 0;
}
