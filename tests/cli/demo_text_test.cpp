// SPDX-License-Identifier: Apache-2.0
#include "adapters/cli/demo_text.hpp"

#include <cstdint>

#include <gtest/gtest.h>
#include <zlib.h>

namespace {

using darlcore::errc;

std::string word(std::uint32_t v) {
    std::string out;
    for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>((v >> shift) & 0xffU);
    return out;
}

std::string serialised(const std::vector<std::string>& lines, std::uint32_t type = 16) {
    std::string out = "X\n" + word(3) + word(0x040201) + word(0x030500) + word(5) + "UTF-8" + word(type);
    if (type != 16) return out + word(1) + word(7);
    out += word(static_cast<std::uint32_t>(lines.size()));
    for (const auto& line : lines) out += word(0x40009) + word(static_cast<std::uint32_t>(line.size())) + line;
    return out;
}

std::string entry(const std::string& object) {
    std::string packed(compressBound(object.size()), '\0');
    uLongf size = packed.size();
    compress(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(object.data()),
             object.size());
    packed.resize(size);
    return word(static_cast<std::uint32_t>(object.size())) + packed;
}

TEST(r_documents, character_vectors_become_documents_and_other_objects_are_passed_over) {
    const auto read = darl::read_r_documents(entry(serialised({"EMMA", "", "by"})) + entry(serialised({}, 13)) +
                                             entry(serialised({"x"})));
    ASSERT_TRUE(read) << to_text(read.error());
    EXPECT_EQ(*read, (std::vector<std::string>{"EMMA\n\nby\n", "x\n"}));
}

TEST(r_documents, every_truncation_is_an_error_or_ends_between_entries) {
    const std::string file = entry(serialised({"one", "two"})) + entry(serialised({"three"}));
    const std::size_t border = entry(serialised({"one", "two"})).size();
    for (std::size_t n = 1; n < file.size(); ++n)
        EXPECT_EQ(darl::read_r_documents(file.substr(0, n)).has_value(), n == border) << n;
}

TEST(r_documents, a_lying_size_or_length_is_refused) {
    EXPECT_EQ(darl::read_r_documents(word(0x7fffffff) + "xxxx").error().code, errc::too_large);
    std::string object = serialised({"abc"});
    object[object.size() - 4] = '\x7f';  // the string says it is longer than the rest
    EXPECT_EQ(darl::read_r_documents(entry(object)).error().code, errc::corrupt);
}

}  // namespace
