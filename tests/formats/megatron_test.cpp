// SPDX-License-Identifier: Apache-2.0
#include "adapters/formats/megatron.hpp"

#include <functional>

#include <gtest/gtest.h>

#include "tests/formats/temp_folder.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::formats;
using darlcore::testing::temp_folder;
using darlcore::testing::write_text;

std::string bytes_of(std::uint64_t value, std::size_t width) {
    std::string out;
    for (std::size_t i = 0; i < width; ++i) out.push_back(static_cast<char>(value >> (8U * i)));
    return out;
}

struct index_case {
    std::string magic = std::string("MMIDIDX\0\0", 9);
    std::uint64_t version = 1;
    std::uint64_t dtype = 8;
    std::vector<std::uint32_t> lengths = {2, 3, 1};
    std::vector<std::uint64_t> offsets = {0, 4, 10};
    std::vector<std::uint64_t> documents = {0, 2, 3};
    std::uint64_t sequences_said = 3;
    std::uint64_t documents_said = 3;
    std::string tail;

    [[nodiscard]] std::string text() const {
        std::string out = magic + bytes_of(version, 8) + bytes_of(dtype, 1) + bytes_of(sequences_said, 8) +
                          bytes_of(documents_said, 8);
        for (const auto l : lengths) out += bytes_of(l, 4);
        for (const auto o : offsets) out += bytes_of(o, 8);
        for (const auto d : documents) out += bytes_of(d, 8);
        return out + tail;
    }
};

result<megatron_index> parse(const std::string& text, std::uint64_t bin_bytes = 12) {
    return parse_megatron_index(std::as_bytes(std::span(text)), bin_bytes);
}

TEST(megatron_datasets, are_read_document_by_document) {
    const temp_folder temp;
    write_text(temp.file("d.idx"), index_case{}.text());
    std::string bin;
    for (const std::uint32_t id : {1U, 2U, 3U, 65535U, 5U, 6U}) bin += bytes_of(id, 2);
    write_text(temp.file("d.bin"), bin);
    for (const char* name : {"d", "d.idx", "d.bin"}) {
        const auto set = megatron_dataset::open(temp.file(name)).value();
        EXPECT_EQ(set.num_sequences(), 3U);
        ASSERT_EQ(set.num_documents(), 2U);
        EXPECT_EQ(set.read_document(0).value(), (std::vector<std::uint32_t>{1, 2, 3, 65535, 5}));
        EXPECT_EQ(set.read_document(1).value(), (std::vector<std::uint32_t>{6}));
    }
    EXPECT_EQ(megatron_dataset::open(temp.file("none")).error().code, errc::not_found);
}

TEST(megatron_datasets, of_every_whole_number_type_are_read) {
    for (const auto& [code, width] : {std::pair{1U, 1U}, {3U, 2U}, {4U, 4U}, {5U, 8U}, {8U, 2U}}) {
        const temp_folder temp;
        index_case c;
        c.dtype = code;
        c.offsets = {0, 2 * width, 5 * width};
        write_text(temp.file("d.idx"), c.text());
        std::string bin;
        for (std::uint32_t id = 0; id < 6; ++id) bin += bytes_of(100 + id, width);
        write_text(temp.file("d.bin"), bin);
        EXPECT_EQ(megatron_dataset::open(temp.file("d")).value().read_document(1).value(),
                  std::vector<std::uint32_t>{105});
    }
}

TEST(megatron_datasets, with_negative_or_huge_ids_are_refused) {
    for (const std::uint64_t id : {UINT64_MAX, std::uint64_t{1} << 32U}) {
        const temp_folder temp;
        index_case c;
        c.dtype = 5;
        c.offsets = {0, 16, 40};
        write_text(temp.file("d.idx"), c.text());
        write_text(temp.file("d.bin"), bytes_of(1, 8) + bytes_of(id, 8) + bytes_of(1, 32));
        EXPECT_EQ(megatron_dataset::open(temp.file("d")).value().read_document(0).error().code, errc::corrupt);
    }
}

TEST(megatron_indexes, that_contradict_themselves_are_refused) {
    struct refusal {
        const char* what;
        errc code;
        std::function<void(index_case&)> damage;
    };
    const refusal refusals[] = {
        {"other magic", errc::parse_error, [](auto& c) { c.magic[0] = 'X'; }},
        {"version 2", errc::unsupported, [](auto& c) { c.version = 2; }},
        {"floating point ids", errc::unsupported, [](auto& c) { c.dtype = 6; }},
        {"no dtype", errc::unsupported, [](auto& c) { c.dtype = 0; }},
        {"a byte too many", errc::corrupt, [](auto& c) { c.tail = "x"; }},
        {"a sequence too many announced", errc::truncated, [](auto& c) { c.sequences_said = 4; }},
        {"a sequence too few announced", errc::corrupt, [](auto& c) { c.sequences_said = 2; }},
        {"sequences that overflow", errc::truncated, [](auto& c) { c.sequences_said = UINT64_MAX / 12 + 2; }},
        {"documents that overflow", errc::truncated, [](auto& c) { c.documents_said = UINT64_MAX; }},
        {"a negative length", errc::corrupt, [](auto& c) { c.lengths[1] = 0x80000000U; }},
        {"an offset beyond the file", errc::corrupt, [](auto& c) { c.offsets[1] = 13; }},
        {"an offset that overflows", errc::corrupt, [](auto& c) { c.offsets[1] = UINT64_MAX; }},
        {"a sequence that ends beyond the file", errc::corrupt, [](auto& c) { c.offsets[1] = 8; }},
        {"documents that do not begin at 0", errc::corrupt, [](auto& c) { c.documents[0] = 1; }},
        {"documents that end early", errc::corrupt, [](auto& c) { c.documents[2] = 2; }},
        {"documents that go back", errc::corrupt,
         [](auto& c) {
             c.documents = {0, 4, 3};
         }},
        {"no documents", errc::corrupt, [](auto& c) { c.documents = {}, c.documents_said = 0; }},
    };
    ASSERT_TRUE(parse(index_case{}.text()));
    for (const auto& r : refusals) {
        index_case c;
        r.damage(c);
        const auto seen = parse(c.text());
        ASSERT_FALSE(seen) << r.what;
        EXPECT_EQ(word(seen.error().code), word(r.code)) << r.what << ": " << seen.error().context;
    }
    const std::string whole = index_case{}.text();
    for (std::size_t size = 0; size < whole.size(); ++size) EXPECT_FALSE(parse(whole.substr(0, size))) << size;
}

}  // namespace
