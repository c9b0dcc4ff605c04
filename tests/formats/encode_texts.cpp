// SPDX-License-Identifier: Apache-2.0
// encode_texts TOKENIZER FILE: ids and decoded text of every string of the JSON list in FILE, as JSON on stdout.
#include <cstdio>
#include <cstdlib>

#include "adapters/formats/json.hpp"
#include "adapters/formats/posix_file.hpp"
#include "adapters/formats/tokenizer.hpp"
#include "adapters/formats/utf8.hpp"

int main(int count, char** arguments) {
    using namespace darlcore;
    if (count != 3) return 2;
    const auto t = formats::open_tokenizer(arguments[1]);
    if (!t) {
        std::fprintf(stderr, "%s\n", t.error().context.c_str());
        return 2;
    }
    const auto text = formats::read_text_file(arguments[2], std::uint64_t{1} << 30U).value();
    const auto document = json::parse(text, json::limits{std::size_t{1} << 30U, 4}).value();
    json::value ids_of_texts{json::array{}};
    json::value texts{json::array{}};
    for (const json::value& one : *document.as_array()) {
        std::vector<std::uint32_t> ids;
        (*t)->encode(*one.as_string(), ids).value();
        json::array list;
        for (const std::uint32_t id : ids) list.emplace_back(id);
        ids_of_texts.push_back(std::move(list));
        std::uint64_t replaced = 0;
        texts.push_back(formats::replace_invalid_utf8((*t)->decode(ids).value(), replaced));
    }
    std::puts(json::dump(json::make_object({{"ids", ids_of_texts}, {"texts", texts}})).c_str());
    return EXIT_SUCCESS;
}
