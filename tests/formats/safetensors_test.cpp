// SPDX-License-Identifier: Apache-2.0
#include "adapters/formats/safetensors.hpp"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/formats/bad_headers.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::formats;
using namespace darlcore::testing;  // the table of malformed headers

class folder {
public:
    folder() {
        std::string pattern = ::testing::TempDir() + "darl-safetensors-XXXXXX";
        path_ = ::mkdtemp(pattern.data());
    }
    ~folder() { std::filesystem::remove_all(path_); }
    [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }

private:
    std::string path_;
};

std::string read_text(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

void write_text(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
}

TEST(safetensors_header, each_malformed_header_is_refused_with_its_reason) {
    ASSERT_GE(bad_headers().size(), 60U);
    for (const bad_header& bad : bad_headers()) {
        const auto header = parse_safetensors_header(bad.json, bad.data_bytes);
        ASSERT_FALSE(header) << bad.about;
        EXPECT_EQ(header.error().code, bad.code) << bad.about << ": " << header.error().context;
        EXPECT_NE(header.error().context.find(bad.reason), std::string::npos)
            << bad.about << ": " << header.error().context;
    }
}

TEST(safetensors_header, the_table_starts_from_headers_that_are_accepted) {
    EXPECT_TRUE(parse_safetensors_header("{" + a4 + "}", 4));
    EXPECT_TRUE(parse_safetensors_header("{}", 0));
    EXPECT_TRUE(parse_safetensors_header("{}      ", 0));
    EXPECT_TRUE(parse_safetensors_header(
        R"({"__metadata__":{"k":"1"},"s":{"dtype":"F64","shape":[],"data_offsets":[0,8]}})", 8));
    const auto empties = parse_safetensors_header(R"({"z":{"dtype":"F32","shape":[0],"data_offsets":[4,4]},)" + a4 +
                                                      R"(,"y":{"dtype":"I8","shape":[3,0],"data_offsets":[0,0]}})",
                                                  4);
    ASSERT_TRUE(empties);
    ASSERT_EQ(empties->entries.size(), 3U);
    EXPECT_EQ(empties->entries[0].spec.name, "y");
    EXPECT_EQ(empties->entries[1].spec.name, "a");
    EXPECT_EQ(empties->entries[2].spec.name, "z");
}

TEST(safetensors_reader, each_malformed_file_is_refused_with_its_reason) {
    const folder dir;
    struct bad_file {
        std::string bytes;
        errc code;
        const char* reason;
    };
    const std::vector<bad_file> table{
        {"", errc::truncated, "has 0 bytes"},
        {"1234567", errc::truncated, "has 7 bytes"},
        {length_of(1), errc::truncated, "only 0 follow"},
        {length_of(3) + "{}", errc::truncated, "only 2 follow"},
        {length_of(100'000'001) + "{}", errc::too_large, "the limit is 100000000"},
        {length_of(~std::uint64_t{0}) + "{}", errc::too_large, "the limit is"},
        {length_of(0), errc::parse_error, "start with {"},
        {with_length("{}") + "x", errc::corrupt, "behind the last tensor"},
        {with_length("{" + a4 + "}") + "123", errc::corrupt, "beyond the end"},
    };
    for (const bad_file& bad : table) {
        const std::string path = dir.file("bad");
        write_text(path, bad.bytes);
        const auto reader = safetensors_reader::open(path);
        ASSERT_FALSE(reader) << bad.reason;
        EXPECT_EQ(reader.error().code, bad.code) << reader.error().context;
        EXPECT_NE(reader.error().context.find(bad.reason), std::string::npos) << reader.error().context;
        EXPECT_NE(reader.error().context.find(path), std::string::npos) << "names the file";
    }
    EXPECT_EQ(safetensors_reader::open(dir.file("absent")).error().code, errc::not_found);
    EXPECT_EQ(safetensors_reader::open(dir.file("")).error().code, errc::io_error);
    write_text(dir.file("long"), with_length("{}              "));
    EXPECT_EQ(safetensors_reader::open(dir.file("long"), 8).error().code, errc::too_large);
}

TEST(safetensors_reader, each_malformed_header_is_refused_with_file_reason_and_fix) {
    const folder dir;
    for (const bad_header& bad : bad_headers()) {
        write_text(dir.file("bad"), file_of(bad));
        const auto reader = safetensors_reader::open(dir.file("bad"));
        ASSERT_FALSE(reader) << bad.about;
        EXPECT_EQ(reader.error().code, bad.code) << bad.about;
        for (const std::string& named :
             {dir.file("bad") + ": ", std::string(bad.reason), std::string("copy the file again")})
            EXPECT_NE(reader.error().context.find(named), std::string::npos)
                << bad.about << ": " << reader.error().context;
    }
}

TEST(safetensors_reader, a_file_cut_short_after_opening_is_an_error_that_names_the_offset) {
    const folder dir;
    const std::string path = dir.file("cut");
    write_text(path, with_length("{" + a4 + "}") + "1234");
    const auto reader = safetensors_reader::open(path);
    ASSERT_TRUE(reader);
    std::filesystem::resize_file(path, reader->data_begin() + 2);
    std::array<std::byte, 4> out{};
    const auto read = reader->read_all(reader->header().entries.front(), out);
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().code, errc::short_read);
    EXPECT_NE(read.error().context.find(std::to_string(reader->data_begin() + 2)), std::string::npos);
}

