// SPDX-License-Identifier: Apache-2.0
#include "backends/storage/crc32c.hpp"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace darlcore::storage {
namespace {

constexpr std::array<std::uint32_t, 256> make_table() {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t i = 0; i < 256; ++i) {
        std::uint32_t value = i;
        for (int bit = 0; bit < 8; ++bit) value = (value >> 1U) ^ ((value & 1U) != 0 ? 0x82f63b78U : 0U);
        table[i] = value;
    }
    return table;
}

constexpr auto table = make_table();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t crc32c_by_instruction(std::string_view bytes, std::uint32_t before) {
    std::uint64_t crc = ~before;
    while (bytes.size() >= 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, bytes.data(), 8);
        crc = _mm_crc32_u64(crc, word);
        bytes.remove_prefix(8);
    }
    auto rest = static_cast<std::uint32_t>(crc);
    for (const char c : bytes) rest = _mm_crc32_u8(rest, static_cast<unsigned char>(c));
    return ~rest;
}

bool has_instruction() {
    static const bool answer = __builtin_cpu_supports("sse4.2") != 0;
    return answer;
}
#endif

}  // namespace

std::uint32_t crc32c_by_table(std::string_view bytes, std::uint32_t before) {
    std::uint32_t crc = ~before;
    for (const char c : bytes) crc = (crc >> 8U) ^ table[(crc ^ static_cast<unsigned char>(c)) & 0xffU];
    return ~crc;
}

std::uint32_t crc32c(std::string_view bytes, std::uint32_t before) {
#if defined(__x86_64__)
    if (has_instruction()) return crc32c_by_instruction(bytes, before);
#endif
    return crc32c_by_table(bytes, before);
}

}  // namespace darlcore::storage
