// SPDX-License-Identifier: Apache-2.0
// The fuzz target's promises under random edits of every vector: a value of the document replaced by one that nobody
// meant. Runs everywhere, without a fuzzing compiler.
#include <cstdint>
#include <string>
#include <vector>

#include "darlcore/random.hpp"
#include "darlcore/testing/budget.hpp"
#include "tests/plan/vector_support.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using plan_test::json::value;
namespace json = plan_test::json;

value odd_value(darlcore::xoshiro256& draw) {
    const value all[] = {value(),
                         value(0),
                         value(-1),
                         value(1),
                         value(-0.5),
                         value(1e308),
                         value(5e-324),
                         value(true),
                         value("soon"),
                         value(""),
                         value(86400),
                         value(4294967296),
                         value(1000000),
                         value(0.3333),
                         value(json::array{}),
                         value(json::object{}),
                         value(UINT64_MAX)};
    return all[draw.below(std::size(all))];
}

// Replaces (or takes out, or doubles) one value somewhere below `at`.
void edit(value& at, darlcore::xoshiro256& draw, int depth = 0) {
    const bool here = depth > 0 && draw.below(4) == 0;
    if (json::object* members = at.as_object(); members != nullptr && !members->empty() && !here) {
        auto& [name, member] = (*members)[draw.below(members->size())];
        if (draw.below(12) == 0)
            members->erase(members->begin() + static_cast<std::ptrdiff_t>(draw.below(members->size())));
        else
            edit(member, draw, depth + 1);
    } else if (json::array* items = at.as_array(); items != nullptr && !items->empty() && !here) {
        const std::size_t i = draw.below(items->size());
        if (draw.below(12) == 0)
            items->push_back((*items)[i]);
        else
            edit((*items)[i], draw, depth + 1);
    } else {
        at = odd_value(draw);
    }
}

TEST(plan_input, no_edit_of_a_known_input_breaks_a_promise) {
    std::vector<std::pair<char, value>> known;
    for (const auto& c : *plan_test::planner().at("waterfill").at("cases").as_array()) known.emplace_back('w', c);
    for (const auto& c : *plan_test::planner().at("simulate").as_array()) {
        value whole = json::object{};
        for (const auto& [name, member] : *c.as_object())
            if (name.rfind("expect", 0) != 0) whole.set(name, member);
        whole.set("calibration", plan_test::planner().at("calibration"));
        known.emplace_back('c', whole);
    }
    darlcore::xoshiro256 draw(2024);
    for (int run = 0; run < darlcore::testing::property_runs(20000); ++run) {
        auto [kind, document] = known[draw.below(known.size())];
        for (std::uint64_t edits = 1 + draw.below(3); edits > 0; --edits) edit(document, draw);
        const std::string text = kind + json::dump(document);
        SCOPED_TRACE(text.substr(0, 2000));
        LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
    }
}

}  // namespace