TEST(safetensors_writer, without_finish_nothing_stays_behind) {
    const folder dir;
    const std::vector<tensor_spec> specs{{"a", dtype::u8, {2}}};
    const std::array<std::byte, 1> half{};
    {
        auto writer = safetensors_writer::create(dir.file("x"), specs, {});
        ASSERT_TRUE(writer && writer->write(half));
        EXPECT_TRUE(std::filesystem::exists(dir.file("x")));
    }
    EXPECT_FALSE(std::filesystem::exists(dir.file("x")));
    auto writer = safetensors_writer::create(dir.file("x"), specs, {});
    ASSERT_TRUE(writer && writer->write(half));
    EXPECT_EQ(writer->finish().error().code, errc::truncated);
    EXPECT_FALSE(std::filesystem::exists(dir.file("x")));
}

TEST(safetensors_writer, an_existing_file_is_not_overwritten) {
    const folder dir;
    write_text(dir.file("x"), "precious");
    EXPECT_EQ(safetensors_writer::create(dir.file("x"), {}, {}).error().code, errc::already_exists);
    EXPECT_EQ(read_text(dir.file("x")), "precious");
}

TEST(safetensors_writer, a_name_that_cannot_be_written_is_refused) {
    const tensor_spec a{"a", dtype::f32, {1}};
    const std::vector<std::vector<tensor_spec>> bad{
        {a, a}, {{"", dtype::f32, {}}}, {{"__metadata__", dtype::f32, {}}}, {{"\xff", dtype::f32, {}}}};
    for (const auto& specs : bad) EXPECT_EQ(build_safetensors_header(specs, {}).error().code, errc::invalid_argument);
    const std::vector<tensor_spec> huge{{"a", dtype::u8, {1ULL << 62U}}, {"b", dtype::u8, {1ULL << 62U}}};
    EXPECT_EQ(build_safetensors_header(huge, {}).error().code, errc::overflow);
}

TEST(safetensors_writer, a_published_file_replaces_the_old_one_whole) {
    const folder dir;
    write_text(dir.file("model"), "old");
    const std::string staging = staging_name(dir.file("model"));
    EXPECT_NE(staging, staging_name(dir.file("model")));
    auto writer = safetensors_writer::create(staging, {}, {{"darl.site", "alpha"}});
    ASSERT_TRUE(writer && writer->finish());
    EXPECT_EQ(read_text(dir.file("model")), "old");
    ASSERT_TRUE(publish_file(staging, dir.file("model")));
    EXPECT_FALSE(std::filesystem::exists(staging));
    const auto reader = safetensors_reader::open(dir.file("model"));
    ASSERT_TRUE(reader);
    EXPECT_EQ(*reader->header().meta("darl.site"), "alpha");
    EXPECT_EQ(*reader->header().meta("format"), "pt");
}

