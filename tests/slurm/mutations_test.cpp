// SPDX-License-Identifier: Apache-2.0
// The fuzz target's promises under random edits of every known text; runs everywhere, without a fuzzing compiler.
#include <cstdint>
#include <string>
#include <vector>

#include "darlcore/random.hpp"
#include "darlcore/testing/budget.hpp"
#include "tests/plan/vector_support.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

std::vector<std::string> texts() {
    std::vector<std::string> made;
    const auto vectors = plan_test::read_vectors("slurm_cases.json");
    for (const auto& c : *vectors.at("cases").as_array()) {
        std::string text;
        if (c.contains("input") && c.at("input").is_string()) text = *c.at("input").as_string();
        if (const auto* argv = c.find("argv"))
            for (const auto& a : *argv->as_array()) text += *a.as_string() + "\n";
        made.push_back(text);
    }
    return made;
}

TEST(slurm_text, no_edit_of_a_known_text_breaks_a_promise) {
    const auto known = texts();
    darlcore::xoshiro256 draw(99);
    const std::string pieces[] = {"Job 5 to start at ",  "\n",      "|",     "9999999999", "-", ":",
                                  "2026-08-04T13:00:00", " using ", "\x1b[", ","};
    for (int run = 0; run < darlcore::testing::property_runs(200000); ++run) {
        std::string text(1, static_cast<char>(draw.below(65)));
        text += known[draw.below(known.size())];
        for (std::uint64_t edits = draw.below(6); edits > 0 && text.size() > 1; --edits) {
            const std::size_t at = 1 + draw.below(text.size() - 1);
            switch (draw.below(5)) {
                case 0:
                    text[at] = static_cast<char>(draw.below(256));
                    break;
                case 1:
                    text.erase(at, 1 + draw.below(8));
                    break;
                case 2:
                    text.insert(at, pieces[draw.below(std::size(pieces))]);
                    break;
                case 3:
                    text += text.substr(at, draw.below(40));
                    break;
                default:
                    text.insert(at, std::to_string(draw.below(UINT64_MAX)));
                    break;
            }
        }
        LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
    }
}

}  // namespace
