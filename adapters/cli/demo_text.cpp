// SPDX-License-Identifier: Apache-2.0
#include "adapters/cli/demo_text.hpp"

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <zlib.h>

namespace darl {
namespace {

using darlcore::errc;
using darlcore::fail;
using darlcore::result;

constexpr std::size_t inflated_bytes_max = std::size_t{64} << 20U;
constexpr std::uint32_t type_string_vector = 16;
constexpr std::uint32_t type_string = 9;

/// Reads big-endian 32-bit words and byte runs; `ok` turns false at the first read past the end.
struct xdr_reader {
    std::string_view rest;
    bool ok = true;

    std::string_view bytes(std::size_t n) {
        if (n > rest.size()) {
            ok = false;
            return {};
        }
        const auto taken = rest.substr(0, n);
        rest.remove_prefix(n);
        return taken;
    }
    std::uint32_t word() {
        const auto b = bytes(4);
        std::uint32_t value = 0;
        for (const char c : b) value = (value << 8U) | static_cast<unsigned char>(c);
        return value;
    }
};

result<std::string> inflate_entry(std::string_view& file, std::size_t entry) {
    xdr_reader head{file};
    const std::size_t size = head.word();
    if (!head.ok) return fail(errc::corrupt, fmt::format("entry {} of the R file is cut short", entry));
    if (size > inflated_bytes_max)
        return fail(errc::too_large, fmt::format("entry {} of the R file inflates to {} bytes", entry, size));
    std::string out(size, '\0');
    z_stream stream{};
    if (inflateInit(&stream) != Z_OK) return fail(errc::out_of_memory, "zlib could not start");
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(head.rest.data()));
    stream.avail_in = static_cast<uInt>(head.rest.size());
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    const int code = inflate(&stream, Z_FINISH);
    const std::size_t used = stream.total_in;
    const bool complete = code == Z_STREAM_END && stream.total_out == size;
    inflateEnd(&stream);
    if (!complete) return fail(errc::corrupt, fmt::format("entry {} of the R file does not inflate", entry));
    file = head.rest.substr(used);
    return out;
}

// A character vector, or nothing when the entry is another kind of object.
result<std::string> text_of(std::string_view entry, std::size_t number) {
    xdr_reader in{entry};
    const auto broken = [&] {
        return fail(errc::corrupt, fmt::format("entry {} of the R file is not a serialised object", number));
    };
    if (in.bytes(2) != "X\n") return broken();
    const std::uint32_t version = in.word();
    in.bytes(8);
    if (version == 3) in.bytes(in.word());  // name of the native encoding
    if (!in.ok || (version != 2 && version != 3)) return broken();
    if ((in.word() & 0xffU) != type_string_vector) return std::string();
    const std::uint32_t lines = in.word();
    std::string text;
    for (std::uint32_t i = 0; i < lines && in.ok; ++i) {
        if ((in.word() & 0xffU) != type_string) return broken();
        const std::uint32_t length = in.word();
        if (length != 0xffffffffU) text.append(in.bytes(length));  // all ones: a missing value
        text += '\n';
    }
    if (!in.ok) return broken();
    return text;
}

}  // namespace

result<std::vector<std::string>> read_r_documents(std::string_view file) {
    std::vector<std::string> documents;
    for (std::size_t entry = 0; !file.empty(); ++entry) {
        const auto inflated = inflate_entry(file, entry);
        if (!inflated) return inflated.error();
        auto text = text_of(*inflated, entry);
        if (!text) return text.error();
        if (!text->empty()) documents.push_back(*std::move(text));
    }
    return documents;
}

result<std::vector<std::string>> demo_novels() {
    const char* data_home = std::getenv("XDG_DATA_HOME");
    const char* home = std::getenv("HOME");
    std::filesystem::path folder = data_home != nullptr && *data_home != '\0'
                                       ? std::filesystem::path(data_home)
                                       : std::filesystem::path(home != nullptr ? home : ".") / ".local/share";
    const auto path = folder / "darlcore/corpus/janeaustenr.rdb";
    std::ifstream in(path, std::ios::binary);
    if (!in)
        return fail(errc::not_found,
                    fmt::format("{}: not there; 'make setup' unpacks the text, or give your own with --text FILE",
                                path.string()));
    const std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    auto documents = read_r_documents(bytes);
    if (!documents)
        return fail(documents.error().code, fmt::format("{}: {}", path.string(), documents.error().context));
    return documents;
}

}  // namespace darl
