// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <gtest/gtest.h>

#include "adapters/formats/tokenizer.hpp"
#include "darlcore/random.hpp"
#include "tests/formats/temp_folder.hpp"

// Damaged SentencePiece models: what becomes of them.
namespace darlcore::testing {

/// One to four edits: cut short, a bit or a byte changed, long numbers put in, a stretch doubled, removed or zeroed.
inline std::string damaged(std::string model, xoshiro256& random) {
    for (std::uint64_t edits = 1 + random.below(4); edits > 0 && model.size() > 8; --edits) {
        const auto at = static_cast<std::size_t>(1 + random.below(model.size() - 1));
        const auto length = static_cast<std::size_t>(1 + random.below(64));
        switch (random.below(7)) {
            case 0:
                model.resize(at);
                break;
            case 1:
                model[at] = static_cast<char>(model[at] ^ (1 << random.below(8)));
                break;
            case 2:
                model[at] = static_cast<char>(random.below(256));
                break;
            case 3:
                model.insert(at, "\xff\xff\xff\xff\x0f");
                break;
            case 4:
                model.insert(at, model.substr(at, length));
                break;
            case 5:
                model.erase(at, length);
                break;
            default:
                model.replace(at, std::min(length, model.size() - at), length, '\0');
                break;
        }
    }
    return model;
}

/// Opens so many damaged forms of a model and encodes and decodes with those that open: an error that names the file,
/// or answers, never the end of this process. Gives how many were refused.
inline int refused_of_damaged(const std::string& model, int runs, std::uint64_t seed) {
    const temp_folder temp;
    const std::string path = temp.file("bad.model");
    const std::string text = "some text, \xef\xbc\xa1\xef\xac\x81 \xe3\x80\x80 e\xcc\x81 2026";
    xoshiro256 random(seed);
    int refused = 0;
    for (int run = 0; run < runs; ++run) {
        write_text(path, damaged(model, random));
        const auto t = formats::open_tokenizer(path);
        if (!t) {
            ++refused;
            EXPECT_EQ(t.error().context.find(path + ": "), 0U) << run << ": " << t.error().context;
            continue;
        }
        std::vector<std::uint32_t> ids;
        if ((*t)->encode(text, ids)) (void)(*t)->decode(ids);
    }
    return refused;
}

}  // namespace darlcore::testing
