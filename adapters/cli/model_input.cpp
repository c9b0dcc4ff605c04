// SPDX-License-Identifier: Apache-2.0
#include "adapters/cli/model_input.hpp"

#include <filesystem>

#include <fmt/format.h>

#include "adapters/formats/json.hpp"
#include "adapters/formats/posix_file.hpp"

namespace darl {

using namespace darlcore;

namespace {

result<std::vector<std::int64_t>> ids_of(const json::value& list, const std::string& path) {
    std::vector<std::int64_t> ids;
    const json::array* all = list.as_array();
    if (all == nullptr) return fail(errc::invalid_argument, fmt::format("{}: must be a list of lists of ids", path));
    for (const json::value& one : *all) {
        const auto id = one.as_i64();
        if (!id) return fail(errc::invalid_argument, fmt::format("{}: an id is not an integer", path));
        ids.push_back(*id);
    }
    return ids;
}

}  // namespace

result<std::vector<std::vector<std::int64_t>>> read_id_lists(const std::string& path) {
    auto text = formats::read_text_file(path, std::uint64_t{1} << 28U);
    if (!text) return text.error();
    const auto document = json::parse(*text, json::limits{std::size_t{1} << 28U, 8});
    if (!document) return fail(document.error().code, fmt::format("{}: {}", path, document.error().context));
    const json::array* rows = document->as_array();
    if (rows == nullptr || rows->empty())
        return fail(errc::invalid_argument, fmt::format("{}: must be a list of lists of ids", path));
    std::vector<std::vector<std::int64_t>> out;
    const bool single = rows->front().is_number();
    for (std::size_t i = 0; i < (single ? 1 : rows->size()); ++i) {
        auto ids = ids_of(single ? *document : (*rows)[i], path);
        if (!ids) return ids.error();
        out.push_back(std::move(*ids));
    }
    return out;
}

result<std::unique_ptr<formats::tokenizer>> tokenizer_of(const std::string& folder, const std::string& named,
                                                         std::int64_t vocab_size) {
    if (!named.empty()) return formats::open_tokenizer(named);
    const std::string beside = folder + "/tokenizer.json";
    std::error_code ec;
    if (std::filesystem::exists(beside, ec)) return formats::open_tokenizer(beside);
    auto bytes = formats::make_bytes_tokenizer();
    if (static_cast<std::uint64_t>(vocab_size) == bytes->vocab_size()) return bytes;
    return fail(errc::not_found, fmt::format("{}: has no tokenizer.json; name one with --tokenizer", folder));
}

}  // namespace darl