// Any characters that JSON can carry, control characters and quotes among them.
rc::Gen<std::string> ascii_texts() {
    return rc::gen::container<std::string>(
        rc::gen::map(rc::gen::inRange(0, 128), [](int c) { return static_cast<char>(c); }));
}

std::vector<tensor_spec> arbitrary_tensors() {
    const auto shape =
        rc::gen::resize(4, rc::gen::container<std::vector<std::uint64_t>>(rc::gen::inRange<std::uint64_t>(0, 5)));
    const auto spec =
        rc::gen::construct<tensor_spec>(rc::gen::nonEmpty(ascii_texts()), rc::gen::elementOf(all_dtypes), shape);
    std::map<std::string, tensor_spec> unique;
    for (auto& one : *rc::gen::container<std::vector<tensor_spec>>(spec)) unique.emplace(one.name, one);
    std::vector<tensor_spec> out;
    for (auto& [name, one] : unique) out.push_back(one);
    return out;
}

RC_GTEST_PROP(safetensors_property, what_is_written_is_read_back, ()) {
    const folder dir;
    const auto specs = arbitrary_tensors();
    const auto value = *ascii_texts();
    auto writer = safetensors_writer::create(dir.file("m"), specs, {{"darl.site", value}});
    RC_ASSERT(static_cast<bool>(writer));
    RC_ASSERT(writer->header_text().size() % 8 == 0U);
    std::vector<std::byte> data(writer->data_bytes());
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 7 + 1);
    const std::size_t cut = data.size() / 3;
    RC_ASSERT(static_cast<bool>(writer->write(std::span(data).first(cut))));
    RC_ASSERT(static_cast<bool>(writer->write(std::span(data).subspan(cut))));
    RC_ASSERT(static_cast<bool>(writer->finish()));
    const auto reader = safetensors_reader::open(dir.file("m"));
    RC_ASSERT(static_cast<bool>(reader));
    RC_ASSERT(*reader->header().meta("darl.site") == value);
    RC_ASSERT(reader->header().entries.size() == specs.size());
    std::uint64_t offset = 0;
    for (const auto& spec : specs) {
        const auto* entry = reader->header().find(spec.name);
        RC_ASSERT(entry != nullptr && entry->spec == spec);
        RC_ASSERT(entry->begin_bytes == offset);
        std::vector<std::byte> back(entry->size_bytes());
        RC_ASSERT(static_cast<bool>(reader->read_all(*entry, back)));
        RC_ASSERT(std::equal(back.begin(), back.end(), data.begin() + static_cast<std::ptrdiff_t>(offset)));
        offset = entry->end_bytes;
    }
}

RC_GTEST_PROP(safetensors_property, a_header_with_one_byte_changed_is_read_or_refused_but_never_misread, ()) {
    auto header =
        *build_safetensors_header(std::vector<tensor_spec>{{"a", dtype::f32, {2, 2}}, {"b", dtype::bf16, {3}}}, {});
    const auto at = *rc::gen::inRange<std::size_t>(8, header.size());
    header[at] = *rc::gen::arbitrary<char>();
    const auto read = parse_safetensors_header(std::string_view(header).substr(8), 22);
    if (!read) return;
    std::uint64_t expected = 0;
    for (const auto& entry : read->entries) {
        RC_ASSERT(entry.begin_bytes == expected);
        RC_ASSERT(*byte_count(*element_count(entry.spec.shape), entry.spec.dtype) == entry.size_bytes());
        expected = entry.end_bytes;
    }
    RC_ASSERT(expected == 22U);
}

}  // namespace
