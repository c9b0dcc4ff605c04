// SPDX-License-Identifier: Apache-2.0
// Any bytes as a safetensors file: what the header parser accepts must tile the data and survive being written again.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "adapters/formats/safetensors.hpp"

namespace {

void require(bool holds) {
    if (!holds) std::abort();
}

void check(std::string_view json_text, std::uint64_t data_bytes) {
    using namespace darlcore;
    const auto header = formats::parse_safetensors_header(json_text, data_bytes);
    if (!header) return;
    std::uint64_t expected = 0;
    std::vector<tensor_spec> specs;
    for (const auto& entry : header->entries) {
        require(entry.begin_bytes == expected && entry.end_bytes >= entry.begin_bytes);
        require(*byte_count(*element_count(entry.spec.shape), entry.spec.dtype) == entry.size_bytes());
        expected = entry.end_bytes;
        specs.push_back(entry.spec);
    }
    require(expected == data_bytes);
    const auto again = formats::build_safetensors_header(specs, header->metadata);
    if (!again) return;
    const auto reread = formats::parse_safetensors_header(std::string_view(*again).substr(8), data_bytes);
    require(reread && reread->entries.size() == specs.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    // The first two bytes stand for the size of the data part, so that offsets can match it.
    if (size < 2) return 0;
    const std::uint64_t data_bytes = data[0] + 256U * data[1];
    check({reinterpret_cast<const char*>(data) + 2, size - 2}, data_bytes);
    return 0;
}
